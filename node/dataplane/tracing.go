package dataplane

import (
	"net/netip"
	"time"

	"penstock/kafka"
	"penstock/mysql/session"
	"penstock/netio"
	"penstock/node/accesslog"
	"penstock/node/tlsconfig"
	"penstock/node/trace"
	"penstock/routing"
)

// tracing makes the spans of connections, of HTTP requests that are routed individually,
// and of requests to Kafka. Spans are made at the end of what they describe, and only if a
// policy keeps them: until then a connection has nothing but its times.
//
// The IDs of a connection's spans follow from its UniqueID, which both nodes of a mesh hop
// know: no header carries them and no memory keeps them.
type tracing struct {
	tracer *trace.Tracer // nil: none
	node   string        // ID of the node in its cluster; "": in none
	kept   []keptSpan    // by loop, which alone touches its own
}

// keptSpan is the span that a loop has exported last. The line in the access log about the
// same event of the connection follows in the same call of netio.
type keptSpan struct {
	id   uint64 // of the connection; 0: none
	span tracePlace
	_    [64]byte
}

// keep remembers the span of a connection for the line in the access log.
func (t *tracing) keep(c *netio.Conn, p tracePlace) {
	if loop := c.Loop(); loop < len(t.kept) {
		t.kept[loop].id, t.kept[loop].span = c.ID(), p
	}
}

// name names the span that was kept in a line of the access log.
func (t *tracing) name(c *netio.Conn, r *accesslog.Record) {
	loop := c.Loop()
	if loop >= len(t.kept) || t.kept[loop].id != c.ID() {
		return
	}
	r.TraceID, r.SpanID = t.kept[loop].span.trace, t.kept[loop].span.span
	t.kept[loop].id = 0
}

// tracePlace is where a connection is in its trace.
type tracePlace struct {
	trace   trace.ID
	span    trace.SpanID
	connect trace.SpanID // of the span of its connecting
	parent  trace.SpanID // on the node of the mesh that the connection comes from; zero: none
}

// Parts of a node's spans in a trace. Those of a connection are twice its ID, which is
// never 0, and one more.
const partHop = 1 // what the node behind a mesh hop takes for its parent

// placeOf derives the place of a connection from the ID of its trace, which follows from
// its UniqueID, and from its ID on this node.
func (t *tracing) placeOf(of trace.ID, id uint64) tracePlace {
	p := tracePlace{trace: of}
	p.span = trace.SpanOf(p.trace, t.node, id<<1)
	p.connect = trace.SpanOf(p.trace, t.node, id<<1|1)
	return p
}

// beginsHop makes the span of connecting the parent of what the node behind the hop
// makes.
func (p *tracePlace) beginsHop(node string) { p.connect = trace.SpanOf(p.trace, node, partHop) }

// carriesHops does the same with the span of a connection whose requests go by hops of
// their own.
func (p *tracePlace) carriesHops(node string) { p.span = trace.SpanOf(p.trace, node, partHop) }

// ending is a connection at its end, as far as its spans need it.
type ending struct {
	trace.Outcome
	tracePlace
	accepted    time.Time
	at          time.Time // now
	age         time.Duration
	times       netio.Times
	local, peer netip.AddrPort
	destination string       // the service that the listener names; "": none
	via         *routing.Via // the route that chose another one; nil: none did
}

// begin fills in the outcome of a connection, apart from what follows from the reason.
func (e *ending) begin(c *netio.Conn, service string) {
	var name [64]byte
	e.Outcome = trace.Outcome{Listener: c.Listener(), Service: service, TraceID: trace.IDOf(c.AppendUniqueID(name[:0]))}
	e.times, e.age = c.Times(), c.Age()
	e.Took = timeToAnswer(&e.times, e.age)
}

// complete fills in the rest, with the place in the trace, once the spans are wanted.
func (e *ending) complete(t *tracing, c *netio.Conn) {
	e.tracePlace = t.placeOf(e.TraceID, c.ID())
	e.at, e.accepted, e.local, e.peer = time.Now(), c.Accepted(), c.Local(), c.Peer()
	if c.Mesh() != nil {
		if node := tlsconfig.MeshPeer(c.TLS()); node != "" {
			e.parent = trace.SpanOf(e.trace, node, partHop)
		}
	}
}

// decided takes what was decided about a connection to an endpoint.
func (e *ending) decided(t *tracing, p *plan) {
	e.destination, e.via = p.decision.Destination(), p.decision.Via()
	if p.mesh {
		e.beginsHop(t.node)
	}
}

// timeToConnect is how long the node has taken to find an endpoint and connect to it, once
// it knew what the client wants; for a connection that reached none, until its end.
func timeToConnect(t *netio.Times, age time.Duration) time.Duration {
	switch {
	case t.Connected > 0:
		return t.Connected - t.Identified
	case t.Identified > 0:
		return age - t.Identified
	}
	return 0 // the listener's timeouts bound how long it waits for the client
}

