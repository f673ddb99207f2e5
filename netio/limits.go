package netio

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// bucket is a token bucket that fills with rate tokens per second and holds as
// many. It is shared by loops.
type bucket struct {
	mu     sync.Mutex
	tokens float64
	at     time.Duration // of the loops' clock
	rate   int           // that tokens was counted for; 0: never used
}

// take takes one token, if there is one.
func (b *bucket) take(rate int, now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.rate == 0:
		b.tokens, b.at = float64(rate), now
	case now > b.at: // loops read their clocks at different moments
		b.tokens += float64(rate) * (now - b.at).Seconds()
		b.at = now
	}
	b.rate = rate
	b.tokens = min(b.tokens, float64(rate))
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}

// sources counts connections per client address. It holds an entry for each
// address that has a connection now, so it is bounded by their number.
type sources struct {
	mu sync.Mutex
	n  map[netip.Addr]int
}

// source is the address that a client counts under. A single IPv6 customer
// has a /64 to choose from.
func source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64)
		return p.Addr()
	}
	return a
}

// add counts one more, unless the address has as many as the limit allows.
func (s *sources) add(a netip.Addr, limit int) bool {
	a = source(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n[a] >= limit {
		return false
	}
	if s.n == nil {
		s.n = make(map[netip.Addr]int)
	}
	s.n[a]++
	return true
}

func (s *sources) remove(a netip.Addr) {
	a = source(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n[a]--; s.n[a] <= 0 {
		delete(s.n, a)
	}
}

// A budget bounds the bytes that the node holds for connections whose route
// is not known yet, or whose endpoint is not connected yet.
//
// It drops nobody. A connection is charged when its first bytes come: for
// what they are if the header or hello is whole, and else for the most that
// can come of them, so that a hello that has begun can always be finished.
// While the sum is over the limit, connections that hold nothing are not read
// and their deadlines rest; their bytes wait in the kernel. Since all loops
// stop at the read that passes the limit, the sum exceeds it by one read per
// loop, and by what clients send along with the last bytes of their hello.
type budget struct {
	limit int64
	used  atomic.Int64
}

// add charges n bytes and tells whether the budget is spent.
func (b *budget) add(n int64) (over bool) { return b.used.Add(n) > b.limit }

// low is the mark below which reading goes on.
func (b *budget) low() bool { return b.used.Load() <= b.limit-b.limit/8 }

// refusals counts refused connections by reason.
type refusals [len(refusalReasons)]atomic.Uint64

var refusalReasons = [...]Reason{
	LimitConnections, LimitPerSource, LimitRate, LimitHandshakes, LimitFiles, Shutdown,
}

func (r *refusals) count(why Reason) {
	for i, reason := range refusalReasons {
		if reason == why {
			r[i].Add(1)
			return
		}
	}
}

func (r *refusals) counts() map[Reason]uint64 {
	m := make(map[Reason]uint64, len(r))
	for i, reason := range refusalReasons {
		m[reason] = r[i].Load()
	}
	return m
}
