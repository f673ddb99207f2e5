package gateway

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"penstock/routing/hamt"
	"penstock/routing/resource"
)

// Model holds all objects of these kinds and the listeners compiled from them.
// It is immutable; the next one costs what a change touches: a Gateway with its
// routes. The zero Model is empty.
type Model struct {
	gateways        hamt.Map[*compiledGateway]
	routes          hamt.Map[*route] // by destination
	routesByGateway hamt.Groups[*route]
	grants          hamt.Map[*ReferenceGrant]
	// namespaces counts the objects of each namespace, except the default one.
	namespaces hamt.Map[int]
	// certificates are the Certificates that exist: a listener that terminates TLS
	// takes no connections without one.
	certificates hamt.Map[struct{}]
}

// compiledGateway is a Gateway with the listeners compiled from it.
type compiledGateway struct {
	spec      *Gateway
	listeners map[string]*resource.Listener
}

// Changed is the effect of a change.
type Changed struct {
	// Listeners are the listeners that are new or different, by name, which is
	// GATEWAY/PORT or GATEWAY/ADDRESS:PORT; nil: removed.
	Listeners map[string]*resource.Listener
	// Destinations are the targets of their hosts and services, by name, which is
	// KIND/NAME of a route; nil: removed.
	Destinations map[string]*Destination
}

// Destination distributes the connections of a route.
type Destination struct {
	Name     string
	Backends []Backend
}

// Backend is one backend of a destination.
type Backend struct {
	Service string
	Weight  int
	// Closed says why connections for it are closed even if the Service exists; ""
	// if they are not.
	Closed string
}

// IsListener reports whether a name belongs to a Gateway's listener rather than
// to a Listener that a user wrote.
func IsListener(name string) bool { return strings.Contains(name, "/") }

// With returns the model after some changes. It uses the changes of its kinds,
// and which Certificates exist.
func (m *Model) With(changes []resource.Change) (*Model, Changed) {
	if !slices.ContainsFunc(changes, func(c resource.Change) bool { return IsKind(c.Kind) || c.Kind == kindCertificate }) {
		return m, Changed{}
	}
	e := &edit{
		gateways: m.gateways.Edit(), routes: m.routes.Edit(), routesByGateway: m.routesByGateway.Edit(),
		grants: m.grants.Edit(), certificates: m.certificates.Edit(), namespaces: m.namespaces.Edit(),
		touched: map[string]bool{}, rerouted: map[string]bool{}, changedCertificates: map[string]bool{}, changedNamespaces: map[string]bool{},
	}
	for i := range changes {
		e.change(&changes[i])
	}
	e.touchCertificateReferrers()
	e.touchNamespaceReferrers()
	next := &Model{
		grants: e.grants.Map(), routes: e.routes.Map(), routesByGateway: e.routesByGateway.Groups(),
		certificates: e.certificates.Map(), namespaces: e.namespaces.Map(),
	}
	if e.granted {
		for name := range m.gateways.All() {
			e.touched[name] = true
		}
		for name := range next.routes.All() {
			e.rerouted[name] = true
		}
	}
	done := Changed{Listeners: map[string]*resource.Listener{}, Destinations: map[string]*Destination{}}
	for name := range e.rerouted {
		done.Destinations[name] = nil
		if r, ok := next.routes.Get(name); ok {
			done.Destinations[name] = r.compileDestination(next)
		}
	}
	for name := range e.touched {
		next.recompile(e.gateways, name, done.Listeners)
	}
	next.gateways = e.gateways.Map()
	return next, done
}

// edit collects the edits that lead from one model to the next.
type edit struct {
	gateways            *hamt.Edit[*compiledGateway]
	routes              *hamt.Edit[*route]
	routesByGateway     *hamt.GroupsEdit[*route]
	grants              *hamt.Edit[*ReferenceGrant]
	certificates        *hamt.Edit[struct{}]
	namespaces          *hamt.Edit[int]
	touched             map[string]bool // Gateways
	rerouted            map[string]bool // destinations
	changedCertificates map[string]bool // Certificates that were added or removed
	changedNamespaces   map[string]bool // namespaces that appeared or vanished
	granted             bool            // a ReferenceGrant has changed
}

func (e *edit) change(ch *resource.Change) {
	spec := ch.Spec
	if ch.Delete {
		spec = nil
	}
	e.countNamespaces(e.originOf(ch.Key), OriginOf(spec))
	switch ch.Kind {
	case KindGateway:
		e.touched[ch.Name] = true
		next := &compiledGateway{}
		next.spec, _ = spec.(*Gateway)
		if old, ok := e.gateways.Get(ch.Name); ok {
			next.listeners = old.listeners
		}
		e.gateways.Set(ch.Name, next)
	case KindGrant:
		e.granted = true
		if g, ok := spec.(*ReferenceGrant); ok {
			e.grants.Set(ch.Name, g)
		} else {
			e.grants.Delete(ch.Name)
		}
	case KindTCPRoute, KindTLSRoute:
		e.changeRoute(resource.Object{Key: ch.Key, Spec: spec})
	case kindCertificate:
		_, was := e.certificates.Get(ch.Name)
		switch {
		case spec == nil:
			e.certificates.Delete(ch.Name)
		case !was:
			e.certificates.Set(ch.Name, struct{}{})
		}
		if was == (spec == nil) {
			e.changedCertificates[ch.Name] = true
		}
	}
}

