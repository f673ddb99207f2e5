// Package balance picks the endpoint of a pool that a connection goes to.
//
// A Pool is the endpoints that a backend has in one version of the table.
// Which of them may be picked is looked up at every pick (health, ejection,
// those already tried), so that nothing is compiled when an endpoint fails.
// What a policy remembers between picks goes on from one Pool to the next.
//
//	pool := balance.New(balance.Config{Policy: balance.LeastConnections}, members, old)
//	i := pool.Pick(&balance.Query{Now: now})
package balance

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"penstock/routing/endpoint"
)

// Policy is how an endpoint is picked among those that may be.
type Policy uint8

// The policies.
const (
	// RoundRobin gives turns by weight, evenly spread.
	RoundRobin Policy = iota
	// LeastConnections picks the endpoint with the fewest connections for its
	// weight, those being established included: of all where there are few, of
	// two taken at random (power of two choices) where there are many.
	LeastConnections
	// Random picks by weight.
	Random
	// Maglev sends the same hash to the same endpoint, on every node, and
	// moves few others when endpoints come and go.
	Maglev
)

var policies = [...]string{"roundRobin", "leastConnections", "random", "maglev"}

func (p Policy) String() string { return policies[p] }

// ParsePolicy finds a policy by its name in resources; "" is RoundRobin.
func ParsePolicy(s string) (Policy, bool) {
	i := slices.Index(policies[:], s)
	return Policy(max(i, 0)), i >= 0 || s == ""
}

// Config says how a pool picks. It is comparable.
type Config struct {
	Policy Policy
	// SlowStart is the time in which an endpoint that is new or has recovered
	// grows to its full share; 0: none.
	SlowStart time.Duration
	// ZoneTag and Zone: endpoints whose tag of that name has that value are
	// near, and preferred. "": no preference.
	ZoneTag, Zone string
	// ZoneMinHealthy is the share of the near endpoints, in percent, that must
	// be usable for all connections to stay near. Below it as many go far as
	// are missing in proportion, so that those that are left are not overrun.
	ZoneMinHealthy int
	// Panic uses all endpoints where none is usable; otherwise none is used.
	Panic bool
}

// Member is an endpoint with its weight; one of weight 0 is never picked.
type Member struct {
	*endpoint.Endpoint
	Weight int
}

// slowStartFloor is the share with which a slow start begins.
const slowStartFloor = 0.1

// Pool is the endpoints to choose from. All loops may use it.
type Pool struct {
	cfg     Config
	members []Member
	near    *tier         // all endpoints where no zone is preferred
	far     *tier         // nil where there is none
	picks   atomic.Uint64 // so far, where there is far
}

// New makes a pool. Where old, which may be nil, is no different it is
// returned itself; otherwise what its policy remembers is taken over.
func New(cfg Config, members []Member, old *Pool) *Pool {
	if old != nil && old.cfg == cfg && slices.Equal(old.members, members) {
		return old
	}
	p := &Pool{cfg: cfg, members: members}
	var near, far []int32
	for i, m := range members {
		switch {
		case m.Weight <= 0:
		case cfg.ZoneTag == "" || cfg.Zone == "" || m.Tags[cfg.ZoneTag] == cfg.Zone:
			near = append(near, int32(i))
		default:
			far = append(far, int32(i))
		}
	}
	if len(near) == 0 {
		near, far = far, nil
	}
	p.near = newTier(p, near, old)
	if len(far) > 0 {
		p.far = newTier(p, far, old)
		if old != nil {
			p.picks.Store(old.picks.Load())
		}
	}
	return p
}

// Members lists the endpoints. It must not be changed.
func (p *Pool) Members() []Member { return p.members }

// Config is what New was given.
func (p *Pool) Config() Config { return p.cfg }

// Empty tells whether there is no endpoint of a weight above 0.
func (p *Pool) Empty() bool { return len(p.near.members) == 0 }

// Query is what one connection asks for.
type Query struct {
	Now time.Time
	// Hash is for Maglev.
	Hash uint64
	// Tried are the members that failed this connection: they are picked
	// again only when no other is usable. nil: none.
	Tried *Set
	// Untried leaves the members in Tried out in any case.
	Untried bool
	// Peek leaves everything as it is.
	Peek bool
}

// None is Pick's answer where no endpoint may be picked.
const None = -1

// Pick chooses a member: one that is ready and untried, else one that is paused,
// else one that was tried, else, in a panic, any.
func (p *Pool) Pick(q *Query) int {
	r := round{q: q, from: ready, untried: q.Tried.any()}
	if p.far != nil {
		r.ticket = p.picks.Load()
		if !q.Peek {
			r.ticket = p.picks.Add(1) - 1
		}
	}
	for {
		if i := p.pick(&r); i >= 0 {
			if q.Untried && q.Tried.Has(i) {
				return None
			}
			return i
		}
		switch {
		case r.from == ready:
			r.from = usable
		case r.untried:
			r.untried = false
		case p.cfg.Panic && r.from != all:
			r.untried, r.from = q.Tried.any(), all
		default:
			return None
		}
	}
}

