package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/dataplane"
	"penstock/routing"
	"penstock/routing/endpoint"
	"penstock/routing/limit"
)

// The metrics of the data plane.
var (
	mConnectionsTotal = traffic("connections_total",
		"Ended connections, by reason (docs/reasons.md); service is empty if none was found.", "listener", "service", "result")
	mConnections = traffic("connections", "Current connections with a service.", "listener", "service")
	mRoutedTotal = traffic("routed_connections_total", "Connections routed to a service.", "listener", "service")
	mBytesTotal  = traffic("bytes_total", "Bytes relayed: in from clients, out from endpoints.", "listener", "service", "direction")

	mAccepted = traffic("accepted_connections", "Open accepted connections, including those without a service.")
	mLoop     = traffic("loop_connections", "Open accepted connections on each event loop.", "loop")
	mPending  = traffic("pending_bytes", "Bytes written to sockets that the kernel has not accepted yet.")
	mBudget   = desc("memory_budget_bytes",
		"Memory budget for connections that are not relayed yet, Kafka frames, headers of HTTP requests, and what is held of MySQL sessions.")
	mBudgetUsed = traffic("memory_budget_used_bytes", "Memory budget in use.")
	mEvictions  = desc("evictions_total",
		"Connections and requests ended to make room for others (docs/settings.md#shares): "+
			"budget is memory, handshakes or requests.", "budget", "listener")
	mMeshHandshakes = desc("mesh_handshakes_total",
		"Handshakes between nodes of the mesh in which the peer was accepted; side is client or server.", "side", "resumed")
	mSessions = traffic("mysql_sessions", "Sessions of MySQL clients that have logged in.")
	mMoves    = desc("mysql_moves_total",
		"Moves of MySQL sessions to another server; result is moved, or stayed where the move failed.", "result")
	mMoveFailures = desc("mysql_move_failures_total",
		"Moves that failed: no_server (no other good server), no_route, no_states (the server has no session states), "+
			"timeout, refused (by the new server), no_password (in mysql.credentials, for the user), "+
			"held (what the new server cannot have), or server (it cannot be reached).", "reason")
	mMoveDelays = desc("mysql_move_delays_total",
		"MySQL sessions that could not move when they were asked: busy, transaction, cursor (or long data), replication, "+
			"or held (by what only its server has).", "reason")
	mToMove = desc("mysql_sessions_to_move",
		"MySQL sessions that are to move and have not: their server left, is unhealthy or drained, or they are ordered to, or for balance.", "cause")
	mHandshakes   = traffic("handshakes", "TLS handshakes in progress.")
	mRefusedTotal = traffic("refused_connections_total", "Connections refused by a limit, by reason.", "reason")
	mRemembered   = traffic("remembered_connections",
		"Ended connections that the node remembers: failure, or usual for those that ended as they should or were kept out by a limit.", "class")
	mRestsTotal = desc("accept_rests_total", "Times that accepting paused for lack of descriptors or memory.")
	mListenerUp = desc("listener_up", "1 if the listener listens, 0 if its address cannot be bound.", "listener")
	mHealthy    = desc("endpoint_healthy",
		"1 if the endpoint is healthy or not checked, 0 if it is unhealthy.", "service", "endpoint")
	mEjected       = desc("endpoint_ejected", "1 if the endpoint is ejected.", "service", "endpoint")
	mEndpointState = desc("endpoint_state", "1 for the endpoint's current state.", "service", "endpoint", "state")
	mEndpointLoad  = desc("endpoint_load", "Share of the server's cores, or of its memory limit, that it uses.", "service", "endpoint", "of")
	mEndpointConns = desc("endpoint_connections", "Connections at the endpoint, including those being established.", "service", "endpoint")

	mPermissionDenials = desc("permission_denials_total",
		"Connections and requests that a TrafficPermission denied, or would deny (shadowDeny), or that none allows.", "permission", "action")
	mBreakerUsed = desc("circuit_breaker_used",
		"Connections, requests and pending ones at the endpoints of a service with a circuit breaker.", "service", "kind")
	mBreakerBound = desc("circuit_breaker_bound", "Bounds of the circuit breaker; scope is service or endpoint.", "service", "scope", "kind")
	mQueue        = desc("circuit_breaker_queue", "Connections and requests in the circuit breaker's queue.", "service")
	mQueued       = desc("circuit_breaker_queued_total", "Connections and requests that had to wait.", "service")
	mOverflows    = desc("circuit_breaker_overflows_total", "Connections and requests refused because the queue was full.", "service")
	mTimeouts     = desc("circuit_breaker_timeouts_total", "Connections and requests refused after queueTimeout.", "service")

	mPorts     = desc("source_ports", "Local ports available for connections to one endpoint address of the service.", "service")
	mPortsUsed = desc("source_ports_used", "Local ports in use towards the service's busiest endpoint address, without TIME_WAIT.", "service")
	mTimeWait  = desc("time_wait_connections", "Connections in TIME_WAIT in the node's network namespace, to any address.")

	mLimitDecisions = desc("rate_limit_decisions_total",
		"Decisions of a RateLimit: of is connections, concurrent, requests, bytes_in or bytes_out, "+
			"result is allowed, refused, queued or paced.", "limit", "of", "result")
	mLimitKeys      = desc("rate_limit_keys", "Keys of a RateLimit that have a budget.", "limit")
	mLimitMaxKeys   = desc("rate_limit_max_keys", "Keys of a RateLimit that may have a budget.", "limit")
	mLimitOverflows = desc("rate_limit_overflows_total",
		"Connections and requests that shared a budget because there was no room for their key.", "limit")

	mRequestsTotal = traffic("http_requests_total",
		"Ended HTTP requests that were routed individually, by status class; none: the client did not wait for a response.",
		"listener", "service", "code")
	mRequests        = traffic("http_requests", "HTTP requests in flight.", "listener", "service")
	mRequestsRefused = traffic("http_refused_total",
		"HTTP requests without a complete response from an endpoint, by reason (docs/reasons.md).", "reason")
)

