package gateway

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"penstock/routing/hostname"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Bounds of lists and texts of the Gateway API.
const (
	maxListeners    = 64
	maxAddresses    = 16
	maxCertificates = 64
	maxRouteKinds   = 8
	maxParents      = 32
	maxHostnames    = 1024
	maxBackends     = 16
	maxGrants       = 16
	maxProtocol     = 255 // bytes
	maxSection      = 253 // bytes
)

// Validate reports the faults of a Gateway alone.
func (g *Gateway) Validate(fault validate.Report) {
	validate.Fields(g, fault)
	g.Origin.validate(KindGateway, fault)
	validate.Ref("gatewayClassName", g.GatewayClassName, fault)
	checkCount("listeners", len(g.Listeners), 1, maxListeners, fault)
	names := map[string]int{}
	for i := range g.Listeners {
		l, at := &g.Listeners[i], resource.Item("listeners", i)
		if checkSection(at+".name", l.Name, fault); l.Name == "" {
			fault(at+".name", "is required", nil)
		} else if first, twice := names[l.Name]; twice {
			fault(at+".name", "duplicate, first at "+resource.Item("spec.listeners", first), l.Name)
		} else {
			names[l.Name] = i
		}
		l.validate(at, fault)
	}
	checkCount("addresses", len(g.Addresses), 0, maxAddresses, fault)
	for i := range g.Addresses[:min(len(g.Addresses), maxAddresses)] {
		g.validateAddress(i, fault)
	}
}

func (g *Gateway) validateAddress(i int, fault validate.Report) {
	a, at := &g.Addresses[i], resource.Item("addresses", i)+".value"
	ip, ok := a.ip()
	switch {
	case a.Value == "":
		fault(at, "is required", nil)
		return
	case a.isIP() && !ok:
		fault(at, "must be an IP address", a.Value)
		return
	}
	for j := range g.Addresses[:i] {
		b := &g.Addresses[j]
		other, both := b.ip()
		switch {
		case a.Type == b.Type && a.Value == b.Value || ok && both && ip == other:
			fault(at, "duplicate", a.Value)
			return
		case ok && both && (overlapsWildcard(ip, other) || overlapsWildcard(other, ip)):
			fault(at, "overlaps with "+b.Value, a.Value)
			return
		}
	}
}

// ip returns the address to listen at; an IPv4-mapped address becomes IPv4.
func (a *Address) ip() (ip netip.Addr, ok bool) {
	if !a.isIP() {
		return ip, false
	}
	ip, err := netip.ParseAddr(a.Value)
	return ip.Unmap(), err == nil
}

// overlapsWildcard reports whether a listener at ip also gets connections to
// other: the wildcard addresses do, and the IPv6 one gets IPv4 as well.
func overlapsWildcard(ip, other netip.Addr) bool {
	return ip.IsUnspecified() && (ip.Is6() || other.Is4())
}

func (a *Address) isIP() bool { return a.Type == "" || a.Type == "IPAddress" }

func (l *Listener) validate(at string, fault validate.Report) {
	if l.Port == 0 {
		fault(at+".port", "is required", nil)
	}
	checkHostname(at+".hostname", l.Hostname, fault)
	protocol := strings.ToUpper(l.Protocol)
	switch {
	case l.Protocol == "":
		fault(at+".protocol", "is required: TLS or TCP", nil)
	case len(l.Protocol) > maxProtocol:
		fault(at+".protocol", fmt.Sprintf("must have at most %d bytes", maxProtocol), l.Protocol)
	case protocol == "TLS" && l.Security == nil:
		fault(at+".tls", "is required for protocol TLS", nil)
	}
	plain := protocol == "TCP" || protocol == "UDP"
	if l.Hostname != "" && plain {
		fault(at+".hostname", "must not be given for protocol "+protocol+", which has no server names", l.Hostname)
	}
	if l.Security != nil {
		if plain || protocol == "HTTP" {
			fault(at+".tls", "must not be given for protocol "+protocol, nil)
		}
		l.Security.validate(at+".tls", fault)
	}
	if l.AllowedRoutes != nil {
		l.AllowedRoutes.validate(at+".allowedRoutes", fault)
	}
}

