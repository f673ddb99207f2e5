package endpoint

import (
	"math/rand/v2"
	"slices"
	"time"
)

// An endpoint that fails to connect is paused: new connections pass it over
// while another endpoint is ready. The first pause lasts FirstPause; after it
// one connection at a time is let through as a probe, and each probe that
// fails doubles the pause, up to MaxPause. Every pause is up to a fifth
// shorter by chance, so that nodes do not probe in step. A connection that
// succeeds, whether a probe or not, ends the pause and resets its length.
//
// Pauses need no configuration and have no cap: a paused endpoint is still
// used when no other is left, so they cannot cause an error by themselves.
const (
	FirstPause = time.Second
	MaxPause   = 30 * time.Second
)

// pauseLogEvery is how often at most a pause of one endpoint is reported, so
// that an endpoint that fails now and then does not flood the log.
const pauseLogEvery = 10 * time.Second

// maxErrorText bounds a stored error, in bytes.
const maxErrorText = 200

// pausedAt tells whether new connections pass the endpoint over at that time.
func (s *state) pausedAt(at int64) bool {
	until := s.pausedUntil.Load()
	return until != 0 && (until > at || held(s.probeUntil.Load(), at))
}

// held tells whether a probe is under way.
func held(probeUntil, at int64) bool { return probeUntil != 0 && probeUntil > at }

// Paused tells whether new connections pass the endpoint over at that time,
// because it failed to connect, or because a probe of it is under way.
func (e *Endpoint) Paused(now time.Time) bool {
	s := e.state()
	return s.pausedUntil.Load() != 0 && s.pausedAt(Stamp(now))
}

// PausedUntil returns when the pause ends, or the zero time if the endpoint is
// not paused. A time in the past means that the next connection is a probe.
func (e *Endpoint) PausedUntil() time.Time { return fromStamp(e.state().pausedUntil.Load()) }

// Ready tells whether the endpoint is usable and not paused.
func (e *Endpoint) Ready(now time.Time) bool { return e.Usable(now) && !e.Paused(now) }

// Claim must be called before a connection is made to an endpoint that was
// found to be Ready. If its pause has just ended, the first caller gets probe
// true, and ok is false for the others until the probe has ended or lease is
// over.
func (e *Endpoint) Claim(now time.Time, lease time.Duration) (probe, ok bool) {
	s := e.state()
	if s.pausedUntil.Load() == 0 {
		return false, true
	}
	at, last := Stamp(now), s.probeUntil.Load()
	if held(last, at) {
		return false, false
	}
	return true, s.probeUntil.CompareAndSwap(last, at+int64(lease))
}

// AbandonProbe lets the next connection probe, after a probe that ended
// without a result.
func (e *Endpoint) AbandonProbe() { e.state().probeUntil.Store(0) }

// EndPause makes a paused endpoint ready for a probe, because a health check
// has passed that began after the pause did.
func (e *Endpoint) EndPause(began, now time.Time) {
	s := e.state()
	until := s.pausedUntil.Load()
	if at := Stamp(now); until > at && s.pausedSince.Load() <= Stamp(began) {
		s.pausedUntil.CompareAndSwap(until, at)
	}
}

// pauseFor starts or lengthens a pause after a failed connect. Failures of
// connections that were under way when the pause began change nothing. The
// caller holds the group's lock.
func (g *Group) pauseFor(e *Endpoint, f Fault, now time.Time) {
	s, at := e.state(), Stamp(now)
	r := &s.record
	if s.pausedUntil.Load() != 0 && !f.Probe {
		return
	}
	r.pauses++
	length := MaxPause
	if r.pauses < 6 { // 1s << 5 is longer than MaxPause
		length = min(FirstPause<<(r.pauses-1), MaxPause)
	}
	length -= rand.N(length / 5)
	s.pausedSince.Store(at)
	s.pausedUntil.Store(at + int64(length))
	s.probeUntil.Store(0)
	if r.member && !r.pauseTold && (r.pauseToldAt == 0 || at-r.pauseToldAt >= int64(pauseLogEvery)) {
		r.pauseTold, r.pauseToldAt = true, at
		g.events = append(g.events, Event{
			Endpoint: e, Change: EventPaused, At: now, Until: fromStamp(at + int64(length)), Times: 1, Cause: f.cause(),
		})
	}
}

// resume ends a pause after a success. The caller holds the group's lock.
func (g *Group) resume(e *Endpoint, now time.Time) {
	s := e.state()
	until := s.pausedUntil.Swap(0)
	if until == 0 {
		return
	}
	r := &s.record
	if until <= Stamp(now) { // it was away for a whole pause, not just for one connection
		s.usableFrom(Stamp(now))
	}
	s.probeUntil.Store(0)
	r.pauses = 0
	if r.pauseTold {
		r.pauseTold = false
		g.events = append(g.events, Event{Endpoint: e, Change: EventResumed, At: now})
	}
}

// Fault is one failure of an endpoint in use.
type Fault struct {
	Failure Failure
	// Probe says that the connection was let through after a pause.
	Probe bool
	// Error is the failure's text; "" if there is none.
	Error string
}

func (f *Fault) cause() string {
	if f.Error != "" {
		return f.Error
	}
	return f.Failure.String()
}

// Reached counts a connect that succeeded, and ends the endpoint's pause.
func (g *Group) Reached(e *Endpoint, now time.Time) {
	if e.state().pausedUntil.Load() == 0 {
		return
	}
	g.mu.Lock()
	g.resume(e, now)
	events := g.take()
	g.mu.Unlock()

	g.tell(events)
}

// Recovered ends the ejection and the pause of an endpoint that active checks
// have found well again. The events are for the caller to Notify of, since it
// may hold locks.
func (g *Group) Recovered(e *Endpoint, now time.Time) []Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.settle(now)
	for i, out := range g.ejected {
		if out.state() == e.state() {
			g.ejected = slices.Delete(g.ejected, i, i+1)
			g.out.Store(int32(len(g.ejected)))
			g.returnNow(out, now)
			break
		}
	}
	g.resume(e, now)
	return g.take()
}
