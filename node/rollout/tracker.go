package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"penstock/routing/resource"
)

// kindRoute is the kind of the resources that may have a rollout.
const kindRoute = "MeshTCPRoute"

// Tracker is a node's record of rollouts: the routes that have one, their
// states, and how long each state has been in force, by this node's monotonic
// clock. Its methods are safe for concurrent use. The zero Tracker is empty.
type Tracker struct {
	mu      sync.Mutex
	entries map[string]*entry // by route name
}

// entry is the record of one route. It exists while route or state is set.
type entry struct {
	route *resource.MeshTCPRoute // nil: there is no route with a rollout
	state *State                 // nil: none is stored
	since time.Time              // of state; it carries the monotonic clock
}

// Item is the record of one route. Route or State may be nil.
type Item struct {
	Name    string
	Route   *resource.MeshTCPRoute // with a rollout
	State   *State
	Watched time.Duration // how long State has been in force
}

// Apply records changes of resources that are now in force here.
func (b *Tracker) Apply(changes []resource.Change, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range changes {
		ch := &changes[i]
		switch ch.Kind {
		case kindRoute:
			r, _ := ch.Spec.(*resource.MeshTCPRoute)
			if ch.Delete || r == nil || r.Rollout == nil {
				r = nil
			}
			if e := b.entry(ch.Name, r != nil); e != nil {
				e.route = r
			}
		case resource.KindRollout:
			s, _ := ch.Spec.(*State)
			if ch.Delete {
				s = nil
			}
			if e := b.entry(ch.Name, s != nil); e != nil && !s.Same(e.state) {
				e.state, e.since = s, now
			}
		default:
			continue
		}
		if e := b.entries[ch.Name]; e != nil && e.route == nil && e.state == nil {
			delete(b.entries, ch.Name)
		}
	}
}

// entry returns the record of a route, and creates it if needed.
func (b *Tracker) entry(name string, needed bool) *entry {
	e := b.entries[name]
	if e == nil && needed {
		if b.entries == nil {
			b.entries = map[string]*entry{}
		}
		e = new(entry)
		b.entries[name] = e
	}
	return e
}

// All returns all records, sorted by name.
func (b *Tracker) All(now time.Time) []Item {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Item, 0, len(b.entries))
	for name, e := range b.entries {
		list = append(list, e.item(name, now))
	}
	slices.SortFunc(list, func(a, b Item) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Get returns the record of one route.
func (b *Tracker) Get(name string, now time.Time) (Item, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.entries[name]
	if e == nil {
		return Item{}, false
	}
	return e.item(name, now), true
}

func (e *entry) item(name string, now time.Time) Item {
	i := Item{Name: name, Route: e.route, State: e.state}
	if e.state != nil {
		i.Watched = max(0, now.Sub(e.since))
	}
	return i
}

// Begun reports whether State belongs to the route's current rollout.
func (i *Item) Begun() bool {
	return i.Route != nil && i.State != nil && i.State.Of == i.Route.RolloutOf()
}

// Acts returns the state in force here: State, or the first step if the rollout
// is in force but has no stored state yet.
func (i *Item) Acts() *State {
	if i.Begun() {
		return i.State
	}
	return &State{Phase: resource.RolloutRunning, Step: 1, Weight: i.Route.Rollout.WithDefaults().Steps[0].Weight}
}

// UnderWay reports whether the rollout needs attention by the leader.
func (i *Item) UnderWay() bool {
	switch {
	case i.Route == nil:
		return i.State != nil // to be deleted
	case !i.Begun():
		return true // to be started
	}
	return i.State.UnderWay()
}

// Mark identifies a version of a state in the observations of nodes; "" for
// none.
func Mark(s *State) string {
	if s == nil {
		return ""
	}
	sum := sha256.Sum256(resource.EncodeWithSecrets(resource.Object{Spec: s}))
	return hex.EncodeToString(sum[:8])
}
