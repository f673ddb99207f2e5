package routing

import (
	"encoding/binary"
	"net/netip"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/hostname"
)

// Decision is the route of one connection: a service or a subset of its
// endpoints, and then the endpoints to try in turn. It belongs to its
// connection and is not safe for concurrent use. It is small, and once
// connected it keeps no table alive.
type Decision struct {
	destination *serviceState
	service     *serviceState
	backend     *backend           // nil once connected
	via         *Via               // what chose the backend; nil: nothing did
	endpoint    *endpoint.Endpoint // the endpoint that counts this connection, or nil
	outcomes    *outcomeCounter    // additional counter of the outcome, or nil
	hash        uint64
	tried       balance.Set
	began       int64 // start of the first attempt, as endpoint.Stamp
	attempts    uint8
	slow        uint8            // attempts that did not fail at once
	failure     endpoint.Failure // of the last attempt
	budgetSpent bool             // no retry was left in the budget
	probe       bool             // the attempt probes an endpoint whose pause is over
	http        bool             // see HTTP
	request     bool             // it routes a single request
	pending     bool             // the endpoint counts it as one without a connection
	waiter      *waiter          // its place in the queue; nil: none
}

const (
	// maxAttempts bounds the attempts where connect.attempts is not set.
	maxAttempts = 100
	// maxClaims bounds how often pick chooses again because another connection has
	// just started to probe the chosen endpoint.
	maxClaims = 8
	// probeGrace is added to the connect timeout of a probe.
	probeGrace = time.Second
)

// minRetries is the number of retries that every budget window allows.
const minRetries = 10

// Via says which route chose the backend of a connection. It is immutable, and keeps
// nothing of the table that it comes from.
type Via struct {
	Route  string // such as MeshTCPRoute/canary
	Subset string // the tags of the backend, as version=v2; "": all endpoints
}

// Decide resolves and routes a connection. It advances the split, so call it
// once per connection.
func (t *Table) Decide(in *Input) (Decision, Reason) {
	s, l, reason := t.resolve(in, nil)
	if reason != OK {
		return Decision{}, reason
	}
	if t.routesRequests(in, l, s) {
		if l.spec.Originates() != nil {
			return Decision{destination: s.serviceState}, OriginateConflict
		}
		return Decision{destination: s.serviceState, http: true}, OK
	}
	if t.denies(in, l, s, nil, nil) {
		return Decision{destination: s.serviceState}, PermissionDenied
	}
	b, via, reason := t.route(in, l, s, nil)
	if reason == OK {
		reason = l.conflict(b)
	}
	if reason != OK {
		return Decision{destination: s.serviceState}, reason
	}
	return Decision{destination: s.serviceState, service: b.serviceState, backend: b, via: via, outcomes: b.outcomes, hash: b.hash(in)}, OK
}

// Destination returns the service that the listener names for the connection,
// or "" if it names none.
func (d *Decision) Destination() string {
	if d.destination == nil {
		return ""
	}
	return d.destination.name
}

// Service returns the service whose endpoints are used: the destination, or the
// one to which a policy sends the connection; "" if there is none.
func (d *Decision) Service() string {
	if d.service == nil {
		return ""
	}
	return d.service.name
}

// Via returns the route that chose the service; nil: none did.
func (d *Decision) Via() *Via { return d.via }

// Attempts returns the number of endpoints tried.
func (d *Decision) Attempts() int { return int(d.attempts) }

// BudgetSpent reports whether only the retry budget prevented another attempt.
func (d *Decision) BudgetSpent() bool { return d.budgetSpent }

// Endpoint returns the endpoint that counts the connection now, or nil.
func (d *Decision) Endpoint() *endpoint.Endpoint { return d.endpoint }

