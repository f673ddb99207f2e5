package rollout

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
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

// Record is the record of one route. Route or State may be nil.
type Record struct {
	Name    string
	Route   *resource.MeshTCPRoute // with a rollout
	State   *State
	Watched time.Duration // how long State has been in force
}

// Apply records changes of resources that are now in force here.
func (t *Tracker) Apply(changes []resource.Change, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range changes {
		ch := &changes[i]
		switch ch.Kind {
		case kindRoute:
			r, _ := ch.Spec.(*resource.MeshTCPRoute)
			if ch.Delete || r == nil || r.Rollout == nil {
				r = nil
			}
			if e := t.entry(ch.Name, r != nil); e != nil {
				e.route = r
			}
		case resource.KindRollout:
			s, _ := ch.Spec.(*State)
			if ch.Delete {
				s = nil
			}
			if e := t.entry(ch.Name, s != nil); e != nil && !s.Same(e.state) {
				e.state, e.since = s, now
			}
		default:
			continue
		}
		if e := t.entries[ch.Name]; e != nil && e.route == nil && e.state == nil {
			delete(t.entries, ch.Name)
		}
	}
}

// entry returns the record of a route, and creates it if needed.
func (t *Tracker) entry(name string, needed bool) *entry {
	e := t.entries[name]
	if e == nil && needed {
		if t.entries == nil {
			t.entries = map[string]*entry{}
		}
		e = new(entry)
		t.entries[name] = e
	}
	return e
}

// All returns all records, sorted by name.
func (t *Tracker) All(now time.Time) []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]Record, 0, len(t.entries))
	for name, e := range t.entries {
		list = append(list, e.item(name, now))
	}
	slices.SortFunc(list, func(a, b Record) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// Get returns the record of one route.
func (t *Tracker) Get(name string, now time.Time) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[name]
	if e == nil {
		return Record{}, false
	}
	return e.item(name, now), true
}

func (e *entry) item(name string, now time.Time) Record {
	i := Record{Name: name, Route: e.route, State: e.state}
	if e.state != nil {
		i.Watched = max(0, now.Sub(e.since))
	}
	return i
}

// Started reports whether State belongs to the route's current rollout.
func (i *Record) Started() bool {
	return i.Route != nil && i.State != nil && i.State.Of == i.Route.RolloutID()
}

// Effective returns the state in force here: State, or the first step if the
// rollout is in force but has no stored state yet.
func (i *Record) Effective() *State {
	if i.Started() {
		return i.State
	}
	return &State{Phase: resource.RolloutRunning, Step: 1, Weight: i.Route.Rollout.WithDefaults().Steps[0].Weight}
}

// UnderWay reports whether the rollout needs attention by the leader.
func (i *Record) UnderWay() bool {
	switch {
	case i.Route == nil:
		return i.State != nil // to be deleted
	case !i.Started():
		return true // to be started
	}
	return i.State.UnderWay()
}

// StateDigest identifies a version of a state in the observations of nodes; ""
// for none.
func StateDigest(s *State) string {
	if s == nil {
		return ""
	}
	sum := sha256.Sum256(codec.EncodeWithSecrets(resource.Object{Spec: s}))
	return hex.EncodeToString(sum[:8])
}
