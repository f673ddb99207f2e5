package dataplane

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"penstock/mysql/session"
	"penstock/routing"
	"penstock/routing/endpoint"
)

// mysqlSessions are the sessions that are logged in, by service and endpoint, so that
// what is decided about an endpoint costs nothing for the sessions elsewhere. Its methods
// are safe for concurrent use; the goroutine that run starts orders the moves.
type mysqlSessions struct {
	log      *slog.Logger
	router   *routing.Router
	versions mysqlVersions
	tls      sync.Map // listener -> func(*clienthello.Hello) (*tls.Config, netio.Reason)

	wake     chan struct{} // capacity 1: there may be something to do
	outdated atomic.Bool   // the causes have to be found again
	ctx      context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup

	mu       sync.Mutex
	open     int
	services map[string]*serviceSessions
	ordered  int                   // sessions that have an order
	orders   map[uint64]*moveOrder // the latest, by ID
	lastID   uint64                // of an order
	counts   MoveCounts
}

// MoveCounts are the numbers of moves of sessions since start, and of those that are to move.
type MoveCounts struct {
	Moved, Stayed uint64
	// Failed counts the moves that failed, by reason; their sum is Stayed.
	Failed map[string]uint64
	// Delayed counts the sessions that could not move when they were asked, by reason.
	Delayed map[string]uint64
	// Wanted counts the sessions that are to move, by cause.
	Wanted map[string]int
}

// serviceSessions is a service with sessions. mysqlSessions.mu guards it.
type serviceSessions struct {
	name     string
	moves    bool // as mysql.move says
	places   map[endpointID]*mysqlPlace
	pace     *rate.Limiter // of all moves but those for balance; nil while moves is false
	slowly   *rate.Limiter // of these
	leaving  []*mysqlPlace // with a cause, the most urgent first
	excess   []excess      // to be moved for balance
	ordered  []orderQueue  // with sessions that were not asked yet
	deferred sessionList   // were asked, but their target was busy
	freed    int           // moves that have ended since deferred ones were asked again
	again    time.Time     // when these were
	evening  int           // asked for balance, and not moved yet
	overload overload
}

// mysqlPlace is an endpoint with sessions, or to which some move.
type mysqlPlace struct {
	service  *serviceSessions
	endpoint *endpoint.Endpoint // any version of it: they share their counts
	cause    cause              // why all of its sessions are to move
	since    time.Time          // when it began
	nowhere  bool               // there is no good server beside this one
	sessions int
	incoming int // sessions that are moving here
	// stateless is when a session could not move because the server has no session states.
	stateless time.Time

	calm   sessionList // were not asked to move
	asked  sessionList
	failed sessionList // by the time of the failure
}

// mysqlEntry is what the index knows about a session.
type mysqlEntry struct {
	place      *mysqlPlace // nil: the session is not logged in, or has ended
	list       *sessionList
	prev, next *mysqlConn
	target     *mysqlPlace // during a move
	cause      cause       // for which it was asked to move
	since      time.Time   // when it was
	order      *moveOrder  // nil: none
	failedAt   time.Time
	failure    string // of the last move; "": it succeeded
	moves      uint32
}

// sessionList is a list of sessions; each is in one list at most.
type sessionList struct {
	head, tail *mysqlConn
	n          int
}

func (l *sessionList) push(h *mysqlConn) {
	h.entry.list, h.entry.prev, h.entry.next = l, l.tail, nil
	if l.tail != nil {
		l.tail.entry.next = h
	} else {
		l.head = h
	}
	l.tail = h
	l.n++
}

// take removes a session from the list that it is in.
func (e *mysqlEntry) take() {
	l := e.list
	if l == nil {
		return
	}
	if e.prev != nil {
		e.prev.entry.next = e.next
	} else {
		l.head = e.next
	}
	if e.next != nil {
		e.next.entry.prev = e.prev
	} else {
		l.tail = e.prev
	}
	l.n--
	e.list, e.prev, e.next = nil, nil, nil
}

// put moves a session to a list.
func (l *sessionList) put(h *mysqlConn) {
	h.entry.take()
	l.push(h)
}

func (m *mysqlSessions) init(log *slog.Logger, router *routing.Router) {
	m.log, m.router = log, router
	m.wake = make(chan struct{}, 1)
	m.services, m.orders = map[string]*serviceSessions{}, map[uint64]*moveOrder{}
	m.counts.Failed, m.counts.Delayed = map[string]uint64{}, map[string]uint64{}
	for _, f := range session.Failures {
		m.counts.Failed[string(f)] = 0
	}
	for _, reason := range []string{failureNoServer, failureNoRoute} {
		m.counts.Failed[reason] = 0
	}
	for _, reason := range delays {
		m.counts.Delayed[reason] = 0
	}
	m.ctx, m.stop = context.WithCancel(context.Background())
}