// candidates are the members that a round looks at.
type candidates uint8

const (
	ready  candidates = iota // healthy, not ejected and not paused
	usable                   // healthy and not ejected
	all
)

// Source says which members connections are given to.
type Source uint8

// The sources.
const (
	// FromReady: those that are healthy, not ejected and not paused.
	FromReady Source = iota
	// FromPaused: those that are paused, since no other is usable.
	FromPaused
	// FromAll: all of them, since none is usable (panic).
	FromAll
	// FromNone: there is none that may be used.
	FromNone
)

// Text says for people why connections go to members that are not ready; "" if
// they do not.
func (s Source) Text() string {
	switch s {
	case FromPaused:
		return "all that are usable are paused, and used all the same"
	case FromAll:
		return "none is usable, and allUnhealthy is panic: all are used"
	}
	return ""
}

// Source tells which members connections are given to at that time.
func (p *Pool) Source(now time.Time) Source {
	source := FromNone
	for _, m := range p.members {
		switch {
		case m.Weight <= 0:
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

// Uses tells whether connections are given to a member at that time.
func (p *Pool) Uses(i int, now time.Time) bool {
	m := p.members[i]
	if m.Weight <= 0 {
		return false
	}
	switch p.Source(now) {
	case FromReady:
		return m.Ready(now)
	case FromPaused:
		return m.Usable(now)
	case FromAll:
		return true
	}
	return false
}

// round is a search under one set of conditions.
type round struct {
	q       *Query
	from    candidates
	untried bool // only those not in q.Tried
	ticket  uint64
}

// may tells whether member i of the pool may be picked.
func (r *round) may(p *Pool, i int32) bool {
	if r.untried && r.q.Tried.Has(int(i)) {
		return false
	}
	return r.from.has(&p.members[i], r.q.Now)
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

// pick tries the zone whose turn it is, and then the other one.
func (p *Pool) pick(r *round) int {
	if p.far == nil {
		return p.near.pick(r)
	}
	first, second := p.near, p.far
	if !p.stays(r) {
		first, second = second, first
	}
	if i := first.pick(r); i >= 0 {
		return i
	}
	return second.pick(r)
}

// stays tells whether it is the zone's turn: evenly spread over the picks or,
// with Maglev, the same for the same client.
func (p *Pool) stays(r *round) bool {
	share := p.nearShare(r.q.Now, r.from)
	if p.cfg.Policy == Maglev {
		return fraction(Mix(r.q.Hash^zoneSalt)) < share
	}
	n := float64(r.ticket)
	return share == 1 || math.Floor((n+1)*share) > math.Floor(n*share)
}

// zoneSalt makes a client's zone independent of its place in the table.
const zoneSalt = 0x7a6f6e65

// fraction makes a number from 0 to below 1 of a hash.
func fraction(h uint64) float64 { return float64(h>>11) / (1 << 53) }

// NearShare is the share of the connections that stay in the zone now, as long
// as members are ready.
func (p *Pool) NearShare(now time.Time) float64 { return p.nearShare(now, ready) }

// nearShare is that share among the candidates. Where all members are, the
// zones have their weights' shares.
func (p *Pool) nearShare(now time.Time, from candidates) float64 {
	if p.far == nil {
		return 1
	}
	if from == all {
		return p.near.total / (p.near.total + p.far.total)
	}
	n := 0
	for _, i := range p.near.members {
		if from.has(&p.members[i], now) {
			n++
		}
	}
	if n == 0 {
		return 0
	}
	return min(1, float64(n*100)/float64(len(p.near.members)*max(p.cfg.ZoneMinHealthy, 1)))
}

// Near tells whether a member is in the preferred zone, or there is none.
func (p *Pool) Near(i int) bool { return slices.Contains(p.near.members, int32(i)) }

// Grown is how much of its share a member has, from slowStartFloor to 1.
func (p *Pool) Grown(i int, now time.Time) float64 {
	if p.cfg.SlowStart <= 0 {
		return 1
	}
	since := p.members[i].UsableSince()
	if since.IsZero() {
		return 1
	}
	return min(1, max(slowStartFloor, float64(now.Sub(since))/float64(p.cfg.SlowStart)))
}

// weight is a member's weight as it counts now.
func (p *Pool) weight(i int32, now time.Time) float64 {
	return float64(p.members[i].Weight) * p.Grown(int(i), now)
}

// tier is the members of one zone with what the policy needs to pick.
type tier struct {
	pool    *Pool
	members []int32 // indices into the pool's, those of weight 0 left out
	total   float64 // of their weights
	turns   *turns  // RoundRobin
	sums    []uint64
	table   []uint32 // Maglev: places in members
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
		if i := t.members[0]; r.may(t.pool, i) {
			return int(i)
		}
		return None
	}
	switch t.pool.cfg.Policy {
	case LeastConnections:
		return t.least(r)
	case Random:
		return t.random(r)
	case Maglev:
		return t.maglev(r)
	}
	return t.turns.pick(t, r)
}
