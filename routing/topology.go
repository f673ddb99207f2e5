package routing

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/routing/resource"
)

// Topology is what a table connects: listeners, services and subsets of them,
// and the routes between these. Lists are sorted.
type Topology struct {
	Listeners []TopologyListener `json:"listeners"`
	Services  []TopologyService  `json:"services"`
	Edges     []TopologyEdge     `json:"edges"`
	// Truncated: there is more than TopologyQuery.Limit.
	Truncated bool `json:"truncated,omitempty"`
}

// TopologyListener is a listener.
type TopologyListener struct {
	Name     string `json:"name"`
	Address  string `json:"address"`
	Protocol string `json:"protocol"`
}

// TopologyService is a service.
type TopologyService struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	// Endpoints counts them, Usable those that this node may use now.
	Endpoints int `json:"endpoints"`
	Usable    int `json:"usable"`
	// Sources are where the endpoints come from: "service" for the Service itself,
	// the names of providers, and "announced".
	Sources []string `json:"sources,omitempty"`
	// Policies are the routes whose destination it is.
	Policies []string `json:"policies,omitempty"`
}

// The kinds of a TopologyNode.
const (
	NodeListener = "listener"
	NodeService  = "service"
	NodeSubset   = "subset"
	NodeRoute    = "route" // of the Gateway API
	NodeProxies  = "proxies"
)

// TopologyNode is an end of an edge: a listener, a service, a subset of one by
// its tags, a route of the Gateway API, or the proxies of a service.
type TopologyNode struct {
	Kind string            `json:"kind"`
	Name string            `json:"name"`
	Tags map[string]string `json:"tags,omitempty"`
}

// Text returns the node as messages show it: its name and tags.
func (n *TopologyNode) Text() string { return resource.SubsetText(n.Name, n.Tags) }

// TopologyEdge is a way that connections or requests take.
type TopologyEdge struct {
	From TopologyNode `json:"from"`
	To   TopologyNode `json:"to"`
	// Hosts are the server names of a listener that lead there, at most
	// maxListed; MoreHosts counts the others. None: all names that no other edge of
	// the listener has.
	Hosts     []string `json:"hosts,omitempty"`
	MoreHosts int      `json:"moreHosts,omitempty"`
	// Policy is the route that splits, for connections from Source; Requests are the
	// requests that a rule of it matches.
	Policy   string   `json:"policy,omitempty"`
	Source   string   `json:"source,omitempty"`
	Requests []string `json:"requests,omitempty"`
	// Weight is the backend's, Share its part of the connections, 0 to 1.
	Weight int     `json:"weight,omitempty"`
	Share  float64 `json:"share,omitempty"`
	// Skipped is why the backend gets no connections, Closed why those for it are
	// closed.
	Skipped string `json:"skipped,omitempty"`
	Closed  string `json:"closed,omitempty"`
}

// TopologyQuery selects a part of the topology.
type TopologyQuery struct {
	// Service restricts it to one service and the edges from and to it; "": none.
	Service string
	// ServicesOnly leaves out listeners and edges.
	ServicesOnly bool
	// Limit bounds the listeners, services and edges together; 0: no bound.
	Limit int
}

// Topology describes the table. ok is false if the query's service does not
// exist.
func (t *Table) Topology(q *TopologyQuery, now time.Time) (topology Topology, ok bool) {
	b := topologyBuilder{table: t, query: q, now: now}
	b.out = Topology{Listeners: []TopologyListener{}, Services: []TopologyService{}, Edges: []TopologyEdge{}}
	if q.Service != "" {
		s, exists := t.Service(q.Service)
		if !exists {
			return b.out, false
		}
		b.service(s)
	} else {
		for _, s := range slices.SortedFunc(t.Services(), func(a, b *Service) int { return cmp.Compare(a.name, b.name) }) {
			if b.room() {
				b.service(s)
			}
		}
	}
	if !q.ServicesOnly {
		b.listeners()
		b.policies()
		b.upstreams()
	}
	return b.out, true
}

// topologyBuilder builds a Topology.
type topologyBuilder struct {
	table *Table
	query *TopologyQuery
	now   time.Time
	out   Topology
}

// room reports whether there is room for one more item.
func (b *topologyBuilder) room() bool {
	n := len(b.out.Listeners) + len(b.out.Services) + len(b.out.Edges)
	if b.query.Limit > 0 && n >= b.query.Limit {
		b.out.Truncated = true
		return false
	}
	return true
}

// edge adds an edge, if the query selects it.
func (b *topologyBuilder) edge(e *TopologyEdge) bool {
	if name := b.query.Service; name != "" && e.From.Name != name && e.To.Name != name || !b.room() {
		return false
	}
	b.out.Edges = append(b.out.Edges, *e)
	return true
}

