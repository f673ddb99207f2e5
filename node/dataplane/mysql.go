package dataplane

import (
	"crypto/tls"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"penstock/mysql/session"
	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/routing"
	"penstock/routing/endpoint"
	"penstock/routing/health"
)

// Defaults of MySQL sessions.
const (
	// defaultServerVersion is what a listener says of which no server answers.
	defaultServerVersion = "8.0.11-Penstock"
	// moveTimeout bounds the time for which a move may hold back a client.
	moveTimeout = 5 * time.Second
)

// Why a move does not begin.
var (
	errNoOtherServer = errors.New("there is no other usable server")
	errNoRoute       = errors.New("no route")
	// errNotWanted: the session is to stay after all. It is no failure.
	errNotWanted = errors.New("the session is not to move any more")
	// errTargetBusy: as many sessions as may are moving to the server. It is no failure.
	errTargetBusy = errors.New("the server takes no more sessions at once")
)

// mysqlConn is the connection of a MySQL client. Its loop calls its methods.
type mysqlConn struct {
	traffic *traffic
	conn    *netio.Conn
	session *session.Session
	plan    *plan // nil until the client has logged in
	next    *plan // during a move
	denied  *denied
	user    string
	at      atomic.Pointer[endpoint.Endpoint] // where the session is; nil: nowhere yet
	rejoins bool                              // its sessions move by a login of their own
	secure  bool                              // the service requires TLS
	entry   mysqlEntry                        // its place in the index; guarded by mysqlSessions.mu
}

var _ session.Host = (*mysqlConn)(nil)

// routeMySQL returns the plan of a MySQL client, whose service is not known before its
// login.
func (t *traffic) routeMySQL(c *netio.Conn) netio.Plan {
	h := &mysqlConn{traffic: t, conn: c}
	h.session = session.New(h)
	return h.session
}

// planOf returns the plan of a connection to an endpoint; nil: it has none.
func planOf(p netio.Plan) *plan {
	switch p := p.(type) {
	case *plan:
		return p
	case *session.Session:
		if h, ok := p.Host().(*mysqlConn); ok {
			return h.plan
		}
	}
	return nil
}

// Settings implements session.Host.
func (h *mysqlConn) Settings() session.Settings {
	s := session.Settings{LoginTimeout: 10 * time.Second, MoveTimeout: moveTimeout}
	if l := h.traffic.listener(h.conn.Listener()); l != nil {
		s.TLS, s.RequireTLS, s.LoginTimeout = l.TLS != nil, l.MySQL.RequireTLS, l.Timeouts.Handshake.D()
		s.ServerVersion = l.MySQL.ServerVersion
	}
	if s.ServerVersion == "" {
		s.ServerVersion = h.traffic.mysql.versions.of(h)
	}
	return s
}

// TLSConfig implements session.Host.
func (h *mysqlConn) TLSConfig(hello *clienthello.Hello) (*tls.Config, netio.Reason) {
	choose, ok := h.traffic.mysql.tls.Load(h.conn.Listener())
	if !ok {
		return nil, netio.Reason(routing.NoCertificate)
	}
	return choose.(func(*clienthello.Hello) (*tls.Config, netio.Reason))(hello)
}

// Login implements session.Host.
func (h *mysqlConn) Login(c *netio.Conn, user string) netio.Reason {
	h.user = user
	p, reason := h.decide(true)
	h.plan = p
	return reason
}

// decide routes the client by the table in force.
func (h *mysqlConn) decide(limited bool) (*plan, netio.Reason) {
	t, c := h.traffic, h.conn
	if t.certs.IsRevoked(c.TLS()) {
		return nil, netio.IdentityRevoked
	}
	in := inputOf(c)
	in.User, in.ServerName, in.HasServerName = h.user, c.ServerName(), c.ServerName() != ""
	table := t.router.Table()
	decided, q, reason := t.decide(c, &in, &table)
	if reason == netio.OK && limited {
		reason = t.limit(c, table, &q)
	}
	p, _ := decided.(*plan)
	h.denied, _ = decided.(*denied)
	if p != nil {
		m := &p.path.spec.MySQL
		h.rejoins, h.secure = m.Move == "reconnect", m.RequireTLS
	}
	return p, reason
}

