package dataplane

import (
	"time"

	"golang.org/x/time/rate"

	"penstock/routing/endpoint"
	"penstock/routing/load"
	"penstock/routing/resource"
)

// overload is about the sessions of a service that move because of the load of its
// servers. mysqlSessions.mu guards it.
type overload struct {
	rules       *load.Rules // nil: the load does not count
	relief      load.Relief[endpointID]
	cpu, memory *rate.Limiter
	asked       int // sessions that were asked, and have not moved yet

	place *mysqlPlace   // whose sessions are to move; nil: none
	to    string        // where
	pace  *rate.Limiter // at which
	n     int           // how many more of them are to be asked
}

// configure puts the settings of a service into force; nil: its load does not count.
func (o *overload) configure(l *resource.ServiceLoad) {
	if o.rules = loadRules(l); o.rules == nil {
		return
	}
	o.cpu, o.memory = paced(o.cpu, *l.CPU.MovesPerSecond), paced(o.memory, *l.Memory.MovesPerSecond)
}

// findOverload finds out which server is to lose sessions because of its load.
func (s *serviceSessions) findOverload(servers map[endpointID]mysqlServer, now time.Time) {
	o := &s.overload
	o.place, o.n = nil, 0
	if !s.moves || o.rules == nil {
		return
	}
	list := make([]load.Server[endpointID], 0, len(servers))
	for id := range servers {
		v := servers[id]
		one := load.Server[endpointID]{
			ID: id, Load: v.member.Load(), Sessions: int(v.member.Active()), Takes: v.weight > 0 && isGood(v, now),
			Near: v.near, Level: v.member.Level,
		}
		if p := s.places[id]; p != nil && p.cause == causeNone && v.weight > 0 && p.hasStates(now) {
			one.Movable = p.calm.n + p.asked.n
		}
		list = append(list, one)
	}
	b := o.relief.Plan(now, o.rules, list)
	if b == nil {
		return
	}
	o.place, o.to, o.n, o.pace = s.places[b.From], addressOf(servers[b.To].member.Endpoint), b.Left-o.asked, o.cpu
	if b.Memory {
		o.pace = o.memory
	}
}

// hasStates reports whether no session has lately failed to move for want of session states.
func (p *mysqlPlace) hasStates(now time.Time) bool {
	return p.stateless.IsZero() || now.Sub(p.stateless) >= noStates
}

// addressOf returns an address with which routing.IsAt finds an endpoint.
func addressOf(e *endpoint.Endpoint) string {
	if e.Addr.IsValid() {
		return e.Addr.String()
	}
	return e.Address
}

// take takes the sessions whose turn it is.
func (o *overload) take(t *moveTurn) {
	for o.place != nil && o.n > 0 && o.place.calm.head != nil {
		if !o.pace.AllowN(t.now, 1) {
			t.again(moveTick)
			return
		}
		o.n--
		t.ask(o.place.calm.head, causeOverload, t.now)
	}
}

// from returns where the sessions of a place are to move; false: they no longer are.
func (o *overload) from(p *mysqlPlace) (to string, ok bool) { return o.to, o.place == p }

// evens reports whether the load allows sessions to move from one server to another for
// balance.
func (o *overload) evens(from, to mysqlServer, now time.Time) bool {
	return o.rules == nil || o.relief.Evens(now, o.rules, idOf(to.member.Endpoint), from.member.Load(), to.member.Load())
}

// loadEvens is overload.evens for a service.
func (m *mysqlSessions) loadEvens(service string, from, to mysqlServer, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.services[service]
	return s == nil || s.overload.evens(from, to, now)
}
