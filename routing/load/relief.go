package load

import (
	"cmp"
	"math"
	"slices"
	"time"

	"penstock/routing/endpoint"
)

const (
	// leastPerSession is the least CPU usage that a session counts for. That of an idle
	// cluster would tell nothing about sessions that begin to work.
	leastPerSession = 0.001
	// batchTime is for how long a batch may be under way before it is planned anew.
	batchTime = 10 * time.Second
	// shortWait and longWait bound the time after which a server that received sessions
	// may lose some, or the other way round; each such change doubles it. So a session
	// that is a server's whole load does not move to and fro.
	shortWait, longWait = time.Minute, 32 * time.Minute
	// forget is the time after which such changes no longer count.
	forget = time.Hour
	// memoryTime and fullTime are the times in which a server loses its sessions at a
	// high risk, and when its memory is about to be full.
	memoryTime, fullTime = time.Minute, 5 * time.Second
)

// Server is a server of a service as Relief needs it.
type Server[K comparable] struct {
	ID       K
	Load     *endpoint.Load // nil: unknown
	Sessions int            // of this node
	Movable  int            // those that can be asked to move; 0: it loses none
	Takes    bool           // sessions may move to it
	// Near and Level are its zone and its priority: sessions stay within both.
	Near  bool
	Level int
}

// Batch is a number of sessions that are to move from one server to another.
type Batch[K comparable] struct {
	From, To K
	Left     int  // how many have not moved yet
	Memory   bool // because of memory, not CPU
	until    time.Time
}

// Relief decides which servers of a service lose sessions. It plans one batch at a time,
// waits until samples show the effect, and then plans the next. It is not safe for
// concurrent use; its zero value is ready.
type Relief[K comparable] struct {
	batch *Batch[K]
	turns map[K]*turn
}

// turn is what a server has lost and received.
type turn struct {
	gave, got time.Time
	wait      time.Duration
}

func (t *turn) last() time.Time {
	if t.gave.After(t.got) {
		return t.gave
	}
	return t.got
}

// Plan returns the sessions that are to move now; nil: none. The Batch remains the same
// while it is under way, and is valid until the next call.
func (r *Relief[K]) Plan(now time.Time, rules *Rules, servers []Server[K]) *Batch[K] {
	byID := make(map[K]*Server[K], len(servers))
	for i := range servers {
		byID[servers[i].ID] = &servers[i]
	}
	for id := range r.turns {
		if byID[id] == nil {
			delete(r.turns, id)
		}
	}
	if b := r.batch; b != nil {
		from, to := byID[b.From], byID[b.To]
		if b.Left > 0 && now.Before(b.until) && from != nil && to != nil && r.needed(rules, from, to, b.Memory) {
			return b
		}
		r.batch = nil
	}
	r.batch = r.choose(now, rules, servers, true)
	if r.batch == nil {
		r.batch = r.choose(now, rules, servers, false)
	}
	return r.batch
}

// needed reports whether one server should lose sessions to another.
func (r *Relief[K]) needed(rules *Rules, from, to *Server[K], memory bool) bool {
	switch {
	case from.ID == to.ID || from.Load == nil || to.Load == nil || !to.Takes || from.Movable == 0,
		from.Near != to.Near || from.Level != to.Level:
		return false
	case memory:
		return rules.MoveMemory && from.Load.Risk == 2 && to.Load.Memory >= 0 && to.Load.Risk == 0
	}
	return rules.MoveCPU && to.Load.Risk == 0 && from.Load.CPU >= rules.High && to.Load.CPU >= 0 &&
		gap(from.Load, to.Load) >= rules.Gap
}

// gap returns by how much one CPU usage exceeds the other: both the smoothed and the
// latest, so that neither a peak nor one that is over counts.
func gap(from, to *endpoint.Load) float64 {
	return min(from.CPU, from.Latest) - max(to.CPU, to.Latest)
}

