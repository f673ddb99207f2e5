package dataplane

import (
	"time"

	"penstock/kafka"
	"penstock/mysql/session"
	"penstock/netio"
	"penstock/netio/ports"
	"penstock/node/accesslog"
	"penstock/node/audit"
	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/endpoint"
	"penstock/routing/health"
	"penstock/routing/resource"
)

// traffic implements netio.Handler: it routes each connection and reports the
// outcome to routing, the counters and the access log. Its methods run on the
// loops and never block.
type traffic struct {
	router  *routing.Router
	removed *removedListeners
	flows   *flows
	kafka   *kafka.Proxy
	mysql   mysqlSessions
	// requests serves the connections whose requests are routed individually.
	requests *requests
	clients  *clients
	ended    *ended
	streams  *streams

	certs *tlsconfig.Store
	mesh  *tlsconfig.Mesh // nil: the node is in no cluster

	access    *accesslog.Log // nil: none
	accessAll bool
	tracing   tracing
	audit     func(*audit.Denial) // nil: none
}

var _ netio.Handler = (*traffic)(nil)

// Route implements netio.Handler.
func (t *traffic) Route(c *netio.Conn) (netio.Plan, netio.Reason) {
	if answeredChallenge(c) {
		return nil, AuthorityChallenge
	}
	if t.certs.IsRevoked(c.TLS()) { // between its handshake and now, perhaps after CloseRevoked saw it
		return nil, netio.IdentityRevoked
	}
	if l := t.listener(c.Listener()); l != nil && l.Protocol == resource.ProtocolMySQL {
		return t.routeMySQL(c), netio.OK
	}
	in := inputOf(c)
	if h := c.Hello(); h != nil {
		in.ServerName, in.HasServerName, in.ALPN = h.ServerName, h.HasServerName, h.ALPN
	}
	table := t.router.Table()
	p, q, reason := t.decide(c, &in, &table)
	if reason == netio.OK {
		reason = t.limit(c, table, &q)
	}
	return p, reason
}

// listener returns the resource of a listener, also for a while after its removal; nil:
// unknown.
func (t *traffic) listener(name string) *resource.Listener {
	if l, ok := t.router.Table().Listener(name); ok {
		return l.Spec()
	}
	if last := t.removed.table(name); last != nil {
		if l, ok := last.Listener(name); ok {
			return l.Spec()
		}
	}
	return nil
}

// decide returns the plan of a connection, and its destination for rate limits. It
// sets on to the last one that has the listener if the listener was removed.
func (t *traffic) decide(c *netio.Conn, in *routing.Input, on **routing.Table) (netio.Plan, routing.LimitQuery, netio.Reason) {
	table := *on
	q := routing.LimitQuery{Input: in}
	d, reason := table.Decide(in)
	if last := t.removed.table(in.Listener); reason == routing.NoListener && last != nil {
		table, *on = last, last
		d, reason = table.Decide(in)
	}
	if reason == routing.NoRoute || reason == routing.NoListener {
		if t.kafka.Table().HasListener(in.Listener) {
			p, why := t.kafka.Route(c)
			if k, ok := kafka.Of(p); ok {
				q.Cluster = k.Cluster()
			}
			return p, q, why
		}
	}
	if reason == routing.PermissionDenied {
		v := table.Permission(in, d.Destination())
		return newDenied(d.Destination(), &v), q, netio.PermissionDenied
	}
	if reason != routing.OK {
		return nil, q, netio.Reason(reason)
	}
	service := d.Service()
	if d.HTTP() {
		service = d.Destination()
	}
	s, ok := table.Service(service)
	if !ok {
		return nil, q, netio.Reason(routing.NoBackend)
	}
	f := t.flows.get(c.Listener(), s.Name())
	p := f.path.Load()
	var originate *resource.ServiceTLS
	if l, ok := table.Listener(in.Listener); ok {
		originate = l.Spec().Originates()
	}
	if p == nil || p.spec != s.Spec() || p.originate != originate {
		p = newPath(f, s.Spec(), t.clients.towards(in.Listener, originate, s))
		p.originate = originate
		if s.Spec().Mesh {
			p.profile.Preface = t.meshHeader
		}
		f.path.Store(p)
	}
	q.Service = d.Destination()
	if d.HTTP() {
		return t.requests.plan(c, in, f, p, table), q, netio.OK
	}
	if p.spec.Mesh && t.mesh == nil {
		return nil, q, MeshUnavailable
	}
	return &plan{traffic: t, flow: f, path: p, decision: d, mesh: p.spec.Mesh}, q, netio.OK
}

