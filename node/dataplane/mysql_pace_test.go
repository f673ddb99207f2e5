package dataplane

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
)

// pacedSessions returns the sessions of a service whose places have the given numbers of
// them, and moves at the pace; no loop asks them.
func pacedSessions(perSecond int, numbers ...int) (*mysqlSessions, *serviceSessions, []*mysqlPlace) {
	m := &mysqlSessions{wake: make(chan struct{}, 1), services: map[string]*serviceSessions{}, orders: map[uint64]*moveOrder{}}
	m.counts.Failed, m.counts.Delayed = map[string]uint64{}, map[string]uint64{}
	var places []*mysqlPlace
	for i, n := range numbers {
		p := m.place("tidb", &endpoint.Endpoint{Address: string(rune('a' + i))})
		for range n {
			h := &mysqlConn{}
			h.entry.place = p
			p.sessions++
			p.calm.push(h)
		}
		places = append(places, p)
	}
	s := m.services["tidb"]
	s.moves = true
	s.pace, s.slowly = paced(nil, perSecond), paced(nil, perSecond)
	return m, s, places
}

func (s *serviceSessions) turnAt(now time.Time) *moveTurn {
	t := &moveTurn{now: now, next: time.Hour}
	s.take(t)
	return t
}

// 500 sessions begin to move within a second at the default pace, five at once, then one
// after the other, and the most urgent first.
func TestMovesArePaced(t *testing.T) {
	_, s, places := pacedSessions(500, 400, 5, 95) // one in 2 ms
	places[0].cause, places[1].cause, places[2].cause = causeDrained, causeLeft, causeUnhealthy
	s.leaving = []*mysqlPlace{places[1], places[2], places[0]}
	now := time.Now()
	first := s.turnAt(now)
	if n := len(first.asked); n != 5 {
		t.Errorf("%d sessions begin at once, want 5", n)
	}
	for i, h := range first.asked {
		if h.entry.place != places[1] {
			t.Fatalf("number %d is of a server that is %v", i, h.entry.place.cause)
		}
	}
	total, at := len(first.asked), now
	for next := first.next; total < 500; {
		if next < moveTick || next > 2*moveTick {
			t.Fatalf("the next turn is in %v after %d sessions", next, total)
		}
		at = at.Add(next)
		turn := s.turnAt(at)
		if n := len(turn.asked); n > 2 {
			t.Fatalf("%d begin at once after %d, want one or two", n, total)
		}
		if total < 100 && len(turn.asked) > 0 && turn.asked[0].entry.place != places[2] {
			t.Fatalf("number %d is of a server that is %v", total, turn.asked[0].entry.place.cause)
		}
		total, next = total+len(turn.asked), turn.next
	}
	if took := at.Sub(now); took < 900*time.Millisecond || took > time.Second {
		t.Errorf("500 sessions were asked within %v", took)
	}
	if turn := s.turnAt(at.Add(time.Second)); len(turn.asked) != 0 || turn.next != time.Hour {
		t.Errorf("%d more sessions, the next turn in %v", len(turn.asked), turn.next)
	}
}

// A move that failed is tried again after three seconds, and no sooner.
func TestFailedMovesWait(t *testing.T) {
	m, s, places := pacedSessions(500, 1)
	places[0].cause, s.leaving = causeLeft, places
	h := s.turnAt(time.Now()).asked[0]
	if !m.stays(h, errors.New("no")) || m.counts.Stayed != 1 {
		t.Fatal("the failure does not count")
	}
	at := h.entry.failedAt
	for _, tt := range []struct {
		after time.Duration
		asked int
	}{{0, 0}, {moveRetry - time.Millisecond, 0}, {moveRetry, 1}} {
		turn := s.turnAt(at.Add(tt.after))
		if len(turn.asked) != tt.asked {
			t.Errorf("%v after the failure %d are asked, want %d", tt.after, len(turn.asked), tt.asked)
		}
		if tt.asked == 0 && turn.next != max(moveRetry-tt.after, moveTick) {
			t.Errorf("%v after the failure the next turn is in %v", tt.after, turn.next)
		}
	}
	if !m.stays(h, errNoOtherServer) || m.counts.Failed[failureNoServer] != 1 {
		t.Errorf("counted %v", m.counts.Failed)
	}
	if m.stays(h, errNotWanted) || m.counts.Stayed != 2 || h.entry.cause != causeNone {
		t.Error("a session that is to stay counts as a failure")
	}
}

