package endpoint

import (
	"strings"
	"time"
)

// Bounds of ejection that no one sets.
const (
	// MaxTimes is how many times its first duration an ejection lasts at most.
	MaxTimes = 10
	// maxFailures bounds the memory of one endpoint's failures.
	maxFailures = 1000
	// maxSuccesses is how many successes there may be for each failure since
	// the oldest one that counts: an endpoint of which less than a fifth
	// fails is not taken out, or three failures in 10 s would eject every
	// endpoint that is busy enough.
	maxSuccesses = 4
)

// Ejection is when endpoints that fail in use get no new connections for a
// time. Its fields are effective values, defaults filled in.
type Ejection struct {
	// Failures within Window eject. An ejection lasts Duration, the next one
	// longer by as much, up to MaxTimes; for each Window and Duration that
	// an endpoint then spends without being ejected again one step is forgotten.
	Failures int
	Window   time.Duration
	Duration time.Duration
	// MaxShare of the endpoints may be ejected at once, in percent, rounded
	// down. Of two or more, one may always be (0 percent excepted), and the
	// last usable one never is. 100 lifts both limits: only then is a
	// service's single endpoint ejected.
	MaxShare int
}

// record is what an endpoint's failures left behind.
type record struct {
	member bool // of the group, now
	// marks is a ring of the last Failures failures; next is the oldest once
	// it is full. It is made at the first failure.
	marks  []mark
	next   int
	filled int
	// times is the length of the last ejection, in durations; returned is
	// when it ended.
	times    int
	returned int64
	// pauses counts the pauses since the last success. pauseTold says that the
	// observer knows of them, pauseToldAt when it was last told of one.
	pauses      int
	pauseTold   bool
	pauseToldAt int64
	// failed is the last failure's text, failedAt when it was; 0: none.
	failed   string
	failedAt int64
}

// mark is one failure: when, and how many successes there were before it.
type mark struct{ at, connected int64 }

// Configure sets how endpoints are ejected; nil ends it, and with it the
// ejections there are. Failures that were counted under other terms are
// forgotten.
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
		e.state().record.forget()
	}
	g.settle(now)
	events := g.take()
	g.mu.Unlock()

	g.tell(events)
}

// Connected counts a success: the endpoint took a connection. It is one
// atomic operation, unless the endpoint is paused or ejected.
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

// Failed is Fail for a failure without further details.
func (g *Group) Failed(e *Endpoint, f Failure, now time.Time) { g.Fail(e, Fault{Failure: f}, now) }

// Fail counts a failure. It pauses an endpoint that failed to connect, and
// ejects one that failed too often. What fails while the endpoint is ejected
// began before that, and does not count.
func (g *Group) Fail(e *Endpoint, f Fault, now time.Time) {
	s := e.state()
	if f.Failure == EarlyReset && g.ejection.Load() != nil {
		s.connected.Add(-1) // it was no success after all
	}
	text := f.cause()
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "..."
	}
	g.mu.Lock()
	s.record.failed, s.record.failedAt = text, Stamp(now)
	if f.Failure.connect() {
		g.pauseFor(e, f, now)
	}
	g.settle(now)
	g.failed(e, f.Failure, now)
	events := g.take()
	g.mu.Unlock()

	g.tell(events)
}

// Sweep tells the observer of ejections that are over. Endpoints return by
// themselves; called about once a second it makes that known in time. It
// costs one atomic load while nothing is ejected.
func (g *Group) Sweep(now time.Time) {
	if g.out.Load() == 0 {
		return
	}
	g.mu.Lock()
	g.settle(now)
	events := g.take()
	g.mu.Unlock()

	g.tell(events)
}