// Next implements netio.Plan.
func (h *mysqlConn) Next(c *netio.Conn, err error) (netio.Target, netio.Reason) {
	return h.plan.Next(c, err)
}

// Connected implements netio.Plan. A server may still refuse the client in its greeting,
// and the next one be tried: LoggedIn tells the plan.
func (h *mysqlConn) Connected(_ *netio.Conn, took time.Duration) { h.plan.connectTime = max(took, 1) }

// RequiresTLS implements session.Host.
func (h *mysqlConn) RequiresTLS() bool { return h.secure }

// Greeted implements session.Host.
func (h *mysqlConn) Greeted(version string) {
	h.traffic.mysql.versions.saw(h.conn.Listener(), version)
}

// LoggedIn implements session.Host.
func (h *mysqlConn) LoggedIn(c *netio.Conn) {
	h.plan.Connected(c, h.plan.connectTime)
	h.at.Store(h.plan.decision.Endpoint())
	h.traffic.mysql.add(h, h.plan.decision.Service(), h.plan.decision.Endpoint())
}

// MoveTarget implements session.Host.
func (h *mysqlConn) MoveTarget(c *netio.Conn) (netio.Target, error) {
	m := &h.traffic.mysql
	cause, to := m.reasonToMove(h)
	if cause == causeNone {
		return netio.Target{}, errNotWanted
	}
	p, reason := h.decide(false)
	if reason != netio.OK || p == nil {
		return netio.Target{}, fmt.Errorf("%w: %s", errNoRoute, reason)
	}
	now, from := time.Now(), h.plan.decision.Endpoint()
	var e *endpoint.Endpoint
	var why routing.Reason
	if to != "" {
		e, why = p.decision.NextAt(to, now)
	} else {
		e, why = p.decision.NextFrom(from, now)
	}
	var err error
	switch {
	case why != routing.OK:
		err = fmt.Errorf("%w (%s)", errNoOtherServer, why)
	case idOf(e) == idOf(from): // or another version of it
		err = errNoOtherServer
	case cause == causeBalance && !m.evens(h, p.decision.Service(), e, now):
		err = errNotWanted
	case !m.begin(h, p.decision.Service(), e):
		err = errTargetBusy
	}
	if err != nil {
		p.decision.Closed()
		return netio.Target{}, err
	}
	h.next = p
	return netio.Target{Addr: e.Addr, Unix: e.Unix, Profile: p.path.profileFor(e)}, nil
}

// Reconnects implements session.Host.
func (h *mysqlConn) Reconnects() bool { return h.rejoins }

// Password implements session.Host.
func (h *mysqlConn) Password(user string) (string, bool) {
	if h.next == nil || !h.rejoins {
		return "", false
	}
	return h.next.path.spec.MySQL.Password(user)
}

// Moved implements session.Host.
func (h *mysqlConn) Moved(c *netio.Conn, err error, held time.Duration) {
	m, next := &h.traffic.mysql, h.next
	h.next = nil
	if err == nil {
		next.connectTime = max(held, 1)
		from, way := h.plan.endpoint(), h.plan.way()
		h.plan.decision.Closed()
		h.plan = next
		next.path = nil
		next.decision.Connected(time.Now())
		h.at.Store(next.decision.Endpoint())
		h.traffic.streams.moved(c, way, next.way())
		m.moved(h, next.decision.Service(), next.decision.Endpoint())
		m.log.Debug("a session has moved", "connection", c.ID(), "service", next.flow.service, "from", from, "to", next.endpoint())
		return
	}
	if next != nil {
		if netio.ConnectReason(err) != netio.ConnectError {
			next.decision.RecordFault(connectFailure(err), health.ErrorText(err), time.Now())
		}
		next.decision.Closed()
	}
	if errors.Is(err, session.ErrHolds) && errors.Is(h.session.Safe(), session.ErrHolds) {
		m.log.Info("a session stays where it is until it has let go", "connection", c.ID(), "service", h.plan.flow.service, "error", err)
		if m.waits(h) {
			h.session.Move()
		}
		return
	}
	if m.stays(h, err) {
		m.log.Info("a session stays where it is", "connection", c.ID(), "service", h.plan.flow.service, "error", err)
	}
}

// Description implements netio.Described.
func (h *mysqlConn) Description() string {
	if h.plan == nil {
		return ""
	}
	return h.plan.Description()
}
