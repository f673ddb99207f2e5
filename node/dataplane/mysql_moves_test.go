package dataplane

import (
	"database/sql"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/mysql/wire"
	"penstock/routing/endpoint"
	"penstock/routing/provider"
)

// openMany opens sessions, several at a time.
func openMany(t *testing.T, p *testPlane, n int) []*sql.Conn {
	t.Helper()
	const workers = 8
	conns, failed := make([]*sql.Conn, n), make(chan error, workers)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				var err error
				if conns[i], err = openMySQL(t, p, nil); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
	return conns
}

// twoServers returns a service with two servers, of which more sets the fields.
func twoServers(a, b *mysqltest.Server, fields, moreA, moreB string) string {
	return fmt.Sprintf("---\nkind: Service\nname: tidb\nspec: {protocol: mysql, %s endpoints: [{address: %q%s}, {address: %q%s}]}\n",
		fields, a.Addr(), moreA, b.Addr(), moreB)
}

// beginTx begins a transaction and returns what ends it.
func beginTx(t *testing.T, c *sql.Conn) (commit func()) {
	t.Helper()
	tx, err := c.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO counter VALUES ('t', 1)"); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
	}
}

// statusPort returns the tag with the port of a server's status.
func statusPort(t *testing.T, s *mysqltest.Server) string {
	t.Helper()
	_, port, err := net.SplitHostPort(s.StatusAddr())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(", tags: {status_port: %q, group: oltp}", port)
}

// Sessions move from a server that takes no new ones, whatever the cause, and without an
// endpointDrain. They do not move back when the cause is over.
func TestMySQLMovesByCause(t *testing.T) {
	const health = "healthCheck: {type: http, path: /status, portTag: status_port, interval: 100ms},"
	for name, tt := range map[string]struct {
		begin, end func(t *testing.T, p *testPlane, servers []*mysqltest.Server)
	}{
		"weight": {
			func(t *testing.T, p *testPlane, s []*mysqltest.Server) {
				p.mustApply(t, twoServers(s[0], s[1], health, statusPort(t, s[0])+", weight: 0", statusPort(t, s[1])))
			},
			func(t *testing.T, p *testPlane, s []*mysqltest.Server) {
				p.mustApply(t, twoServers(s[0], s[1], health, statusPort(t, s[0]), statusPort(t, s[1])))
			},
		},
		"unhealthy": {
			func(_ *testing.T, _ *testPlane, s []*mysqltest.Server) { s[0].ShutDown(true) },
			func(t *testing.T, p *testPlane, s []*mysqltest.Server) {
				s[0].ShutDown(false)
				testkit.WaitFor(t, "the first server is healthy again", func() bool {
					svc, _ := p.Router.Table().Service("tidb")
					return svc.Members()[0].Health() == endpoint.Healthy
				})
			},
		},
		"removed": {
			func(t *testing.T, p *testPlane, s []*mysqltest.Server) {
				p.mustApply(t, strings.Replace(mysqlService("tidb", "", s[1]), "endpointDrain: {timeout: 1h}, ", "", 1))
			},
			func(t *testing.T, p *testPlane, s []*mysqltest.Server) {
				p.mustApply(t, twoServers(s[0], s[1], health, statusPort(t, s[0]), statusPort(t, s[1])))
			},
		},
		"group": {
			func(t *testing.T, p *testPlane, s []*mysqltest.Server) {
				other := strings.Replace(statusPort(t, s[0]), "oltp", "olap", 1)
				p.mustApply(t, twoServers(s[0], s[1], "balancing: {matchTag: group}, "+health, other, statusPort(t, s[1])))
			},
			func(t *testing.T, p *testPlane, s []*mysqltest.Server) {
				p.mustApply(t, twoServers(s[0], s[1], "balancing: {matchTag: group}, "+health, statusPort(t, s[0]), statusPort(t, s[1])))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := mysqlServers(t, 2, nil)
			p := start(t, mysqlListener+twoServers(servers[0], servers[1], health, statusPort(t, servers[0]), statusPort(t, servers[1])),
				func(c *Config) { c.Tags = map[string]string{"group": "oltp"} })
			conns := openMany(t, p, 6)
			mustExec(t, conns[0], "SET @a = 'kept'")
			before := servers[0].Conns()
			if before == 0 || before == 6 {
				t.Fatalf("%d of 6 sessions at the first server", before)
			}
			tt.begin(t, p, servers)
			testkit.WaitFor(t, "all sessions are at the other server", func() bool { return servers[0].Conns() == 0 && servers[1].Conns() == 6 })
			mustQuery(t, conns[0], "SELECT @a", "kept")
			tt.end(t, p, servers)
			p.reconciler.sessions.step(time.Now())
			if c := p.MoveCounts(); c.Moved != uint64(before) || servers[1].Conns() != 6 {
				t.Errorf("%d sessions have moved, want %d once", c.Moved, before)
			}
		})
	}
}