// Next picks the endpoint to try and counts the connection there. Each further
// call means that the previous endpoint did not take the connection; call
// RecordFault first to record why.
//
// connect.attempts bounds the attempts. If it is not set, endpoints that fail
// at once do not count while another is untried, until the time for all
// attempts together is over. A retry after a slow attempt counts against the
// retry budget unless it goes to a ready endpoint.
//
// Overflow means that the service's circuit breaker allows no more now: see
// Enqueue.
func (d *Decision) Next(now time.Time) (*endpoint.Endpoint, Reason) {
	if d.backend == nil {
		return nil, RetriesExhausted // connected, or never routed
	}
	if d.waiter != nil {
		return d.endWait(now)
	}
	d.Failed(now)
	q := balance.Query{Now: now, Hash: d.hash}
	if d.attempts == 0 {
		d.service.budget.Connection(now)
		d.began = endpoint.Stamp(now)
	} else {
		q.Tried = &d.tried
		switch d.retries(now) {
		case noRetry:
			return nil, RetriesExhausted
		case retryUntried:
			q.Untried = true
		}
	}
	if d.service.queue.waiting.Load() > 0 {
		return nil, Overflow // behind those who wait
	}
	i, reason := d.pick(&q)
	if reason != OK {
		return nil, reason
	}
	d.take(i)
	d.service.queue.serve(now) // one who came meanwhile may have missed a slot that pick held for a moment
	return d.endpoint, OK
}

// take records that member i, where pick has counted the connection, is tried.
func (d *Decision) take(i int) {
	d.tried.Add(i)
	d.attempts++
	d.endpoint, d.pending = d.backend.pool.Members()[i].Endpoint, true
}

// kind is what the decision takes a slot for.
func (d *Decision) kind() endpoint.Kind {
	if d.request {
		return endpoint.Request
	}
	return endpoint.Connection
}

// retry says which endpoints a retry may go to.
type retry uint8

const (
	noRetry retry = iota
	retryUntried
	retryAny
)

// retries says which endpoints the next attempt may go to.
func (d *Decision) retries(now time.Time) retry {
	connect := &d.backend.spec.Connect
	switch {
	case int(d.attempts) < connect.Attempts:
		return retryAny
	case !connect.AttemptsGiven() && d.attempts < maxAttempts && int(d.slow) < connect.Attempts &&
		endpoint.Stamp(now)-d.began < int64(connect.Deadline()):
		return retryUntried
	}
	return noRetry
}

// pick picks a member, counts the connection there and claims it.
func (d *Decision) pick(q *balance.Query) (int, Reason) {
	b, kind := d.backend, d.kind()
	connect := &b.spec.Connect
	q.Kind = kind
	if breaker := b.group.Breaker(); breaker != nil {
		q.Bounds = &breaker.Endpoint
	}
	for range maxClaims {
		if b.group.Full(kind) {
			return balance.Full, Overflow
		}
		i := b.pool.Pick(q)
		switch i {
		case balance.None:
			return i, d.unavailable(q)
		case balance.Full:
			return i, Overflow
		}
		e := b.pool.Members()[i].Endpoint
		ready := e.Ready(q.Now)
		if d.needsBudget(ready) && !d.service.budget.Retry(*connect.RetryBudget, minRetries, q.Now) {
			d.budgetSpent = true
			return i, RetriesExhausted
		}
		if !b.group.Acquire(e, kind) {
			continue // others were faster
		}
		if !ready {
			return i, OK // every candidate is unready
		}
		var claimed bool
		if d.probe, claimed = e.Claim(q.Now, connect.Timeout.D()+probeGrace); claimed {
			return i, OK
		}
		b.group.Release(e, kind, true)
	}
	// Other connections were faster each time: accept one extra probe at the
	// endpoint, within its bounds.
	switch i := b.pool.Pick(q); {
	case i == balance.None:
		return i, d.unavailable(q)
	case i == balance.Full || !b.group.Acquire(b.pool.Members()[i].Endpoint, kind):
		return i, Overflow
	default:
		return i, OK
	}
}

// unavailable returns the reason why there is no endpoint to try.
func (d *Decision) unavailable(q *balance.Query) Reason {
	if q.Untried {
		return RetriesExhausted
	}
	d.countUnavailable()
	return d.backend.unavailable()
}

