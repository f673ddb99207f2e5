package dataplane

import (
	"errors"
	"time"

	"golang.org/x/time/rate"

	"penstock/mysql/session"
	"penstock/routing/endpoint"
)

const (
	// moveRetry is the time after which a move that failed is tried again.
	moveRetry = 3 * time.Second
	// maxIncoming bounds the sessions that move to one server at once, so that a slow one
	// slows moves down, which would time out otherwise.
	maxIncoming = 32
	// balanceRetry is the same for balance, which is not urgent.
	balanceRetry = 30 * time.Second
	// moveTick is the least time between two looks while sessions wait for their turn.
	// Moves that begin together wait for each other on the loops.
	moveTick = 2 * time.Millisecond
	// deferTick is the time after which sessions whose target was busy are asked again
	// though no move there has ended.
	deferTick = 20 * time.Millisecond
)

// cause is why a session is to move.
type cause uint8

// The causes, the most urgent first.
const (
	causeNone      cause = iota
	causeLeft            // its server has left the service
	causeUnhealthy       // its server fails the health check
	causeDrained         // its server takes no new sessions: its weight is 0, it is terminating, or of another group
	causeOrdered         // by hand
	causeOverload        // its server is busier than others
	causeBalance         // its server has more sessions than others
)

var causeNames = [...]string{"", "left", "unhealthy", "drained", "ordered", "overload", "balance"}

func (c cause) String() string { return causeNames[c] }

// leaves reports whether all sessions of a server are to move.
func (c cause) leaves() bool { return c != causeNone && c < causeOrdered }

// The reasons of failures besides those of package session.
const (
	failureNone     = ""     // it is no failure
	failureBusy     = "busy" // nor is this
	failureNoServer = "no_server"
	failureNoRoute  = "no_route"
)

func failureOf(err error) string {
	switch {
	case errors.Is(err, errNotWanted), errors.Is(err, session.ErrNotOpen):
		return failureNone
	case errors.Is(err, errTargetBusy):
		return failureBusy
	case errors.Is(err, errNoOtherServer):
		return failureNoServer
	case errors.Is(err, errNoRoute):
		return failureNoRoute
	}
	return string(session.FailureOf(err))
}

// What keeps a session where it is until its client does something.
const (
	delayBusy        = "busy"
	delayTransaction = "transaction"
	delayCursor      = "cursor"
	delayReplication = "replication"
	delayHeld        = "held" // session.ErrHolds
)

var delays = []string{delayBusy, delayTransaction, delayCursor, delayReplication, delayHeld}

// delayOf returns the delay of a session by Session.Safe.
func delayOf(err error) string {
	switch {
	case errors.Is(err, session.ErrInTransaction):
		return delayTransaction
	case errors.Is(err, session.ErrWaiting):
		return delayCursor
	case errors.Is(err, session.ErrStuck):
		return delayReplication
	case errors.Is(err, session.ErrHolds):
		return delayHeld
	}
	return delayBusy
}

// paced returns a limiter of moves with this pace: old if that has it. What a goroutine
// that wakes late has missed may begin at once, but no more than 10 ms have.
func paced(old *rate.Limiter, perSecond int) *rate.Limiter {
	if old != nil && old.Limit() == rate.Limit(perSecond) {
		return old
	}
	return rate.NewLimiter(rate.Limit(perSecond), max(perSecond/100, 1))
}

// run starts the goroutine that orders the moves.
func (m *mysqlSessions) run() {
	m.running.Go(func() {
		timer := time.NewTimer(time.Hour)
		defer timer.Stop()
		for {
			select {
			case <-m.wake:
			case <-timer.C:
			case <-m.ctx.Done():
				return
			}
			timer.Reset(m.step(time.Now()))
		}
	})
}

// step asks the sessions to move whose turn it is, and returns when to look again unless
// something wakes it.
func (m *mysqlSessions) step(now time.Time) time.Duration {
	m.mu.Lock()
	m.refresh(now)
	t := moveTurn{now: now, next: time.Hour}
	for _, s := range m.services {
		s.take(&t)
	}
	m.mu.Unlock()

	for _, h := range t.asked {
		h.conn.Post(func() { m.ask(h) })
	}
	return t.next
}

// refresh finds the causes again if something has changed.
func (m *mysqlSessions) refresh(now time.Time) {
	if !m.outdated.Swap(false) {
		return
	}
	for _, h := range m.findCauses(now) {
		h.conn.Post(func() { m.takeBack(h) })
	}
}

// moveTurn collects the sessions that are to be asked.
type moveTurn struct {
	now   time.Time
	next  time.Duration // until the next turn at the latest
	asked []*mysqlConn
}

func (t *moveTurn) again(in time.Duration) { t.next = min(t.next, max(in, moveTick)) }

// allows takes a move from the pace, or has the next turn when it allows one.
func (t *moveTurn) allows(pace *rate.Limiter) bool {
	if pace.AllowN(t.now, 1) {
		return true
	}
	missing := 1 - pace.TokensAt(t.now)
	t.again(time.Duration(missing / float64(pace.Limit()) * float64(time.Second)))
	return false
}

// ask marks a session as asked.
func (t *moveTurn) ask(h *mysqlConn, why cause, since time.Time) {
	e := &h.entry
	e.cause, e.since = why, since
	switch why {
	case causeBalance:
		e.place.service.evening++
	case causeOverload:
		e.place.service.overload.asked++
	}
	e.place.asked.put(h)
	t.asked = append(t.asked, h)
}

