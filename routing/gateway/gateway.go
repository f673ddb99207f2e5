// Package gateway is what users bring of the Kubernetes Gateway API, and what
// that means: Gateway, TCPRoute, TLSRoute and ReferenceGrant as resources, kept
// as they were written, their faults, and the listeners and destinations that
// come of them.
//
//	kinds := append(resource.RoutingKinds(), gateway.Kinds()...)
//	objects, faults := resource.DecodeForeign("edge.yaml", data, kinds, formats.All())
//
//	model, changed := new(gateway.Model).With(changes)
//	status := gateway.NewStatuses(set).Of(object)
//
// It is pure: it opens nothing, and what it makes it makes of the objects
// alone. Package routing puts what comes of it beside the listeners and
// services that users write themselves; see Model.
//
// Objects of the Gateway API live in namespaces, Penstock's do not. What is in
// the namespace "default" has its plain name here, and what is in another one
// is called NAMESPACE.NAME, Services and Certificates that are referred to
// included: a backendRef {name: apps} of a route in the namespace shop is
// Penstock's Service shop.apps. A reference into another namespace wants a
// ReferenceGrant there, as everywhere.
//
// What decides between two routes for one server name is which of their
// hostnames is more exact, then their age, and then namespace and name. Age is
// the creationTimestamp: the document's, or what the leader writes when it
// creates a route that brings none, so that all nodes decide alike. Where there
// is none, as for check, which knows of no leader, the route is younger than all
// that have one.
//
// The field comments are the users' manual, as in package resource.
package gateway

import (
	"strings"
	"time"

	"penstock/routing/resource"
)

// Group is that of the Gateway API's objects.
const Group = "gateway.networking.k8s.io"

// The kinds of this package, and those of others that it speaks of.
const (
	KindGateway  = "Gateway"
	KindTCPRoute = "TCPRoute"
	KindTLSRoute = "TLSRoute"
	KindGrant    = "ReferenceGrant"

	kindService     = "Service"
	kindCertificate = "Certificate"
	kindSecret      = "Secret"
)

// Kinds are the kinds of this package.
func Kinds() []resource.Kind {
	return []resource.Kind{
		{Name: KindGateway, Plural: "gateways", New: func() resource.Spec { return new(Gateway) }, Status: true},
		{Name: KindTCPRoute, Plural: "tcproutes", New: func() resource.Spec { return new(TCPRoute) }, Status: true},
		{Name: KindTLSRoute, Plural: "tlsroutes", New: func() resource.Spec { return new(TLSRoute) }, Status: true},
		{Name: KindGrant, Plural: "referencegrants", New: func() resource.Spec { return new(ReferenceGrant) }},
	}
}

// IsKind tells the kinds of this package.
func IsKind(kind string) bool {
	return kind == KindGateway || kind == KindTCPRoute || kind == KindTLSRoute || kind == KindGrant
}

// Gateway is a place where clients connect, of one or more listeners (the
// Gateway API's object of that name).
type Gateway struct {
	// Origin is what the document says beside its spec.
	Origin Origin `yaml:"origin"`
	// GatewayClassName is kept and decides nothing: whatever Gateway is applied
	// here is Penstock's. Required.
	GatewayClassName string `yaml:"gatewayClassName"`
	// Listeners are where clients connect, 1 to 64.
	Listeners []Listener `yaml:"listeners"`
	// Addresses are the IP addresses to listen at. Default: the node's --bind.
	// At most 16.
	Addresses []Address `yaml:"addresses"`
}

// Origin is what a document of the Gateway API says beside its spec.
type Origin struct {
	// APIVersion is the version that the document was of, such as v1, and is
	// given back in. Default v1.
	APIVersion string `yaml:"apiVersion"`
	// Namespace is where the object lives. The name of the resource begins with
	// it and a dot, unless it is the default. Default default.
	Namespace string `yaml:"namespace" default:"default"`
	// CreationTimestamp is how old the object is (RFC 3339). Default: of a route
	// when it is first applied, of others none.
	CreationTimestamp string `yaml:"creationTimestamp"`
}

