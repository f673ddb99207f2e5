package translate

import (
	"maps"
	"reflect"
	"sync"

	"penstock/node/xds/snapshot"
	"penstock/routing"
	"penstock/routing/resource"
)

// plan is where some clients' connections and requests to a destination go, with
// the listeners and routes that say so.
type plan struct {
	routing.Plan
	to   string
	spec *resource.Service // of the destination
	// hashes: some backend picks endpoints by a hash of the client's address.
	hashes   bool
	clusters []subset // of all backends, each once

	mu    sync.Mutex
	at    map[string]*snapshot.Resource // listeners by address; guarded by mu
	route *snapshot.Resource            // guarded by mu
}

func (s *Snapshot) makePlan(client routing.Client, to *service) *plan {
	p := &plan{to: to.Name(), spec: to.Spec()}
	p.Plan, _ = s.table.Plan(client, p.to, s.usable)
	p.addBackends(s, p.Backends)
	for i := range p.Rules {
		p.addBackends(s, p.Rules[i].Backends)
	}
	if !isHTTP(p.spec.Protocol) && p.closes() {
		p.clusters = append(p.clusters, subset{name: closedCluster})
	}
	return p
}

func (p *plan) addBackends(s *Snapshot, backends []routing.PlanBackend) {
	for i := range backends {
		b := &backends[i]
		if b.Closed != "" {
			continue
		}
		if of, ok := s.services.Get(b.Service); ok && of.shared.spec.Balancing.Policy == "maglev" {
			p.hashes = true
		}
		if x := subsetOf(b.Service, b.Tags); p.find(x.name) == nil {
			p.clusters = append(p.clusters, x)
		}
	}
}

// closes reports whether some connections are closed.
func (p *plan) closes() bool {
	for i := range p.Backends {
		if p.Backends[i].Closed != "" {
			return true
		}
	}
	return len(p.Backends) == 0
}

// find returns a cluster by its name, or nil.
func (p *plan) find(name string) *subset {
	for i := range p.clusters {
		if p.clusters[i].name == name {
			return &p.clusters[i]
		}
	}
	return nil
}

// same reports whether two plans for a destination make the same resources.
func (p *plan) same(other *plan) bool {
	return p.spec == other.spec && p.hashes == other.hashes && reflect.DeepEqual(p.Plan, other.Plan)
}

// listener returns the destination's listener at an address.
func (p *plan) listener(address string) *snapshot.Resource {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.at[address]; r != nil {
		return r
	}
	if p.at == nil {
		p.at = map[string]*snapshot.Resource{}
	}
	name := listenerName(p.to)
	p.at[address] = encode(snapshot.Listener, name, p.makeListener(name, address))
	return p.at[address]
}

// allListeners returns a copy of the listeners by address.
func (p *plan) allListeners() map[string]*snapshot.Resource {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.at)
}

// routes returns the destination's RouteConfiguration.
func (p *plan) routes() *snapshot.Resource {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.route == nil {
		p.route = encode(snapshot.Route, p.to, p.makeRoutes())
	}
	return p.route
}

// isHTTP reports whether proxies can read the requests of a protocol.
func isHTTP(protocol string) bool { return protocol == "http" || protocol == "http2" }

func speaksHTTP(s *service) bool { return isHTTP(s.Spec().Protocol) }
