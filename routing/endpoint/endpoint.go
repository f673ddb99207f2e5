// Package endpoint holds what is known of a service's endpoints while tables
// come and go: connections at them, health, ejection. It is written by the
// data path, the health checks and the resolver, and read by the balancers
// without locks.
//
// An Endpoint is one address; a Group is all of a service's endpoints, which
// is what ejection needs to see; a Budget bounds the retries of a service.
//
//	g := endpoint.NewGroup("apps", observe)
//	g.Configure(&endpoint.Ejection{Failures: 3, Window: 10 * time.Second, ...}, now)
//	all := g.Update(specs, now)        // with each new set of addresses
//	g.Connected(e, now)                // from the data path
//	g.Failed(e, endpoint.EarlyReset, now)
//	g.Sweep(now)                       // about once a second
//
// No function here reads the clock: the time is passed in. Times of one
// process compare by the monotonic clock, so a step of the wall clock neither
// prolongs nor ends an ejection.
package endpoint

import (
	"net/netip"
	"sync/atomic"
	"time"
)

// Health is what active checks say.
type Health uint32

// The states of health. Without a health check an endpoint stays Unchecked,
// which counts as usable.
const (
	Unchecked Health = iota
	Healthy
	Unhealthy
)

func (h Health) String() string {
	return [...]string{"unchecked", "healthy", "unhealthy"}[h]
}

// Endpoint is one resolved address of one service. The exported fields never
// change; the state behind the methods does, and may be used from anywhere.
type Endpoint struct {
	Address string            // as configured: "db.example.com:5432"
	Addr    netip.AddrPort    // resolved; invalid for unix sockets
	Unix    string            // path of a unix socket, or ""
	Tags    map[string]string // never changed

	// shared is the state of the Endpoint that this one took the place of
	// when its tags changed; nil: own. Connections that still hold the old
	// one go on counting in the same place.
	shared *state
	own    state
}

// state is what changes in the life of an address.
type state struct {
	// The fields that every connection writes share no cache line with those
	// that every decision reads.
	_         [64]byte
	active    atomic.Int64 // connections, those being established included
	connected atomic.Int64 // successes ever, less those that an early reset took back
	requests  atomic.Int64 // of active: requests, on connections that others share
	_         [40]byte

	health       atomic.Uint32 // Health
	ejectedUntil atomic.Int64  // as of Stamp; 0: not ejected
	// pausedUntil is when the pause ends, as of Stamp; 0: the last connect
	// succeeded, or none was made. It stays set, in the past, until a connect
	// succeeds. pausedSince is when it began; probeUntil until when a
	// connection that was let through after it keeps others away; 0: none is.
	pausedUntil, pausedSince, probeUntil atomic.Int64
	usableSince                          atomic.Int64 // as of Stamp, for slow start; 0: from the start
	record                               record       // guarded by the group's mutex
}

func (e *Endpoint) state() *state {
	if e.shared != nil {
		return e.shared
	}
	return &e.own
}

// Active is the number of connections here, those being established included.
func (e *Endpoint) Active() int64 { return e.state().active.Load() }

// Acquire counts a connection in, before it is established.
func (e *Endpoint) Acquire() { e.state().active.Add(1) }

// Release counts it out.
func (e *Endpoint) Release() { e.state().active.Add(-1) }

// AcquireRequest is Acquire for a request of HTTP, whose connection is shared
// with others.
func (e *Endpoint) AcquireRequest() {
	s := e.state()
	s.active.Add(1)
	s.requests.Add(1)
}

// ReleaseRequest counts it out.
func (e *Endpoint) ReleaseRequest() {
	s := e.state()
	s.requests.Add(-1)
	s.active.Add(-1)
}

// Relayed is Active without the requests: connections that lead here and nowhere
// else, each with a local port of its own.
func (e *Endpoint) Relayed() int64 {
	s := e.state()
	requests := s.requests.Load() // before active: each of them is in that too
	return max(0, s.active.Load()-requests)
}

// Health is what active checks say.
func (e *Endpoint) Health() Health { return Health(e.state().health.Load()) }

// SetHealth is for the health checks; it tells whether anything changed. One
// that was unhealthy begins its slow start.
func (e *Endpoint) SetHealth(h Health, now time.Time) (changed bool) {
	s := e.state()
	old := Health(s.health.Swap(uint32(h)))
	if old == Unhealthy && h != Unhealthy {
		s.usableFrom(Stamp(now))
	}
	return old != h
}

// Ejected tells whether the endpoint is ejected at that time.
func (e *Endpoint) Ejected(now time.Time) bool {
	until := e.state().ejectedUntil.Load()
	return until != 0 && Stamp(now) < until
}

// EjectedUntil is when the ejection ends, or the zero time.
func (e *Endpoint) EjectedUntil() time.Time { return fromStamp(e.state().ejectedUntil.Load()) }

// Usable tells whether new connections may go here at that time.
func (e *Endpoint) Usable(now time.Time) bool {
	return e.Health() != Unhealthy && !e.Ejected(now)
}

// UsableSince is when the endpoint appeared or recovered, for slow start;
// the zero time where it was there from the start. It lies ahead while the
// endpoint is ejected.
func (e *Endpoint) UsableSince() time.Time { return fromStamp(e.state().usableSince.Load()) }

// usableFrom moves the begin of the slow start, never back: the end of an
// ejection and a check that passes may come in any order.
func (s *state) usableFrom(at int64) {
	for {
		old := s.usableSince.Load()
		if old != 0 && old >= at || s.usableSince.CompareAndSwap(old, at) {
			return
		}
	}
}

// origin is what stamps count from. It carries the monotonic clock's reading.
var origin = time.Now()

// Stamp is a time in nanoseconds since some time in the past, 0 excepted: that says "none".
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
