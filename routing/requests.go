package routing

import (
	"fmt"
	"reflect"
	"slices"

	"penstock/routing/httprule"
	"penstock/routing/resource"
)

// requests are the MeshHTTPRoutes for one destination. They count where
// requests are routed one by one; everywhere else connections are, by its
// MeshTCPRoutes.
type requests struct {
	policies []*policy // the one that wins first
	chooser  chooser   // among them
}

// httpRoute is one MeshHTTPRoute with what is made of it alone.
type httpRoute struct {
	spec  *resource.MeshHTTPRoute // defaults filled in
	rules []*httprule.Rules       // of each of spec.To
}

// httpPolicy is what one MeshHTTPRoute says about one destination.
type httpPolicy struct {
	from   *httpRoute
	rules  *httprule.Rules
	spec   []resource.HTTPRule
	shares []shares // of each rule; one that redirects has none
}

// putHTTPRoute takes a route's new resource in; nil: it is gone.
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
	link(c.httpRoutesTo, name, before, after)
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

// makeRequests makes the policies of a destination's MeshHTTPRoutes; nil: it
// has none.
func (c *compiler) makeRequests(destination string, old *requests) *requests {
	names := list(c.httpRoutesTo, destination)
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
		p.http.shares[i] = c.makeShares(p.http.spec[i].Default.BackendRefs, same(i))
	}
	return p
}

// sameRules finds the shares of the rule that is for the same requests as one of
// the next version's, wherever it stands; nil: there is none, or no policy.
func (h *httpPolicy) sameRules(rules []resource.HTTPRule) func(i int) *shares {
	if h == nil {
		return func(int) *shares { return nil }
	}
	var byMatches map[string]int // made when the first rule stands elsewhere
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

// byMatches finds rules by the requests that they are for.
func (h *httpPolicy) byMatches() map[string]int {
	m := make(map[string]int, len(h.spec))
	for i := range h.spec {
		m[resource.MatchesKey(h.spec[i].Matches)] = i
	}
	return m
}

// protocolTags say what a client speaks: ours, and Kuma's.
var protocolTags = [...]string{"protocol", "kuma.io/protocol"}

// spoken is what a client speaks, and who says so.
type spoken struct {
	protocol string // "": nobody knows, which is tcp
	tag      string // that says so; "": none does
	layer    int    // of the tag
	service  string // of the client, whose Service says so; "": none does
}

// protocol is what the client speaks: by a tag, or else as the service does
// that it belongs to.
func (t *Table) protocol(src *source) spoken {
	for i, tags := range src.layers {
		if len(tags) == 0 {
			continue
		}
		for _, tag := range protocolTags {
			if v, ok := tags[tag]; ok {
				return spoken{protocol: v, tag: tag, layer: i}
			}
		}
	}
	if name := src.service(); name != "" {
		if s, ok := t.services.Get(name); ok {
			return spoken{protocol: s.spec.Protocol, service: name}
		}
	}
	return spoken{}
}

// isHTTP tells the protocols whose requests can be routed one by one.
func isHTTP(protocol string) bool { return protocol == "http" || protocol == "http2" }

// readable tells whether what connections to the listener carry can be read.
func (l *Listener) readable() bool {
	return l.spec.Protocol == "tcp" || l.spec.Protocol == "tls" && l.spec.TLS != nil && l.spec.TLS.Mode == "terminate"
}

// routesRequests tells whether the requests of a connection are to be routed
// one by one.
func (t *Table) routesRequests(in *Input, l *Listener, s *Service) bool {
	if !l.readable() {
		return false
	}
	src := t.source(in, l)
	return t.requestPolicy(s, &src) != nil
}

// requestPolicy is the MeshHTTPRoute by which requests from a source are
// routed; nil: none is, and MeshTCPRoutes decide. It acts where both sides
// speak HTTP.
func (t *Table) requestPolicy(s *Service, src *source) *policy {
	if s.requests == nil || !isHTTP(s.spec.Protocol) || !isHTTP(t.protocol(src).protocol) {
		return nil
	}
	return s.requests.chooser.choose(src)
}