// Listener is one listener of a Gateway. Those of one port and protocol TLS
// share its socket, each with a hostname of its own.
type Listener struct {
	// Name tells it from the others of the Gateway. Required.
	Name string `yaml:"name"`
	// Hostname is the server name that it is for, exact or a wildcard
	// ("*.example.com": one or more labels). Default: every name. Only with
	// protocol TLS.
	Hostname string `yaml:"hostname"`
	// Port is from 1 to 65535. Required.
	Port int `yaml:"port" range:"1..65535"`
	// Protocol is TLS or TCP; what has another one is kept, is not accepted and
	// listens nowhere. Required.
	Protocol string `yaml:"protocol"`
	// Security says what is done with TLS. Required for protocol TLS.
	Security *TLS `yaml:"tls"`
	// AllowedRoutes says which routes may attach. Default: those of its own
	// namespace.
	AllowedRoutes *AllowedRoutes `yaml:"allowedRoutes"`
}

// TLS is how a listener treats TLS. All listeners of one port treat it alike.
type TLS struct {
	// Mode is Passthrough or Terminate. Default Terminate.
	Mode string `yaml:"mode" default:"Terminate" oneof:"Passthrough Terminate"`
	// CertificateRefs name the Certificates to show, at most 64. Required for
	// Terminate.
	CertificateRefs []CertificateRef `yaml:"certificateRefs"`
}

// CertificateRef names a Certificate, in place of Kubernetes' Secret.
type CertificateRef struct {
	// Group is the group of the kind, empty for a Secret.
	Group string `yaml:"group"`
	// Kind is Secret. Default Secret.
	Kind string `yaml:"kind" default:"Secret"`
	// Namespace is where it is. Default that of the Gateway.
	Namespace string `yaml:"namespace"`
	// Name is the Certificate. Required.
	Name string `yaml:"name"`
}

// AllowedRoutes says which routes may attach to a listener.
type AllowedRoutes struct {
	// Namespaces says from where they may be.
	Namespaces *RouteNamespaces `yaml:"namespaces"`
	// Kinds are the kinds that they may be of, at most 8. Default all that the
	// protocol has.
	Kinds []RouteKind `yaml:"kinds"`
}

// RouteNamespaces says from which namespaces routes may attach.
type RouteNamespaces struct {
	// From is All, Same, Selector or None. Default Same.
	From string `yaml:"from" default:"Same" oneof:"All Same Selector None"`
	// Labels picks namespaces by their labels. A namespace has no other label
	// here than kubernetes.io/metadata.name, its name. Required for Selector.
	Labels *Selector `yaml:"selector"`
}

// Selector picks what has all of these labels.
type Selector struct {
	// MatchLabels are labels with the values that they must have.
	MatchLabels map[string]string `yaml:"matchLabels"`
	// MatchExpressions are further conditions.
	MatchExpressions []Expression `yaml:"matchExpressions"`
}

// Expression is a condition on one label.
type Expression struct {
	// Key is the label. Required.
	Key string `yaml:"key"`
	// Operator is In, NotIn, Exists or DoesNotExist. Required.
	Operator string `yaml:"operator" oneof:"In NotIn Exists DoesNotExist"`
	// Values are those of In and NotIn, which need some.
	Values []string `yaml:"values"`
}

// RouteKind is a kind of route.
type RouteKind struct {
	// Group is the group of the kind. Default gateway.networking.k8s.io.
	Group *string `yaml:"group"`
	// Kind is TLSRoute or TCPRoute; others never attach. Required.
	Kind string `yaml:"kind"`
}

// Address is an address of a Gateway.
type Address struct {
	// Type is IPAddress; a Gateway with another one is not accepted. Default
	// IPAddress.
	Type string `yaml:"type" default:"IPAddress"`
	// Value is the IP address. Required.
	Value string `yaml:"value"`
}

// TLSRoute leads connections by the server name that clients send (the Gateway
// API's object of that name).
type TLSRoute struct {
	// Origin is what the document says beside its spec.
	Origin Origin `yaml:"origin"`
	// ParentRefs are the Gateways, or listeners of them, that it attaches to.
	// At most 32.
	ParentRefs []ParentRef `yaml:"parentRefs"`
	// Hostnames are server names, exact or wildcards, at most 1,024. Those that
	// a listener's hostname has nothing in common with do not act there.
	// Default: every name that the listener is for.
	Hostnames []string `yaml:"hostnames"`
	// Rules holds exactly one rule.
	Rules []Rule `yaml:"rules"`
}

// TCPRoute leads all connections of a listener (the Gateway API's object of
// that name).
type TCPRoute struct {
	// Origin is what the document says beside its spec.
	Origin Origin `yaml:"origin"`
	// ParentRefs are the Gateways, or listeners of them, that it attaches to.
	// At most 32.
	ParentRefs []ParentRef `yaml:"parentRefs"`
	// Rules holds exactly one rule.
	Rules []Rule `yaml:"rules"`
}

