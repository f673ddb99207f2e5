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

// Spec names an endpoint that a service has now. Service, Address, Addr and
// Unix are its identity: its state lives on while they stay.
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

// Group is what a service knows of its endpoints together. Its methods may be
// called from anywhere; the observer is called outside of its lock, on the
// goroutine that brought the change about.
type Group struct {
	service string
	observe func(Event)
	// ejection is nil while none is configured.
	ejection atomic.Pointer[Ejection]
	// out is len(ejected), to be read without the lock.
	out atomic.Int32

	mu      sync.Mutex
	filled  bool // Update was called
	members map[identity]*Endpoint
	list    []*Endpoint // replaced as a whole, in the order of Update
	ejected []*Endpoint // members with ejectedUntil set
	events  []Event     // found under the lock, told after it
}

// NewGroup makes the group of a service. observe may be nil; it must not
// block, since the data path may be what calls it.
func NewGroup(service string, observe func(Event)) *Group {
	if observe == nil {
		observe = func(Event) {}
	}
	return &Group{service: service, observe: observe, members: map[identity]*Endpoint{}}
}

// Service is the name of the service.
func (g *Group) Service() string { return g.service }

// Notify hands an event to the observer, Service filled in. It is for those
// who change an endpoint's health.
func (g *Group) Notify(ev Event) {
	ev.Service = g.service
	g.observe(ev)
}

// Update makes the set the service's endpoints and returns them in its order.
// An endpoint whose identity was there before keeps its state (and is the
// same Endpoint, unless its tags changed); one that comes again later starts
// afresh. Those of the first Update are usable from the start, later ones
// have their slow start. The result must not be changed.
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
	g.settle(now)
	events := g.take()
	g.mu.Unlock()

	g.tell(events)
	return list
}

// endpoint gives the Endpoint for s, where known has its identity or is nil.
func (g *Group) endpoint(s Spec, known *Endpoint, now time.Time) *Endpoint {
	if known != nil && maps.Equal(known.Tags, s.Tags) {
		return known
	}
	// It outlives the document that its texts are a part of.
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

// Endpoints lists the service's endpoints in the order of the last Update. It
// must not be changed.
func (g *Group) Endpoints() []*Endpoint {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list
}

// take gives the events found so far, to be told without the lock.
func (g *Group) take() []Event {
	events := g.events
	g.events = nil
	return events
}

func (g *Group) tell(events []Event) {
	for _, ev := range events {
		g.Notify(ev)
	}
}