// Sessions whose target was busy are asked again as others have arrived there, not all
// the time, and before others.
func TestDeferredMoves(t *testing.T) {
	m, s, places := pacedSessions(20000, 200)
	places[0].cause, s.leaving = causeLeft, places
	now := time.Now()
	all := s.turnAt(now).asked
	if len(all) != 200 {
		t.Fatalf("%d were asked, want 200", len(all))
	}
	target := m.place("tidb", &endpoint.Endpoint{Address: "z"})
	began, woken := 0, 0
	<-m.wake // for the new place
	for _, h := range all {
		if !m.begin(h, "tidb", target.endpoint) {
			if m.stays(h, errTargetBusy) {
				t.Fatal("a busy target counts as a failure")
			}
			select {
			case <-m.wake:
				woken++
			default:
			}
			continue
		}
		began++
	}
	if began != maxIncoming || s.deferred.n != 200-maxIncoming {
		t.Fatalf("%d began and %d wait, want %d and the rest", began, s.deferred.n, maxIncoming)
	}
	if woken != 1 {
		t.Errorf("sessions that wait for the server cause %d looks at once, want one: the moves there may have ended", woken)
	}
	if n := len(s.turnAt(now.Add(deferTick)).asked); n != maxIncoming {
		t.Errorf("%d are asked a tick later, want %d", n, maxIncoming)
	}
	if n := len(s.turnAt(now.Add(deferTick + time.Millisecond)).asked); n != 0 {
		t.Errorf("%d are asked before a move has ended, want none", n)
	}
	m.moved(all[0], "tidb", target.endpoint)
	m.moved(all[1], "tidb", target.endpoint)
	if n := len(s.turnAt(now.Add(deferTick + 2*time.Millisecond)).asked); n != 2 {
		t.Errorf("%d are asked after two moves, want 2", n)
	}
	if target.incoming != maxIncoming-2 || target.sessions != 2 || places[0].sessions != 198 {
		t.Errorf("%d are moving there, %d have arrived, %d are left", target.incoming, target.sessions, places[0].sessions)
	}
}

// A slow pace wakes the goroutine when the next move is due, not all the time.
func TestSlowPaceSleeps(t *testing.T) {
	_, s, places := pacedSessions(2, 3)
	places[0].cause, s.leaving = causeLeft, places
	now := time.Now()
	if turn := s.turnAt(now); len(turn.asked) != 1 || turn.next < 499*time.Millisecond || turn.next > 501*time.Millisecond {
		t.Errorf("%d are asked, and the next turn is in %v; want 1 and half a second", len(turn.asked), turn.next)
	}
	if n := len(s.turnAt(now.Add(501 * time.Millisecond)).asked); n != 1 {
		t.Errorf("%d are asked half a second later, want 1", n)
	}
}

// A session whose move failed is moved for balance again, after those that did not fail.
func TestBalanceTriesAgain(t *testing.T) {
	m, s, places := pacedSessions(10000, 2)
	s.excess = []excess{{place: places[0], n: 1}}
	h := s.turnAt(time.Now()).asked[0]
	m.stays(h, errors.New("no"))
	at := h.entry.failedAt
	s.excess = []excess{{place: places[0], n: 2}}
	if asked := s.turnAt(at).asked; len(asked) != 1 || asked[0] == h {
		t.Fatalf("%d were asked, want the other one", len(asked))
	}
	for _, tt := range []struct {
		after time.Duration
		asked int
	}{{balanceRetry - time.Millisecond, 0}, {balanceRetry, 1}} {
		if n := len(s.turnAt(at.Add(tt.after)).asked); n != tt.asked {
			t.Errorf("%v after the failure %d are asked, want %d", tt.after, n, tt.asked)
		}
	}
}