// An endpoint that its provider calls terminating is left, and the session of a server
// that comes back before the transaction ends stays.
func TestMySQLServerComesBack(t *testing.T) {
	t.Parallel()
	servers := mysqlServers(t, 2, nil)
	directory := &provider.Directory{}
	p := start(t, mysqlListener+"---\nkind: EndpointProvider\nname: found\nspec: {type: dns, dns: {servers: [\"127.0.0.1:1\"]}}\n"+
		"---\nkind: Service\nname: tidb\nspec: {protocol: mysql, endpointsFrom: [{provider: found, service: tidb.test, port: \"4000\"}]}\n",
		func(c *Config) { c.Discovered = directory })
	svc, _ := p.Router.Table().Service("tidb")
	ref := provider.Ref{Provider: "found", Query: provider.Query{Service: svc.Spec().EndpointsFrom[0].Service, Port: svc.Spec().EndpointsFrom[0].Port}}
	found := func(a, b provider.State) {
		directory.Apply([]provider.Update{{Ref: ref, Put: []provider.Found{
			provider.NewFound(provider.Endpoint{Address: servers[0].Addr(), Weight: 1, State: a}, time.Now()),
			provider.NewFound(provider.Endpoint{Address: servers[1].Addr(), Weight: 1, State: b}, time.Now()),
		}}})
		p.Discovered([]provider.Ref{ref})
	}
	found(provider.Ready, provider.NotReady)
	idle, busy := mustOpenMySQL(t, p, nil), mustOpenMySQL(t, p, nil)
	commit := beginTx(t, busy)
	found(provider.Terminating, provider.Ready)
	testkit.WaitFor(t, "the idle session has moved", func() bool { return servers[1].Conns() == 1 && servers[0].Conns() == 1 })
	testkit.WaitFor(t, "the other one waits", func() bool { return p.MoveCounts().Delayed[delayTransaction] == 1 })
	if c := p.MoveCounts(); c.Wanted["drained"] != 1 {
		t.Errorf("to move: %v, want 1 because its server is drained", c.Wanted)
	}
	found(provider.Ready, provider.Ready)
	testkit.WaitFor(t, "nobody is to move", func() bool { return p.MoveCounts().Wanted["drained"] == 0 })
	commit()
	mustQuery(t, busy, "SELECT 1", "1")
	mustQuery(t, idle, "SELECT 1", "1")
	if a, b, c := servers[0].Conns(), servers[1].Conns(), p.MoveCounts(); a != 1 || b != 1 || c.Moved != 1 || c.Stayed != 0 {
		t.Errorf("%d and %d sessions at the servers, %d moves; want 1, 1 and 1", a, b, c.Moved)
	}
}

// Sessions never move to a server that is worse: they stay while no other one is good.
func TestMySQLNoWorseServer(t *testing.T) {
	t.Parallel()
	const health = "allUnhealthy: panic, healthCheck: {type: http, path: /status, portTag: status_port, interval: 100ms},"
	servers := mysqlServers(t, 2, nil)
	servers[1].ShutDown(true)
	p := start(t, mysqlListener+twoServers(servers[0], servers[1], health, statusPort(t, servers[0]), statusPort(t, servers[1])))
	svc, _ := p.Router.Table().Service("tidb")
	testkit.WaitFor(t, "the second server is unhealthy", func() bool { return svc.Members()[1].Health() == endpoint.Unhealthy })
	c := mustOpenMySQL(t, p, nil)
	servers[0].ShutDown(true)
	testkit.WaitFor(t, "the session is to move", func() bool { return p.MoveCounts().Wanted["unhealthy"] == 1 })
	list, _, err := p.ListSessions(t.Context(), SessionFilter{}, true, 10)
	if err != nil || len(list) != 1 || list[0].Why != whyNowhere || list[0].Cause != "unhealthy" {
		t.Errorf("listed %+v, %v; want one without another server", list, err)
	}
	id, asked := p.OrderMoves(&MoveOrder{SessionFilter: SessionFilter{Service: "tidb"}})
	if out, _ := p.OrderOutcome(t.Context(), id); asked != 1 || out.Stayed != 1 {
		t.Errorf("%d asked, %+v; want one that stays", asked, out)
	}
	mustQuery(t, c, "SELECT 1", "1")
	servers[1].ShutDown(false)
	testkit.WaitFor(t, "it has moved", func() bool { return servers[1].Conns() == 1 && servers[0].Conns() == 0 })
}

