// Package gateway models the Kubernetes Gateway API: Gateway, TCPRoute, TLSRoute
// and ReferenceGrant as resources, kept as they were written, their documents,
// faults and status, and the listeners and destinations compiled from them.
//
//	kinds := append(resource.RoutingKinds(), gateway.Kinds()...)
//	objects, faults := codec.DecodeForeign("edge.yaml", data, kinds, formats.All())
//
//	model, changed := new(gateway.Model).With(changes)
//	status := gateway.NewStatuses(set, nil).Status(&object, version, since)
//
// The package is pure: it opens nothing, and its results depend on the objects
// alone. Package routing adds them to the listeners and services that users
// write themselves; see Model.
//
// Gateway API objects have namespaces, Penstock's resources do not. An object of
// the namespace "default" has its plain name here, and an object of another one
// is called NAMESPACE.NAME. This includes the Services and Certificates that it
// refers to: a backendRef {name: apps} of a route in the namespace shop is
// Penstock's Service shop.apps. A reference into another namespace requires a
// ReferenceGrant there, as everywhere.
//
// Of two routes for one server name, the one with the more specific hostname
// wins, then the older one, then the first by namespace and name. The age is the
// creationTimestamp: the document's, or the one that the leader adds when it
// creates a route without any, so that all nodes decide alike. A route without
// one, as in check, which has no leader, counts as younger than all others.
//
// The field comments are the users' manual, as in package resource.
package gateway

import (
	"strings"
	"time"

	"penstock/routing/resource"
)

// Group is the API group of the Gateway API.
const Group = "gateway.networking.k8s.io"

// Kinds of this package, and the kinds of others that they refer to.
const (
	KindGateway  = "Gateway"
	KindTCPRoute = "TCPRoute"
	KindTLSRoute = "TLSRoute"
	KindGrant    = "ReferenceGrant"

	kindService     = "Service"
	kindCertificate = "Certificate"
	kindSecret      = "Secret"
)

// Kinds returns the kinds of this package.
func Kinds() []resource.Kind {
	return []resource.Kind{
		{Name: KindGateway, Plural: "gateways", New: func() resource.Spec { return new(Gateway) }, Status: true},
		{Name: KindTCPRoute, Plural: "tcproutes", New: func() resource.Spec { return new(TCPRoute) }, Status: true},
		{Name: KindTLSRoute, Plural: "tlsroutes", New: func() resource.Spec { return new(TLSRoute) }, Status: true},
		{Name: KindGrant, Plural: "referencegrants", New: func() resource.Spec { return new(ReferenceGrant) }},
	}
}

// IsKind reports whether kind is one of this package.
func IsKind(kind string) bool {
	return kind == KindGateway || kind == KindTCPRoute || kind == KindTLSRoute || kind == KindGrant
}

// Gateway accepts connections at one or more listeners (the Gateway API's object
// of that name).
type Gateway struct {
	// Origin is what the document has beside its spec.
	Origin Origin `yaml:"origin"`
	// GatewayClassName is kept and has no effect: Penstock serves every Gateway
	// that is applied to it. Required.
	GatewayClassName string `yaml:"gatewayClassName"`
	// Listeners accept connections, 1 to 64.
	Listeners []Listener `yaml:"listeners"`
	// Addresses are the IP addresses to listen at. Default: the node's --bind.
	// At most 16.
	Addresses []Address `yaml:"addresses"`
}

// Origin is what a document of the Gateway API has beside its spec.
type Origin struct {
	// APIVersion is the version of the document, such as v1; the object is
	// exported in it. Default v1.
	APIVersion string `yaml:"apiVersion"`
	// Namespace is the namespace of the object. The name of the resource begins
	// with it and a dot, except in the default one. Default default.
	Namespace string `yaml:"namespace" default:"default"`
	// CreationTimestamp is when the object was created (RFC 3339). Default: for a
	// route when it is first applied, for others none.
	CreationTimestamp string `yaml:"creationTimestamp"`
}

