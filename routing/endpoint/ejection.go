package endpoint

import (
	"strings"
	"time"
)

// Fixed bounds of ejection.
const (
	// MaxEjectionTimes bounds an ejection, in multiples of Ejection.Duration.
	MaxEjectionTimes = 10
	// maxFailures bounds the recorded failures per endpoint.
	maxFailures = 1000
	// maxSuccesses is the number of successes per failure, since the oldest
	// failure that counts, up to which an endpoint is ejected. If less than a
	// fifth of connections fail it stays: otherwise three failures in 10 s would
	// eject every endpoint that is busy enough.
	maxSuccesses = 4
)

// Ejection configures when endpoints that fail in use get no new connections
// for a time. Its fields are effective values, with defaults filled in.
type Ejection struct {
	// Failures within Window eject. An ejection lasts Duration; each further
	// one lasts one Duration longer, up to MaxEjectionTimes. Each Window plus
	// Duration without an ejection afterwards takes off one step.
	Failures int
	Window   time.Duration
	Duration time.Duration
	// MaxShare is the percentage of endpoints that may be ejected at once, rounded
	// down. Of two or more, one may always be (unless it is 0), and the last
	// usable one never is. 100 lifts both limits: only then is a service's single
	// endpoint ejected.
	MaxShare int
}

// record is the failure history of an endpoint.
type record struct {
	member bool // in the group's current set
	// marks is a ring of the last Failures failures, allocated at the first
	// failure. next is the oldest once the ring is full.
	marks  []mark
	next   int
	filled int
	// multiple is the length of the last ejection, in multiples of Duration;
	// returned is its end, as Stamp.
	multiple int
	returned int64
	// pauses counts the pauses since the last success. pauseReported means that the
	// observer was notified of them, pauseReportedAt is its last such notification.
	pauses          int
	pauseReported   bool
	pauseReportedAt int64
	// lastError is the text of the last failure, lastErrorAt its time; 0: none.
	lastError   string
	lastErrorAt int64
}

// mark is one failure: its time, and the number of successes before it.
type mark struct{ at, connected int64 }

// Configure sets when endpoints are ejected. nil disables ejection and ends
// current ejections. A change discards the failures counted so far.
func (g *Group) Configure(ej *Ejection, now time.Time) {
	if ej != nil {
		own := *ej
		own.Failures = min(max(own.Failures, 1), maxFailures)
		ej = &own
	}
	g.mu.Lock()
	if old := g.ejection.Swap(ej); old == ej || old != nil && ej != nil && *old == *ej {
		g.mu.Unlock()
		return
	}
	for _, e := range g.members {
		e.state().record.clearMarks()
	}
	g.endEjections(now)
	events := g.takeEvents()
	g.mu.Unlock()

	g.deliver(events)
}

// Connected records that the endpoint took a connection. It is one atomic
// operation, unless the endpoint is paused or ejected.
func (g *Group) Connected(e *Endpoint, now time.Time) {
	g.Reached(e, now)
	if g.ejection.Load() == nil {
		return
	}
	e.state().connected.Add(1)
	if e.state().ejectedUntil.Load() != 0 {
		g.Sweep(now)
	}
}

// Failed is Fail without details.
func (g *Group) Failed(e *Endpoint, f Failure, now time.Time) {
	g.RecordFault(e, Fault{Failure: f}, now)
}

// RecordFault records a failure. It pauses an endpoint that failed to connect, and
// ejects one that failed too often. A failure during an ejection does not
// count: that connection began before it.
func (g *Group) RecordFault(e *Endpoint, f Fault, now time.Time) {
	s := e.state()
	if f.Failure == EarlyReset && g.ejection.Load() != nil {
		s.connected.Add(-1) // take back the success that Connected counted
	}
	text := f.cause()
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	g.mu.Lock()
	s.record.lastError, s.record.lastErrorAt = text, Stamp(now)
	if f.Failure.connect() {
		g.pauseFor(e, f, now)
	}
	g.endEjections(now)
	g.countFailure(e, f.Failure, now)
	events := g.takeEvents()
	g.mu.Unlock()

	g.deliver(events)
}

// Sweep notifies the observer of ejections that are over. Endpoints return
// without it; called about once a second it makes the notification timely. It
// costs one atomic load while nothing is ejected.
func (g *Group) Sweep(now time.Time) {
	if g.ejectedCount.Load() == 0 {
		return
	}
	g.mu.Lock()
	g.endEjections(now)
	events := g.takeEvents()
	g.mu.Unlock()

	g.deliver(events)
}

// countFailure counts a failure and ejects the endpoint if necessary. The caller
// holds the lock and has settled the group.
func (g *Group) countFailure(e *Endpoint, f Failure, now time.Time) {
	ej, s := g.ejection.Load(), e.state()
	r := &s.record
	if ej == nil || !r.member || s.ejectedUntil.Load() != 0 {
		return
	}
	at := Stamp(now)
	if !r.add(mark{at, s.connected.Load()}, ej) || !g.mayEject(e, ej, now) {
		return
	}
	r.clearMarks()
	r.multiple = min(max(r.multiple-r.decay(at, ej), 0)+1, MaxEjectionTimes)
	r.returned = at + int64(ej.Duration)*int64(r.multiple)
	s.ejectedUntil.Store(r.returned)
	s.usableFrom(r.returned)
	g.ejected = append(g.ejected, e)
	g.ejectedCount.Store(int32(len(g.ejected)))
	g.events = append(g.events, Event{
		Endpoint: e, Change: EventEjected, At: now,
		Until: fromStamp(r.returned), Times: r.multiple, Cause: f.String(),
	})
}