// countUnavailable counts the outcome if no endpoint was tried.
func (d *Decision) countUnavailable() {
	if d.attempts == 0 {
		d.outcomes.countFailure()
	}
}

// needsBudget reports whether the next attempt counts against the retry budget. A
// retry after a slow attempt does; after a connect timeout only if its endpoint
// is not ready.
func (d *Decision) needsBudget(ready bool) bool {
	switch {
	case d.attempts == 0 || d.failure == endpoint.ConnectFailed:
		return false
	case d.failure == endpoint.ConnectTimedOut:
		return !ready
	}
	return true
}

// unavailable returns the reason why the pool offers no endpoint.
func (b *backend) unavailable() Reason {
	if b.pool.Empty() {
		return NoEndpoint
	}
	return NoHealthyEndpoint
}

// Failed records that the endpoint of the last Next did not take the
// connection. Next calls it as well.
func (d *Decision) Failed(now time.Time) { d.RecordFault(endpoint.ConnectFailed, "", now) }

// RecordFault is Failed with the kind of failure and the error's text.
func (d *Decision) RecordFault(f endpoint.Failure, text string, now time.Time) {
	if d.endpoint == nil || d.backend == nil {
		return
	}
	d.failure = f
	if f != endpoint.ConnectFailed {
		d.slow++
	}
	d.service.group.RecordFault(d.endpoint, endpoint.Fault{Failure: f, Probe: d.probe, Error: text}, now)
	d.probe = false
	d.outcomes.countFailure()
	d.release()
}

// RecordLocalFault records that the endpoint of the last Next was not tried
// because this node lacked a resource. It does not count against the endpoint,
// and the next Next returns another endpoint if there is one. Status shows text
// as the endpoint's last error.
func (d *Decision) RecordLocalFault(text string, now time.Time) {
	if d.endpoint != nil && d.backend != nil {
		d.failure = endpoint.ConnectFailed
		d.service.group.NoteError(d.endpoint, text, now)
		d.release()
	}
}

// Reached records that the endpoint of the last Next accepted the connection,
// although the request on it may still fail. Connected includes it.
func (d *Decision) Reached(now time.Time) {
	if d.endpoint != nil && d.backend != nil {
		d.probe = false
		d.established(now)
		d.service.group.Reached(d.endpoint, now)
	}
}

// established ends the time in which the connection counts as pending.
func (d *Decision) established(now time.Time) {
	if d.pending {
		d.pending = false
		d.service.group.Established(d.endpoint)
		d.service.queue.serve(now)
	}
}

// Connected records that the endpoint of the last Next took the connection.
func (d *Decision) Connected(now time.Time) {
	if d.endpoint != nil && d.backend != nil {
		d.backend = nil // releases this version of the table
		d.probe = false
		d.established(now)
		d.service.group.Connected(d.endpoint, now)
		d.outcomes.countConnect()
	}
}

// EarlyReset records that the endpoint reset the connection before its first
// byte.
func (d *Decision) EarlyReset(now time.Time) {
	if d.endpoint != nil && d.backend == nil {
		d.service.group.Failed(d.endpoint, endpoint.EarlyReset, now)
		d.outcomes.countReset()
	}
}

// Closed ends the connection in whatever state it is. Further calls do nothing.
func (d *Decision) Closed() {
	d.leaveQueue()
	d.backend = nil
	d.release()
}

// release removes the connection from the counts, once.
func (d *Decision) release() {
	if d.endpoint != nil {
		if d.probe {
			d.probe = false
			d.endpoint.AbandonProbe()
		}
		d.service.group.Release(d.endpoint, d.kind(), d.pending)
		d.endpoint, d.pending = nil, false
		if q := &d.service.queue; q.waiting.Load() > 0 {
			q.serve(time.Now())
		}
	}
}