// touchCertificateReferrers marks the Gateways that refer to a Certificate that
// was added or removed.
func (e *edit) touchCertificateReferrers() {
	if len(e.changedCertificates) == 0 {
		return
	}
	gateways := e.gateways.Map()
	for name, g := range gateways.All() {
		if g.spec != nil && slices.ContainsFunc(g.spec.Refs(), func(r resource.Ref) bool { return e.changedCertificates[r.Name] }) {
			e.touched[name] = true
		}
	}
	e.gateways = gateways.Edit()
}

func (e *edit) changeRoute(o resource.Object) {
	name := o.Kind + "/" + o.Name
	e.rerouted[name] = true
	if old, ok := e.routes.Get(name); ok {
		for _, g := range old.gateways() {
			e.routesByGateway.Delete(g, name)
			e.touched[g] = true
		}
	}
	next := newRoute(&o)
	if next == nil {
		e.routes.Delete(name)
		return
	}
	e.routes.Set(name, next)
	for _, g := range next.gateways() {
		e.routesByGateway.Set(g, name, next)
		e.touched[g] = true
	}
}

// gateways returns the names of the Gateways in a route's parentRefs, each once.
func (r *route) gateways() (names []string) {
	for i := range r.parents {
		if p := &r.parents[i]; p.isGateway() {
			if name := r.origin.NameOf(p.Namespace, p.Name); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// recompile recompiles the listeners of a Gateway and records those that
// differ.
func (m *Model) recompile(gateways *hamt.Edit[*compiledGateway], name string, changed map[string]*resource.Listener) {
	g, ok := gateways.Get(name)
	if !ok {
		return // named by a route, but does not exist
	}
	next := &compiledGateway{spec: g.spec}
	if g.spec == nil {
		gateways.Delete(name)
	} else {
		group := m.routesByGateway.Group(name)
		routes := make([]*route, 0, group.Len())
		for _, r := range group.All() {
			routes = append(routes, r)
		}
		slices.SortFunc(routes, (*route).compare)
		next.listeners = attach(name, g.spec, routes).compile(m)
		gateways.Set(name, next)
	}
	for at := range g.listeners {
		if next.listeners[at] == nil {
			changed[at] = nil
		}
	}
	for at, l := range next.listeners {
		if old := g.listeners[at]; old == nil || !same(old, l) {
			changed[at] = l
		}
	}
}

// same reports whether two compiled listeners are equal.
func same(a, b *resource.Listener) bool {
	if a.Address != b.Address || a.Protocol != b.Protocol || a.Service != b.Service ||
		a.NoServerName != b.NoServerName || (a.TLS == nil) != (b.TLS == nil) {
		return false
	}
	if a.TLS != nil && (a.TLS.Mode != b.TLS.Mode || !slices.Equal(a.TLS.CertificateRefs, b.TLS.CertificateRefs)) {
		return false
	}
	return slices.EqualFunc(a.Hosts, b.Hosts, func(x, y resource.HostRule) bool {
		return x.Service == y.Service && slices.Equal(x.Names, y.Names)
	})
}

// compileDestination returns the destination of a route.
func (r *route) compileDestination(m *Model) *Destination {
	d := &Destination{Name: r.destination()}
	for i := range r.backends {
		b := &r.backends[i]
		out := Backend{Service: r.origin.NameOf(b.Namespace, b.Name), Weight: b.weight()}
		if v := b.resolve(r, m.references); !v.ok() {
			out.Closed = v.message
		}
		d.Backends = append(d.Backends, out)
	}
	return d
}

func (r *BackendRef) weight() int {
	if r.Weight == nil {
		return 1
	}
	return *r.Weight
}

// resolve returns the verdict on a backendRef. Whether the Service exists is
// checked elsewhere. of is only called if the reference may lead into another
// namespace.
func (r *BackendRef) resolve(by *route, of func() references) verdict {
	if !r.isService() {
		return verdict{reasonInvalidKind, fmt.Sprintf("backendRef %s is a %s: use a Service", r.Name, kindText(r.Group, r.Kind))}
	}
	from := by.origin.namespace()
	if to, name, is := notPermitted(by.key.Kind, from, kindService, refNamespace(r.Namespace, by.origin), r.Name, of); is {
		return verdict{reasonRefNotPermitted, fmt.Sprintf(
			"no ReferenceGrant in namespace %s lets a %s of namespace %s refer to the Service %s", to, by.key.Kind, from, name,
		)}
	}
	return verdict{}
}

func kindText(group, kind string) string {
	if group == "" {
		return truncate(kind)
	}
	return truncate(group) + "/" + truncate(kind)
}

// compile returns the listeners of a Gateway: one for each port in use and each address.
func (a *gatewayState) compile(m *Model) map[string]*resource.Listener {
	out := map[string]*resource.Listener{}
	if a.unsupportedAddress() != "" {
		return out
	}
	ports := map[int][]*listenerState{}
	for _, l := range a.listeners {
		if l.valid() {
			ports[l.Port] = append(ports[l.Port], l)
		}
	}
	for port, listeners := range ports {
		l := a.compilePort(listeners, m)
		for name, address := range a.spec.listenAddresses(port) {
			one := *l
			one.Address = address
			out[a.key.Name+"/"+name] = &one
		}
	}
	return out
}

// listenAddresses returns the listen addresses of a port, by the listener names
// that they yield.
func (g *Gateway) listenAddresses(port int) map[string]string {
	text := strconv.Itoa(port)
	if len(g.Addresses) == 0 {
		return map[string]string{text: ":" + text}
	}
	out := map[string]string{}
	for _, a := range g.Addresses {
		at := net.JoinHostPort(a.Value, text)
		out[at] = at
	}
	return out
}

// unsupportedAddress returns the first address of an unsupported type, or "".
func (a *gatewayState) unsupportedAddress() string {
	for i := range a.spec.Addresses {
		if x := &a.spec.Addresses[i]; !x.isIP() {
			return truncate(x.Type) + " " + truncate(x.Value)
		}
	}
	return ""
}

// compilePort merges the listeners of a port, which have one protocol, into one.
// A listener's hostname that no route has is closed, so that it does not fall
// through to a wider listener of the port. So are all names of a listener
// without a Certificate, so that its connections do not get the Certificate of
// another listener.
func (a *gatewayState) compilePort(listeners []*listenerState, m *Model) *resource.Listener {
	first := listeners[0]
	if first.protocol == "TCP" {
		l := &resource.Listener{Protocol: "tcp"}
		if r := first.names[""].route; r != nil {
			l.Service = r.destination()
		}
		return l
	}
	l := &resource.Listener{Protocol: "tls", TLS: &resource.ListenerTLS{Mode: strings.ToLower(first.mode())}}
	rules := map[string]int{}
	add := func(name, destination string) {
		i, ok := rules[destination]
		if !ok {
			i = len(l.Hosts)
			rules[destination] = i
			l.Hosts = append(l.Hosts, resource.HostRule{Service: destination})
		}
		l.Hosts[i].Names = append(l.Hosts[i].Names, name)
	}
	for _, x := range listeners {
		if a.addCertificates(l.TLS, x, m.references); !a.canServe(x, m) {
			if x.hostname != "" {
				add(x.hostname, "")
			}
			continue
		}
		for _, name := range x.order {
			switch r := x.names[name]; {
			case name == "":
				l.Service, l.NoServerName = r.destination(), "service"
			case !isolated(listeners, x, name):
				add(name, r.destination())
			}
		}
		if x.hostname != "" && x.names[x.hostname].route == nil {
			add(x.hostname, "")
		}
	}
	return l
}

func (l *listenerState) mode() string {
	if l.terminates() {
		return "Terminate"
	}
	return "Passthrough"
}

// isolated reports whether a name belongs to a narrower listener of the port: a
// connection is for the listener whose hostname fits it best, and only for the
// routes of that listener.
func isolated(listeners []*listenerState, own *listenerState, name string) bool {
	for _, x := range listeners {
		if x != own && x.hostname != "" && covers(own.hostname, x.hostname) && covers(x.hostname, name) {
			return true
		}
	}
	return false
}

// addCertificates adds the Certificates that a listener may refer to.
func (a *gatewayState) addCertificates(t *resource.ListenerTLS, x *listenerState, refs func() references) {
	if !x.terminates() {
		return
	}
	for i := range x.Security.CertificateRefs {
		r := &x.Security.CertificateRefs[i]
		name := a.spec.Origin.NameOf(r.Namespace, r.Name)
		if bad := r.resolve(&a.spec.Origin, refs); bad.ok() && !slices.Contains(t.CertificateRefs, name) {
			t.CertificateRefs = append(t.CertificateRefs, name)
		}
	}
}

// canServe reports whether a listener can take connections: one that terminates
// TLS needs a Certificate that exists.
func (a *gatewayState) canServe(x *listenerState, m *Model) bool {
	var own resource.ListenerTLS
	a.addCertificates(&own, x, m.references)
	return !x.terminates() || slices.ContainsFunc(own.CertificateRefs, func(name string) bool {
		_, ok := m.certificates.Get(name)
		return ok
	})
}