func (b *topologyBuilder) service(s *Service) {
	members := s.Members()
	one := TopologyService{Name: s.name, Protocol: s.spec.Protocol, Endpoints: len(members) + len(s.unresolved)}
	for i := range members {
		if members[i].Usable(b.now) {
			one.Usable++
		}
	}
	if len(s.spec.Endpoints) > 0 {
		one.Sources = append(one.Sources, "service")
	}
	from := sources(s.spec)
	for i := range from {
		if name := sourceName(from[i].Provider); !slices.Contains(one.Sources, name) {
			one.Sources = append(one.Sources, name)
		}
	}
	one.Policies = s.policyNames()
	b.out.Services = append(b.out.Services, one)
}

// policyNames lists the routes to a service, sorted, at most maxListed.
func (s *Service) policyNames() (names []string) {
	all := s.policies
	if s.requests != nil {
		all = slices.Concat(all, s.requests.policies)
	}
	for _, p := range all[:min(len(all), maxListed)] {
		names = append(names, p.route)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// nodeOf returns the node of a service, or of a subset of it.
func nodeOf(service string, tags map[string]string) TopologyNode {
	switch {
	case len(tags) > 0:
		return TopologyNode{Kind: NodeSubset, Name: service, Tags: tags}
	case isGatewayName(service):
		return TopologyNode{Kind: NodeRoute, Name: service}
	}
	return TopologyNode{Kind: NodeService, Name: service}
}

// listeners adds the listeners and where their names lead.
func (b *topologyBuilder) listeners() {
	byName := func(a, b *Listener) int { return cmp.Compare(a.name, b.name) }
	for _, l := range slices.SortedFunc(b.table.Listeners(), byName) {
		hosts := map[string][]string{}
		if l.spec.Service != "" {
			hosts[l.spec.Service] = nil
		}
		for pattern, target := range l.hosts.All() {
			for _, service := range target.services() {
				hosts[service] = append(hosts[service], pattern)
			}
		}
		if !b.room() {
			return
		}
		used := b.query.Service == ""
		for _, service := range slices.Sorted(maps.Keys(hosts)) {
			names := hosts[service]
			slices.Sort(names)
			e := TopologyEdge{From: TopologyNode{Kind: NodeListener, Name: l.name}, To: nodeOf(service, nil)}
			if service != l.spec.Service {
				e.Hosts = names[:min(len(names), maxListed)]
				e.MoreHosts = len(names) - len(e.Hosts)
			}
			used = b.edge(&e) || used
		}
		if used {
			b.out.Listeners = append(b.out.Listeners, TopologyListener{l.name, l.spec.Address, l.spec.Protocol})
		}
	}
}

// services lists the services that a name may lead to.
func (t *target) services() (list []string) {
	if t.service != "" {
		list = append(list, t.service)
	}
	for i := range t.limited {
		if name := t.limited[i].service; !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	return list
}

// policies adds the splits of all routes.
func (b *topologyBuilder) policies() {
	for _, name := range b.table.destinations(&EffectiveQuery{}) {
		if b.query.Limit > 0 && b.out.Truncated {
			return
		}
		left := 0
		e, _ := b.table.effective(name, 0, &left)
		for i := range e.Sources {
			s := &e.Sources[i]
			if s.Policy != "" {
				b.backends(name, s, nil, s.Backends)
			}
		}
		for i := range e.Requests {
			s := &e.Requests[i]
			for j := range s.Rules {
				b.backends(name, s, s.Rules[j].Requests, s.Rules[j].Backends)
			}
		}
	}
}

// backends adds an edge for each backend of a policy.
func (b *topologyBuilder) backends(destination string, s *EffectiveSource, requests []string, list []EffectiveBackend) {
	for i := range list {
		x := &list[i]
		b.edge(&TopologyEdge{
			From: nodeOf(destination, nil), To: nodeOf(x.Service, x.Tags), Policy: s.Policy, Source: s.Source, Requests: requests,
			Weight: x.Weight, Share: x.Share, Skipped: x.Skipped, Closed: x.Closed,
		})
	}
}

// upstreams adds which services the proxies of others may reach.
func (b *topologyBuilder) upstreams() {
	for _, s := range slices.SortedFunc(b.table.Services(), func(a, b *Service) int { return strings.Compare(a.name, b.name) }) {
		if s.spec.Discovery == nil {
			continue
		}
		for _, u := range s.spec.Discovery.Upstreams {
			to := u.Service
			if to == "*" && b.query.Service != "" {
				to = b.query.Service
			}
			b.edge(&TopologyEdge{From: TopologyNode{Kind: NodeProxies, Name: s.name}, To: nodeOf(to, nil)})
		}
	}
}