// Dataplane collects the metrics of a data plane.
func Dataplane(d *dataplane.Dataplane) prometheus.Collector {
	return collector(func(to sink) {
		flows(d, to)
		refusals(d, to)
		permissions(d.Router.Table(), to)
		engine(d, to)
		endpoints(d.Router.Table(), to)
		ports(d, to)
		rateLimits(d, to)
		d.MeshHandshakes(func(side string, resumed bool, n uint64) {
			to.counter(mMeshHandshakes, n, side, strconv.FormatBool(resumed))
		})
		open, moved, stayed := d.Sessions()
		to.gauge(mSessions, float64(open))
		to.counter(mMoves, moved, "moved")
		to.counter(mMoves, stayed, "stayed")
		sessionMoves(d, to)
		kafkaMetrics(d.Kafka, to)
	})
}

// sessionMoves sends what moves of MySQL sessions wait for, and why they failed.
func sessionMoves(d *dataplane.Dataplane, to sink) {
	c := d.MoveCounts()
	for reason, n := range c.Failed {
		to.counter(mMoveFailures, n, reason)
	}
	for reason, n := range c.Delayed {
		to.counter(mMoveDelays, n, reason)
	}
	for cause, n := range c.Wanted {
		to.gauge(mToMove, float64(n), cause)
	}
}

// flows sends the traffic from each listener to each service.
func flows(d *dataplane.Dataplane, to sink) {
	for _, f := range d.Flows() {
		if f.Service() != "" {
			counts := f.Counts()
			to.gauge(mConnections, float64(counts.Active), f.Listener(), f.Service())
			to.counter(mRoutedTotal, counts.Connections, f.Listener(), f.Service())
			to.counter(mBytesTotal, counts.BytesIn, f.Listener(), f.Service(), "in")
			to.counter(mBytesTotal, counts.BytesOut, f.Listener(), f.Service(), "out")
		}
		requests(f, to)
		for reason, v := range f.Ended() {
			to.counter(mConnectionsTotal, v, f.Listener(), f.Service(), string(reason))
		}
	}
}

// engine sends the state of the event loops, their limits and the listeners.
func engine(d *dataplane.Dataplane, to sink) {
	s := d.Engine.Stats()
	to.gauge(mAccepted, float64(s.Connections))
	for i, v := range s.PerLoop {
		to.gauge(mLoop, float64(v), strconv.Itoa(i))
	}
	to.gauge(mPending, float64(s.Pending))
	to.gauge(mBudget, float64(s.Budget))
	to.gauge(mBudgetUsed, float64(s.BudgetUsed))
	to.gauge(mHandshakes, float64(s.Handshakes))
	for reason, v := range s.Refused {
		to.counter(mRefusedTotal, v, string(reason))
	}
	to.counter(mRestsTotal, s.AcceptRests)
	usual, failures := d.Remembered()
	to.gauge(mRemembered, float64(usual), "usual")
	to.gauge(mRemembered, float64(failures), "failure")
	requests := d.EvictedRequests()
	for _, l := range d.Engine.Listeners() {
		to.gauge(mListenerUp, boolValue(l.Err == nil), l.Name)
		to.counter(mEvictions, s.Evicted[l.Name], "memory", l.Name)
		to.counter(mEvictions, s.EvictedHandshakes[l.Name], "handshakes", l.Name)
		to.counter(mEvictions, requests[l.Name], "requests", l.Name)
	}
}