// Closed implements netio.Handler.
func (t *traffic) Closed(c *netio.Conn, why netio.Reason) {
	closeLimits(c)
	t.traceClosed(c, why)
	t.streams.ended(c)
	if p, ok := c.Plan().(*httpPlan); ok {
		t.closedHTTP(c, p, why)
		return
	}
	t.remember(c, why)
	if p, ok := kafka.Of(c.Plan()); ok {
		t.closedKafka(c, p, why)
		return
	}
	if d, ok := c.Plan().(*denied); ok {
		t.closedDenied(c, d, why)
		return
	}
	if s, ok := c.Plan().(*session.Session); ok {
		h := s.Host().(*mysqlConn)
		t.mysql.remove(h)
		if h.denied != nil && h.plan == nil {
			t.closedDenied(c, h.denied, why)
			return
		}
	}
	p := planOf(c.Plan())
	if p == nil {
		t.flows.get(c.Listener(), "").end(why)
		if t.access.Wants(string(why)) {
			t.access.Write(t.record(c, nil, accesslog.Closed, why))
		}
		return
	}
	if t.access.Wants(string(why)) {
		r := t.record(c, p, accesslog.Closed, why)
		r.Shadow = t.shadow(c, p.decision.Destination())
		t.access.Write(r)
	}
	p.flow.end(why)
	if why == netio.UpstreamReset && p.connectTime > 0 {
		if _, out := c.Bytes(); out == 0 {
			p.decision.EarlyReset(time.Now())
		}
	}
	p.decision.Closed()
}

// record makes an access log record of a connection; p is nil if it has no plan.
func (t *traffic) record(c *netio.Conn, p *plan, event accesslog.Event, why netio.Reason) accesslog.Record {
	r := accesslog.Record{
		Event: event, At: time.Now(), ID: c.ID(), Listener: c.Listener(), Client: c.Client(),
		SNI: c.ServerName(), Reason: string(why), Duration: c.Age(),
	}
	if event == accesslog.Closed {
		r.Error = c.Failure()
	}
	r.In, r.Out = c.Bytes()
	shown := provenBy(c)
	r.TLS, r.Identity = shown.tls, shown.name()
	if p != nil {
		r.Service, r.Endpoint = p.flow.service, p.endpoint()
		r.Attempts, r.Connect = p.decision.Attempts(), p.connectTime
	}
	joinMesh(c, p, &r)
	t.tracing.name(c, &r)
	return r
}

// plan is one routed connection. There is one for each open connection, so it is
// kept small.
type plan struct {
	traffic     *traffic
	flow        *Flow
	path        *path // nil once connected
	decision    routing.Decision
	connectTime time.Duration // time to connect; 0: not connected
	mesh        bool          // the service is in the mesh
}

var (
	_ netio.Plan      = (*plan)(nil)
	_ netio.Described = (*plan)(nil)
)

// Next implements netio.Plan. A failure for lack of resources on this node does
// not count against the endpoint and is not retried. Local ports are an exception:
// if none is left towards one endpoint, one may be left towards another.
func (p *plan) Next(c *netio.Conn, err error) (netio.Target, netio.Reason) {
	if err != nil {
		if why := netio.ConnectReason(err); why == netio.LimitFiles || why == netio.LimitHandshakes {
			return netio.Target{}, why
		}
	}
	now := time.Now()
	if netio.ConnectReason(err) == netio.LimitPorts {
		p.decision.RecordLocalFault(health.ErrorText(ports.Explain(err)), now)
	} else if err != nil {
		p.decision.RecordFault(connectFailure(err), health.ErrorText(err), now)
	}
	e, reason := p.decision.Next(now)
	if reason == routing.Overflow {
		var wait time.Duration
		if wait, reason = p.decision.Enqueue(now, c.Wake); reason == routing.OK {
			if wait > 0 {
				return netio.Target{Wait: wait}, netio.OK
			}
			e, reason = p.decision.Next(now)
		}
	}
	if reason != routing.OK {
		return netio.Target{}, p.giveUp(err, reason)
	}
	return netio.Target{Addr: e.Addr, Unix: e.Unix, Profile: p.path.profileFor(e)}, netio.OK
}

// giveUp returns the reason when no endpoint is left to try: that of the last
// attempt, unless the retry budget or the circuit breaker forbids another one.
func (p *plan) giveUp(err error, reason routing.Reason) netio.Reason {
	if err == nil || p.decision.BudgetSpent() || reason == routing.Overflow {
		return netio.Reason(reason)
	}
	return netio.ConnectReason(err)
}

// connectFailure returns whether an attempt to connect timed out or failed.
func connectFailure(err error) endpoint.Failure {
	if netio.ConnectReason(err) == netio.ConnectTimeout {
		return endpoint.ConnectTimedOut
	}
	return endpoint.ConnectFailed
}

// Connected implements netio.Plan.
func (p *plan) Connected(c *netio.Conn, took time.Duration) {
	p.connectTime = max(took, 1)
	p.path = nil
	p.decision.Connected(time.Now())
	p.flow.connectDuration.Observe(took.Seconds())
	p.traffic.traceConnected(c, p)
	if p.traffic.accessAll {
		p.traffic.access.Write(p.traffic.record(c, p, accesslog.Connected, netio.OK))
	}
}

// Description implements netio.Described: "service endpoint".
func (p *plan) Description() string { return p.flow.service + " " + p.endpoint() }

// endpoint returns the name of the connection's endpoint; "": none.
func (p *plan) endpoint() string {
	if e := p.decision.Endpoint(); e != nil {
		return EndpointName(e)
	}
	return ""
}

// EndpointName returns the name of an endpoint in logs and metrics: its configured
// address, and for a host name also the address that it resolves to.
func EndpointName(e *endpoint.Endpoint) string {
	if e.Unix != "" || !e.Addr.IsValid() {
		return e.Address
	}
	if addr := e.Addr.String(); addr != e.Address {
		return e.Address + "=" + addr
	}
	return e.Address
}