// Listener is one listener of a Gateway. Listeners of one port with protocol TLS
// share its socket, each with a hostname of its own.
type Listener struct {
	// Name distinguishes it from the other listeners of the Gateway. Required.
	Name string `yaml:"name"`
	// Hostname is the server name that it accepts, exact or a wildcard
	// ("*.example.com": one or more labels). Default: every name. Only with
	// protocol TLS.
	Hostname string `yaml:"hostname"`
	// Port is from 1 to 65535. Required.
	Port int `yaml:"port" range:"1..65535"`
	// Protocol is TLS or TCP; a listener with another protocol is kept but not
	// accepted, and does not listen. Required.
	Protocol string `yaml:"protocol"`
	// Security configures TLS. Required for protocol TLS.
	Security *TLS `yaml:"tls"`
	// AllowedRoutes limits the routes that may attach. Default: the routes of the
	// Gateway's namespace.
	AllowedRoutes *AllowedRoutes `yaml:"allowedRoutes"`
}

// TLS configures TLS on a listener. Listeners of one port must have the same mode.
type TLS struct {
	// Mode is Passthrough or Terminate. Default Terminate.
	Mode string `yaml:"mode" default:"Terminate" oneof:"Passthrough Terminate"`
	// CertificateRefs name the Certificates to present, at most 64. Required for Terminate.
	CertificateRefs []CertificateRef `yaml:"certificateRefs"`
}

// CertificateRef names a Certificate, in place of Kubernetes' Secret.
type CertificateRef struct {
	// Group is the group of the kind, empty for a Secret.
	Group string `yaml:"group"`
	// Kind is Secret, or Certificate with the same meaning. Default Secret.
	Kind string `yaml:"kind" default:"Secret"`
	// Namespace is the Certificate's. Default the Gateway's.
	Namespace string `yaml:"namespace"`
	// Name is the Certificate. Required.
	Name string `yaml:"name"`
}

// AllowedRoutes limits the routes that may attach to a listener.
type AllowedRoutes struct {
	// Namespaces limits their namespaces.
	Namespaces *RouteNamespaces `yaml:"namespaces"`
	// Kinds limits their kinds, at most 8. Default all that fit the protocol.
	Kinds []RouteKind `yaml:"kinds"`
}

// RouteNamespaces selects the namespaces whose routes may attach.
type RouteNamespaces struct {
	// From is All, Same, Selector or None. Default Same.
	From string `yaml:"from" default:"Same" oneof:"All Same Selector None"`
	// Labels selects namespaces by their labels. The only label of a namespace is
	// kubernetes.io/metadata.name, its name. Required for Selector.
	Labels *Selector `yaml:"selector"`
}

// Selector selects objects that meet all of its conditions on labels.
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
	// Values are the values for In and NotIn, which require some.
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
	// Type is IPAddress; a Gateway with an address of another type is not
	// accepted. Default IPAddress.
	Type string `yaml:"type" default:"IPAddress"`
	// Value is the IP address. Required.
	Value string `yaml:"value"`
}

// TLSRoute routes connections by the server name that clients send (the Gateway
// API's object of that name).
type TLSRoute struct {
	// Origin is what the document has beside its spec.
	Origin Origin `yaml:"origin"`
	// ParentRefs are the Gateways, or listeners of them, that the route attaches
	// to. At most 32.
	ParentRefs []ParentRef `yaml:"parentRefs"`
	// Hostnames are server names, exact or wildcards, at most 1,024. A hostname
	// without a name in common with a listener's has no effect there. Default:
	// every name that the listener accepts.
	Hostnames []string `yaml:"hostnames"`
	// Rules holds exactly one rule.
	Rules []Rule `yaml:"rules"`
}

// TCPRoute routes all connections of a listener (the Gateway API's object of
// that name).
type TCPRoute struct {
	// Origin is what the document has beside its spec.
	Origin Origin `yaml:"origin"`
	// ParentRefs are the Gateways, or listeners of them, that the route attaches
	// to. At most 32.
	ParentRefs []ParentRef `yaml:"parentRefs"`
	// Rules holds exactly one rule.
	Rules []Rule `yaml:"rules"`
}