// endpoints sends the state of every endpoint. The label of an endpoint with a
// host name contains its resolved address too, because a name may have several.
func endpoints(table *routing.Table, to sink) {
	now := time.Now()
	for svc := range table.Services() {
		g := svc.Group()
		breaker(svc, to)
		seen := map[string]bool{}
		for _, e := range g.Endpoints() {
			name := dataplane.EndpointName(e)
			if seen[name] {
				continue // an endpoint with the same address and other tags
			}
			seen[name] = true
			to.gauge(mHealthy, boolValue(e.Health() != endpoint.Unhealthy), g.Service(), name)
			to.gauge(mEjected, boolValue(e.Ejected(now)), g.Service(), name)
			to.gauge(mEndpointState, 1, g.Service(), name, string(g.Condition(e, now).State))
			to.gauge(mEndpointConns, float64(e.Active()), g.Service(), name)
			endpointLoad(e.Load(), g.Service(), name, to)
		}
	}
}

// endpointLoad sends what is known of the load of an endpoint; nil: nothing.
func endpointLoad(l *endpoint.Load, service, name string, to sink) {
	if l == nil {
		return
	}
	if l.CPU >= 0 {
		to.gauge(mEndpointLoad, l.CPU, service, name, "cpu")
	}
	if l.Memory >= 0 {
		to.gauge(mEndpointLoad, l.Memory, service, name, "memory")
	}
}

// breaker sends the state of a service's circuit breaker, if it has one.
func breaker(svc *routing.Service, to sink) {
	b := svc.Group().Breaker()
	if b == nil {
		return
	}
	name, u, q := svc.Name(), svc.Group().Usage(), svc.Queue()
	for _, x := range []struct {
		kind              string
		used              int64
		service, endpoint int
	}{
		{"connections", u.Connections, b.Service.Connections, b.Endpoint.Connections},
		{"requests", u.Requests, b.Service.Requests, b.Endpoint.Requests},
		{"pending", u.Pending, b.Service.Pending, b.Endpoint.Pending},
	} {
		to.gauge(mBreakerUsed, float64(x.used), name, x.kind)
		if x.service > 0 {
			to.gauge(mBreakerBound, float64(x.service), name, "service", x.kind)
		}
		if x.endpoint > 0 {
			to.gauge(mBreakerBound, float64(x.endpoint), name, "endpoint", x.kind)
		}
	}
	to.gauge(mQueue, float64(q.Waiting), name)
	to.counter(mQueued, q.Queued, name)
	to.counter(mOverflows, q.Overflows, name)
	to.counter(mTimeouts, q.Timeouts, name)
}

// requests sends the HTTP requests of a flow, if it has any.
func requests(f *dataplane.Flow, to sink) {
	active, ended := f.Requests()
	for class, v := range ended {
		to.counter(mRequestsTotal, v, f.Listener(), f.Service(), class)
	}
	if active > 0 || len(ended) > 0 {
		to.gauge(mRequests, float64(active), f.Listener(), f.Service())
	}
}

// refusals sends the number of refused requests by reason.
func refusals(d *dataplane.Dataplane, to sink) {
	for reason, v := range d.Refusals() {
		to.counter(mRequestsRefused, v, string(reason))
	}
}

// permissions sends what permissions with deny or shadowDeny denied, and what none allows.
func permissions(table *routing.Table, to sink) {
	for name, d := range table.Permissions().Denials() {
		to.counter(mPermissionDenials, d.Count, name, d.Action)
	}
}

// ports sends the use of local ports.
func ports(d *dataplane.Dataplane, to sink) {
	u := d.PortUse()
	for name, most := range u.Busiest() {
		if u.Available() > 0 {
			to.gauge(mPorts, float64(u.Available()), name)
		}
		to.gauge(mPortsUsed, float64(most), name)
	}
	if u.TimeWait() >= 0 {
		to.gauge(mTimeWait, float64(u.TimeWait()))
	}
}

// rateLimits sends what the rate limits decided, for what each bounds.
func rateLimits(d *dataplane.Dataplane, to sink) {
	for l, spec := range d.RateLimits() {
		c := l.Counts()
		for _, of := range limit.Dimensions {
			switch {
			case !l.Has(of):
			case of != limit.Connections && of != limit.Requests:
				to.counter(mLimitDecisions, c.Paced[of], l.Name(), of.String(), "paced")
			default:
				to.counter(mLimitDecisions, c.Allowed[of], l.Name(), of.String(), "allowed")
				to.counter(mLimitDecisions, c.Refused[of], l.Name(), of.String(), "refused")
				to.counter(mLimitDecisions, c.Queued[of], l.Name(), of.String(), "queued")
				if of == limit.Requests {
					to.counter(mLimitDecisions, c.Paced[of], l.Name(), of.String(), "paced")
				}
			}
		}
		if spec.Concurrent != nil {
			to.counter(mLimitDecisions, c.Concurrent, l.Name(), "concurrent", "refused")
		}
		to.gauge(mLimitKeys, float64(c.Keys), l.Name())
		to.gauge(mLimitMaxKeys, float64(spec.MaxKeys), l.Name())
		to.counter(mLimitOverflows, c.Overflows, l.Name())
	}
}
