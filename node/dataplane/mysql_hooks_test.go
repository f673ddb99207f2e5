package dataplane

import (
	"testing"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/load"
)

// overloaded returns the sessions of a service with a server at 90 % of its CPU that has
// 40 of them, and an idle one that has none.
func overloaded(t *testing.T, now time.Time) (*serviceSessions, []*mysqlPlace, map[endpointID]mysqlServer) {
	t.Helper()
	m, s, _ := pacedSessions(500, 0)
	group := endpoint.NewGroup("tidb", nil)
	list := group.Update([]endpoint.Spec{{Address: "10.0.0.1:4000"}, {Address: "10.0.0.2:4000"}}, now)
	servers := map[endpointID]mysqlServer{}
	var places []*mysqlPlace
	for i, e := range list {
		cpu, sessions := 0.9, 40
		if i == 1 {
			cpu, sessions = 0, 0
		}
		e.SetLoad(&endpoint.Load{CPU: cpu, Latest: cpu, From: now.Add(-time.Second), At: now, Memory: endpoint.Unknown, Share: 1})
		p := m.place("tidb", e)
		for range sessions {
			if !group.Acquire(e, endpoint.Connection) {
				t.Fatal("the endpoint is full")
			}
			h := &mysqlConn{}
			h.entry.place = p
			p.sessions++
			p.calm.push(h)
		}
		places = append(places, p)
		servers[idOf(e)] = mysqlServer{member: balance.Member{Endpoint: e, Weight: 1}, takes: true, weight: 1}
	}
	o := &s.overload
	o.rules = &load.Rules{CPU: true, Memory: true, MoveCPU: true, MoveMemory: true, High: 0.7, Gap: 0.2, MemoryHigh: 0.9, Interval: time.Second}
	o.cpu, o.memory = paced(nil, 50), paced(nil, 5)
	return s, places, servers
}

func TestBusyServerHasItsSessionsAsked(t *testing.T) {
	now := time.Now()
	s, places, servers := overloaded(t, now)
	o := &s.overload
	s.findOverload(servers, now)
	// 40 sessions use 0.9: 20 would make both equal, and half of these are asked.
	if o.place != places[0] || o.n != 10 || o.to != "10.0.0.2:4000" || o.pace != o.cpu {
		t.Fatalf("%d of %v are to move to %q", o.n, o.place, o.to)
	}
	o.asked = 4
	if s.findOverload(servers, now); o.n != 6 {
		t.Errorf("%d are to be asked beside the 4 that were", o.n)
	}
}

// What keeps sessions where they are although their server is busy.
func TestBusyServerKeepsItsSessions(t *testing.T) {
	now := time.Now()
	for name, change := range map[string]func(s *serviceSessions, places []*mysqlPlace, from, to *mysqlServer){
		"sessions do not move":            func(s *serviceSessions, _ []*mysqlPlace, _, _ *mysqlServer) { s.moves = false },
		"the load does not count":         func(s *serviceSessions, _ []*mysqlPlace, _, _ *mysqlServer) { s.overload.rules = nil },
		"the other one gets no traffic":   func(_ *serviceSessions, _ []*mysqlPlace, _, to *mysqlServer) { to.weight = 0 },
		"the other one takes no sessions": func(_ *serviceSessions, _ []*mysqlPlace, _, to *mysqlServer) { to.takes = false },
		"the other one is unhealthy": func(_ *serviceSessions, _ []*mysqlPlace, _, to *mysqlServer) {
			to.member.SetHealth(endpoint.Unhealthy, now)
		},
		"the other one is in another zone":      func(_ *serviceSessions, _ []*mysqlPlace, _, to *mysqlServer) { to.near = true },
		"the other one is a backup":             func(_ *serviceSessions, _ []*mysqlPlace, _, to *mysqlServer) { to.member.Level = balance.Backup },
		"the busy one gets no traffic":          func(_ *serviceSessions, _ []*mysqlPlace, from, _ *mysqlServer) { from.weight = 0 },
		"all leave the busy one for a cause":    func(_ *serviceSessions, p []*mysqlPlace, _, _ *mysqlServer) { p[0].cause = causeDrained },
		"the busy one gives no session states":  func(_ *serviceSessions, p []*mysqlPlace, _, _ *mysqlServer) { p[0].stateless = now },
		"nobody is left to ask at the busy one": func(_ *serviceSessions, p []*mysqlPlace, _, _ *mysqlServer) { p[0].calm.n = 0 },
	} {
		s, places, servers := overloaded(t, now)
		from, to := servers[idOf(places[0].endpoint)], servers[idOf(places[1].endpoint)]
		change(s, places, &from, &to)
		servers[idOf(places[0].endpoint)], servers[idOf(places[1].endpoint)] = from, to
		if s.findOverload(servers, now); s.overload.place != nil {
			t.Errorf("%s: %d sessions are to move", name, s.overload.n)
		}
	}
}

// Sessions begin to move one after the other, at the pace of CPU or of memory.
func TestOverloadIsPaced(t *testing.T) {
	now := time.Now()
	for name, tt := range map[string]struct {
		memory    bool
		at, later int // sessions asked at once, and 900 ms later
	}{"CPU": {false, 1, 9}, "memory": {true, 1, 4}} {
		s, places, servers := overloaded(t, now)
		if tt.memory {
			for i, risk := range []int{2, 0} {
				places[i].endpoint.SetLoad(&endpoint.Load{
					CPU: 0, Latest: 0, From: now, At: now, Memory: 0.95 - 0.9*float64(i), MemoryAt: now, Risk: risk, FullIn: 10 * time.Second * time.Duration(risk/2), Share: 1,
				})
			}
		}
		s.findOverload(servers, now)
		first := s.turnAt(now)
		if len(first.asked) != tt.at || first.next != moveTick {
			t.Errorf("%s: %d are asked at once, the next turn is in %v", name, len(first.asked), first.next)
		}
		asked := 0
		for at := now; at.Before(now.Add(900 * time.Millisecond)); at = at.Add(moveTick) {
			turn := s.turnAt(at)
			asked += len(turn.asked)
			for _, h := range turn.asked {
				if h.entry.place != places[0] {
					t.Errorf("%s: a session of %s is asked", name, h.entry.place.endpoint.Address)
				}
			}
		}
		if asked != tt.later {
			t.Errorf("%s: %d are asked within 900 ms, want %d", name, asked, tt.later)
		}
	}
}
