// Package balance picks an endpoint of a pool for each connection.
//
// A Pool holds the endpoints of a backend in one version of the table. Each
// pick checks which of them are eligible (health, ejection, already tried), so
// a failing endpoint compiles nothing. The policy's state carries over from one
// Pool to the next.
//
//	pool := balance.New(balance.Config{Policy: balance.LeastConnections}, members, old)
//	i := pool.Pick(&balance.Query{Now: now})
package balance

import (
	"slices"
	"sync/atomic"
	"time"

	"penstock/routing/endpoint"
)

// Policy is the algorithm that picks among the eligible endpoints.
type Policy uint8

// The policies.
const (
	// RoundRobin takes turns by weight, evenly interleaved.
	RoundRobin Policy = iota
	// LeastConnections picks the endpoint with the fewest connections per weight,
	// counting those being established: the best of all in a small pool, the
	// better of two random ones (power of two choices) in a large one. The load of
	// endpoints reduces their weights.
	LeastConnections
	// Random picks at random by weight.
	Random
	// Maglev maps the same hash to the same endpoint on every node, and remaps few
	// others when endpoints are added or removed.
	Maglev
)

var policies = [...]string{"roundRobin", "leastConnections", "random", "maglev"}

func (p Policy) String() string { return policies[p] }

// ParsePolicy returns the policy with a name as in resources; "" is RoundRobin.
func ParsePolicy(s string) (Policy, bool) {
	i := slices.Index(policies[:], s)
	return Policy(max(i, 0)), i >= 0 || s == ""
}

// Config configures how a pool picks. It is comparable.
type Config struct {
	Policy Policy
	// SlowStart is the time in which a new or recovered endpoint ramps up to its
	// full share; 0 disables it.
	SlowStart time.Duration
	// ZoneTag and Zone: endpoints with this value of this tag are near, and
	// preferred. "" disables the preference.
	ZoneTag, Zone string
	// ZoneMinHealthy is the percentage of near endpoints that must be usable for
	// all connections to stay near. Below it a proportional share goes far, so
	// that the remaining near endpoints are not overloaded.
	ZoneMinHealthy int
	// MatchTag and MatchValue: endpoints without this value of this tag are never
	// picked. "" for either: all may be.
	MatchTag, MatchValue string
	// MinHealthy is the percentage of a level's endpoints that must be usable for it
	// to take all the connections that it can. Below it a proportional share goes to
	// the next level.
	MinHealthy int
	// Panic uses all endpoints if none is usable; otherwise Pick returns None.
	Panic bool
}

// Member is an endpoint with its weight. Weight 0 is never picked.
type Member struct {
	*endpoint.Endpoint
	Weight int
	// Level is its priority, 0 first; from Backup on, that of a backup.
	Level int
}

// slowStartFloor is the fraction of its share at which a slow start begins.
const slowStartFloor = 0.1

// Pool is the endpoints to choose from. It is safe for concurrent use.
type Pool struct {
	cfg     Config
	members []Member
	levels  []*level      // by priority; at least one
	shared  bool          // picks depend on turns between levels or zones
	picks   atomic.Uint64 // number of picks; counted only if shared
}

// New returns a pool. If old, which may be nil, is equal, New returns old;
// otherwise it takes over the state of old's policy.
func New(cfg Config, members []Member, old *Pool) *Pool {
	if old != nil && old.cfg == cfg && slices.Equal(old.members, members) {
		return old
	}
	p := &Pool{cfg: cfg, members: members}
	p.makeLevels(old)
	if p.shared && old != nil {
		p.picks.Store(old.picks.Load())
	}
	return p
}

// Members returns the endpoints. The slice must not be changed.
func (p *Pool) Members() []Member { return p.members }

// Config returns the configuration.
func (p *Pool) Config() Config { return p.cfg }

// Empty reports whether no endpoint with a weight above 0 matches.
func (p *Pool) Empty() bool { return len(p.levels[0].near.members) == 0 }

// Matches reports whether a member has the value of MatchTag that it must have.
func (p *Pool) Matches(i int) bool {
	if p.cfg.MatchTag == "" || p.cfg.MatchValue == "" {
		return true
	}
	return p.members[i].Tags[p.cfg.MatchTag] == p.cfg.MatchValue
}

// takes reports whether a member may ever be picked.
func (p *Pool) takes(i int) bool { return p.members[i].Weight > 0 && p.Matches(i) }

// Query describes one connection.
type Query struct {
	Now time.Time
	// Hash is the key for Maglev.
	Hash uint64
	// Tried are the members that failed this connection. They are picked again
	// only if no other is usable. nil is the empty set.
	Tried *Set
	// Untried excludes the members in Tried altogether.
	Untried bool
	// Peek picks without advancing any state.
	Peek bool
	// Bounds are those of each endpoint for what Kind says; nil: none.
	Bounds *endpoint.Bounds
	Kind   endpoint.Kind
}

// Pick's results if no endpoint is eligible.
const (
	None = -1
	// Full: those that would be are at their bounds.
	Full = -2
)

