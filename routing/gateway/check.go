package gateway

import (
	"net"
	"slices"
	"strconv"
	"strings"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Checks of these objects against others. What the Gateway API reports as a
// condition is a warning here: the object is kept and takes effect as far as it
// can.

var (
	_ validate.SetChecker = (*Gateway)(nil)
	_ validate.SetChecker = (*TCPRoute)(nil)
	_ validate.SetChecker = (*TLSRoute)(nil)
	_ validate.SetChecker = (*ReferenceGrant)(nil)
)

// Claims implements validate.SetChecker: no names of other listeners.
func (g *Gateway) Claims() []validate.Claim { return nil }

// Claims implements validate.SetChecker: no names of other listeners.
func (r *TCPRoute) Claims() []validate.Claim { return nil }

// Claims implements validate.SetChecker: no names of other listeners.
func (r *TLSRoute) Claims() []validate.Claim { return nil }

// Claims implements validate.SetChecker: no names of other listeners.
func (g *ReferenceGrant) Claims() []validate.Claim { return nil }

// Listens implements validate.SetChecker: the ports of the listeners, each
// once.
func (g *Gateway) Listens() []validate.Listen {
	var list []validate.Listen
	seen := map[int]bool{}
	for i, l := range listenersOf(g) {
		if !l.valid() || seen[l.Port] {
			continue
		}
		seen[l.Port] = true
		path, port := resource.Item("spec.listeners", i)+".port", strconv.Itoa(l.Port)
		if len(g.Addresses) == 0 {
			list = append(list, validate.Listen{Address: ":" + port, Path: path})
		}
		for j := range g.Addresses {
			if a := &g.Addresses[j]; a.isIP() {
				list = append(list, validate.Listen{Address: net.JoinHostPort(a.Value, port), Path: path})
			}
		}
	}
	return list
}

// Listens implements validate.SetChecker: nowhere.
func (r *TCPRoute) Listens() []validate.Listen { return nil }

// Listens implements validate.SetChecker: nowhere.
func (r *TLSRoute) Listens() []validate.Listen { return nil }

// Listens implements validate.SetChecker: nowhere.
func (g *ReferenceGrant) Listens() []validate.Listen { return nil }

// CheckInSet implements validate.SetChecker.
func (g *Gateway) CheckInSet(v *validate.View) {
	g.Origin.checkName(v)
	a := checkView{v}.state(v.Key())
	if a == nil {
		return
	}
	for i := range g.Addresses {
		if x := &g.Addresses[i]; !x.isIP() {
			v.Warn(
				resource.Item("spec.addresses", i)+".type",
				"is not supported, so the Gateway does not listen ("+reasonUnsupportedAddress+"): use IPAddress",
				x.Type,
			)
		}
	}
	for i, l := range a.listeners {
		at := resource.Item("spec.listeners", i)
		switch {
		case !l.accepted.ok():
			v.Warn(at+".protocol", "is not accepted ("+l.accepted.reason+"): "+l.accepted.message, nil)
		case !l.conflict.ok():
			v.Warn(at, "is not accepted ("+l.conflict.reason+"): "+l.conflict.message+"; none of them listens", nil)
		}
		if len(l.unattachable) > 0 {
			v.Warn(at+".allowedRoutes.kinds", "has kinds that never attach ("+reasonInvalidRouteKinds+")", joinNames(l.unattachable))
		}
		l.checkCertificates(v, at, &g.Origin)
		a.warnOfNames(v, at+".tls.certificateRefs", l, nil)
	}
}

func (l *listenerState) checkCertificates(v *validate.View, at string, own *Origin) {
	if !l.terminates() {
		return
	}
	for i := range l.Security.CertificateRefs {
		r := &l.Security.CertificateRefs[i]
		if bad := r.resolve(own, checkView{v}.references); !bad.ok() {
			v.Warn(resource.Item(at+".tls.certificateRefs", i), bad.message+" ("+bad.reason+")", nil)
		}
	}
}

// resolve returns the verdict on a reference to a Certificate. Whether it exists
// is checked elsewhere.
func (r *CertificateRef) resolve(own *Origin, of func() references) verdict {
	if !r.isSecret() {
		return verdict{
			reasonInvalidCertificate,
			"certificateRef " + r.Name + " is a " + kindText(r.Group, r.Kind) + ": use a Secret, which means a Certificate here",
		}
	}
	from := own.namespace()
	if to, name, is := notPermitted(KindGateway, from, kindSecret, refNamespace(r.Namespace, own), r.Name, of); is {
		return verdict{
			reasonRefNotPermitted,
			"no ReferenceGrant in namespace " + to + " lets a Gateway of namespace " + from + " refer to the Secret " + name,
		}
	}
	return verdict{}
}

// CheckInSet implements validate.SetChecker.
func (r *TCPRoute) CheckInSet(v *validate.View) { checkRoute(v, r) }

// CheckInSet implements validate.SetChecker.
func (r *TLSRoute) CheckInSet(v *validate.View) { checkRoute(v, r) }

// CheckInSet implements validate.SetChecker.
func (g *ReferenceGrant) CheckInSet(v *validate.View) { g.Origin.checkName(v) }

func checkRoute(v *validate.View, spec resource.Spec) {
	r := newRoute(&resource.Object{Key: v.Key(), Spec: spec})
	r.origin.checkName(v)
	if len(r.parents) == 0 {
		v.Warn("spec.parentRefs", "is empty: the route has no effect", nil)
	}
	for i := range r.parents {
		p, at := &r.parents[i], resource.Item("spec.parentRefs", i)
		if !p.isGateway() {
			group := Group
			if p.Group != nil {
				group = *p.Group
			}
			v.Warn(at+".kind", "is not supported ("+reasonInvalidKind+"): a route attaches to a Gateway", kindText(group, p.Kind))
			continue
		}
		a := checkView{v}.state(resource.Key{Kind: KindGateway, Name: r.origin.NameOf(p.Namespace, p.Name)})
		if a == nil || a.routes[r.key] == nil {
			continue // reported as a missing reference
		}
		done := a.routes[r.key][i]
		if !done.accepted.ok() {
			v.Warn(at, "is not accepted by "+a.key.String()+" ("+done.accepted.reason+"): "+done.accepted.message, nil)
		} else if lost := done.conflict(); lost != "" {
			v.Warn(at, "at "+a.key.String()+": "+lost, nil)
		}
		for _, l := range done.at {
			a.warnOfNames(v, at, l, r)
		}
	}
	sum := 0
	for i := range r.backends {
		b := &r.backends[i]
		sum += b.weight()
		if bad := b.resolve(r, checkView{v}.references); !bad.ok() {
			v.Warn(resource.Item("spec.rules[0].backendRefs", i), bad.message+" ("+bad.reason+"); its connections are closed", nil)
		}
	}
	if len(r.backends) > 0 && sum == 0 {
		v.Warn("spec.rules[0].backendRefs", "all weights are 0: every connection is closed", nil)
	}
}

// checkName reports a name that does not begin with its namespace.
func (o *Origin) checkName(v *validate.View) {
	if ns := o.namespace(); ns != defaultNamespace && !strings.HasPrefix(v.Key().Name, ns+".") {
		v.Fault("spec.origin.namespace", "names of resources in this namespace must begin with "+ns+".", v.Key().Name)
	}
}

// checkView finds what attaches to Gateways in the set of a View.
type checkView struct{ *validate.View }

func (v checkView) state(gateway resource.Key) *gatewayState {
	a, _ := v.Once(gateway, func() any { return attachIn(v, gateway) }).(*gatewayState)
	return a
}

func (v checkView) references() references {
	t, _ := v.Once(KindGrant, func() any { return referencesIn(v) }).(references)
	return t
}

// attachIn attaches the routes of a set to a Gateway; nil if there is no such Gateway.
func attachIn(in objects, gateway resource.Key) *gatewayState {
	o, _ := in.Get(gateway)
	g, ok := o.Spec.(*Gateway)
	if !ok {
		return nil
	}
	var routes []*route
	for user := range in.Users(gateway) {
		if r := newRoute(&user); r != nil {
			routes = append(routes, r)
		}
	}
	slices.SortFunc(routes, (*route).compare)
	return attach(gateway.Name, g, routes)
}