func (t *TLS) validate(at string, fault validate.Report) {
	if t.terminates() && len(t.CertificateRefs) == 0 {
		fault(at+".certificateRefs", "is required for mode Terminate", nil)
	}
	checkCount(at+".certificateRefs", len(t.CertificateRefs), 0, maxCertificates, fault)
	for i := range t.CertificateRefs {
		r, at := &t.CertificateRefs[i], resource.Item(at+".certificateRefs", i)
		validate.Ref(at+".name", r.Name, fault)
		checkNamespace(at+".namespace", r.Namespace, fault)
	}
}

func (t *TLS) terminates() bool { return t.Mode != "Passthrough" }

func (a *AllowedRoutes) validate(at string, fault validate.Report) {
	checkCount(at+".kinds", len(a.Kinds), 0, maxRouteKinds, fault)
	for i := range a.Kinds {
		if a.Kinds[i].Kind == "" {
			fault(resource.Item(at+".kinds", i)+".kind", "is required", nil)
		}
	}
	if n := a.Namespaces; n != nil {
		at += ".namespaces.selector"
		switch {
		case n.From == "Selector" && n.Labels == nil:
			fault(at, "is required for Selector", nil)
		case n.Labels != nil:
			n.Labels.validate(at, fault)
		}
	}
}

func (s *Selector) validate(at string, fault validate.Report) {
	for i := range s.MatchExpressions {
		e, at := &s.MatchExpressions[i], resource.Item(at+".matchExpressions", i)
		if e.Key == "" {
			fault(at+".key", "is required", nil)
		}
		switch listed := e.Operator == "In" || e.Operator == "NotIn"; {
		case e.Operator == "":
			fault(at+".operator", "is required: In, NotIn, Exists or DoesNotExist", nil)
		case listed && len(e.Values) == 0:
			fault(at+".values", "is required for "+e.Operator, nil)
		case !listed && len(e.Values) > 0:
			fault(at+".values", "must not be given for "+e.Operator, nil)
		}
	}
}

// Validate reports the faults of a TLSRoute alone.
func (r *TLSRoute) Validate(fault validate.Report) {
	validate.Fields(r, fault)
	r.Origin.validate(KindTLSRoute, fault)
	validateRoute(r.ParentRefs, r.Rules, fault)
	checkCount("hostnames", len(r.Hostnames), 0, maxHostnames, fault)
	seen := map[string]int{}
	for i, name := range r.Hostnames[:min(len(r.Hostnames), maxHostnames)] {
		at := resource.Item("hostnames", i)
		if name == "" {
			fault(at, "must not be empty", nil)
		} else if first, twice := seen[strings.ToLower(name)]; twice {
			fault(at, "duplicate, first at "+resource.Item("spec.hostnames", first), name)
		} else {
			checkHostname(at, name, fault)
			seen[strings.ToLower(name)] = i
		}
	}
}

// Validate reports the faults of a TCPRoute alone.
func (r *TCPRoute) Validate(fault validate.Report) {
	validate.Fields(r, fault)
	r.Origin.validate(KindTCPRoute, fault)
	validateRoute(r.ParentRefs, r.Rules, fault)
}

func validateRoute(parents []ParentRef, rules []Rule, fault validate.Report) {
	checkCount("parentRefs", len(parents), 0, maxParents, fault)
	type place struct {
		name, namespace, section string
		port                     int
	}
	seen := map[place]int{}
	for i := range parents[:min(len(parents), maxParents)] {
		p, at := &parents[i], resource.Item("parentRefs", i)
		validate.Ref(at+".name", p.Name, fault)
		checkNamespace(at+".namespace", p.Namespace, fault)
		checkSection(at+".sectionName", p.SectionName, fault)
		k := place{p.Name, p.Namespace, p.SectionName, p.Port}
		if first, twice := seen[k]; twice {
			fault(at, "duplicate, first at "+resource.Item("spec.parentRefs", first), nil)
		} else {
			seen[k] = i
		}
	}
	if len(rules) != 1 {
		fault("rules", "must hold exactly one rule", len(rules))
		return
	}
	checkSection("rules[0].name", rules[0].Name, fault)
	refs := rules[0].BackendRefs
	checkCount("rules[0].backendRefs", len(refs), 1, maxBackends, fault)
	for i := range refs[:min(len(refs), maxBackends)] {
		r, at := &refs[i], resource.Item("rules[0].backendRefs", i)
		switch {
		case r.Name == "":
			fault(at+".name", "is required", nil)
		case !serviceName(r.Name):
			fault(
				at+".name",
				"must be lower-case letters, digits, '-', '_' and '.', with a letter or digit first and last, at most 253 in all",
				r.Name,
			)
		}
		checkNamespace(at+".namespace", r.Namespace, fault)
	}
}