// failed does Failed's work under the lock, for a settled group.
func (g *Group) failed(e *Endpoint, f Failure, now time.Time) {
	ej, s := g.ejection.Load(), e.state()
	r := &s.record
	if ej == nil || !r.member || s.ejectedUntil.Load() != 0 {
		return
	}
	at := Stamp(now)
	if !r.add(mark{at, s.connected.Load()}, ej) || !g.mayEject(e, ej, now) {
		return
	}
	r.forget()
	r.times = min(max(r.times-r.forgiven(at, ej), 0)+1, MaxTimes)
	r.returned = at + int64(ej.Duration)*int64(r.times)
	s.ejectedUntil.Store(r.returned)
	s.usableFrom(r.returned)
	g.ejected = append(g.ejected, e)
	g.out.Store(int32(len(g.ejected)))
	g.events = append(g.events, Event{
		Endpoint: e, Change: EventEjected, At: now,
		Until: fromStamp(r.returned), Times: r.times, Cause: f.String(),
	})
}

// add notes a failure and tells whether there are now enough of them.
func (r *record) add(m mark, ej *Ejection) bool {
	if len(r.marks) != ej.Failures {
		r.marks = make([]mark, ej.Failures)
		r.forget()
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

// recent counts the failures that are still in the window.
func (r *record) recent(at int64, ej *Ejection) int {
	n := 0
	for _, m := range r.marks[:r.filled] {
		if at-m.at <= int64(ej.Window) {
			n++
		}
	}
	return n
}

// forget drops the failures.
func (r *record) forget() { r.next, r.filled = 0, 0 }

// forgiven is how many steps the time since the last ejection takes off. A
// step is as long as it takes to return and to fail again, so that an
// endpoint that fails at once each time is out for longer each time.
func (r *record) forgiven(at int64, ej *Ejection) int {
	step := int64(ej.Window + ej.Duration)
	if r.times == 0 || step <= 0 || at < r.returned {
		return 0
	}
	return int(min((at-r.returned)/step, MaxTimes))
}

// limit is how many of the members may be ejected at once.
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

// mayEject tells whether e may go now.
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

// settle returns the endpoints whose ejection is over and, where the cap has
// sunk below the number that is out, those that would return first.
func (g *Group) settle(now time.Time) {
	at, kept := Stamp(now), g.ejected[:0]
	for _, e := range g.ejected {
		if until := e.state().ejectedUntil.Load(); until <= at {
			g.release(e, fromStamp(until))
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
		g.returnNow(e, now)
	}
	g.ejected = kept
	g.out.Store(int32(len(kept)))
}

// returnNow ends an ejection before its time.
func (g *Group) returnNow(e *Endpoint, now time.Time) {
	e.state().record.returned = Stamp(now)
	e.state().usableSince.Store(Stamp(now))
	g.release(e, now)
}

func (g *Group) release(e *Endpoint, at time.Time) {
	e.state().ejectedUntil.Store(0)
	g.events = append(g.events, Event{Endpoint: e, Change: EventReturned, At: at})
}

// Standing is how an endpoint does in use, for status and explain.
type Standing struct {
	// Failures in the window of the last ones that count.
	Failures int
	// EjectedUntil is the zero time unless it is ejected; Times is the
	// length of that ejection, or of the last one, in durations.
	EjectedUntil time.Time
	Times        int
	// Pauses counts the pauses in a row; 0 if the last connect succeeded.
	Pauses int
	// Error is the last failure in use, at ErrorAt, whether or not the
	// endpoint has recovered since; "" if there was none.
	Error   string
	ErrorAt time.Time
}

// Standing tells how an endpoint does at that time.
func (g *Group) Standing(e *Endpoint, now time.Time) Standing {
	g.mu.Lock()
	defer g.mu.Unlock()
	ej, s := g.ejection.Load(), e.state()
	r := &s.record
	st := Standing{Pauses: r.pauses, Error: r.failed, ErrorAt: fromStamp(r.failedAt)}
	if ej == nil {
		return st
	}
	st.Failures, st.Times = r.recent(Stamp(now), ej), r.times
	if e.Ejected(now) {
		st.EjectedUntil = e.EjectedUntil()
	}
	return st
}
