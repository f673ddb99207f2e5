package endpoint

import (
	"math/rand/v2"
	"slices"
	"time"
)

// An endpoint that fails to connect is paused: new connections skip it while
// another endpoint is ready. The first pause lasts FirstPause. After it one
// connection at a time is admitted as a probe, and each failed probe doubles
// the pause, up to MaxPause. Each pause is shortened at random by up to a
// fifth, so that nodes do not probe in step. A successful connect, whether a
// probe or not, ends the pause and resets its length.
//
// Pauses need no configuration and have no cap: a paused endpoint is still used
// if no other is left, so they cannot cause an error by themselves.
const (
	FirstPause = time.Second
	MaxPause   = 30 * time.Second
)

// pauseLogEvery is the minimum interval between reported pauses of one
// endpoint, so that an intermittent failure does not flood the log.
const pauseLogEvery = 10 * time.Second

// maxErrorText bounds a stored error, in bytes.
const maxErrorText = 200

// pausedAt reports whether new connections skip the endpoint at that time.
func (s *state) pausedAt(at int64) bool {
	until := s.pausedUntil.Load()
	return until != 0 && (until > at || probing(s.probeUntil.Load(), at))
}

// probing reports whether a probe is in progress.
func probing(probeUntil, at int64) bool { return probeUntil != 0 && probeUntil > at }

// Paused reports whether new connections skip the endpoint at that time,
// because it failed to connect or is being probed.
func (e *Endpoint) Paused(now time.Time) bool {
	s := e.state()
	return s.pausedUntil.Load() != 0 && s.pausedAt(Stamp(now))
}

// PausedUntil returns when the pause ends, or the zero time if the endpoint is
// not paused. A time in the past means that the next connection is a probe.
func (e *Endpoint) PausedUntil() time.Time { return fromStamp(e.state().pausedUntil.Load()) }

// Ready reports whether the endpoint is usable and not paused.
func (e *Endpoint) Ready(now time.Time) bool { return e.Usable(now) && !e.Paused(now) }

// Claim must precede a connect to an endpoint that was Ready. If its pause has
// just ended, the first caller gets probe true; others get ok false until the
// probe or its lease has ended.
func (e *Endpoint) Claim(now time.Time, lease time.Duration) (probe, ok bool) {
	s := e.state()
	if s.pausedUntil.Load() == 0 {
		return false, true
	}
	at, last := Stamp(now), s.probeUntil.Load()
	if probing(last, at) {
		return false, false
	}
	return true, s.probeUntil.CompareAndSwap(last, at+int64(lease))
}

// AbandonProbe ends a probe without a result: the next connection may probe.
func (e *Endpoint) AbandonProbe() { e.state().probeUntil.Store(0) }

// EndPause makes a paused endpoint ready for a probe after a health check has
// passed. A check that began before the pause has no effect.
func (e *Endpoint) EndPause(began, now time.Time) {
	s := e.state()
	until := s.pausedUntil.Load()
	if at := Stamp(now); until > at && s.pausedSince.Load() <= Stamp(began) {
		s.pausedUntil.CompareAndSwap(until, at)
	}
}

// pauseFor starts a pause after a failed connect. Until a connect succeeds,
// only failed probes lengthen it. The caller holds the group's lock.
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
	if r.member && !r.pauseReported && (r.pauseReportedAt == 0 || at-r.pauseReportedAt >= int64(pauseLogEvery)) {
		r.pauseReported, r.pauseReportedAt = true, at
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
	if until <= Stamp(now) { // a whole pause has passed, not just one connection
		s.usableFrom(Stamp(now))
	}
	s.probeUntil.Store(0)
	r.pauses = 0
	if r.pauseReported {
		r.pauseReported = false
		g.events = append(g.events, Event{Endpoint: e, Change: EventResumed, At: now})
	}
}

// Fault is one failure of an endpoint in use.
type Fault struct {
	Failure Failure
	// Probe is true if the connection was admitted after a pause, as a probe.
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

// Reached records a successful connect: it ends the endpoint's pause.
func (g *Group) Reached(e *Endpoint, now time.Time) {
	if e.state().pausedUntil.Load() == 0 {
		return
	}
	g.mu.Lock()
	g.resume(e, now)
	events := g.takeEvents()
	g.mu.Unlock()

	g.deliver(events)
}

// Recovered ends the ejection and the pause of an endpoint that active checks
// have found healthy again. It returns the events for the caller to Notify,
// because the caller may hold locks.
func (g *Group) Recovered(e *Endpoint, now time.Time) []Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endEjections(now)
	for i, out := range g.ejected {
		if out.state() == e.state() {
			g.ejected = slices.Delete(g.ejected, i, i+1)
			g.ejectedCount.Store(int32(len(g.ejected)))
			g.endEjectionEarly(out, now)
			break
		}
	}
	g.resume(e, now)
	return g.takeEvents()
}
