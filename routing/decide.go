package routing

import (
	"encoding/binary"
	"net/netip"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/hostname"
)

// Decision is where one connection goes: a service, or a part of its
// endpoints, and then one endpoint after the other until one takes it. It
// belongs to the connection and is not safe for use from several loops at
// once. It is small, and once connected holds on to no table.
type Decision struct {
	destination *life
	service     *life
	backend     *backend           // nil once connected
	endpoint    *endpoint.Endpoint // where this connection counts; nil: nowhere
	tally       *Tally             // where what becomes of it counts as well; nil: nowhere
	hash        uint64
	tried       [maxAttempts - 1]int32
	attempts    uint8
	http        bool // see HTTP
}

// maxAttempts bounds Connect.Attempts.
const maxAttempts = 10

// minRetries are allowed in the window of a retry budget in any case.
const minRetries = 10

// Decide resolves and routes a connection. It takes the connection's turn in a
// split, so it is called once for each.
func (t *Table) Decide(in *Input) (Decision, Reason) {
	s, l, reason := t.resolve(in, nil)
	if reason != OK {
		return Decision{}, reason
	}
	if s.requests != nil && t.routesRequests(in, l, s) {
		return Decision{destination: s.life, http: true}, OK
	}
	b, reason := t.route(in, l, s, nil)
	if reason != OK {
		return Decision{destination: s.life}, reason
	}
	return Decision{destination: s.life, service: b.life, backend: b, tally: b.tally, hash: b.hash(in)}, OK
}

// Destination is the service that the listener names for the connection; ""
// where it names none.
func (d *Decision) Destination() string {
	if d.destination == nil {
		return ""
	}
	return d.destination.name
}

// Service is the service whose endpoints are used: the destination, or the one
// that a policy sends it to. "" where there is none.
func (d *Decision) Service() string {
	if d.service == nil {
		return ""
	}
	return d.service.name
}

// Attempts is how many endpoints were tried.
func (d *Decision) Attempts() int { return int(d.attempts) }

// Endpoint is where the connection counts now, or nil.
func (d *Decision) Endpoint() *endpoint.Endpoint { return d.endpoint }

// Next picks the endpoint to try, and counts the connection there. A call
// after the first says that the one before did not take the connection; it is
// bounded by the service's attempts and its retry budget (rule 17).
func (d *Decision) Next(now time.Time) (*endpoint.Endpoint, Reason) {
	if d.backend == nil {
		return nil, RetriesExhausted // connected, or never routed
	}
	d.Failed(now)
	connect := &d.backend.spec.Connect
	if d.attempts == 0 {
		d.service.budget.Connection(now)
	} else if int(d.attempts) >= min(connect.Attempts, maxAttempts) ||
		!d.service.budget.Retry(*connect.RetryBudget, minRetries, now) {
		return nil, RetriesExhausted
	}
	i := d.backend.pool.Pick(&balance.Query{Now: now, Hash: d.hash, Tried: d.tried[:d.attempts]})
	if i == balance.None {
		if d.attempts == 0 {
			d.tally.failure()
		}
		return nil, d.backend.none()
	}
	if int(d.attempts) < len(d.tried) {
		d.tried[d.attempts] = int32(i)
	}
	d.attempts++
	d.endpoint = d.backend.pool.Members()[i].Endpoint
	d.endpoint.Acquire()
	return d.endpoint, OK
}

// none says why there is no endpoint.
func (b *backend) none() Reason {
	if b.pool.Empty() {
		return NoEndpoint
	}
	return NoHealthyEndpoint
}

// Failed tells that the endpoint of the last Next did not take the connection.
// Next says so too.
func (d *Decision) Failed(now time.Time) {
	if d.endpoint != nil && d.backend != nil {
		d.service.group.Failed(d.endpoint, endpoint.ConnectFailed, now)
		d.tally.failure()
		d.release()
	}
}

// Connected tells that the endpoint of the last Next took the connection.
func (d *Decision) Connected(now time.Time) {
	if d.endpoint != nil && d.backend != nil {
		d.backend = nil // nothing of this version of the table is kept alive
		d.service.group.Connected(d.endpoint, now)
		d.tally.connected()
	}
}

