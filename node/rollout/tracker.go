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

// Tracker is what a node knows of rollouts: the routes that have one, how far each
// has come, and for how long it has been there, by this node's own clock. Its
// methods may be called from anywhere. The zero Tracker is empty.
type Tracker struct {
	mu      sync.Mutex
	entries map[string]*entry // by the route's name
}

// entry is one route of the book. It is there as long as either of the two is.
type entry struct {
	route *resource.MeshTCPRoute // nil: there is none with a rollout
	state *State                 // nil: none was noted
	since time.Time              // of state; it carries the monotonic clock
}

// Item is what the book has of one route. Either of the two may be nil.
type Item struct {
	Name    string
	Route   *resource.MeshTCPRoute // with a rollout
	State   *State
	Watched time.Duration // of State
}

// Apply takes in changes of resources that have come to act here.
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

// entry finds what the book has of a route; made where it is needed.
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

// All lists what the book has, by name.
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

// Get gives what the book has of one route.
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

// Begun tells whether what is noted is of the rollout that the route has.
func (i *Item) Begun() bool {
	return i.Route != nil && i.State != nil && i.State.Of == i.Route.RolloutOf()
}

// Acts is how far the rollout is here: State, or the first step of one that acts
// and is yet to be noted.
func (i *Item) Acts() *State {
	if i.Begun() {
		return i.State
	}
	return &State{Phase: resource.RolloutRunning, Step: 1, Weight: i.Route.Rollout.WithDefaults().Steps[0].Weight}
}

// UnderWay tells whether there is something for the leader to look after.
func (i *Item) UnderWay() bool {
	switch {
	case i.Route == nil:
		return i.State != nil // to be cleared up
	case !i.Begun():
		return true // to be begun
	}
	return i.State.UnderWay()
}

// Mark names one version of a state, so that nodes can say which one they
// have watched; "" for none.
func Mark(s *State) string {
	if s == nil {
		return ""
	}
	sum := sha256.Sum256(resource.EncodeWithSecrets(resource.Object{Spec: s}))
	return hex.EncodeToString(sum[:8])
}
