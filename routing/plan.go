package routing

import (
	"iter"

	"penstock/routing/httprule"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// Plan says where the connections or requests of a client go. It is Decide for
// those who balance by themselves: all shares instead of one turn, and nothing
// that a single node knows, such as health or the addresses of host names.
type Plan struct {
	// Policy is the deciding route; "" if there is none.
	Policy string
	// Backends share the connections, and the requests that no rule matches. None:
	// all are closed.
	Backends []PlanBackend
	// Rules are those of a MeshHTTPRoute in order of precedence: the first that
	// matches a request decides. Nil: connections are routed as a whole.
	Rules []PlanRule
}

// PlanBackend is a backend with a share.
type PlanBackend struct {
	Service string
	Tags    map[string]string // of a subset; nil: the whole service
	Weight  int               // at least 1
	// Closed is why connections for the share are closed; "" if they are not.
	Closed string
}

// PlanRule is one match of a rule and what the rule does.
type PlanRule struct {
	// Match has paths in normal form.
	Match resource.HTTPMatch
	// Filters have paths in normal form.
	Filters []resource.HTTPFilter
	// Backends share the requests. None: they are answered 503, or redirected.
	Backends []PlanBackend
}

// Usable reports whether a service, or the subset with these tags, has an
// endpoint that takes connections.
type Usable func(service string, tags map[string]string) bool

// Client is what a Plan depends on of a client, as far as it is known: nothing
// but the service that it belongs to. It is comparable: equal Clients have the
// same Plan on every table that has the same *Service of the destination.
type Client struct {
	// Service is the client's service; "" if the routes do not look at it.
	Service string
	// HTTP: the client speaks HTTP, and the destination has MeshHTTPRoutes.
	HTTP bool
}

// Client returns the clients of a service as the routes to a destination see
// them.
func (t *Table) Client(service, destination string) Client {
	s, ok := t.services.Get(destination)
	if !ok {
		return Client{Service: service}
	}
	c := Client{Service: service}
	byService, byProtocol := s.PlansBy()
	if byProtocol {
		src := c.source()
		c.HTTP = isHTTP(t.protocol(&src).protocol)
	}
	if !byService {
		c.Service = ""
	}
	return c
}

// PlansBy reports what of its clients the plans of a destination depend on: their
// service, and whether they speak HTTP.
func (s *Service) PlansBy() (service, protocol bool) {
	service = !s.chooser.ignoresSource || s.requests != nil && !s.requests.chooser.ignoresSource
	return service, s.requests != nil
}

func (c Client) source() source {
	return source{layers: [4]map[string]string{0: {serviceTags[0]: c.Service}}}
}

// Plan returns the plan for clients. ok is false if the destination does not
// exist. A backend that is not usable gets no share, as in Decide.
func (t *Table) Plan(c Client, destination string, usable Usable) (p Plan, ok bool) {
	s, ok := t.services.Get(destination)
	if !ok {
		return Plan{}, false
	}
	src := c.source()
	whole := []PlanBackend{{Service: destination, Weight: 1}}
	if c.HTTP && s.requests != nil && isHTTP(s.spec.Protocol) {
		if by := s.requests.chooser.choose(&src); by != nil {
			return Plan{Policy: by.route, Backends: whole, Rules: by.http.planRules(usable)}, true
		}
	}
	if by := s.chooser.choose(&src); by != nil {
		return Plan{Policy: by.route, Backends: by.plan(usable)}, true
	}
	return Plan{Backends: whole}, true
}

// plan returns the backends that get a share.
func (sh *shares) plan(usable Usable) (list []PlanBackend) {
	for i := range sh.refs {
		r := &sh.refs[i]
		b := PlanBackend{Service: r.Name, Tags: r.subsetTags(), Weight: *r.Weight, Closed: r.closed}
		if b.Weight > 0 && r.whole != nil && (b.Closed != "" || usable(b.Service, b.Tags)) {
			list = append(list, b)
		}
	}
	return list
}

func (h *httpPolicy) planRules(usable Usable) []PlanRule {
	backends := make([][]PlanBackend, len(h.shares))
	for i := range h.shares {
		backends[i] = h.shares[i].plan(usable)
	}
	rules := []PlanRule{}
	for m := range h.rules.InOrder() {
		rules = append(rules, PlanRule{
			Match:    httprule.Normal(&h.spec[m.Rule].Matches[m.Index]),
			Filters:  h.rules.Filters(m),
			Backends: backends[m.Rule],
		})
	}
	return rules
}

// Backends iterates over the backends that the routes to the service name,
// whether they exist and get a share or not. The tags are those of a subset. Some
// may come several times.
func (s *Service) Backends() iter.Seq2[string, map[string]string] {
	return func(yield func(string, map[string]string) bool) {
		for sh := range s.allShares() {
			for i := range sh.refs {
				if !yield(sh.refs[i].Name, sh.refs[i].subsetTags()) {
					return
				}
			}
		}
	}
}

// allShares iterates over what all routes to the service divide.
func (s *Service) allShares() iter.Seq[*shares] {
	return func(yield func(*shares) bool) {
		for _, p := range s.policies {
			if !yield(&p.shares) {
				return
			}
		}
		if s.requests == nil {
			return
		}
		for _, p := range s.requests.policies {
			for i := range p.http.shares {
				if !yield(&p.http.shares[i]) {
					return
				}
			}
		}
	}
}

// subsetTags returns the tags of a subset; nil for a whole service.
func (r *ref) subsetTags() map[string]string {
	if r.Kind != kindMeshServiceSubset {
		return nil
	}
	return r.Tags
}

// RoutedTo returns the destinations that have a route to a service, sorted. It
// must not be changed.
func (t *Table) RoutedTo(service string) []string {
	names, _ := t.backendOf.Get(service)
	return names
}

// ChangedServices iterates over the services of which the table has another
// version than an older one, or only one of both has any. A service changes with
// the services that its routes name.
func (t *Table) ChangedServices(old *Table) iter.Seq[string] {
	same := func(a, b *Service) bool { return a == b }
	changed := t.services.Changed(old.services, same)
	return func(yield func(string) bool) {
		for name := range changed {
			if !isGatewayName(name) && !yield(name) {
				return
			}
		}
	}
}

// Known is an endpoint as the resources and providers have it: its host name is
// not resolved, and its health is unknown.
type Known struct {
	Address string
	Tags    map[string]string
	Weight  int
	Level   int // as in balance.Member
	State   provider.State
}

// Known lists the endpoints of the service, without those of the providers that
// skip names. As in the table, an address of several providers counts once, as
// the first has it, and is terminating if any of them says so.
func (s *Service) Known(d Discovered, skip func(provider string) bool) []Known {
	list := make([]Known, 0, len(s.spec.Endpoints))
	first := make(map[string]int, len(s.spec.Endpoints))
	for i := range s.spec.Endpoints {
		e := &s.spec.Endpoints[i]
		if _, known := first[e.Address]; !known {
			first[e.Address] = i
		}
		list = append(list, Known{Address: e.Address, Tags: e.Tags, Weight: *e.Weight, Level: levelOf(e)})
	}
	if d == nil {
		return list
	}
	from := sources(s.spec)
	for i := range from {
		if skip(from[i].Provider) {
			continue
		}
		found := d.Lookup(RefOf(s.name, &from[i]))
		for j := range found {
			e := &found[j]
			if !hasTags(e.Tags, from[i].Select) {
				continue
			}
			place, known := first[e.Address]
			switch {
			case !known:
				first[e.Address] = len(list)
				list = append(list, Known{e.Address, withTags(e.Tags, from[i].Tags), e.Weight, 0, e.State})
			case e.State == provider.Terminating:
				for ; place < len(list) && list[place].Address == e.Address; place++ {
					list[place].State = provider.Terminating
				}
			}
		}
	}
	return list
}