// EarlyReset tells that the endpoint reset the connection before its first byte.
func (d *Decision) EarlyReset(now time.Time) {
	if d.endpoint != nil && d.backend == nil {
		d.service.group.Failed(d.endpoint, endpoint.EarlyReset, now)
		d.tally.reset()
	}
}

// Closed ends the connection, whatever its state; it may be called again.
func (d *Decision) Closed() {
	d.backend = nil
	d.release()
}

// release counts the connection out, once.
func (d *Decision) release() {
	if d.endpoint != nil {
		d.endpoint.Release()
		d.endpoint = nil
	}
}

// resolve finds the destination, and the listener that names it. tr is nil on
// the data path.
func (t *Table) resolve(in *Input, tr *trace) (*Service, *Listener, Reason) {
	l, ok := t.listeners.Get(in.Listener)
	if tr != nil {
		tr.listener(in, l)
	}
	if !ok {
		return nil, nil, NoListener
	}
	name, reason := l.destination(in, tr)
	if reason != OK {
		return nil, nil, reason
	}
	s, ok := t.services.Get(name)
	if tr != nil {
		tr.destination(name, s)
	}
	if !ok {
		return nil, nil, NoBackend
	}
	return s, l, OK
}

// destination names the service that a listener has for a connection. Only a
// valid name that no rule has falls through to the listener's service (rule 2).
func (l *Listener) destination(in *Input, tr *trace) (service string, reason Reason) {
	if l.spec.Protocol != "tls" {
		return l.otherwise(tr, "the listener looks at no server name")
	}
	if !in.HasServerName {
		if l.spec.NoServerName == "service" {
			return l.otherwise(tr, "no server name was sent, and noServerName is service")
		}
		if tr != nil {
			tr.noName(NoServerName, "no server name was sent, and noServerName is close")
		}
		return "", NoServerName
	}
	name, ok := hostname.CheckSNI(in.ServerName)
	if !ok {
		if tr != nil {
			tr.noName(BadServerName, "it is no valid server name")
		}
		return "", BadServerName
	}
	m, ok := l.hosts.Match(name)
	if !ok {
		return l.otherwise(tr, "no rule has the name")
	}
	service, protocol := m.Value.choose(in.ALPN)
	if tr != nil {
		tr.match(name, m, service, protocol, in.ALPN)
	}
	if service == "" {
		return "", NoRoute
	}
	return service, OK
}

// otherwise is the listener's own service, where it has one.
func (l *Listener) otherwise(tr *trace, why string) (string, Reason) {
	reason := OK
	if l.spec.Service == "" {
		reason = NoRoute
	}
	if tr != nil {
		tr.otherwise(l.spec.Service, reason, why)
	}
	return l.spec.Service, reason
}

// route finds the backend by the policy that matches best. tr is nil on the
// data path; with it the split stays where it is.
func (t *Table) route(in *Input, l *Listener, s *Service, tr *trace) (*backend, Reason) {
	if len(s.policies) == 0 {
		if tr != nil {
			tr.noPolicy(s)
		}
		return s.whole, OK
	}
	var src source
	if !s.chooser.blind || tr != nil {
		src = t.source(in, l)
	}
	if tr != nil {
		tr.source(&src)
	}
	return s.send(&src, tr)
}

// send finds the backend for connections from a source.
func (s *Service) send(src *source, tr *trace) (*backend, Reason) {
	chosen := s.chooser.choose(src)
	if tr != nil {
		tr.policies(s, src, chosen)
	}
	if chosen == nil {
		return s.whole, OK
	}
	turn := chosen.turn(tr != nil)
	if tr != nil {
		tr.split(chosen.route, &chosen.shares, turn)
		tr.rollout(chosen.rollout)
	}
	if turn == nowhere {
		if tr == nil {
			chosen.rollout.nobody()
		}
		return nil, NoBackend
	}
	if b := chosen.live[turn]; b.closed == "" {
		return b, OK
	}
	return nil, NoBackend
}

func hashAddr(a netip.Addr) uint64 {
	b := a.As16() // an IPv4 address is the same as an IPv4-mapped one
	return balance.Mix(balance.Mix(binary.BigEndian.Uint64(b[:8])) ^ binary.BigEndian.Uint64(b[8:]))
}
