package routing

import (
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
)

// NextFrom is Next for a connection that is established at an endpoint and is to move:
// balancing chooses another one, which is ready. A connection never moves to an endpoint
// that is worse: NoHealthyEndpoint means that there is no other good one, and Overflow
// that the circuit breaker allows no more now.
func (d *Decision) NextFrom(from *endpoint.Endpoint, now time.Time) (*endpoint.Endpoint, Reason) {
	if reason := d.mayMove(); reason != OK {
		return nil, reason
	}
	q := balance.Query{Now: now, Hash: d.hash, Tried: &d.tried, Untried: true}
	for i, m := range d.backend.pool.Members() {
		if sameEndpoint(m.Endpoint, from) {
			d.tried.Add(i)
		}
	}
	return d.takeReady(&q, now)
}

// NextAt is NextFrom for a connection that is to move to an address: that of the
// configuration, or one that it resolves to. NoEndpoint means that no endpoint which takes
// connections has it.
func (d *Decision) NextAt(address string, now time.Time) (*endpoint.Endpoint, Reason) {
	if reason := d.mayMove(); reason != OK {
		return nil, reason
	}
	pool, best, reason := d.backend.pool, balance.None, NoEndpoint
	for i, m := range pool.Members() {
		if m.Weight == 0 || !pool.Matches(i) || !IsAt(m.Endpoint, address) {
			continue
		}
		reason = NoHealthyEndpoint
		if m.Ready(now) && (best == balance.None || m.Active() < pool.Members()[best].Active()) {
			best = i
		}
	}
	if best == balance.None {
		return nil, reason
	}
	e := pool.Members()[best].Endpoint
	if !d.backend.group.Acquire(e, d.kind()) {
		return nil, Overflow
	}
	probe, claimed := e.Claim(now, d.backend.spec.Connect.Timeout.D()+probeGrace)
	if !claimed {
		d.backend.group.Release(e, d.kind(), true)
		return nil, NoHealthyEndpoint
	}
	d.probe = probe
	d.take(best)
	return d.endpoint, OK
}

// IsAt reports whether an endpoint has an address: as configured, or resolved.
func IsAt(e *endpoint.Endpoint, address string) bool {
	return e.Address == address || e.Addr.IsValid() && e.Addr.String() == address
}

func sameEndpoint(a, b *endpoint.Endpoint) bool {
	return a == b || a.Address == b.Address && a.Addr == b.Addr && a.Unix == b.Unix
}

// mayMove returns why no endpoint can be chosen for a move.
func (d *Decision) mayMove() Reason {
	switch {
	case d.backend == nil || d.attempts > 0:
		return RetriesExhausted
	case d.service.queue.waiting.Load() > 0:
		return Overflow
	}
	return OK
}

// takeReady picks an endpoint for a move, and counts the connection there.
func (d *Decision) takeReady(q *balance.Query, now time.Time) (*endpoint.Endpoint, Reason) {
	i, reason := d.pick(q)
	if reason == RetriesExhausted {
		reason = NoHealthyEndpoint
	}
	if reason != OK {
		return nil, reason
	}
	// Without Ready, pick has chosen among those that fail, for want of a better one.
	ready := d.probe || d.backend.pool.Members()[i].Ready(now)
	d.take(i)
	if !ready {
		d.release()
		return nil, NoHealthyEndpoint
	}
	return d.endpoint, OK
}

// Near reports whether member i is in the preferred zone, or there is none.
func (s *Service) Near(i int) bool { return s.whole.pool.Near(i) }

// SlowStartShare returns the fraction of its share that member i has now.
func (s *Service) SlowStartShare(i int, now time.Time) float64 {
	return s.whole.pool.SlowStartShare(i, now)
}
