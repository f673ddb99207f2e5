package kafka

import (
	"net/netip"
	"time"

	"penstock/kafka/filter"
	"penstock/kafka/model"
	"penstock/kafka/session"
	"penstock/netio"
	"penstock/netio/ports"
	"penstock/routing"
)

// Connection is one client connection with its broker connection. Its methods
// are called on the loop of that connection.
type Connection struct {
	proxy    *Proxy
	session  *session.Session
	state    *model.VirtualState
	physical *model.PhysicalState
	stats    *stats
	client   *filter.Client
	tally    *brokerTally // nil until there is an address of the broker
	listener string
	broker   string

	version       *clusterVersion   // for the next request; nil: closed
	olderVersions []*clusterVersion // with requests that are not answered yet
	rejected      *model.Virtual    // a version that it cannot switch to

	conn        *netio.Conn // nil until connected
	loop        int
	lookup      *brokerLookup // nil once connected
	tried       int
	upstream    netip.AddrPort // the address of the last attempt
	connectTime time.Duration
}

var _ session.Host = (*Connection)(nil)

// Of returns the Connection of a plan that Route returned.
func Of(p netio.Plan) (*Connection, bool) {
	s, ok := p.(*session.Session)
	if !ok {
		return nil, false
	}
	c, ok := s.Host().(*Connection)
	return c, ok
}

// Route finds the virtual broker for a connection.
func (r *Proxy) Route(c *netio.Conn) (netio.Plan, netio.Reason) {
	name, has := "", false
	if h := c.Hello(); h != nil {
		name, has = h.ServerName, h.HasServerName
	}
	for {
		route, reason := r.model.Table().Resolve(c.Listener(), name, has)
		if reason != routing.OK {
			return nil, netio.Reason(reason)
		}
		// What was asked of the client in its handshake may have been
		// said by another version.
		if state := c.TLS(); r.cfg.AcceptClient != nil && state != nil && !r.cfg.AcceptClient(route.Cluster, state) {
			return nil, netio.HandshakeFailed
		}
		if r.cfg.Permit != nil {
			if plan, why := r.cfg.Permit(c, route.Cluster); why != netio.OK {
				return plan, why
			}
		}
		stats := r.clusters.of(route.Cluster.State())
		if s, ok := stats.versions.acquire(route.Cluster, r.front(stats)); ok {
			return r.begin(c, route, s, stats)
		}
		// A newer version has come in between.
	}
}

// begin makes the Connection.
func (r *Proxy) begin(c *netio.Conn, route model.Route, s *clusterVersion, stats *stats) (netio.Plan, netio.Reason) {
	v, b := route.Cluster, route.Broker
	if !stats.tryOpen(v.Spec().Limits.Connections) {
		v.Release()
		return nil, netio.LimitConnections
	}
	p := &Connection{
		proxy: r, state: v.State(), physical: v.Physical().State(), stats: stats, listener: c.Listener(),
		broker: b.Name(), version: s, loop: c.Loop(), lookup: &brokerLookup{broker: b},
	}
	client := r.client(c)
	p.client = client
	o := session.Options{Host: p, Settings: s.settings, Info: filter.Info{
		VirtualCluster: v.Name(), PhysicalCluster: v.Physical().Name(), Broker: b.Name(), Client: client, Log: r.cfg.Log,
	}}
	if r.cfg.Limiter != nil {
		l := r.cfg.Limiter(c, v.Name(), client)
		o.Limiter, o.Info.Topics = l, l
	}
	p.session = session.New(o)
	return p.session, netio.OK
}

// Reidentify takes up the tags that the connection's client has now: permissions
// decide anew about its next request.
func (p *Connection) Reidentify(c *netio.Conn) {
	if identify := p.proxy.cfg.Identify; identify != nil {
		identify(c, p.client)
		p.client.Changes++
	}
}

// client describes the client of a connection to the filters.
func (r *Proxy) client(c *netio.Conn) *filter.Client {
	client := &filter.Client{Listener: c.Listener(), Address: c.Client().Addr(), Principal: filter.AnonymousPrincipal}
	if r.cfg.Identify != nil {
		r.cfg.Identify(c, client)
	}
	return client
}

