package dataplane

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"penstock/mysql/session"
	"penstock/netio"
	"penstock/routing"
)

// SessionInfo describes a session of a MySQL client.
type SessionInfo struct {
	ID                                uint64
	Client                            netip.AddrPort
	User, Listener, Service, Endpoint string
	Age                               time.Duration
	// State is idle, busy, transaction, cursor, replication, held or moving.
	State string
	// Cause is why the session is to move; "": it is not. Since is when that began, and
	// Why why it has not moved yet.
	Cause string
	Since time.Time
	Why   string
	Moves int // so far
	// Failure is that of the last move, at FailedAt; "": it succeeded, or there was none.
	Failure  string
	FailedAt time.Time
}

// maxUser bounds the user name in a SessionInfo, in bytes: it is the client's to choose.
const maxUser = 128

// ListSessions describes the sessions that match, at most limit: those that are to move
// first, the longest wanted before the others. With stuck it lists only these. total counts
// all that match. It asks the loops, a few sessions at a time, and fails if ctx ends before.
func (d *Dataplane) ListSessions(ctx context.Context, f SessionFilter, stuck bool, limit int) (list []SessionInfo, total int, err error) {
	l := sessionLister{sessions: d.reconciler.sessions, filter: f, stuck: stuck, limit: limit}
	if err := d.eachSession(ctx, l.visit); err != nil {
		return nil, 0, err
	}
	l.mu.Lock() // if ctx has ended just now
	defer l.mu.Unlock()
	return l.list(), l.total, nil
}

// eachSession calls visit for each session, on its loop. It fails if ctx ends before all
// were visited; then visit may still be called a few times.
func (d *Dataplane) eachSession(ctx context.Context, visit func(*mysqlConn)) error {
	var loops sync.WaitGroup
	loops.Add(d.Engine.Loops())
	d.Engine.Review(netio.OK, func(c *netio.Conn) (time.Duration, bool) {
		if s, ok := c.Plan().(*session.Session); ok && ctx.Err() == nil {
			if h, ok := s.Host().(*mysqlConn); ok {
				visit(h)
			}
		}
		return 0, false
	}, loops.Done)
	done := make(chan struct{})
	go func() { loops.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sortSessions puts those that are to move first, the longest wanted before the others,
// and then by ID.
func sortSessions(list []SessionInfo) {
	slices.SortFunc(list, func(a, b SessionInfo) int {
		if (a.Cause == "") != (b.Cause == "") {
			return cmp.Compare(b.Cause, a.Cause)
		}
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID))
	})
}

// sessionLister collects sessions on all loops.
type sessionLister struct {
	sessions *mysqlSessions
	filter   SessionFilter
	stuck    bool
	limit    int

	mu             sync.Mutex
	total          int
	wanted, others []SessionInfo // at most twice the limit each
}

// visit looks at a session, on its loop.
func (l *sessionLister) visit(h *mysqlConn) {
	f, at := &l.filter, h.at.Load()
	if at == nil || h.plan == nil || !f.matches(h) || f.Service != "" && f.Service != h.plan.decision.Service() ||
		f.Endpoint != "" && !routing.IsAt(at, f.Endpoint) {
		return
	}
	info := SessionInfo{
		ID: h.conn.ID(), Client: h.conn.Client(), User: h.user[:min(len(h.user), maxUser)], Listener: h.conn.Listener(),
		Service: h.plan.decision.Service(), Endpoint: EndpointName(at), Age: h.conn.Age(), State: stateOf(h),
	}
	l.sessions.describe(h, &info)
	if l.stuck && info.Cause == "" {
		return
	}
	l.add(&info)
}

// add keeps a session as long as it may be one of the first.
func (l *sessionLister) add(info *SessionInfo) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	into := &l.others
	if info.Cause != "" {
		into = &l.wanted
	}
	if *into = append(*into, *info); len(*into) >= 2*l.limit {
		sortSessions(*into)
		*into = slices.Delete(*into, l.limit, len(*into))
	}
}

// list returns the first ones of all.
func (l *sessionLister) list() []SessionInfo {
	list := slices.Concat(l.wanted, l.others)
	sortSessions(list)
	return list[:min(len(list), l.limit)]
}

// stateOf returns the state of a session, on its loop.
func stateOf(h *mysqlConn) string {
	if h.next != nil {
		return "moving"
	}
	if err := h.session.Safe(); err != nil {
		return delayOf(err)
	}
	return "idle"
}

// describe adds what the index knows about a session. It is called on the session's loop.
func (m *mysqlSessions) describe(h *mysqlConn, info *SessionInfo) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := &h.entry
	info.Moves, info.Failure, info.FailedAt = int(e.moves), e.failure, e.failedAt
	p := e.place
	if p == nil {
		return
	}
	var why cause
	switch {
	case p.cause.leaves():
		why, info.Since = p.cause, p.since
	case e.order != nil:
		why, info.Since = causeOrdered, e.order.at
	default:
		why, info.Since = e.cause, e.since
	}
	if info.Cause = why.String(); why == causeNone {
		info.Since = time.Time{}
		return
	}
	info.Why = m.whyNotMoved(h, info.State)
}

// whyNotMoved returns why a session that is to move has not yet.
func (m *mysqlSessions) whyNotMoved(h *mysqlConn, state string) string {
	e := &h.entry
	switch safe := h.session.Safe(); {
	case !e.place.service.moves:
		return whyNever
	case state == "moving":
		return "it is moving"
	case e.place.nowhere:
		return whyNowhere
	case e.list == &e.place.service.deferred:
		return errTargetBusy.Error()
	case e.cause != causeNone && safe != nil:
		return safe.Error()
	case e.failure != "":
		return e.failure
	}
	return whyTurn
}
