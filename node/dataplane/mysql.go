package dataplane

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"penstock/mysql/session"
	"penstock/netio"
	"penstock/netio/clienthello"
	"penstock/routing"
	"penstock/routing/endpoint"
	"penstock/routing/health"
	"penstock/routing/resource"
)

// Defaults of MySQL sessions.
const (
	// defaultServerVersion is what a listener says whose servers nobody has seen yet.
	defaultServerVersion = "8.0.11-Penstock"
	// moveTimeout bounds the time for which a move may hold back a client.
	moveTimeout = 5 * time.Second
	// moveRetry is the time after which a move that failed is tried again.
	moveRetry = 3 * time.Second
)

// errNoOtherServer means that balancing chose the server that the session is at.
var errNoOtherServer = errors.New("there is no other server")

// mysqlConn is the connection of a MySQL client. Its loop calls its methods.
type mysqlConn struct {
	traffic *traffic
	conn    *netio.Conn
	session *session.Session
	plan    *plan // nil until the client has logged in
	next    *plan // during a move
	denied  *denied
	user    string
	failed  time.Time                         // when the last move failed
	at      atomic.Pointer[endpoint.Endpoint] // where the session is; nil: nowhere yet
	moves   bool                              // the service moves sessions
	rejoins bool                              // by a login of their own
	secure  bool                              // the service requires TLS
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
	s := session.Settings{ServerVersion: defaultServerVersion, LoginTimeout: 10 * time.Second, MoveTimeout: moveTimeout}
	if version, ok := h.traffic.mysql.versions.Load(h.conn.Listener()); ok {
		s.ServerVersion = version.(string)
	}
	if l := h.traffic.listener(h.conn.Listener()); l != nil {
		s.TLS, s.RequireTLS, s.LoginTimeout = l.TLS != nil, l.MySQL.RequireTLS, l.Timeouts.Handshake.D()
		if l.MySQL.ServerVersion != "" {
			s.ServerVersion = l.MySQL.ServerVersion
		}
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
		h.moves, h.rejoins, h.secure = m.Move != "never", m.Move == "reconnect", m.RequireTLS
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
	const most = 60
	if old, ok := h.traffic.mysql.versions.Load(h.conn.Listener()); len(version) <= most && (!ok || old.(string) != version) {
		h.traffic.mysql.versions.Store(h.conn.Listener(), version)
	}
}

// LoggedIn implements session.Host.
func (h *mysqlConn) LoggedIn(c *netio.Conn) {
	h.plan.Connected(c, h.plan.connectTime)
	h.at.Store(h.plan.decision.Endpoint())
	h.traffic.mysql.add(h)
}

// MoveTarget implements session.Host.
func (h *mysqlConn) MoveTarget(c *netio.Conn) (netio.Target, error) {
	p, reason := h.decide(false)
	if reason != netio.OK || p == nil {
		return netio.Target{}, errors.New("no route: " + string(reason))
	}
	to, reason := p.Next(c, nil)
	switch {
	case reason != netio.OK:
		p.decision.Closed()
		return netio.Target{}, errors.New("no server: " + string(reason))
	case to.Wait > 0 || p.decision.Endpoint() == h.plan.decision.Endpoint():
		p.decision.Closed()
		return netio.Target{}, errNoOtherServer
	}
	h.next = p
	return to, nil
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
		from := h.plan.endpoint()
		h.plan.decision.Closed()
		h.plan = next
		next.path = nil
		next.decision.Connected(time.Now())
		h.at.Store(next.decision.Endpoint())
		m.moved.Add(1)
		m.log.Debug("a session has moved", "connection", c.ID(), "service", next.flow.service, "from", from, "to", next.endpoint())
		return
	}
	h.failed = time.Now()
	if next != nil {
		if netio.ConnectReason(err) != netio.ConnectError {
			next.decision.RecordFault(connectFailure(err), health.ErrorText(err), h.failed)
		}
		next.decision.Closed()
	}
	m.stayed.Add(1)
	m.log.Info("a session stays where it is", "connection", c.ID(), "service", h.plan.flow.service, "error", err)
}

// Description implements netio.Described.
func (h *mysqlConn) Description() string {
	if h.plan == nil {
		return ""
	}
	return h.plan.Description()
}

// mysqlSessions are the sessions that are logged in. Its methods are safe for
// concurrent use.
type mysqlSessions struct {
	log      *slog.Logger
	versions sync.Map // listener -> what a server said last
	tls      sync.Map // listener -> func(*clienthello.Hello) (*tls.Config, netio.Reason)

	moved, stayed atomic.Uint64 // moves that succeeded, and that failed

	mu   sync.Mutex
	all  map[*mysqlConn]struct{}
	stop context.CancelFunc // of the moves that wait for their turn
	ctx  context.Context
}

func (m *mysqlSessions) init(log *slog.Logger) {
	m.log, m.all = log, map[*mysqlConn]struct{}{}
	m.ctx, m.stop = context.WithCancel(context.Background())
}

// Sessions returns the number of MySQL sessions that are logged in, and how many moves to
// another server have succeeded and failed.
func (d *Dataplane) Sessions() (open int, moved, stayed uint64) {
	m := d.reconciler.sessions
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.all), m.moved.Load(), m.stayed.Load()
}

// forget forgets a listener that has been removed.
func (m *mysqlSessions) forget(listener string) {
	m.versions.Delete(listener)
	m.tls.Delete(listener)
}

func (m *mysqlSessions) add(h *mysqlConn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[h] = struct{}{}
}

func (m *mysqlSessions) remove(h *mysqlConn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, h)
}

// move asks the sessions of a service to move whose endpoint leaves, perSecond of them
// in a second. leaves may be called from any goroutine.
func (m *mysqlSessions) move(service string, perSecond int, leaves func(*endpoint.Endpoint) bool) {
	var list []*mysqlConn
	m.mu.Lock()
	for h := range m.all {
		if at := h.at.Load(); at != nil && leaves(at) {
			list = append(list, h)
		}
	}
	m.mu.Unlock()
	if len(list) == 0 || m.ctx.Err() != nil {
		return
	}
	ask := func(h *mysqlConn) {
		p := h.plan
		if p.decision.Service() == service && h.moves && leaves(p.decision.Endpoint()) && time.Since(h.failed) >= moveRetry {
			h.session.Move()
		}
	}
	limiter := rate.NewLimiter(rate.Limit(perSecond), max(perSecond/20, 1))
	go func() {
		for _, h := range list {
			if limiter.Wait(m.ctx) != nil {
				return
			}
			h.conn.Post(func() { ask(h) })
		}
	}()
}

// moveDeparted asks the sessions again that are still at an endpoint which has left:
// their move has failed, or they had not arrived there when it left.
func (r *reconciler) moveDeparted(table *routing.Table) {
	for service, all := range r.departed.m {
		s, ok := table.Service(service)
		if !ok || s.Spec().Protocol != resource.ProtocolMySQL {
			continue
		}
		left := maps.Clone(all)
		r.sessions.move(service, s.Spec().MySQL.MovesPerSecond, func(e *endpoint.Endpoint) bool {
			one := left[idOf(e)]
			return one != nil && !one.back.Load()
		})
	}
}