// close ends the goroutine that orders the moves.
func (m *mysqlSessions) close() {
	m.stop()
	m.versions.close()
	m.running.Wait()
}

// forget forgets a listener that has been removed.
func (m *mysqlSessions) forget(listener string) {
	m.versions.forget(listener)
	m.tls.Delete(listener)
}

// review has the causes found again: the table, or the health of an endpoint, has changed.
func (m *mysqlSessions) review() {
	m.outdated.Store(true)
	m.rouse()
}

// rouse wakes the goroutine that orders the moves.
func (m *mysqlSessions) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// place returns the place of an endpoint of a service.
func (m *mysqlSessions) place(service string, e *endpoint.Endpoint) *mysqlPlace {
	s := m.services[service]
	if s == nil {
		s = &serviceSessions{name: service, places: map[endpointID]*mysqlPlace{}}
		m.services[service] = s
	}
	p := s.places[idOf(e)]
	if p == nil {
		p = &mysqlPlace{service: s, endpoint: e}
		s.places[idOf(e)] = p
		m.review()
	}
	return p
}

// dropUnused drops a place that has no sessions any more.
func (m *mysqlSessions) dropUnused(p *mysqlPlace) {
	s := p.service
	if p.sessions > 0 || p.incoming > 0 || s.places[idOf(p.endpoint)] != p {
		return
	}
	delete(s.places, idOf(p.endpoint))
	if len(s.places) == 0 {
		delete(m.services, s.name)
	}
}

// add adds a session that has logged in.
func (m *mysqlSessions) add(h *mysqlConn, service string, at *endpoint.Endpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.place(service, at)
	h.entry.place = p
	p.sessions++
	m.open++
	p.calm.push(h)
	if p.cause != causeNone {
		m.rouse()
	}
}

// remove removes a session that has ended, wherever it is.
func (m *mysqlSessions) remove(h *mysqlConn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &h.entry
	if e.place == nil {
		return
	}
	m.endOrder(h, outcomeClosed, "")
	m.unask(h)
	e.take()
	p := e.place
	e.place = nil
	p.sessions--
	m.open--
	m.dropUnused(p)
}

// unask takes back that a session was asked to move. The caller puts it into a list.
func (m *mysqlSessions) unask(h *mysqlConn) {
	e := &h.entry
	switch e.cause {
	case causeBalance:
		e.place.service.evening--
	case causeOverload:
		e.place.service.overload.asked--
	}
	m.leaveTarget(h)
	e.cause = causeNone
}

// leaveTarget records that a session is no longer moving to a server.
func (m *mysqlSessions) leaveTarget(h *mysqlConn) {
	e := &h.entry
	if e.target == nil {
		return
	}
	e.target.incoming--
	e.place.service.freed++
	m.dropUnused(e.target)
	e.target = nil
}

// waits records that a session holds something, which its server has said when the
// session began to move. It returns whether the session is still to move.
func (m *mysqlSessions) waits(h *mysqlConn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &h.entry
	if e.place == nil || e.cause == causeNone {
		return false
	}
	m.counts.Delayed[delayHeld]++
	m.leaveTarget(h)
	m.rouse()
	if e.cause == causeBalance && e.order == nil { // another one can move sooner
		m.unask(h)
		e.place.calm.put(h)
		return false
	}
	return true
}

// moved records that a session has moved.
func (m *mysqlSessions) moved(h *mysqlConn, service string, to *endpoint.Endpoint) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &h.entry
	m.counts.Moved++
	m.endOrder(h, outcomeMoved, "")
	p := m.place(service, to) // before unask, which would drop it
	p.sessions++
	if e.cause == causeOverload && p.service == e.place.service {
		p.service.overload.relief.Moved(idOf(e.place.endpoint), idOf(to), time.Now())
	}
	m.unask(h)
	p.calm.put(h)
	old := e.place
	e.place, e.failure = p, ""
	e.moves++
	old.sessions--
	old.stateless = time.Time{}
	m.dropUnused(old)
	m.rouse() // there is room for the next one
}

// stays records that a session has not moved. It returns whether a move has failed.
func (m *mysqlSessions) stays(h *mysqlConn, err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &h.entry
	if e.place == nil {
		return false
	}
	switch reason := failureOf(err); reason {
	case failureBusy: // it stays asked, and its move paid for
		s := e.place.service
		if s.deferred.put(h); s.deferred.n == 1 {
			m.rouse() // the moves that kept the target busy may have ended by now
		}
		return false
	case failureNone:
		m.unask(h)
		e.place.calm.put(h)
		m.rouse()
		return false
	default:
		m.counts.Stayed++
		m.counts.Failed[reason]++
		e.failure, e.failedAt = err.Error(), time.Now()
		if reason == string(session.FailureStates) {
			e.place.stateless = e.failedAt
		}
		m.endOrder(h, outcomeStayed, e.failure)
		m.unask(h)
		e.place.failed.put(h)
		m.rouse()
		return true
	}
}