// Repeated orders do not pile up, and those of a service that moves none any more end.
func TestOrdersEnd(t *testing.T) {
	m, s, places := pacedSessions(1, 100)
	m.outdated.Store(false)
	d := &Dataplane{reconciler: &reconciler{sessions: m}}
	var last uint64
	for range 50 {
		id, asked := d.OrderMoves(&MoveOrder{SessionFilter: SessionFilter{Service: "tidb"}})
		if asked != 100 {
			t.Fatalf("%d have the order, want 100", asked)
		}
		last = id
	}
	if len(s.ordered) != 1 || len(s.ordered[0].pending) != 100 || m.ordered != 100 {
		t.Fatalf("%d queues, %d sessions are ordered; want 1 and 100", len(s.ordered), m.ordered)
	}
	for range 50 {
		m.remove(places[0].calm.head)
	}
	if asked := s.turnAt(time.Now()).asked; len(asked) != 1 || asked[0].entry.cause != causeOrdered {
		t.Fatalf("%d were asked, want 1", len(asked))
	}
	s.moves = false
	stay := m.endOrders(s, nil)
	if out := m.orders[last].result; len(stay) != 1 || out.Open != 0 || out.Closed != 50 || out.Stayed != 50 || out.Why[whyNever] != 50 {
		t.Errorf("%d are to stay, %+v; want 1, and nobody open", len(stay), out)
	}
	if len(s.ordered) != 0 || m.ordered != 0 || places[0].calm.n != 50 || places[0].asked.n != 0 {
		t.Errorf("left: %d queues, %d orders, %d asked", len(s.ordered), m.ordered, places[0].asked.n)
	}
	if _, asked := d.OrderMoves(&MoveOrder{SessionFilter: SessionFilter{Service: "tidb"}, Count: 5}); asked != 0 {
		t.Errorf("%d of a service that moves none have an order, which others would lack", asked)
	}
}

// The causes, and where sessions may move to, by what a service says of a server.
func TestCausesOfServers(t *testing.T) {
	now := time.Now()
	p := start(t, "kind: Service\nname: tidb\nspec: {protocol: mysql, balancing: {matchTag: group}, endpoints: [{address: \"127.0.0.1:1\", tags: {group: oltp}}, "+
		"{address: \"127.0.0.1:2\", tags: {group: olap}}, {address: \"127.0.0.1:3\", weight: 0, tags: {group: oltp}}, {address: \"127.0.0.1:4\", tags: {group: oltp}}]}\n",
		func(c *Config) { c.Tags = map[string]string{"group": "oltp"} })
	svc, _ := p.Router.Table().Service("tidb")
	svc.Members()[3].SetHealth(endpoint.Unhealthy, now)
	servers := serversOf(svc, now)
	for i, want := range []cause{causeNone, causeDrained, causeDrained, causeUnhealthy} {
		server, here := servers[idOf(svc.Members()[i].Endpoint)]
		if got := causeOf(server, here); got != want {
			t.Errorf("sessions of endpoint %d are to move because %q, want %q", i, got, want)
		}
		if good := isGood(server, now); good != (want == causeNone) {
			t.Errorf("sessions may move to endpoint %d: %v", i, good)
		}
	}
	if got := causeOf(mysqlServer{}, false); got != causeLeft {
		t.Errorf("sessions of a server that is not there are to move because %q", got)
	}
}

// The list has no more than its limit: those that are to move first, and the lowest IDs.
func TestSessionListHasTheFirst(t *testing.T) {
	const limit = 3
	l := sessionLister{limit: limit}
	at := time.Now()
	for i := range 20 {
		l.add(&SessionInfo{ID: uint64(100 - i), Cause: "left", Since: at.Add(-time.Duration(i) * time.Second)})
		l.add(&SessionInfo{ID: uint64(50 - i)})
		if len(l.wanted) > 2*limit || len(l.others) > 2*limit {
			t.Fatalf("%d and %d are kept, want %d at most", len(l.wanted), len(l.others), 2*limit)
		}
	}
	list := l.list()
	if len(list) != limit || l.total != 40 || list[0].ID != 81 || list[2].ID != 83 {
		t.Errorf("%d of %d: %+v; want the longest wanted", len(list), l.total, list)
	}
	l.wanted = nil
	if list := l.list(); len(list) != limit || list[0].ID != 31 {
		t.Errorf("%+v, want the lowest IDs", list)
	}
}