// choose plans a batch: from the server that is the worst off to the one that is the best
// off.
func (r *Relief[K]) choose(now time.Time, rules *Rules, servers []Server[K], memory bool) *Batch[K] {
	urgency := func(s *Server[K]) float64 {
		switch {
		case s.Load == nil:
			return -1
		case !memory:
			return s.Load.CPU
		case isFilling(s.Load):
			return 2
		}
		return s.Load.Memory
	}
	order := make([]*Server[K], len(servers))
	for i := range servers {
		order[i] = &servers[i]
	}
	slices.SortStableFunc(order, func(a, b *Server[K]) int { return cmp.Compare(urgency(b), urgency(a)) })
	for _, from := range order {
		for _, to := range slices.Backward(order) {
			if !r.needed(rules, from, to, memory) || !r.mayMove(now, from, to, memory) {
				continue
			}
			n := cpuCount(from, to, servers)
			if memory {
				n = memoryCount(from, rules.Interval)
			}
			if n = min(n, from.Movable); n > 0 {
				return &Batch[K]{From: from.ID, To: to.ID, Left: n, Memory: memory, until: now.Add(batchTime)}
			}
		}
	}
	return nil
}

// isFilling reports whether a server's memory is about to be full.
func isFilling(l *endpoint.Load) bool { return l.FullIn > 0 && l.FullIn < soon }

// mayMove reports whether the samples of both servers show the effect of the last moves,
// and neither has to wait.
func (r *Relief[K]) mayMove(now time.Time, from, to *Server[K], memory bool) bool {
	for _, s := range [...]*Server[K]{from, to} {
		seen := s.Load.From
		if memory {
			seen = s.Load.MemoryAt
		}
		if t := r.turns[s.ID]; t != nil && !seen.After(t.last()) {
			return false
		}
	}
	if memory && isFilling(from.Load) {
		return true
	}
	f, t := r.turns[from.ID], r.turns[to.ID]
	return (f == nil || f.got.IsZero() || now.Sub(f.got) >= f.wait) && (t == nil || t.gave.IsZero() || now.Sub(t.gave) >= t.wait)
}

// cpuCount returns how many sessions should move from one server to another: half of those
// with which their usage would be equal, so that it comes near in a few steps even if some
// sessions use more than others.
func cpuCount[K comparable](from, to *Server[K], servers []Server[K]) int {
	usage, sessions := 0.0, 0
	for i := range servers {
		if s := &servers[i]; s.Load != nil && s.Load.Latest > 0 && s.Sessions > 0 {
			usage += s.Load.Latest
			sessions += s.Sessions
		}
	}
	each := max(usage/float64(max(sessions, 1)), from.Load.Latest/float64(max(from.Sessions, 1)), leastPerSession)
	equal := math.Floor(gap(from.Load, to.Load) / (2 * each))
	return (int(equal) + 1) / 2
}

// memoryCount returns how many sessions a server should lose until its next sample.
func memoryCount[K comparable](from *Server[K], interval time.Duration) int {
	within := memoryTime
	if isFilling(from.Load) {
		within = fullTime
	}
	return int(math.Ceil(float64(from.Sessions) * min(interval.Seconds()/within.Seconds(), 1)))
}

// Moved records that a session has moved for a batch.
func (r *Relief[K]) Moved(from, to K, now time.Time) {
	if b := r.batch; b != nil && b.From == from && b.To == to && b.Left > 0 {
		b.Left--
	}
	t := r.turn(from, now)
	if t.got.After(t.gave) {
		t.wait = min(2*t.wait, longWait)
	}
	t.gave = now
	t = r.turn(to, now)
	if t.gave.After(t.got) {
		t.wait = min(2*t.wait, longWait)
	}
	t.got = now
}

func (r *Relief[K]) turn(id K, now time.Time) *turn {
	if r.turns == nil {
		r.turns = map[K]*turn{}
	}
	t := r.turns[id]
	if t == nil || now.Sub(t.last()) > forget {
		t = &turn{wait: shortWait}
		r.turns[id] = t
	}
	return t
}

// Evens reports whether sessions may move from one server to another so that both have as
// many: not to one whose usage is near the high one and above that of the other, and not to
// one that has lost some because of its load. Otherwise they would move back.
func (r *Relief[K]) Evens(now time.Time, rules *Rules, to K, fromLoad, toLoad *endpoint.Load) bool {
	if toLoad == nil {
		return true
	}
	if t := r.turns[to]; t != nil && !t.gave.IsZero() && now.Sub(t.gave) < t.wait {
		return false
	}
	if rules.Memory && toLoad.Risk > 0 {
		return false
	}
	if !rules.CPU || toLoad.CPU < 0 || max(toLoad.CPU, toLoad.Latest) < rules.High-rules.Gap {
		return true
	}
	return fromLoad != nil && fromLoad.CPU >= max(toLoad.CPU, toLoad.Latest)
}