// resolve returns the destination and the listener that names it. tr is nil on
// the data path.
func (t *Table) resolve(in *Input, tr *trace) (*Service, *Listener, Reason) {
	l, ok := t.listeners.Get(in.Listener)
	tr.listener(in, l)
	if !ok {
		return nil, nil, NoListener
	}
	name, reason := l.destination(in, tr)
	if reason != OK {
		return nil, nil, reason
	}
	s, ok := t.services.Get(name)
	tr.destination(name, s)
	if !ok {
		return nil, nil, NoBackend
	}
	return s, l, OK
}

// meshProtocol is the protocol of listeners whose clients are nodes of the cluster.
// The server name is the name of the service with mesh to which the client went.
const meshProtocol = "mesh"

// destination returns the service that a listener has for a connection. Only a
// valid name without a rule falls through to the listener's service: a name that
// cannot be interpreted reaches no default, which may belong to someone else.
func (l *Listener) destination(in *Input, tr *trace) (service string, reason Reason) {
	if l.speaksMySQL() {
		return l.mysqlDestination(in, tr)
	}
	tr.name(in)
	if l.spec.Protocol == meshProtocol && !in.HasServerName {
		return l.defaultService(tr, "no Service with mesh: true is named")
	}
	if l.spec.Protocol != "tls" && l.spec.Protocol != meshProtocol {
		return l.defaultService(tr, "the listener ignores server names")
	}
	if !in.HasServerName {
		if l.spec.NoServerName == "service" {
			return l.defaultService(tr, "no server name was sent, and noServerName is service")
		}
		tr.nameRefused(NoServerName, "no server name was sent, and noServerName is close")
		return "", NoServerName
	}
	return l.byName(in, tr)
}

// byName returns the service for the server name of a connection, which has one.
func (l *Listener) byName(in *Input, tr *trace) (service string, reason Reason) {
	name, ok := hostname.CheckSNI(in.ServerName)
	if !ok {
		tr.nameRefused(BadServerName, "not a valid server name")
		return "", BadServerName
	}
	m, ok := l.hosts.Match(name)
	if !ok {
		return l.defaultService(tr, "no rule matches the name")
	}
	service, protocol := m.Value.choose(in.ALPN)
	tr.match(&m, service, protocol)
	if service == "" {
		return "", NoRoute
	}
	return service, OK
}

// defaultService returns the listener's own service, or NoRoute.
func (l *Listener) defaultService(tr *trace, why string) (string, Reason) {
	reason := OK
	if l.spec.Service == "" {
		reason = NoRoute
	}
	tr.defaultService(l.spec.Service, reason, why)
	return l.spec.Service, reason
}

// route returns the backend by the best matching policy. tr is nil on the data
// path; with tr the split does not advance.
func (t *Table) route(in *Input, l *Listener, s *Service, tr *trace) (*backend, *Via, Reason) {
	if len(s.policies) == 0 {
		tr.noPolicy(s)
		return s.whole, nil, OK
	}
	var src source
	if !s.chooser.ignoresSource || tr.enabled() {
		src = t.source(in, l)
	}
	tr.source(&src)
	return s.send(&src, tr)
}

// send returns the backend for connections from a source, and what chose it; nil: nothing
// did.
func (s *Service) send(src *source, tr *trace) (*backend, *Via, Reason) {
	chosen := s.chooser.choose(src)
	tr.policies(s, src, chosen)
	if chosen == nil {
		return s.whole, nil, OK
	}
	turn := chosen.turn(tr.enabled())
	tr.split(chosen.route, &chosen.shares, turn)
	tr.rollout(chosen.rollout)
	if turn == noTurn {
		if !tr.enabled() {
			chosen.rollout.countUnroutable()
		}
		return nil, nil, NoBackend
	}
	if b := chosen.live[turn]; b.closed == "" {
		return b, chosen.via[turn], OK
	}
	return nil, nil, NoBackend
}

func hashAddr(a netip.Addr) uint64 {
	b := a.As16() // maps IPv4 to IPv6, so that both forms hash alike
	return balance.Mix(balance.Mix(binary.BigEndian.Uint64(b[:8])) ^ binary.BigEndian.Uint64(b[8:]))
}
