package balance

import (
	"net/netip"
	"sync"
)

// turns is weighted round robin: each member's turns are at (k+1/2)/weight on a
// line, and are taken in this order. So any run of turns as long as the sum of
// the weights is exact, and heavy members do not come in bursts.
type turns struct {
	mu       sync.Mutex
	at       uint64 // position of the last turn
	heap     []turn // by position, then by member
	deferred []turn // buffer of pick, reused
}

// turn is the next turn of a member. Its exact position is at + rest/(2
// weight). Without the rest, rounding errors would accumulate, and turns of
// different members at the same position would be taken in a different order
// each time.
type turn struct {
	at        uint64
	remainder uint32
	member    int32 // index into the pool's members
}

// unit is the distance in which a member has as many turns as its weight. It
// keeps weights of a million distinct to one in a million.
const unit = 1 << 40

// rebase is the position at which the line restarts at 0, long before it
// overflows.
const rebase = 1 << 62

func (x turn) before(y turn) bool { return x.at < y.at || x.at == y.at && x.member < y.member }

// newTurns starts at 0, or continues old: known members keep the distance to
// their next turn.
func newTurns(t *tier, old *Pool) *turns {
	var past predecessor
	if old != nil {
		past = newPredecessor(old)
	}
	s := &turns{heap: make([]turn, 0, len(t.members))}
	for _, i := range t.members {
		m := &t.pool.members[i]
		w := uint64(m.Weight)
		first := turn{unit / (2 * w), uint32(unit % (2 * w)), i}
		if at, known := past.distance(int(i), m, len(t.pool.members)); known {
			first = turn{at: min(at, unit/w), member: i} // the old weight may have been lower
		}
		s.push(first)
	}
	return s
}

// predecessor is the pool before, with its members' distances to their next
// turns.
type predecessor struct {
	members   []Member
	distances []uint64 // noTurn: none
	byID      map[id]int
}

const noTurn = 1<<64 - 1

func newPredecessor(old *Pool) predecessor {
	p := predecessor{members: old.members, distances: make([]uint64, len(old.members))}
	for i := range p.distances {
		p.distances[i] = noTurn
	}
	for _, l := range old.levels {
		for _, o := range []*tier{l.near, l.far} {
			if o != nil && o.turns != nil {
				o.turns.copyDistances(p.distances)
			}
		}
	}
	return p
}

// distance returns the distance of a member that will be at index i of n. Most
// members are at the same distance from the start or the end as before.
func (p *predecessor) distance(i int, m *Member, n int) (at uint64, known bool) {
	for _, j := range [...]int{i, i - n + len(p.members)} {
		if j >= 0 && j < len(p.members) && p.members[j].Endpoint == m.Endpoint {
			return p.distances[j], p.distances[j] != noTurn
		}
	}
	if p.byID == nil {
		p.byID = make(map[id]int, len(p.members))
		for j := range p.members {
			if p.distances[j] != noTurn {
				p.byID[identity(&p.members[j])] = j
			}
		}
	}
	j, known := p.byID[identity(m)]
	if known {
		at = p.distances[j]
	}
	return at, known
}

// id identifies an endpoint across versions, as in endpoint.Spec.
type id struct {
	address string
	addr    netip.AddrPort
	unix    string
}

func identity(m *Member) id { return id{m.Address, m.Addr, m.Unix} }

// copyDistances sets each member's distance to its next turn, by its index.
func (s *turns) copyDistances(distances []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.heap {
		distances[x.member] = x.at - min(s.at, x.at)
	}
}

// pick takes the next turn of an eligible member. Members that are not ready, or
// at their bounds, lose the turns that they missed, so that they do not return with a burst.
// Members that are skipped only because they were tried keep their position.
func (s *turns) pick(t *tier, r *round) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.q.Peek {
		return s.peek(t, r)
	}
	s.deferred = s.deferred[:0]
	for len(s.heap) > 0 && !r.eligible(t.pool, s.heap[0].member) {
		s.deferred = append(s.deferred, s.pop())
	}
	chosen := None
	if len(s.heap) > 0 {
		next := s.pop()
		chosen, s.at = int(next.member), max(s.at, next.at)
		s.push(next.after(next.at, t.pool, r))
	}
	for _, x := range s.deferred {
		if chosen != None && (!t.pool.members[x.member].Ready(r.q.Now) || r.isFull(t.pool, x.member)) {
			x = x.after(s.at, t.pool, r)
		}
		s.push(x)
	}
	if s.at >= rebase {
		for i := range s.heap {
			s.heap[i].at -= min(s.at, s.heap[i].at)
		}
		s.at = 0
	}
	return chosen
}

// after returns the member's next turn after a position.
func (x turn) after(at uint64, p *Pool, r *round) turn {
	if share := p.SlowStartShare(int(x.member), r.q.Now); share < 1 {
		x.at = at + uint64(unit/(share*float64(p.members[x.member].Weight)))
		return x
	}
	w := uint64(p.members[x.member].Weight)
	rest := uint64(x.remainder) + 2*unit%(2*w)
	x.at, x.remainder = at+unit/w+rest/(2*w), uint32(rest%(2*w))
	return x
}

// peek returns what pick would choose, without advancing.
func (s *turns) peek(t *tier, r *round) int {
	best := turn{member: None}
	for _, x := range s.heap {
		if (best.member == None || x.before(best)) && r.eligible(t.pool, x.member) {
			best = x
		}
	}
	return int(best.member)
}

func (s *turns) push(x turn) {
	s.heap = append(s.heap, x)
	i := len(s.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !s.heap[i].before(s.heap[parent]) {
			return
		}
		s.heap[i], s.heap[parent] = s.heap[parent], s.heap[i]
		i = parent
	}
}

func (s *turns) pop() turn {
	first, last := s.heap[0], len(s.heap)-1
	s.heap[0] = s.heap[last]
	s.heap = s.heap[:last]
	for i := 0; ; {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < last; child++ {
			if s.heap[child].before(s.heap[least]) {
				least = child
			}
		}
		if least == i {
			return first
		}
		s.heap[i], s.heap[least] = s.heap[least], s.heap[i]
		i = least
	}
}