// ParentRef names a Gateway, or some of its listeners.
type ParentRef struct {
	// Group is the group of the kind. Default gateway.networking.k8s.io.
	Group *string `yaml:"group"`
	// Kind is Gateway; a route attaches to no other kind. Default Gateway.
	Kind string `yaml:"kind" default:"Gateway"`
	// Namespace is the Gateway's. Default the route's.
	Namespace string `yaml:"namespace"`
	// Name is the Gateway. Required.
	Name string `yaml:"name"`
	// SectionName is the name of a listener. Default all.
	SectionName string `yaml:"sectionName"`
	// Port selects listeners by their port, 1..65535. Default all.
	Port int `yaml:"port" range:"1..65535"`
}

// Rule distributes connections over backends.
type Rule struct {
	// Name is for people.
	Name string `yaml:"name"`
	// BackendRefs share the connections by weight, 1 to 16. A backend that cannot
	// be resolved keeps its share, and those connections are closed.
	BackendRefs []BackendRef `yaml:"backendRefs"`
}

// BackendRef is one backend, a Service.
type BackendRef struct {
	// Group is the group of the kind, empty for a Service.
	Group string `yaml:"group"`
	// Kind is Service. Default Service.
	Kind string `yaml:"kind" default:"Service"`
	// Namespace is the Service's. Default the route's.
	Namespace string `yaml:"namespace"`
	// Name is the Service. Required.
	Name string `yaml:"name"`
	// Port is kept and has no effect, 1..65535: the endpoints of a Service have
	// ports of their own.
	Port int `yaml:"port" range:"1..65535"`
	// Weight is the share among the backends. Default 1, 0..1,000,000; with 0 the
	// backend gets nothing.
	Weight *int `yaml:"weight" default:"1" range:"0..1000000"`
}

// ReferenceGrant allows objects of other namespaces to refer to objects of its
// own (the Gateway API's object of that name).
type ReferenceGrant struct {
	// Origin is what the document has beside its spec.
	Origin Origin `yaml:"origin"`
	// From selects the objects that may refer, 1 to 16.
	From []GrantFrom `yaml:"from"`
	// To selects the objects that they may refer to, 1 to 16.
	To []GrantTo `yaml:"to"`
}

// GrantFrom selects objects that may refer to others.
type GrantFrom struct {
	// Group is gateway.networking.k8s.io. Required.
	Group string `yaml:"group"`
	// Kind is Gateway, TCPRoute or TLSRoute; other kinds refer to nothing. Required.
	Kind string `yaml:"kind"`
	// Namespace is the namespace of these objects. Required.
	Namespace string `yaml:"namespace"`
}

// GrantTo selects objects that may be referred to.
type GrantTo struct {
	// Group is the group of the kind, empty for a Service and a Secret.
	Group string `yaml:"group"`
	// Kind is Service or Secret; other kinds are not referred to. Required.
	Kind string `yaml:"kind"`
	// Name limits the grant to one object. Default all.
	Name string `yaml:"name"`
}

// defaultNamespace is the namespace of objects that name none.
const defaultNamespace = "default"

func (o *Origin) namespace() string {
	if o.Namespace == "" {
		return defaultNamespace
	}
	return o.Namespace
}

// Version returns the version of the API that the object is exported in.
func (o *Origin) Version() string {
	if o.APIVersion == "" {
		return "v1"
	}
	return o.APIVersion
}

// created returns when the object was created; zero if it does not say.
func (o *Origin) created() time.Time {
	at, err := time.Parse(time.RFC3339, o.CreationTimestamp)
	if err != nil {
		return time.Time{} // reported by Validate
	}
	return at
}

// NameOf returns the resource name of an object in a namespace.
func NameOf(namespace, name string) string {
	if namespace == "" || namespace == defaultNamespace {
		return name
	}
	return namespace + "." + name
}

// OwnName returns the name that a resource has in its namespace.
func (o *Origin) OwnName(name string) string {
	if ns := o.namespace(); ns != defaultNamespace {
		return strings.TrimPrefix(name, ns+".")
	}
	return name
}

// OriginOf returns the origin of an object of these kinds; nil for other kinds.
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