// serviceName reports whether s can be the name of a Service, which may have '_'.
func serviceName(s string) bool {
	return validate.NameOK(strings.ReplaceAll(s, "_", "-"))
}

// Validate reports the faults of a ReferenceGrant alone.
func (g *ReferenceGrant) Validate(fault validate.Report) {
	validate.Fields(g, fault)
	g.Origin.validate(KindGrant, fault)
	checkCount("from", len(g.From), 1, maxGrants, fault)
	for i := range g.From {
		f, at := &g.From[i], resource.Item("from", i)
		if f.Kind == "" {
			fault(at+".kind", "is required", nil)
		}
		if f.Namespace == "" {
			fault(at+".namespace", "is required", nil)
		}
		checkNamespace(at+".namespace", f.Namespace, fault)
	}
	checkCount("to", len(g.To), 1, maxGrants, fault)
	for i := range g.To {
		if g.To[i].Kind == "" {
			fault(resource.Item("to", i)+".kind", "is required", nil)
		}
	}
}

func (o *Origin) validate(kind string, fault validate.Report) {
	checkNamespace("origin.namespace", o.Namespace, fault)
	if _, err := time.Parse(time.RFC3339, o.CreationTimestamp); o.CreationTimestamp != "" && err != nil {
		fault("origin.creationTimestamp", "must be a time like 2026-01-31T12:00:00Z", o.CreationTimestamp)
	}
	if v := o.APIVersion; v != "" && !slices.Contains(Versions(kind), v) {
		fault("origin.apiVersion", "this version of "+kind+" is not supported; use one of "+strings.Join(Versions(kind), ", "), v)
	}
}

// Versions returns the supported API versions of a kind, newest first.
func Versions(kind string) []string {
	switch kind {
	case KindGateway, KindGrant:
		return []string{"v1", "v1beta1"}
	case KindTLSRoute:
		return []string{"v1", "v1alpha3", "v1alpha2"}
	case KindTCPRoute:
		return []string{"v1", "v1alpha2"}
	}
	return nil
}

// checkNamespace reports an invalid namespace. It must not have a dot, so that
// its end in NAMESPACE.NAME is unambiguous.
func checkNamespace(path, s string, fault validate.Report) {
	if s != "" && (len(s) > 63 || strings.Contains(s, ".") || !validate.NameOK(s)) {
		fault(path, "must be lower-case letters, digits and '-', with a letter or digit first and last, at most 63 in all", s)
	}
}

func checkSection(path, s string, fault validate.Report) {
	if s != "" && (len(s) > maxSection || !validate.NameOK(s)) {
		fault(path, "must be lower-case letters, digits, '-' and '.', with a letter or digit first and last, at most 253 in all", s)
	}
}

func checkHostname(path, s string, fault validate.Report) {
	if s == "" {
		return
	}
	if _, err := hostname.ParsePattern(s); err != nil {
		fault(path, err.Error(), s)
	}
}

// checkCount reports a list that is too short or too long.
func checkCount(path string, n, least, most int, fault validate.Report) {
	switch {
	case n < least:
		fault(path, "is required", nil)
	case n > most:
		fault(path, fmt.Sprintf("must hold at most %d", most), n)
	}
}