// timeToAnswer adds how long the endpoint has taken until its first byte: since it was
// connected, or since the client's first byte, if it had to wait for that.
func timeToAnswer(t *netio.Times, age time.Duration) time.Duration {
	took, since := timeToConnect(t, age), t.Connected
	if t.FirstIn < t.FirstOut {
		since = max(since, t.FirstIn)
	}
	if t.Connected > 0 && t.FirstOut > since {
		took += t.FirstOut - since
	}
	return took
}

// endsWell reports whether a connection has ended as connections do, so that no policy
// keeps it for its reason. A client that leaves is no failure unless it was owed
// something.
func endsWell(why netio.Reason, owed bool) bool {
	switch why {
	case netio.ClientFIN, netio.UpstreamFIN, netio.IdleTimeout, netio.HalfClosedTimeout, netio.MaxAge, netio.Drained,
		netio.Shutdown, netio.ClientGone:
		return true
	case netio.ClientReset:
		return !owed
	}
	return false
}

// traceConnected exports the span of connecting as soon as an endpoint has taken a
// connection: the connection's own span may be days away.
func (t *traffic) traceConnected(c *netio.Conn, p *plan) {
	policies := t.tracing.tracer.Policies()
	if len(policies) == 0 {
		return
	}
	var e ending
	e.begin(c, p.flow.service)
	e.Took = timeToConnect(&e.times, e.age)
	if !e.WantedBy(policies) {
		return
	}
	e.complete(&t.tracing, c)
	e.decided(&t.tracing, p)
	r := t.record(c, p, accesslog.Connected, netio.OK)
	t.tracing.keep(c, e.tracePlace)
	e.Export(policies, e.connectSpan(&r, e.SampledBy(policies)))
}

// traceClosed exports the spans of a connection that has ended. Those of a connection
// whose requests are routed individually wait for the requests: see closedHTTP.
func (t *traffic) traceClosed(c *netio.Conn, why netio.Reason) {
	policies := t.tracing.tracer.Policies()
	if len(policies) == 0 {
		return
	}
	var k *kafka.Connection
	service, p := "", planOf(c.Plan())
	denial, _ := c.Plan().(*denied)
	switch at := c.Plan().(type) {
	case *httpPlan:
		return
	case *session.Session: // of MySQL
		if h := at.Host().(*mysqlConn); h.plan == nil {
			denial = h.denied
		}
	default:
		k, _ = kafka.Of(at)
	}
	switch {
	case p != nil:
		service = p.flow.service
	case k != nil:
		service = k.Cluster()
	case denial != nil:
		service = denial.service
	}
	var e ending
	e.begin(c, service)
	e.Failed = !endsWell(why, c.Owed())
	if !e.WantedBy(policies) {
		return
	}
	if e.complete(&t.tracing, c); p != nil {
		e.decided(&t.tracing, p)
	}
	r := t.record(c, p, accesslog.Closed, why)
	switch {
	case k != nil:
		r = t.kafkaRecord(c, k, why)
	case p == nil && denial != nil:
		r.Service, r.Permission, r.Error = denial.service, denial.rule, denial.err
	}
	t.tracing.keep(c, e.tracePlace)
	e.export(policies, &r)
}

// ending returns what the span of an HTTP connection needs; nil: there is no tracing.
func (t *tracing) ending(c *netio.Conn, service string) *ending {
	if !t.tracer.Enabled() {
		return nil
	}
	e := new(ending)
	e.begin(c, service)
	e.complete(t, c)
	if c.Mesh() == nil {
		e.carriesHops(t.node)
	}
	// Its endpoint is this process. How long requests take, their own spans tell.
	e.Took, e.times.Connecting, e.times.Connected = 0, 0, 0
	e.Failed = c.Owed()
	return e
}

// endHTTP exports the span of an HTTP connection.
func (t *tracing) endHTTP(e *ending, r *accesslog.Record) {
	if e == nil {
		return
	}
	policies := t.tracer.Policies()
	owed := e.Failed
	if e.Failed = !endsWell(netio.Reason(r.Reason), owed); e.WantedBy(policies) {
		r.TraceID, r.SpanID = e.trace, e.span
		e.export(policies, r)
	}
}

// export exports the spans of a connection. That of connecting has gone to those who
// wanted it when it was connected.
func (e *ending) export(policies []*trace.Policy, r *accesslog.Record) {
	sampled := e.SampledBy(policies)
	e.Export(policies, e.connectionSpan(r, sampled))
	if e.times.Connecting == 0 {
		return
	}
	connect := e.connectSpan(r, sampled)
	if e.times.Connected == 0 {
		connect.End, connect.Error = e.at, r.Reason
		e.Export(policies, connect)
		return
	}
	before := e.Outcome
	before.Failed, before.Took = false, timeToConnect(&e.times, e.age)
	e.ExportAfter(&before, policies, connect)
}
