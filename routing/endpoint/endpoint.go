// Package endpoint holds the state of a service's endpoints that outlives
// tables: connection counts, health, ejection. The data path, the health checks
// and the resolver write it; the balancers read it without locks.
//
// An Endpoint is one address; a Group is all endpoints of a service, the scope
// of ejection; a Budget limits the retries of a service.
//
//	g := endpoint.NewGroup("apps", observe)
//	g.Configure(&endpoint.Ejection{Failures: 3, Window: 10 * time.Second, ...}, now)
//	all := g.Update(specs, now)        // with each new set of addresses
//	g.Connected(e, now)                // from the data path
//	g.Failed(e, endpoint.EarlyReset, now)
//	g.Sweep(now)                       // about once a second
//
// Functions take the time as a parameter and do not read the clock. Times of
// one process compare by the monotonic clock, so a step of the wall clock
// neither prolongs nor ends an ejection.
package endpoint

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Health is the result of active checks.
type Health uint32

// Values of Health. Without a health check an endpoint stays Unchecked, which
// counts as usable.
const (
	Unchecked Health = iota
	Healthy
	Unhealthy
)

func (h Health) String() string {
	return [...]string{"unchecked", "healthy", "unhealthy"}[h]
}

// Endpoint is one resolved address of one service. The exported fields are
// immutable; the methods access state that is safe for concurrent use.
type Endpoint struct {
	Address string            // as configured: "db.example.com:5432"
	Addr    netip.AddrPort    // resolved; invalid for unix sockets
	Unix    string            // path of a unix socket, or ""
	Tags    map[string]string // immutable

	// shared is the state of the Endpoint that this one replaced when its tags
	// changed; nil: own. So connections that hold the old one still count in the
	// same place.
	shared *state
	own    state
}

// state is the mutable state of an address.
type state struct {
	// The fields that every connection writes share no cache line with those that
	// every decision reads.
	_         [64]byte
	usage     usage        // connections and requests, including those being established
	connected atomic.Int64 // all successes, minus those followed by an early reset
	_         [48]byte

	health       atomic.Uint32 // Health
	ejectedUntil atomic.Int64  // as Stamp; 0: not ejected
	// pausedUntil is the end of the pause, as Stamp; 0 if the last connect
	// succeeded, or none was made. It remains set after that time until a connect
	// succeeds. pausedSince is the start of the pause. probeUntil is the time
	// until which a probe holds off other connections; 0: no probe.
	pausedUntil, pausedSince, probeUntil atomic.Int64
	usableSince                          atomic.Int64 // as Stamp, for slow start; 0: from the start
	load                                 atomic.Pointer[Load]
	record                               record // guarded by the group's mutex
}

func (e *Endpoint) state() *state {
	if e.shared != nil {
		return e.shared
	}
	return &e.own
}

// Health returns the result of active checks.
func (e *Endpoint) Health() Health { return Health(e.state().health.Load()) }

// SetHealth records the result of a health check and reports whether it
// changed. An endpoint that was unhealthy begins its slow start.
func (e *Endpoint) SetHealth(h Health, now time.Time) (changed bool) {
	s := e.state()
	old := Health(s.health.Swap(uint32(h)))
	if old == Unhealthy && h != Unhealthy {
		s.usableFrom(Stamp(now))
	}
	return old != h
}

// Ejected reports whether the endpoint is ejected at that time.
func (e *Endpoint) Ejected(now time.Time) bool {
	until := e.state().ejectedUntil.Load()
	return until != 0 && Stamp(now) < until
}

// EjectedUntil returns the end of the ejection, or the zero time.
func (e *Endpoint) EjectedUntil() time.Time { return fromStamp(e.state().ejectedUntil.Load()) }

// Usable reports whether the endpoint is neither unhealthy nor ejected at that
// time.
func (e *Endpoint) Usable(now time.Time) bool {
	return e.Health() != Unhealthy && !e.Ejected(now)
}

// UsableSince returns when the endpoint appeared or recovered, for slow start;
// the zero time if it was there from the start. It is in the future while the
// endpoint is ejected.
func (e *Endpoint) UsableSince() time.Time { return fromStamp(e.state().usableSince.Load()) }

// usableFrom moves the start of the slow start, never back: the end of an
// ejection and a passing check may come in either order.
func (s *state) usableFrom(at int64) {
	for {
		old := s.usableSince.Load()
		if old != 0 && old >= at || s.usableSince.CompareAndSwap(old, at) {
			return
		}
	}
}

// origin is the zero of stamps. It includes a monotonic clock reading.
var origin = time.Now()

// Stamp converts t to nanoseconds since origin. It never returns 0, which means
// "none".
func Stamp(t time.Time) int64 {
	if n := int64(t.Sub(origin)); n != 0 {
		return n
	}
	return 1
}

func fromStamp(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return origin.Add(time.Duration(n))
}
