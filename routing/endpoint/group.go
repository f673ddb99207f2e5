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
	members := make(map[identity]*Endpoint, len(set))
	list := make([]*Endpoint, len(set))
	for i, s := range set {
		id := identity{s.Address, s.Addr, s.Unix}
		known := members[id]
		if known == nil {
			known = g.members[id]
		}
		list[i] = g.endpoint(s, known, now)
		members[id] = list[i]
	}
	for id, e := range g.members {
		if members[id] == nil {
			e.state().record = record{}
		}
	}
	g.ejected = slices.DeleteFunc(g.ejected, func(e *Endpoint) bool { return !e.state().record.member })
	g.members, g.list, g.filled = members, list, true
	g.endEjections(now)
	events := g.takeEvents()
	g.mu.Unlock()

	g.deliver(events)
	return list
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