// Pick chooses a member: one that is ready and untried, else one that is paused
// and untried, else one that was tried, else, in a panic, any. Members at their
// bounds are busy, not failing: while there are some, none that is worse is
// picked, except for one that was tried.
func (p *Pool) Pick(q *Query) int {
	r := round{q: q, from: ready, untried: q.Tried.nonEmpty()}
	if p.shared {
		r.ticket = p.picks.Load()
		if !q.Peek {
			r.ticket = p.picks.Add(1) - 1
		}
	}
	for {
		r.full = false
		if i := p.pick(&r); i >= 0 {
			if q.Untried && q.Tried.Has(i) {
				return None
			}
			return i
		}
		switch {
		case r.full && r.untried && !q.Untried:
			r.untried = false
		case r.full:
			return Full
		case r.from == ready:
			r.from = usable
		case r.untried:
			r.untried = false
		case p.cfg.Panic && r.from != all:
			r.untried, r.from = q.Tried.nonEmpty(), all
		default:
			return None
		}
	}
}

// candidates are the members that a round considers.
type candidates uint8

const (
	ready  candidates = iota // healthy, not ejected and not paused
	usable                   // healthy and not ejected
	all
)

// Source says which members get connections.
type Source uint8

// The sources.
const (
	// FromReady: those that are healthy, not ejected and not paused.
	FromReady Source = iota
	// FromPaused: paused members, because no other is usable.
	FromPaused
	// FromAll: all members, because none is usable (panic).
	FromAll
	// FromNone: no member.
	FromNone
)

// Text explains why connections go to members that are not ready, or returns ""
// if they do not.
func (s Source) Text() string {
	switch s {
	case FromPaused:
		return "all usable endpoints are paused, so they are used anyway"
	case FromAll:
		return "no endpoint is usable, and allUnhealthy is panic: all are used"
	}
	return ""
}

// Source returns which members get connections at that time.
func (p *Pool) Source(now time.Time) Source {
	source := FromNone
	for i, m := range p.members {
		switch {
		case !p.takes(i):
		case m.Ready(now):
			return FromReady
		case m.Usable(now):
			source = FromPaused
		case p.cfg.Panic && source == FromNone:
			source = FromAll
		}
	}
	return source
}

// Uses reports whether a member gets connections at that time.
func (p *Pool) Uses(i int, now time.Time) bool {
	m := p.members[i]
	if !p.takes(i) {
		return false
	}
	from, ok := p.Source(now).candidates()
	return ok && from.has(&m, now) && p.share(i, from, now) > 0
}

// candidates returns those of a round; false: there are none.
func (s Source) candidates() (candidates, bool) {
	switch s {
	case FromReady:
		return ready, true
	case FromPaused:
		return usable, true
	case FromAll:
		return all, true
	}
	return 0, false
}

// round is a search under one set of conditions.
type round struct {
	q       *Query
	from    candidates
	untried bool // excludes members in q.Tried
	full    bool // a member was left out because it is at its bounds
	ticket  uint64
}

// eligible reports whether member i of the pool is eligible.
func (r *round) eligible(p *Pool, i int32) bool {
	if r.untried && r.q.Tried.Has(int(i)) {
		return false
	}
	return r.from.has(&p.members[i], r.q.Now) && !r.isFull(p, i)
}

// isFull reports whether member i is at its bounds, and remembers it.
func (r *round) isFull(p *Pool, i int32) bool {
	if r.q.Bounds == nil || !p.members[i].Full(r.q.Kind, r.q.Bounds) {
		return false
	}
	r.full = true
	return true
}

func (c candidates) has(m *Member, now time.Time) bool {
	switch c {
	case ready:
		return m.Ready(now)
	case usable:
		return m.Usable(now)
	}
	return true
}

// SlowStartShare returns the fraction of its share that a member has in its
// slow start, from slowStartFloor to 1.
func (p *Pool) SlowStartShare(i int, now time.Time) float64 {
	if p.cfg.SlowStart <= 0 {
		return 1
	}
	since := p.members[i].UsableSince()
	if since.IsZero() {
		return 1
	}
	return min(1, max(slowStartFloor, float64(now.Sub(since))/float64(p.cfg.SlowStart)))
}

// weight returns a member's current weight, reduced by slow start.
func (p *Pool) weight(i int32, now time.Time) float64 {
	return float64(p.members[i].Weight) * p.SlowStartShare(int(i), now)
}

// tier is the members of one zone and the policy's state for them.
type tier struct {
	pool    *Pool
	members []int32 // indices into pool.members that are ever picked
	total   float64 // sum of the weights
	turns   *turns  // RoundRobin
	sums    []uint64
	table   []uint32 // Maglev: indices into members
}

func newTier(p *Pool, members []int32, old *Pool) *tier {
	t := &tier{pool: p, members: members}
	for _, i := range members {
		t.total += float64(p.members[i].Weight)
	}
	switch p.cfg.Policy {
	case RoundRobin:
		t.turns = newTurns(t, old)
	case Maglev:
		t.table = maglevTable(t)
	default:
		t.sums = sumWeights(t)
	}
	return t
}

func (t *tier) pick(r *round) int {
	switch {
	case len(t.members) == 0:
		return None
	case len(t.members) == 1:
		if i := t.members[0]; r.eligible(t.pool, i) {
			return int(i)
		}
		return None
	}
	switch t.pool.cfg.Policy {
	case LeastConnections:
		return t.leastConnections(r)
	case Random:
		return t.random(r)
	case Maglev:
		return t.maglev(r)
	}
	return t.turns.pick(t, r)
}
