package routing

import (
	"fmt"
	"reflect"
	"slices"

	"penstock/routing/httprule"
	"penstock/routing/resource"
)

// requests are the MeshHTTPRoutes for one destination. They apply where
// requests are routed individually; elsewhere MeshTCPRoutes route connections.
type requests struct {
	policies []*policy // in order of precedence
	chooser  chooser   // of policies
}

// httpRoute is one MeshHTTPRoute and the rules compiled from it.
type httpRoute struct {
	spec  *resource.MeshHTTPRoute // defaults filled in
	rules []*httprule.Rules       // of each entry of spec.To
}

// httpPolicy is what one MeshHTTPRoute specifies for one destination.
type httpPolicy struct {
	from   *httpRoute
	rules  *httprule.Rules
	spec   []resource.HTTPRule
	shares []shares // of each rule; empty if it redirects
}

// putHTTPRoute records a route's new resource; a nil spec removes it.
func (c *compiler) putHTTPRoute(name string, spec resource.Spec) error {
	var before, after []string
	if old, ok := c.httpRoutes.Get(name); ok {
		before = httpDestinations(old.spec)
	}
	var fault error
	c.httpRoutes.Delete(name)
	if r, ok := spec.(*resource.MeshHTTPRoute); ok {
		var route *httpRoute
		if route, fault = newHTTPRoute(r.WithDefaults()); fault == nil {
			after = httpDestinations(route.spec)
			c.httpRoutes.Set(name, route)
		}
	}
	updateIndex(c.httpRoutesTo, name, before, after)
	for _, d := range slices.Concat(before, after) {
		c.dirtyPolicies[d] = true
	}
	return fault
}

func newHTTPRoute(spec *resource.MeshHTTPRoute) (*httpRoute, error) {
	r := &httpRoute{spec: spec}
	for i := range spec.To {
		rules, err := httprule.Compile(spec.To[i].Rules)
		if err != nil {
			return nil, fmt.Errorf("to[%d].%w", i, err)
		}
		r.rules = append(r.rules, rules)
	}
	return r, nil
}

func httpDestinations(r *resource.MeshHTTPRoute) []string {
	names := make([]string, len(r.To))
	for i := range r.To {
		names[i] = r.To[i].TargetRef.Name
	}
	return names
}

// makeRequests builds the policies of a destination's MeshHTTPRoutes, or nil if
// it has none.
func (c *compiler) makeRequests(destination string, old *requests) *requests {
	names := indexed(c.httpRoutesTo, destination)
	if len(names) == 0 {
		return nil
	}
	var before map[string]*policy
	if old != nil {
		before = byRoute(old.policies)
	}
	policies := make([]*policy, 0, len(names))
	for _, name := range names {
		r, _ := c.httpRoutes.Get(name)
		p := before[name]
		if p == nil || !c.httpUpToDate(p, r) {
			p = c.makeHTTPPolicy(name, destination, r, p)
		}
		policies = append(policies, p)
	}
	slices.SortFunc(policies, (*policy).compare)
	return &requests{policies: policies, chooser: newChooser(policies)}
}

func (c *compiler) httpUpToDate(p *policy, r *httpRoute) bool {
	stale := func(sh shares) bool { return !sh.upToDate(c) }
	return p.http.from == r && !slices.ContainsFunc(p.http.shares, stale)
}

func (c *compiler) makeHTTPPolicy(name, destination string, r *httpRoute, old *policy) *policy {
	i := slices.IndexFunc(r.spec.To, func(to resource.HTTPRouteTo) bool { return to.TargetRef.Name == destination })
	p := newPolicy(name, r.spec.TargetRef)
	p.http = &httpPolicy{from: r, rules: r.rules[i], spec: r.spec.To[i].Rules}
	p.http.shares = make([]shares, len(p.http.spec))
	var before *httpPolicy
	if old != nil {
		before = old.http
	}
	same := before.sameRules(p.http.spec)
	for i := range p.http.spec {
		p.http.shares[i] = c.makeShares("MeshHTTPRoute/"+p.route, p.http.spec[i].Default.BackendRefs, same(i))
	}
	return p
}