// A server takes a bounded number of sessions at once: a slow one slows moves down.
func TestMySQLSlowTarget(t *testing.T) {
	t.Parallel()
	const sessions = 3 * maxIncoming
	servers := mysqlServers(t, 2, nil)
	p := start(t, mysqlListener+mysqlService("tidb", "mysql: {movesPerSecond: 10000}, ", servers[0]))
	openMany(t, p, sessions)
	var under, most atomic.Int64
	gate := make(chan struct{})
	servers[1].SetHook(func(e mysqltest.Event) mysqltest.Action {
		if e.Step == mysqltest.OnConnect {
			for n := under.Add(1); ; {
				if old := most.Load(); old >= n || most.CompareAndSwap(old, n) {
					break
				}
			}
			return mysqltest.Action{Wait: gate}
		}
		if e.Step == mysqltest.OnSetStates {
			under.Add(-1)
		}
		return mysqltest.Action{}
	})
	p.mustApply(t, mysqlService("tidb", "mysql: {movesPerSecond: 10000}, ", servers[1]))
	m := p.reconciler.sessions
	testkit.WaitFor(t, "the others wait for the server", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.services["tidb"].deferred.n == sessions-maxIncoming && under.Load() == maxIncoming
	})
	close(gate)
	testkit.WaitFor(t, "all have moved", func() bool { return servers[1].Conns() == sessions && servers[0].Conns() == 0 })
	if n := most.Load(); n != maxIncoming {
		t.Errorf("%d sessions moved to the server at once, want %d", n, maxIncoming)
	}
}

// 500 sessions of one server spread over those that come later, once, and then rest.
func TestMySQLRebalances(t *testing.T) {
	t.Parallel()
	const sessions = 500
	servers := mysqlServers(t, 3, nil)
	fields := "balancing: {policy: leastConnections}, mysql: {rebalance: {movesPerSecond: 10000}}, "
	p := start(t, mysqlListener+mysqlService("tidb", fields, servers[0]))
	openMany(t, p, sessions)
	p.mustApply(t, mysqlService("tidb", fields, servers...))
	within := func() bool {
		p.Sweep(time.Now())
		least, most, sum := sessions, 0, 0
		for _, s := range servers {
			n := s.Conns()
			least, most, sum = min(least, n), max(most, n), sum+n
		}
		return sum == sessions && float64(most) <= 1.2*float64(least+1) && p.MoveCounts().Wanted["balance"] == 0
	}
	testkit.WaitFor(t, "the sessions are spread", within)
	m := p.reconciler.sessions
	moved := p.MoveCounts().Moved
	for range 5 {
		m.review()
		m.step(time.Now())
	}
	if c := p.MoveCounts(); c.Moved != moved || c.Wanted["balance"] != 0 || c.Stayed != 0 {
		t.Errorf("%d moves of sessions that are spread, %v are to move, %d have failed", c.Moved-moved, c.Wanted, c.Stayed)
	}
	if moved > sessions*2/3+10 {
		t.Errorf("%d moves, want about %d: none moves twice", moved, sessions*2/3)
	}
	t.Logf("%d moves; %d, %d and %d sessions", moved, servers[0].Conns(), servers[1].Conns(), servers[2].Conns())
}

// Without leastConnections, with movesPerSecond 0 or with session states missing, sessions
// do not move for balance.
func TestMySQLDoesNotRebalance(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fields string
		tried  bool
		change func(*mysqltest.Config)
	}{
		"policy":  {fields: ""},
		"off":     {fields: "balancing: {policy: leastConnections}, mysql: {rebalance: {movesPerSecond: 0}}, "},
		"never":   {fields: "balancing: {policy: leastConnections}, mysql: {move: never}, "},
		"ratio":   {fields: "balancing: {policy: leastConnections}, mysql: {rebalance: {ratio: 1000}}, "},
		"mariadb": {fields: "balancing: {policy: leastConnections}, ", tried: true, change: func(c *mysqltest.Config) { c.NoStates = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := mysqlServers(t, 2, tt.change)
			p := start(t, mysqlListener+mysqlService("tidb", tt.fields, servers[0]))
			openMany(t, p, 9)
			p.mustApply(t, mysqlService("tidb", tt.fields, servers...))
			m := p.reconciler.sessions
			if tt.tried {
				testkit.WaitFor(t, "a move has failed", func() bool { return p.MoveCounts().Failed["no_states"] > 0 })
				testkit.WaitFor(t, "the tries are over", func() bool { return p.MoveCounts().Wanted["balance"] == 0 })
			}
			failed := p.MoveCounts().Stayed
			m.review()
			m.step(time.Now())
			m.step(time.Now().Add(2 * moveRetry))
			if c := p.MoveCounts(); c.Wanted["balance"] != 0 || c.Moved != 0 || c.Stayed != failed {
				t.Errorf("to move: %v; %d have moved, %d failed", c.Wanted, c.Moved, c.Stayed-failed)
			}
		})
	}
}

