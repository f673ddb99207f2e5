package netio

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"penstock/netio/budget"
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

// add counts one more, unless the address has as many as the limit allows.
func (s *sources) add(a netip.Addr, limit int) bool {
	a = budget.Source(a)
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
	a = budget.Source(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n[a]--; s.n[a] <= 0 {
		delete(s.n, a)
	}
}

// refusals counts refused connections by reason.
type refusals [len(refusalReasons)]atomic.Uint64

var refusalReasons = [...]Reason{
	LimitConnections, LimitPerSource, LimitRate, LimitMemory, LimitHandshakes, LimitFiles, Shutdown,
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
