package routing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"penstock/routing/resource"
)

// Effective is the combined effect of the policies for one destination: which
// policy decides for which source, and why the others do not.
type Effective struct {
	Destination string `json:"destination" yaml:"destination"`
	// Missing: the service does not exist, so its policies have no effect.
	Missing bool `json:"missing,omitempty" yaml:"missing,omitempty"`
	// Policies is the number of policies for the destination.
	Policies int `json:"policies" yaml:"policies"`
	// Sources are in order of precedence: the first that includes a connection's
	// source decides.
	Sources []EffectiveSource `json:"sources" yaml:"sources"`
	// Requests are the sources whose requests are routed individually, in order of
	// precedence. It applies to sources that speak HTTP on listeners that can read
	// it, unless NoRequests gives a reason why not.
	Requests   []EffectiveSource `json:"requests,omitempty" yaml:"requests,omitempty"`
	NoRequests string            `json:"noRequests,omitempty" yaml:"noRequests,omitempty"`
}

// EffectiveSource describes the connections from the sources that one targetRef
// selects. Several policies may share that targetRef.
type EffectiveSource struct {
	Source string `json:"source" yaml:"source"` // as in "MeshService web"; OtherSources: selected by no policy
	// Policy decides for the sources that match Source and no Except; "" if the
	// connection goes to the destination itself.
	Policy   string             `json:"policy,omitempty" yaml:"policy,omitempty"`
	Backends []EffectiveBackend `json:"backends" yaml:"backends"`
	// Rules are the rules of a MeshHTTPRoute, instead of Backends. MoreRules
	// counts the rules that are not listed.
	Rules     []EffectiveRule `json:"rules,omitempty" yaml:"rules,omitempty"`
	MoreRules int             `json:"moreRules,omitempty" yaml:"moreRules,omitempty"`
	// Rollout is the state of the policy's rollout, which sets the weights; nil if
	// the policy has none.
	Rollout *RolloutProgress `json:"rollout,omitempty" yaml:"rollout,omitempty"`
	// Reason is why all these connections are closed; "" if they are not.
	Reason Reason `json:"reason,omitempty" yaml:"reason,omitempty"`
	// Never says why no connection can have this source.
	Never string `json:"never,omitempty" yaml:"never,omitempty"`
	// Losers match too but come later; MoreLosers counts those not listed.
	Losers     []EffectiveLoser `json:"losers,omitempty" yaml:"losers,omitempty"`
	MoreLosers int              `json:"moreLosers,omitempty" yaml:"moreLosers,omitempty"`
	// Except are more specific policies that decide for some of these sources
	// instead. MoreExcept counts those not listed.
	Except     []EffectivePolicy `json:"except,omitempty" yaml:"except,omitempty"`
	MoreExcept int               `json:"moreExcept,omitempty" yaml:"moreExcept,omitempty"`
}

// OtherSources is the EffectiveSource.Source of sources that no policy selects.
const OtherSources = "other sources"

// EffectiveBackend is one backendRef of the deciding policy.
type EffectiveBackend struct {
	Service string            `json:"service" yaml:"service"`
	Tags    map[string]string `json:"tags,omitempty" yaml:"tags,omitempty"`
	Weight  int               `json:"weight" yaml:"weight"`
	Share   float64           `json:"share" yaml:"share"`                         // of the connections, 0 to 1
	Skipped string            `json:"skipped,omitempty" yaml:"skipped,omitempty"` // why it gets no connections
	Closed  string            `json:"closed,omitempty" yaml:"closed,omitempty"`   // why connections for it are closed; it keeps its share
}

// EffectivePolicy is a policy and the sources that it selects.
type EffectivePolicy struct {
	Policy string `json:"policy" yaml:"policy"`
	Source string `json:"source" yaml:"source"`
}

// EffectiveLoser is a policy that matches but does not decide.
type EffectiveLoser struct {
	Policy string `json:"policy" yaml:"policy"`
	Source string `json:"source" yaml:"source"`
	Why    string `json:"why" yaml:"why"`
}

// EffectiveQuery selects a page of the effective policies.
type EffectiveQuery struct {
	// Destination restricts the result to one service; "": every destination with
	// policies.
	Destination string
	// All includes the services without policies.
	All bool
	// After is the cursor that the previous page returned.
	After EffectiveCursor
	// Limit bounds the number of listed sources and policies; each page has at
	// least one source. 0: no bound.
	Limit int
}