// A session that ends leaves nothing behind, wherever it was.
func TestEndedSessionsLeaveTheIndex(t *testing.T) {
	m, s, places := pacedSessions(10000, 4)
	m.open = 4
	places[0].cause, s.leaving = causeLeft, places
	all := s.turnAt(time.Now()).asked
	target := &endpoint.Endpoint{Address: "z"}
	m.begin(all[0], "tidb", target)
	m.stays(all[1], errTargetBusy)
	m.stays(all[2], errors.New("no"))
	for _, h := range all {
		m.remove(h)
		m.remove(h)
	}
	if len(m.services) != 0 || m.open != 0 || s.deferred.n+places[0].calm.n+places[0].asked.n+places[0].failed.n != 0 {
		t.Errorf("left: %d services, %d open", len(m.services), m.open)
	}
}

// Sessions move while the ratio is exceeded, and never so that they would move back.
func TestSurplus(t *testing.T) {
	server := func(n int, weight float64) mysqlServer {
		e := &endpoint.Endpoint{}
		g := endpoint.NewGroup("tidb", nil)
		for range n {
			g.Acquire(e, endpoint.Connection)
		}
		return mysqlServer{member: balance.Member{Endpoint: e}, weight: weight}
	}
	for _, tt := range []struct {
		a, b   int
		wa, wb float64
		want   int
	}{
		{0, 0, 1, 1, 0}, {1, 0, 1, 1, 0}, {2, 0, 1, 1, 1}, {120, 99, 1, 1, 0}, {121, 99, 1, 1, 11}, {100, 0, 1, 1, 50},
		{100, 100, 2, 1, 0}, {100, 100, 1, 2, 33}, {500, 0, 1, 1, 250},
	} {
		if got := surplus(server(tt.a, tt.wa), server(tt.b, tt.wb), 1.2); got != tt.want {
			t.Errorf("%d sessions of weight %v and %d of %v: %d are to move, want %d", tt.a, tt.wa, tt.b, tt.wb, got, tt.want)
		}
	}
	for a := range 60 {
		for b := range 60 {
			for _, w := range [][2]float64{{1, 1}, {1, 3}, {2, 1}} {
				n := surplus(server(a, w[0]), server(b, w[1]), 1.2)
				if n > 0 && surplus(server(b+n, w[1]), server(a-n, w[0]), 1.2) > 0 {
					t.Errorf("%d and %d sessions with weights %v: %d move and then back", a, b, w, n)
				}
			}
		}
	}
}

// BenchmarkFindCauses is one look at 100,000 sessions on 10 servers of which none leaves.
func BenchmarkFindCauses(b *testing.B) {
	const sessions, servers = 100_000, 10
	var text strings.Builder
	for i := range servers {
		fmt.Fprintf(&text, "{address: \"127.0.0.1:%d\"}, ", i+1)
	}
	p := start(b, "kind: Service\nname: tidb\nspec: {protocol: mysql, balancing: {policy: leastConnections}, endpoints: ["+text.String()+"]}\n")
	m := p.reconciler.sessions
	svc, _ := p.Router.Table().Service("tidb")
	m.mu.Lock()
	for i := range sessions {
		e := svc.Members()[i%servers].Endpoint
		svc.Group().Acquire(e, endpoint.Connection)
		h := &mysqlConn{}
		h.entry.place = m.place("tidb", e)
		h.entry.place.sessions++
		h.entry.place.calm.push(h)
	}
	m.mu.Unlock()
	for b.Loop() {
		m.outdated.Store(true)
		m.step(time.Now())
	}
}