// Failures are counted by their reason.
func TestMySQLFailuresAreCounted(t *testing.T) {
	t.Parallel()
	refuse := &wire.Error{Code: 1105, State: "HY000", Message: "no"}
	for name, tt := range map[string]struct {
		server int // that misbehaves
		hook   mysqltest.Hook
		reason string
	}{
		"states":  {0, stepHook(mysqltest.OnShowStates, mysqltest.Action{Error: refuse}), "no_states"},
		"token":   {0, stepHook(mysqltest.OnShowStates, mysqltest.Action{States: &wire.States{JSON: "{}"}}), "no_states"},
		"refused": {1, stepHook(mysqltest.OnSetStates, mysqltest.Action{Error: refuse}), "refused"},
		"closes":  {1, stepHook(mysqltest.OnLogin, mysqltest.Action{Close: true}), "server"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := mysqlServers(t, 2, nil)
			p := start(t, mysqlListener+mysqlService("tidb", "", servers[0]))
			mustOpenMySQL(t, p, nil)
			servers[tt.server].SetHook(tt.hook)
			p.mustApply(t, mysqlService("tidb", "", servers[1]))
			testkit.WaitFor(t, "the failure is counted", func() bool { return p.MoveCounts().Failed[tt.reason] > 0 })
			list, _, err := p.ListSessions(t.Context(), SessionFilter{}, true, 10)
			if err != nil || len(list) != 1 || list[0].Failure == "" || list[0].FailedAt.IsZero() {
				t.Errorf("listed %+v, %v; want the failure", list, err)
			}
		})
	}
}

// A session that was asked to move for balance stays if there is nothing to even out any
// more at its next safe point.
func TestMySQLBalanceIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	const sessions = 4
	servers := mysqlServers(t, 2, nil)
	fields := "balancing: {policy: leastConnections}, mysql: {rebalance: {movesPerSecond: 1000}}, "
	p := start(t, mysqlListener+mysqlService("tidb", fields, servers[0]))
	var busy sync.WaitGroup
	for _, c := range openMany(t, p, sessions) {
		busy.Go(func() { _, _ = c.ExecContext(t.Context(), "SELECT SLEEP('s')") })
	}
	testkit.WaitFor(t, "all are busy", func() bool { return servers[0].Sleeping("s") == sessions })
	p.mustApply(t, mysqlService("tidb", fields, servers...))
	testkit.WaitFor(t, "half of them are asked", func() bool { return p.MoveCounts().Delayed[delayBusy] == sessions/2 })
	openMany(t, p, sessions)
	if n := servers[1].Conns(); n != sessions {
		t.Fatalf("%d new sessions at the new server, want %d", n, sessions)
	}
	servers[0].Release("s")
	busy.Wait()
	testkit.WaitFor(t, "nobody is to move", func() bool { return p.MoveCounts().Wanted["balance"] == 0 })
	if c := p.MoveCounts(); c.Moved != 0 || c.Stayed != 0 {
		t.Errorf("%d have moved and %d failed, want none", c.Moved, c.Stayed)
	}
}

// An order moves sessions to the server that it names, though balancing would choose
// another one, and those that the list has first are the longest wanted.
func TestMySQLOrderToAServer(t *testing.T) {
	t.Parallel()
	servers := mysqlServers(t, 3, nil)
	fields := "balancing: {policy: leastConnections}, mysql: {rebalance: {movesPerSecond: 0}}, "
	p := start(t, mysqlListener+mysqlService("tidb", fields, servers[2]))
	openMany(t, p, 6)
	p.mustApply(t, mysqlService("tidb", fields, servers[0]))
	testkit.WaitFor(t, "all have moved", func() bool { return servers[0].Conns() == 6 && servers[2].Conns() == 0 })
	p.mustApply(t, mysqlService("tidb", fields, servers...))
	id, asked := p.OrderMoves(&MoveOrder{SessionFilter: SessionFilter{Endpoint: servers[0].Addr()}, To: servers[2].Addr(), Count: 4})
	out, err := p.OrderOutcome(t.Context(), id)
	if err != nil || asked != 4 || out.Moved != 4 {
		t.Fatalf("%d asked, %+v, %v; want 4 that moved", asked, out, err)
	}
	testkit.WaitFor(t, "the old server has lost them", func() bool { return servers[0].Conns() == 2 })
	if a, b := servers[1].Conns(), servers[2].Conns(); a != 0 || b != 4 {
		t.Errorf("%d and %d sessions at the others, want 0 and 4", a, b)
	}
}