// EffectiveCursor is a position in the result: after Sources sources of
// Destination and everything before that destination.
type EffectiveCursor struct {
	Destination string `json:"destination,omitempty" yaml:"destination,omitempty"`
	Sources     int    `json:"sources,omitempty" yaml:"sources,omitempty"`
}

// maxListed bounds the losers, and the exceptions, that are listed per source.
const maxListed = 100

// Effective lists the effective policies by destination. more is the cursor of
// the next page, nil after the last. The sources of one destination may be
// spread over several pages.
func (t *Table) Effective(q *EffectiveQuery) (list []Effective, more *EffectiveCursor) {
	left := q.Limit
	for _, name := range t.destinations(q) {
		skip := 0
		if name == q.After.Destination {
			skip = q.After.Sources
		}
		if q.Limit > 0 && left <= 0 {
			return list, &EffectiveCursor{Destination: name, Sources: skip}
		}
		e, next := t.effective(name, skip, &left)
		list = append(list, e)
		if next > 0 {
			return list, &EffectiveCursor{Destination: name, Sources: next}
		}
	}
	return list, nil
}

// destinations returns the sorted destinations that a query selects.
func (t *Table) destinations(q *EffectiveQuery) []string {
	var names []string
	add := func(name string) {
		if name >= q.After.Destination && (q.Destination == "" || name == q.Destination) {
			names = append(names, name)
		}
	}
	for name := range t.routesTo.All() {
		add(name)
	}
	for name := range t.httpRoutesTo.All() {
		add(name)
	}
	for name := range t.gatewayDestinations.All() {
		add(name)
	}
	if q.All || q.Destination != "" {
		for name := range t.services.All() {
			add(name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// effective describes one destination, starting at its skip-th source; sources
// of requests come after those of connections. If a positive left is used up
// before the end, next is the source to continue with.
func (t *Table) effective(name string, skip int, left *int) (e Effective, next int) {
	routes, _ := t.routesTo.Get(name)
	http, _ := t.httpRoutesTo.Get(name)
	e = Effective{Destination: name, Policies: len(routes) + len(http), Sources: []EffectiveSource{}}
	s, ok := t.services.Get(name)
	if !ok {
		e.Missing = true
		*left--
		return e, 0
	}
	if isGatewayName(name) {
		e.Policies = len(s.policies)
	}
	bounded := *left > 0
	classes, requests := s.classes(), s.requestClasses()
	if len(requests) > 0 && !isHTTP(s.spec.Protocol) {
		e.NoRequests = "the service speaks " + s.spec.Protocol + ", not http or http2"
	}
	for i := skip; i < len(classes)+len(requests); i++ {
		if bounded && *left <= 0 {
			return e, i
		}
		if i >= len(classes) {
			one := effectiveAmong(&requests[i-len(classes)], s.requests.policies)
			*left -= 1 + len(one.Losers) + len(one.Except) + len(one.Rules)
			e.Requests = append(e.Requests, one)
			continue
		}
		one := s.effectiveFor(&classes[i])
		*left -= 1 + len(one.Losers) + len(one.Except)
		e.Sources = append(e.Sources, one)
	}
	return e, 0
}

// class is the set of sources that a targetRef selects, or with a nil ref the
// sources that no targetRef selects.
type class struct {
	ref    *resource.TargetRef
	sample source // the simplest source in the class
}

// classes returns the distinct sources of the policies for a service in order
// of precedence, followed by the sources without a policy, if any.
func (s *Service) classes() []class {
	all := classesOf(s.policies)
	if anyone := (&source{}); s.first(anyone) == nil {
		all = append(all, class{})
	}
	return all
}

// requestClasses returns the classes of the service's MeshHTTPRoutes.
// Connections from other sources are routed as a whole.
func (s *Service) requestClasses() []class {
	if s.requests == nil {
		return nil
	}
	return classesOf(s.requests.policies)
}

// classesOf returns the distinct sources of policies.
func classesOf(policies []*policy) (all []class) {
	seen := map[string]bool{}
	for _, p := range policies {
		if text := refText(&p.source); !seen[text] {
			seen[text] = true
			all = append(all, class{&p.source, simplest(&p.source)})
		}
	}
	return all
}

// simplest returns a source that has only what the targetRef requires.
func simplest(r *resource.TargetRef) source {
	tags := map[string]string{}
	switch r.Kind {
	case kindMeshService, kindMeshServiceSubset:
		tags[serviceTags[0]] = r.Name
		fallthrough
	case kindMeshSubset:
		maps.Copy(tags, r.Tags)
	}
	return source{layers: [4]map[string]string{0: tags}}
}

// first returns the policy that decides for a source, or nil.
func (s *Service) first(src *source) *policy {
	for _, p := range s.policies {
		if src.matches(&p.source) {
			return p
		}
	}
	return nil
}

// effectiveFor describes what happens to one class of sources.
func (s *Service) effectiveFor(c *class) EffectiveSource {
	if c.ref == nil {
		return EffectiveSource{Source: OtherSources, Backends: []EffectiveBackend{{Service: s.name, Weight: 1, Share: 1}}}
	}
	return effectiveAmong(c, s.policies)
}

// effectiveAmong determines which of the policies decides for a class.
func effectiveAmong(c *class, policies []*policy) EffectiveSource {
	e := EffectiveSource{Source: refText(c.ref), Backends: []EffectiveBackend{}}
	if !c.sample.matches(c.ref) {
		e.Never = "a source with these tags belongs to another service"
		return e
	}
	var winner *policy
	for _, p := range policies {
		switch {
		case c.sample.matches(&p.source) && winner == nil:
			winner = p
			if p.http != nil {
				e.Policy, e.Rules = p.route, p.http.effectiveRules(maxListed)
				e.MoreRules = len(p.http.spec) - len(e.Rules)
				continue
			}
			e.Policy, e.Backends, e.Rollout, e.Reason = p.route, p.effectiveBackends(), p.rollout.current(), p.reason()
		case c.sample.matches(&p.source):
			if len(e.Losers) == maxListed {
				e.MoreLosers++
				continue
			}
			e.Losers = append(e.Losers, EffectiveLoser{Policy: p.route, Source: refText(&p.source), Why: p.losesTo(winner)})
		case winner == nil && overlap(c.ref, &p.source):
			if len(e.Except) == maxListed {
				e.MoreExcept++
				continue
			}
			e.Except = append(e.Except, EffectivePolicy{Policy: p.route, Source: refText(&p.source)})
		}
	}
	return e
}

// overlap reports whether a source can match both.
func overlap(a, b *resource.TargetRef) bool {
	if a.Kind == kindMesh || b.Kind == kindMesh {
		return true
	}
	if a.Name != "" && b.Name != "" && a.Name != b.Name {
		return false
	}
	for k, v := range a.Tags {
		if w, both := b.Tags[k]; both && v != w {
			return false
		}
	}
	// The service tag of either must not name another service.
	service := cmp.Or(a.Name, b.Name)
	for _, tags := range []map[string]string{a.Tags, b.Tags} {
		if v, ok := tags[serviceTags[0]]; ok && service != "" && v != service {
			return false
		}
	}
	return true
}

// losesTo explains why a policy comes after the winner.
func (p *policy) losesTo(winner *policy) string {
	if rank, best := slices.Index(precedence, p.source.Kind), slices.Index(precedence, winner.source.Kind); rank < best {
		return fmt.Sprintf("less specific than %s", winner.source.Kind)
	}
	switch {
	case len(p.source.Tags) < len(winner.source.Tags):
		return fmt.Sprintf("fewer tags: %d, not %d", len(p.source.Tags), len(winner.source.Tags))
	case refText(&p.source) == refText(&winner.source):
		return "same source, later by name"
	}
	return "equally specific, later by name"
}

// reason returns NoBackend if no backend gets a share, otherwise OK.
func (sh *shares) reason() Reason {
	if len(sh.live) == 0 {
		return NoBackend
	}
	return OK
}

func (sh *shares) effectiveBackends() []EffectiveBackend {
	sum := 0
	for _, w := range sh.weight {
		sum += w
	}
	list := make([]EffectiveBackend, len(sh.refs))
	for i := range sh.refs {
		r := &sh.refs[i]
		list[i] = EffectiveBackend{Service: r.Name, Tags: r.Tags, Weight: *r.Weight, Skipped: r.skipped, Closed: r.closed}
		if r.skipped == "" {
			list[i].Share = float64(*r.Weight) / float64(sum)
		}
	}
	return list
}