// Next implements netio.Plan.
func (p *Connection) Next(_ *netio.Conn, err error) (netio.Target, netio.Reason) {
	v := p.version.virtual
	if len(p.lookup.targets) == 0 {
		if wait, why := p.lookUpBroker(); wait > 0 || why != netio.OK {
			return netio.Target{Wait: wait}, why
		}
	}
	if err != nil {
		if why := p.recordFailure(err); why != netio.OK {
			return netio.Target{}, why
		}
	}
	t := &p.lookup.targets[p.tried]
	p.tried++
	p.countUpstream(t.addr)
	return netio.Target{Addr: t.addr, Profile: p.proxy.upstreams.profile(p.listener, v, t)}, netio.OK
}

// recordFailure records how an attempt ended. It returns the reason to give up,
// or OK if there is another address to try. A failure for want of something on
// this node does not mean that the broker has moved. If this node has no port
// left towards one address, it may have one towards another.
func (p *Connection) recordFailure(err error) netio.Reason {
	why := netio.ConnectReason(err)
	if why == netio.LimitPorts {
		err = ports.Explain(err)
	}
	p.tally.failure.Store(&failure{err, time.Now()})
	last := p.tried >= len(p.lookup.targets)
	switch {
	case why == netio.LimitFiles || why == netio.LimitHandshakes || why == netio.LimitPorts && last:
		return why
	case last:
		p.proxy.watches.refresh(p.version.virtual.Physical().Name())
		return why
	}
	return netio.OK
}

// countUpstream counts the connection at its new address, and no longer at the
// old one.
func (p *Connection) countUpstream(to netip.AddrPort) {
	p.stats.ports.Add(p.upstream, -1)
	p.stats.ports.Add(to, 1)
	p.upstream = to
}

// Connected implements netio.Plan.
func (p *Connection) Connected(c *netio.Conn, took time.Duration) {
	p.connectTime, p.lookup, p.conn = max(took, 1), nil, c
	p.tally.failure.Store(nil)
	p.stats.add(p)
	// Whoever sends away sees those that are connected; a change that came
	// while this one was connecting is seen here.
	if d, gone := p.orphaned(); gone {
		p.session.Leave(netio.Drained, 0, d.TransactionDeadline.D())
	}
}

// orphaned reports whether the broker of the connection is gone, and how the
// connection is to be drained.
func (p *Connection) orphaned() (model.Drain, bool) {
	now := p.state.Current()
	if now == nil {
		return p.state.Last().Spec().Drain, true
	}
	_, there := now.Broker(p.broker)
	return now.Spec().Drain, !there || p.physical != now.Physical().State()
}

// Exchanged implements session.Host.
func (p *Connection) Exchanged(e session.Exchange) {
	if e.Own {
		return
	}
	a := p.stats.api(p.loop, e.Key)
	if a == nil {
		return
	}
	a.requests.Add(1)
	if e.Error != 0 {
		a.errors.Add(1)
	}
	if e.Throttled {
		p.stats.throttled.Add(1)
	}
	a.in.Add(uint64(e.Request))
	a.out.Add(uint64(e.Response))
	a.broker.observe(e.Broker)
	a.proxy.observe(max(e.Total-e.Broker, 0))
}

// Tenant implements netio.Tenanted.
func (p *Connection) Tenant() string { return p.Cluster() }

// Description implements netio.Described.
func (p *Connection) Description() string { return p.Cluster() + " " + p.Upstream() }

// Cluster returns the name of the virtual cluster.
func (p *Connection) Cluster() string { return p.state.Name() }

// Broker returns the name of the virtual broker.
func (p *Connection) Broker() string { return p.broker }

// Upstream returns the address of the broker that was tried last, or "".
func (p *Connection) Upstream() string {
	if !p.upstream.IsValid() {
		return ""
	}
	return p.upstream.String()
}

// UpstreamAddr returns the address of the broker that was tried last; invalid: none was.
func (p *Connection) UpstreamAddr() netip.AddrPort { return p.upstream }

// Attempts returns how many addresses were tried.
func (p *Connection) Attempts() int { return p.tried }

// Took returns how long connecting took, or 0 before it is done.
func (p *Connection) Took() time.Duration { return p.connectTime }

// Client returns what is known of the client.
func (p *Connection) Client() session.Peer { return p.session.Peer() }

// Closed releases the connection, after its session.
func (p *Connection) Closed(why netio.Reason) {
	if why == session.Denied {
		p.stats.denied.Add(1)
	}
	if p.version != nil { // never connected
		p.version.virtual.Release()
		p.version = nil
	}
	if p.tally != nil {
		p.tally.active.Add(-1)
	}
	p.stats.ports.Add(p.upstream, -1)
	p.stats.open.Add(-1)
	p.stats.remove(p)
}