// ParentRef names a Gateway, or some of its listeners.
type ParentRef struct {
	// Group is the group of the kind. Default gateway.networking.k8s.io.
	Group *string `yaml:"group"`
	// Kind is Gateway; to others a route does not attach. Default Gateway.
	Kind string `yaml:"kind" default:"Gateway"`
	// Namespace is where it is. Default that of the route.
	Namespace string `yaml:"namespace"`
	// Name is the Gateway. Required.
	Name string `yaml:"name"`
	// SectionName is the name of a listener. Default all.
	SectionName string `yaml:"sectionName"`
	// Port is that of listeners, 1..65535. Default all.
	Port int `yaml:"port" range:"1..65535"`
}

// Rule shares connections.
type Rule struct {
	// Name is for people.
	Name string `yaml:"name"`
	// BackendRefs share the connections by weight, 1 to 16. One that leads
	// nowhere keeps its share, and those connections are closed.
	BackendRefs []BackendRef `yaml:"backendRefs"`
}

// BackendRef is one backend, a Service.
type BackendRef struct {
	// Group is the group of the kind, empty for a Service.
	Group string `yaml:"group"`
	// Kind is Service. Default Service.
	Kind string `yaml:"kind" default:"Service"`
	// Namespace is where it is. Default that of the route.
	Namespace string `yaml:"namespace"`
	// Name is the Service. Required.
	Name string `yaml:"name"`
	// Port is kept and decides nothing, 1..65535: the endpoints of a Service
	// here have ports of their own.
	Port int `yaml:"port" range:"1..65535"`
	// Weight is the share among the backends. Default 1, 0..1,000,000; 0 gets
	// nothing.
	Weight *int `yaml:"weight" default:"1" range:"0..1000000"`
}

// ReferenceGrant lets objects of other namespaces refer to some of its own (the
// Gateway API's object of that name).
type ReferenceGrant struct {
	// Origin is what the document says beside its spec.
	Origin Origin `yaml:"origin"`
	// From are those who may refer, 1 to 16.
	From []GrantFrom `yaml:"from"`
	// To is what they may refer to, 1 to 16.
	To []GrantTo `yaml:"to"`
}

// GrantFrom are objects that may refer.
type GrantFrom struct {
	// Group is gateway.networking.k8s.io. Required.
	Group string `yaml:"group"`
	// Kind is Gateway, TCPRoute or TLSRoute; others refer to nothing here.
	// Required.
	Kind string `yaml:"kind"`
	// Namespace is where they are. Required.
	Namespace string `yaml:"namespace"`
}

// GrantTo is what may be referred to.
type GrantTo struct {
	// Group is the group of the kind, empty for a Service and a Secret.
	Group string `yaml:"group"`
	// Kind is Service or Secret; others are not referred to here. Required.
	Kind string `yaml:"kind"`
	// Name is the only one. Default all.
	Name string `yaml:"name"`
}

// defaultNamespace is where objects live that do not say it.
const defaultNamespace = "default"

func (o *Origin) namespace() string {
	if o.Namespace == "" {
		return defaultNamespace
	}
	return o.Namespace
}

// Version is the version of the API that the object is given back in.
func (o *Origin) Version() string {
	if o.APIVersion == "" {
		return "v1"
	}
	return o.APIVersion
}

// created is how old the object is; zero: it does not say.
func (o *Origin) created() time.Time {
	at, err := time.Parse(time.RFC3339, o.CreationTimestamp)
	if err != nil {
		return time.Time{} // told by Validate
	}
	return at
}

// NameOf is what an object of a namespace is called here.
func NameOf(namespace, name string) string {
	if namespace == "" || namespace == defaultNamespace {
		return name
	}
	return namespace + "." + name
}

// OwnName is what a resource is called in its namespace.
func (o *Origin) OwnName(name string) string {
	if ns := o.namespace(); ns != defaultNamespace {
		return strings.TrimPrefix(name, ns+".")
	}
	return name
}

// OriginOf gives the origin of an object of these kinds; nil: it is of another.
func OriginOf(spec resource.Spec) *Origin {
	switch s := spec.(type) {
	case *Gateway:
		return &s.Origin
	case *TCPRoute:
		return &s.Origin
	case *TLSRoute:
		return &s.Origin
	case *ReferenceGrant:
		return &s.Origin
	}
	return nil
}
