package dataplane

import (
	"cmp"
	"slices"
	"time"

	"penstock/routing"
	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// mysqlServer is what a service says about one endpoint now.
type mysqlServer struct {
	member balance.Member
	takes  bool // it takes new sessions
	near   bool
	weight float64 // what balancing gives it now; 0: nothing
}

// serversOf returns the endpoints of a service. An address that is there twice counts as
// the one that takes new sessions.
func serversOf(s *routing.Service, now time.Time) map[endpointID]mysqlServer {
	servers := make(map[endpointID]mysqlServer, len(s.Members()))
	for i, m := range s.Members() {
		one := mysqlServer{member: m, takes: m.Weight > 0 && s.Mismatch(i) == ""}
		if old, twice := servers[idOf(m.Endpoint)]; twice && (old.takes || !one.takes) {
			continue
		}
		if one.takes && s.Uses(i, now) {
			one.near, one.weight = s.Near(i), float64(m.Weight)*s.SlowStartShare(i, now)
		}
		servers[idOf(m.Endpoint)] = one
	}
	return servers
}

// findCauses finds out which sessions are to move. It returns those that were asked to
// and stay after all.
func (m *mysqlSessions) findCauses(now time.Time) (stay []*mysqlConn) {
	table := m.router.Table()
	for name, s := range m.services {
		moved := s.moves
		svc, ok := table.Service(name)
		if !ok || svc.Spec().Protocol != resource.ProtocolMySQL { // there is nowhere to move to
			s.moves, s.excess, svc = false, nil, nil
		} else {
			s.moves = svc.Spec().MySQL.Move != "never"
			s.pace = paced(s.pace, svc.Spec().MySQL.MovesPerSecond)
			s.slowly = paced(s.slowly, *svc.Spec().MySQL.Rebalance.MovesPerSecond)
			s.overload.configure(svc.Spec().MySQL.Load)
		}
		if moved && !s.moves {
			stay = m.endOrders(s, stay)
		}
		stay = s.findCauses(svc, now, stay)
	}
	return stay
}

// findCauses does so for one service, which is nil if it is gone.
func (s *serviceSessions) findCauses(svc *routing.Service, now time.Time, stay []*mysqlConn) []*mysqlConn {
	var servers map[endpointID]mysqlServer
	good := 0
	if svc != nil {
		servers = serversOf(svc, now)
		for id := range servers {
			if isGood(servers[id], now) {
				good++
			}
		}
	}
	s.leaving = s.leaving[:0]
	for id, p := range s.places {
		server, here := servers[id]
		why := causeNone
		if svc != nil {
			why = causeOf(server, here)
		}
		if why == causeNone && p.cause != causeNone {
			stay = p.stays(stay)
		}
		if p.cause == causeNone {
			p.since = now
		}
		p.cause, p.nowhere = why, good == 0 || good == 1 && isGood(server, now)
		if why != causeNone {
			s.leaving = append(s.leaving, p)
		}
	}
	slices.SortFunc(s.leaving, func(a, b *mysqlPlace) int { return cmp.Compare(a.cause, b.cause) })
	s.excess = s.excess[:0]
	s.findOverload(servers, now)
	if svc != nil && s.moves {
		s.findExcess(svc.Spec(), servers, now)
	}
	return stay
}

// causeOf returns why the sessions of a server are to move.
func causeOf(server mysqlServer, here bool) cause {
	switch {
	case !here:
		return causeLeft
	case server.member.Health() == endpoint.Unhealthy:
		return causeUnhealthy
	case !server.takes:
		return causeDrained
	}
	return causeNone
}

// isGood reports whether sessions may move to a server.
func isGood(server mysqlServer, now time.Time) bool { return server.takes && server.member.Ready(now) }

// stays takes back the requests to move for the cause that is over.
func (p *mysqlPlace) stays(stay []*mysqlConn) []*mysqlConn {
	for _, l := range []*sessionList{&p.asked, &p.service.deferred} {
		for h := l.head; h != nil; {
			e, next := &h.entry, h.entry.next
			if e.place == p && e.cause.leaves() && e.target == nil && e.order == nil {
				e.cause = causeNone
				p.calm.put(h)
				stay = append(stay, h)
			}
			h = next
		}
	}
	return stay
}

// excess is how many sessions of a place are to move for balance.
type excess struct {
	place *mysqlPlace
	n     int
	to    string // the server with the fewest
}

// take takes some of them. It returns false if the pace allows no more now.
func (x *excess) take(t *moveTurn) bool {
	for x.n > 0 {
		h := x.place.calm.head
		if h == nil {
			if h = x.place.failed.head; h == nil || t.now.Sub(h.entry.failedAt) < balanceRetry {
				break
			}
		}
		if !t.allows(x.place.service.slowly) {
			return false
		}
		x.n--
		t.ask(h, causeBalance, t.now)
	}
	return true
}

// noStates is for how long a server whose sessions could not move, because it has no
// session states, is left out of balancing.
const noStates = 5 * time.Minute

// findExcess finds the server with the most sessions for its weight, and how many of
// them the one with the fewest should have.
func (s *serviceSessions) findExcess(spec *resource.Service, servers map[endpointID]mysqlServer, now time.Time) {
	if spec.Balancing.Policy != "leastConnections" || *spec.MySQL.Rebalance.MovesPerSecond == 0 {
		return
	}
	ratio := ratioOf(spec)
	for id, p := range s.places {
		from, ok := servers[id]
		if !ok || p.cause != causeNone || from.weight == 0 || p.calm.n+p.failed.n == 0 || !p.hasStates(now) {
			continue
		}
		most, where := 0, ""
		for _, to := range servers {
			if to.weight == 0 || to.near != from.near || to.member.Level != from.member.Level || !isGood(to, now) ||
				!s.overload.evens(from, to, now) {
				continue
			}
			if n := surplus(from, to, ratio); n > most {
				most, where = n, addressOf(to.member.Endpoint)
			}
		}
		if n := most - s.evening; n > 0 {
			s.excess = append(s.excess, excess{p, n, where})
		}
	}
	slices.SortFunc(s.excess, func(a, b excess) int { return cmp.Compare(b.n, a.n) })
	s.excess = s.excess[:min(len(s.excess), 1)] // the others may have none once it has moved
}

// evenTo returns the server to which sessions of a place move for balance; "": the one
// that balancing chooses. Where the load counts, that may be another than the one with the
// fewest sessions.
func (s *serviceSessions) evenTo(p *mysqlPlace) string {
	if s.overload.rules != nil && len(s.excess) > 0 && s.excess[0].place == p {
		return s.excess[0].to
	}
	return ""
}

func ratioOf(spec *resource.Service) float64 { return float64(spec.MySQL.Rebalance.Ratio) / 100 }

// surplus returns how many sessions should move from one server to another so that they
// are even; 0 while the first one has no more than the ratio, or moving one would turn the
// difference around: so no session moves to and fro.
func surplus(from, to mysqlServer, ratio float64) int {
	a, b := float64(from.member.Active()), float64(to.member.Active())
	if a/from.weight <= ratio*(b+1)/to.weight {
		return 0
	}
	return max(int((a*to.weight-b*from.weight)/(from.weight+to.weight)), 0)
}

// evens reports whether moving a session to a server, which counts it already, still
// helps the balance.
func (m *mysqlSessions) evens(h *mysqlConn, service string, to *endpoint.Endpoint, now time.Time) bool {
	svc, ok := m.router.Table().Service(service)
	at := h.plan.decision.Endpoint()
	if !ok || service != h.plan.decision.Service() || svc.Spec().Balancing.Policy != "leastConnections" {
		return false
	}
	servers := serversOf(svc, now)
	a, b := servers[idOf(at)], servers[idOf(to)]
	if a.weight == 0 || b.weight == 0 || a.near != b.near || a.member.Level != b.member.Level || !m.loadEvens(service, a, b, now) {
		return false
	}
	from, into := float64(at.Active())/a.weight, float64(to.Active())/b.weight
	return from > ratioOf(svc.Spec())*into && float64(at.Active()-1)/a.weight >= into
}