// Refs lists the Certificates of a Gateway. They may come later.
func (g *Gateway) Refs() []resource.Ref {
	var refs []resource.Ref
	for i := range g.Listeners {
		t := g.Listeners[i].Security
		if t == nil || !t.terminates() {
			continue
		}
		for j := range t.CertificateRefs {
			if r := &t.CertificateRefs[j]; r.isSecret() && r.Name != "" {
				path := resource.Item(resource.Item("spec.listeners", i)+".tls.certificateRefs", j)
				refs = append(refs, ref(kindCertificate, g.Origin.NameOf(r.Namespace, r.Name), path+".name"))
			}
		}
	}
	return refs
}

func (r *CertificateRef) isSecret() bool {
	return r.Group == "" && (r.Kind == "" || r.Kind == kindSecret || r.Kind == kindCertificate)
}

func ref(kind, name, path string) resource.Ref {
	return resource.Ref{Key: resource.Key{Kind: kind, Name: name}, Path: path, Optional: true}
}

// refNamespace returns the namespace that a reference means.
func refNamespace(namespace string, o *Origin) string {
	if namespace == "" {
		return o.namespace()
	}
	return namespace
}

// NameOf returns the resource name of what an object of this origin refers to.
func (o *Origin) NameOf(namespace, name string) string {
	return NameOf(refNamespace(namespace, o), name)
}

// Refs lists the Gateways and Services of a TLSRoute. They may come later.
func (r *TLSRoute) Refs() []resource.Ref { return routeRefs(&r.Origin, r.ParentRefs, r.Rules) }

// Refs lists the Gateways and Services of a TCPRoute. They may come later.
func (r *TCPRoute) Refs() []resource.Ref { return routeRefs(&r.Origin, r.ParentRefs, r.Rules) }

func routeRefs(o *Origin, parents []ParentRef, rules []Rule) []resource.Ref {
	var refs []resource.Ref
	for i := range parents {
		if p := &parents[i]; p.isGateway() && p.Name != "" {
			refs = append(refs, ref(KindGateway, o.NameOf(p.Namespace, p.Name), resource.Item("spec.parentRefs", i)+".name"))
		}
	}
	for i := range rules {
		for j := range rules[i].BackendRefs {
			if b := &rules[i].BackendRefs[j]; b.isService() && b.Name != "" {
				path := resource.Item(resource.Item("spec.rules", i)+".backendRefs", j)
				refs = append(refs, ref(kindService, o.NameOf(b.Namespace, b.Name), path+".name"))
			}
		}
	}
	return refs
}

func (p *ParentRef) isGateway() bool {
	return (p.Group == nil || *p.Group == Group) && (p.Kind == "" || p.Kind == KindGateway)
}

func (r *BackendRef) isService() bool {
	return r.Group == "" && (r.Kind == "" || r.Kind == kindService)
}

// Refs returns nothing: a ReferenceGrant names what it trusts, not what it needs.
func (g *ReferenceGrant) Refs() []resource.Ref { return nil }

// routeKinds returns the kinds of routes that fit a listener's protocol.
func (l *Listener) routeKinds() []string {
	switch strings.ToUpper(l.Protocol) {
	case "TCP":
		return []string{KindTCPRoute}
	case "TLS":
		if l.Security != nil && l.Security.terminates() {
			return []string{KindTLSRoute, KindTCPRoute}
		}
		return []string{KindTLSRoute}
	}
	return nil
}

// allowedKinds returns the kinds of routeKinds that the listener allows, and
// the kinds that it allows but that can never attach.
func (l *Listener) allowedKinds() (kinds, unattachable []string) {
	has := l.routeKinds()
	if l.AllowedRoutes == nil || len(l.AllowedRoutes.Kinds) == 0 {
		return has, nil
	}
	for _, k := range l.AllowedRoutes.Kinds {
		if (k.Group == nil || *k.Group == Group) && slices.Contains(has, k.Kind) {
			if !slices.Contains(kinds, k.Kind) {
				kinds = append(kinds, k.Kind)
			}
		} else {
			unattachable = append(unattachable, k.Kind)
		}
	}
	return kinds, unattachable
}