// sameRules returns a function from the index of a new rule to the shares of
// the old rule that matches the same requests, at whatever index. That is nil
// if there is no such rule, or no old policy.
func (h *httpPolicy) sameRules(rules []resource.HTTPRule) func(i int) *shares {
	if h == nil {
		return func(int) *shares { return nil }
	}
	var byMatches map[string]int // built at the first rule whose index changed
	return func(i int) *shares {
		matches := rules[i].Matches
		if i < len(h.spec) && reflect.DeepEqual(matches, h.spec[i].Matches) {
			return &h.shares[i]
		}
		if byMatches == nil {
			byMatches = h.byMatches()
		}
		if j, ok := byMatches[resource.MatchesKey(matches)]; ok {
			return &h.shares[j]
		}
		return nil
	}
}

// byMatches maps the key of a rule's matches to the rule's index.
func (h *httpPolicy) byMatches() map[string]int {
	m := make(map[string]int, len(h.spec))
	for i := range h.spec {
		m[resource.MatchesKey(h.spec[i].Matches)] = i
	}
	return m
}

// protocolTags give a client's protocol: Penstock's tag and Kuma's.
var protocolTags = [...]string{"protocol", "kuma.io/protocol"}

// clientProtocol is the protocol of a client, and the source of that fact.
type clientProtocol struct {
	protocol string // "" if unknown, which means tcp
	tag      string // the tag that gives it, or ""
	layer    int    // of the tag
	service  string // the client's service whose protocol it is, or ""
}

// protocol returns the client's protocol: by a tag, otherwise the protocol of
// its service.
func (t *Table) protocol(src *source) clientProtocol {
	for i, tags := range src.layers {
		if len(tags) == 0 {
			continue
		}
		for _, tag := range protocolTags {
			if v, ok := tags[tag]; ok {
				return clientProtocol{protocol: v, tag: tag, layer: i}
			}
		}
	}
	if name := src.service(); name != "" {
		if s, ok := t.services.Get(name); ok {
			return clientProtocol{protocol: s.spec.Protocol, service: name}
		}
	}
	return clientProtocol{}
}

// isHTTP reports whether requests of a protocol can be routed individually.
func isHTTP(protocol string) bool { return protocol == "http" || protocol == "http2" }

// readable reports whether the proxy can read the plaintext of connections to
// the listener.
func (l *Listener) readable() bool {
	return l.spec.Protocol == "tcp" || l.spec.Protocol == meshProtocol || l.spec.Protocol == "tls" && l.spec.TLS != nil && l.spec.TLS.Mode == "terminate"
}

// routesRequests reports whether the requests of a connection are to be routed
// individually.
func (t *Table) routesRequests(in *Input, l *Listener, s *Service) bool {
	reads := t.readsRequests(s, l)
	if s.requests == nil && !reads && (t.limits == nil || !t.limits.ofRequest) || !l.readable() {
		return false
	}
	src := t.source(in, l)
	return reads && t.speaksHTTP(s, &src) || t.requestPolicy(s, &src) != nil || t.limitsRequests(in, &src, s)
}

// readsRequests reports whether the requests of a connection are to be seen although
// no route is about them: a permission for the destination depends on them, or the
// listener tells the endpoint who the client is, in a header that no client may write.
func (t *Table) readsRequests(s *Service, l *Listener) bool {
	return isHTTP(s.spec.Protocol) && (l.spec.HTTP.ForwardClientCert || t.permissions().Requests(s.name, l.name))
}

// speaksHTTP reports whether both sides speak HTTP.
func (t *Table) speaksHTTP(s *Service, src *source) bool {
	return isHTTP(s.spec.Protocol) && isHTTP(t.protocol(src).protocol)
}

// requestPolicy returns the MeshHTTPRoute for requests from a source, or nil if
// MeshTCPRoutes decide. It requires that both sides speak HTTP.
func (t *Table) requestPolicy(s *Service, src *source) *policy {
	if s.requests == nil || !t.speaksHTTP(s, src) {
		return nil
	}
	return s.requests.chooser.choose(src)
}