// add records a failure and reports whether the ring now justifies an ejection.
func (r *record) add(m mark, ej *Ejection) bool {
	if len(r.marks) != ej.Failures {
		r.marks = make([]mark, ej.Failures)
		r.clearMarks()
	}
	r.marks[r.next] = m
	r.next = (r.next + 1) % len(r.marks)
	r.filled = min(r.filled+1, len(r.marks))
	if r.filled < len(r.marks) {
		return false
	}
	oldest := r.marks[r.next]
	return m.at-oldest.at <= int64(ej.Window) &&
		m.connected-oldest.connected <= int64(maxSuccesses*ej.Failures)
}

// recent returns the number of failures within the window.
func (r *record) recent(at int64, ej *Ejection) int {
	n := 0
	for _, m := range r.marks[:r.filled] {
		if at-m.at <= int64(ej.Window) {
			n++
		}
	}
	return n
}

// clearMarks discards the recorded failures.
func (r *record) clearMarks() { r.next, r.filled = 0, 0 }

// decay returns the steps that the time since the last ejection takes off. A
// step is Window plus Duration, so that an endpoint which fails at once after
// each return is out for longer each time.
func (r *record) decay(at int64, ej *Ejection) int {
	step := int64(ej.Window + ej.Duration)
	if r.multiple == 0 || step <= 0 || at < r.returned {
		return 0
	}
	return int(min((at-r.returned)/step, MaxEjectionTimes))
}

// limit returns how many members may be ejected at once.
func (g *Group) limit() int {
	ej := g.ejection.Load()
	if ej == nil {
		return 0
	}
	n := len(g.members) * ej.MaxShare / 100
	if n == 0 && len(g.members) > 1 && ej.MaxShare > 0 {
		n = 1
	}
	return min(n, len(g.members))
}

// mayEject reports whether e may be ejected now.
func (g *Group) mayEject(e *Endpoint, ej *Ejection, now time.Time) bool {
	if len(g.ejected) >= g.limit() {
		return false
	}
	if ej.MaxShare >= 100 {
		return true
	}
	for _, other := range g.list {
		if other.state() != e.state() && other.Usable(now) {
			return true
		}
	}
	return false
}

// endEjections ends the ejections that are over and, if more endpoints are ejected
// than the limit now allows, those with the earliest end.
func (g *Group) endEjections(now time.Time) {
	at, kept := Stamp(now), g.ejected[:0]
	for _, e := range g.ejected {
		if until := e.state().ejectedUntil.Load(); until <= at {
			g.endEjection(e, fromStamp(until))
		} else {
			kept = append(kept, e)
		}
	}
	clear(g.ejected[len(kept):])
	for len(kept) > g.limit() {
		first := 0
		for i, e := range kept {
			if e.state().ejectedUntil.Load() < kept[first].state().ejectedUntil.Load() {
				first = i
			}
		}
		e := kept[first]
		kept = append(kept[:first], kept[first+1:]...)
		g.endEjectionEarly(e, now)
	}
	g.ejected = kept
	g.ejectedCount.Store(int32(len(kept)))
}

// endEjectionEarly ends an ejection early.
func (g *Group) endEjectionEarly(e *Endpoint, now time.Time) {
	e.state().record.returned = Stamp(now)
	e.state().usableSince.Store(Stamp(now))
	g.endEjection(e, now)
}

func (g *Group) endEjection(e *Endpoint, at time.Time) {
	e.state().ejectedUntil.Store(0)
	g.events = append(g.events, Event{Endpoint: e, Change: EventReturned, At: at})
}

// History is an endpoint's failure history, for status and explain.
type History struct {
	// Failures is the number of recorded failures within the window.
	Failures int
	// EjectedUntil is the zero time unless the endpoint is ejected. Times is the
	// length of that or the last ejection, in multiples of Duration.
	EjectedUntil time.Time
	Times        int
	// Pauses counts the consecutive pauses; 0 if the last connect succeeded.
	Pauses int
	// Error is the last failure in use, at ErrorAt; "" if there was none. It
	// remains after the endpoint has recovered.
	Error   string
	ErrorAt time.Time
}

// History returns an endpoint's failure history at that time.
func (g *Group) History(e *Endpoint, now time.Time) History {
	g.mu.Lock()
	defer g.mu.Unlock()
	ej, s := g.ejection.Load(), e.state()
	r := &s.record
	st := History{Pauses: r.pauses, Error: r.lastError, ErrorAt: fromStamp(r.lastErrorAt)}
	if ej == nil {
		return st
	}
	st.Failures, st.Times = r.recent(Stamp(now), ej), r.multiple
	if e.Ejected(now) {
		st.EjectedUntil = e.EjectedUntil()
	}
	return st
}