// take takes the sessions of a service whose turn it is: first those whose server leaves,
// then those that were ordered to move, then those of a busy one, then those for balance.
func (s *serviceSessions) take(t *moveTurn) {
	if !s.moves {
		return
	}
	if s.deferred.n > 0 { // before others are asked, the targets have to take these
		s.takeDeferred(t)
		return
	}
	for _, p := range s.leaving {
		if !p.take(t) {
			return
		}
	}
	for len(s.ordered) > 0 {
		if !s.ordered[0].take(s, t) {
			return
		}
		s.ordered = s.ordered[1:]
	}
	s.overload.take(t)
	for i := range s.excess {
		if !s.excess[i].take(t) {
			return
		}
	}
}

// takeDeferred asks sessions again whose target was busy: one for each move that has
// ended, and after a while some more, which balancing may send elsewhere.
func (s *serviceSessions) takeDeferred(t *moveTurn) {
	n := s.freed
	if t.now.Sub(s.again) >= deferTick {
		n = maxIncoming
	}
	if n = min(n, s.deferred.n, maxIncoming); n > 0 {
		s.freed, s.again = 0, t.now
	}
	for range n {
		h := s.deferred.head
		h.entry.place.asked.put(h)
		t.asked = append(t.asked, h)
	}
	t.again(deferTick)
}

// take takes the sessions of a place that is left. It returns false if the pace allows
// no more now.
func (p *mysqlPlace) take(t *moveTurn) bool {
	if p.nowhere {
		return true
	}
	for {
		h := p.failed.head
		if h == nil || t.now.Sub(h.entry.failedAt) < moveRetry {
			if h = p.calm.head; h == nil {
				break
			}
		}
		if !t.allows(p.service.pace) {
			return false
		}
		t.ask(h, p.cause, p.since)
	}
	if h := p.failed.head; h != nil {
		t.again(moveRetry - t.now.Sub(h.entry.failedAt))
	}
	return true
}

// ask asks a session to move, on its loop.
func (m *mysqlSessions) ask(h *mysqlConn) {
	if cause, _ := m.reasonToMove(h); cause == causeNone || h.next != nil {
		return
	}
	h.session.Move()
	if !h.session.Wanted() || h.next != nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &h.entry
	if e.place == nil || e.cause == causeNone {
		return
	}
	reason := delayOf(h.session.Safe())
	m.counts.Delayed[reason]++
	if (e.cause == causeBalance || e.cause == causeOverload) && e.order == nil && reason != delayBusy { // another one can move sooner
		h.session.Stay()
		m.unask(h)
		e.place.calm.put(h)
	}
}

// takeBack takes a request to move back, on the loop of the session.
func (m *mysqlSessions) takeBack(h *mysqlConn) {
	if cause, _ := m.reasonToMove(h); cause == causeNone {
		h.session.Stay()
	}
}

// reasonToMove returns why a session is to move now, and the address of the server to
// which it has to; "": to any.
func (m *mysqlSessions) reasonToMove(h *mysqlConn) (why cause, to string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &h.entry
	if e.place == nil || e.cause == causeNone || !e.place.service.moves {
		return causeNone, ""
	}
	switch {
	case e.order != nil:
		return causeOrdered, e.order.to
	case e.place.cause.leaves():
		return e.place.cause, ""
	case e.cause == causeOverload:
		if to, ok := e.place.service.overload.from(e.place); ok {
			return causeOverload, to
		}
		return causeNone, ""
	case e.cause == causeBalance:
		return causeBalance, e.place.service.evenTo(e.place)
	}
	return e.cause, ""
}

// begin takes one of the places at a server for sessions that are moving there.
func (m *mysqlSessions) begin(h *mysqlConn, service string, to *endpoint.Endpoint) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.entry.place == nil {
		return false
	}
	p := m.place(service, to)
	if p.incoming >= maxIncoming {
		return false
	}
	p.incoming++
	h.entry.target = p
	return true
}

// MoveCounts returns the numbers of moves.
func (d *Dataplane) MoveCounts() MoveCounts {
	m := d.reconciler.sessions
	m.mu.Lock()
	defer m.mu.Unlock()
	c := MoveCounts{Moved: m.counts.Moved, Stayed: m.counts.Stayed, Wanted: map[string]int{},
		Failed: make(map[string]uint64, len(m.counts.Failed)), Delayed: make(map[string]uint64, len(m.counts.Delayed))}
	for reason, n := range m.counts.Failed {
		c.Failed[reason] = n
	}
	for reason, n := range m.counts.Delayed {
		c.Delayed[reason] = n
	}
	for _, name := range causeNames[1:] {
		c.Wanted[name] = 0
	}
	for _, s := range m.services {
		for _, p := range s.places {
			if p.cause != causeNone {
				c.Wanted[p.cause.String()] += p.sessions
			}
		}
		c.Wanted[causeBalance.String()] += s.evening
		c.Wanted[causeOverload.String()] += s.overload.asked
	}
	c.Wanted[causeOrdered.String()] = m.ordered
	return c
}

// Sessions returns the number of MySQL sessions that are logged in, and how many moves to
// another server have succeeded and failed.
func (d *Dataplane) Sessions() (open int, moved, stayed uint64) {
	m := d.reconciler.sessions
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open, m.counts.Moved, m.counts.Stayed
}
