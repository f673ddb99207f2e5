package endpoint

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Spec is an endpoint in a service's current set. Address, Addr and Unix are
// its identity: while they stay the same it keeps its state.
type Spec struct {
	Address string
	Addr    netip.AddrPort
	Unix    string
	Tags    map[string]string // must not be changed afterwards
}

type identity struct {
	address string
	addr    netip.AddrPort
	unix    string
}

// Group is the endpoints of a service and their common state. It is safe for
// concurrent use. The observer is called without the lock held, on the
// goroutine that caused the change.
type Group struct {
	service string
	observe func(Event)
	// ejection is nil if ejection is disabled.
	ejection atomic.Pointer[Ejection]
	// ejectedCount is len(ejected), readable without the lock.
	ejectedCount atomic.Int32
	breaker      atomic.Pointer[Breaker] // nil: no bounds
	// usage has a cache line of its own: every connection writes it.
	_     [64]byte
	usage usage
	_     [56]byte

	mu      sync.Mutex
	filled  bool // Update was called
	members map[identity]*Endpoint
	list    []*Endpoint // replaced as a whole; in the order of Update
	ejected []*Endpoint // members with ejectedUntil set
	events  []Event     // collected under the lock, delivered after it
}

// NewGroup returns the group of a service. observe may be nil. It must not
// block, because the data path may call it.
func NewGroup(service string, observe func(Event)) *Group {
	if observe == nil {
		observe = func(Event) {}
	}
	return &Group{service: service, observe: observe, members: map[identity]*Endpoint{}}
}

// Service returns the name of the service.
func (g *Group) Service() string { return g.service }

// Notify passes an event to the observer, with Service filled in. It is for
// callers that change an endpoint's health.
func (g *Group) Notify(ev Event) {
	ev.Service = g.service
	g.observe(ev)
}

// Update replaces the service's endpoints by set and returns them in its order.
// An endpoint whose identity was in the previous set keeps its state (and
// remains the same Endpoint unless its tags changed); one that returns later
// starts afresh. Endpoints of the first Update have no slow start, later ones
// do. The result must not be changed.
func (g *Group) Update(set []Spec, now time.Time) []*Endpoint {
	g.mu.Lock()
	list := make([]*Endpoint, len(set))
	// Most sets differ from the last one in a few places, so only what lies
	// between the first and the last difference is looked up.
	from, to := 0, len(set)
	oldTo := len(g.list)
	if len(g.members) == len(g.list) { // no address is there twice
		for ; from < to && from < oldTo && g.list[from].is(&set[from]); from++ {
			list[from] = g.replace(&set[from], g.list[from], now)
		}
		for ; from < to && from < oldTo && g.list[oldTo-1].is(&set[to-1]); to, oldTo = to-1, oldTo-1 {
			list[to-1] = g.replace(&set[to-1], g.list[oldTo-1], now)
		}
	}
	g.updateBetween(list[from:to], set[from:to], g.list[from:oldTo], now)
	g.ejected = slices.DeleteFunc(g.ejected, func(e *Endpoint) bool { return !e.state().record.member })
	g.list, g.filled = list, true
	g.endEjections(now)
	events := g.takeEvents()
	g.mu.Unlock()

	g.deliver(events)
	return list
}

// is reports whether the endpoint has the identity of s.
func (e *Endpoint) is(s *Spec) bool {
	return e.Addr == s.Addr && e.Address == s.Address && e.Unix == s.Unix
}

// identity returns the endpoint's identity, in strings of its own.
func (e *Endpoint) identity() identity { return identity{e.Address, e.Addr, e.Unix} }

// replace returns the Endpoint for s, which known is before, and records it.
func (g *Group) replace(s *Spec, known *Endpoint, now time.Time) *Endpoint {
	e := g.endpoint(*s, known, now)
	if e != known {
		g.members[e.identity()] = e
	}
	return e
}

// updateBetween fills list with the Endpoints for set, which takes the place of
// old in the group.
func (g *Group) updateBetween(list []*Endpoint, set []Spec, old []*Endpoint, now time.Time) {
	before := make(map[identity]*Endpoint, len(old))
	for _, e := range old {
		id := e.identity()
		if known := g.members[id]; known != nil {
			before[id] = known
			delete(g.members, id)
		}
	}
	for i, s := range set {
		id := identity{s.Address, s.Addr, s.Unix}
		known := g.members[id]
		if known == nil {
			known = before[id]
		}
		list[i] = g.endpoint(s, known, now)
		g.members[list[i].identity()] = list[i]
	}
	for id, e := range before {
		if g.members[id] == nil {
			e.state().record = record{}
		}
	}
}

// endpoint returns the Endpoint for s. known has the same identity or is nil.
func (g *Group) endpoint(s Spec, known *Endpoint, now time.Time) *Endpoint {
	if known != nil && maps.Equal(known.Tags, s.Tags) {
		return known
	}
	// Clone the strings: they would keep the whole document alive.
	e := &Endpoint{Address: strings.Clone(s.Address), Addr: s.Addr, Unix: strings.Clone(s.Unix), Tags: cloneTags(s.Tags)}
	if known != nil {
		e.shared = known.state()
		return e
	}
	e.own.record.member = true
	if g.filled {
		e.own.usableSince.Store(Stamp(now))
	}
	return e
}

func cloneTags(tags map[string]string) map[string]string {
	if tags == nil {
		return nil
	}
	own := make(map[string]string, len(tags))
	for k, v := range tags {
		own[strings.Clone(k)] = strings.Clone(v)
	}
	return own
}

// Endpoints returns the service's endpoints in the order of the last Update.
// The slice must not be changed.
func (g *Group) Endpoints() []*Endpoint {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list
}

// takeEvents returns the collected events, to be delivered without the lock.
func (g *Group) takeEvents() []Event {
	events := g.events
	g.events = nil
	return events
}

func (g *Group) deliver(events []Event) {
	for _, ev := range events {
		g.Notify(ev)
	}
}
