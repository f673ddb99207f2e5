package dataplane

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/mysql/mysqltest"
	"penstock/routing"
)

// loadFields are fields of a service that balances by load, with moves for balance.
func loadFields(rebalance int) string {
	return fmt.Sprintf("balancing: {policy: leastConnections}, mysql: {load: {interval: 1s, timeout: 30s, cpu: {movesPerSecond: 1000}}, "+
		"rebalance: {movesPerSecond: %d}}, ", rebalance)
}

// busyServer is a server whose metrics tell a CPU usage.
type busyServer struct {
	*mysqltest.Server
	usage atomic.Uint64 // as math.Float64bits
}

func (s *busyServer) set(usage float64) { s.usage.Store(math.Float64bits(usage)) }

// busyServers returns servers whose CPU usage the test sets.
func busyServers(t *testing.T, usages ...float64) []*busyServer {
	t.Helper()
	list := make([]*busyServer, 0, len(usages))
	for i, s := range mysqlServers(t, len(usages), nil) {
		one := &busyServer{Server: s}
		one.set(usages[i])
		seconds, last := 0.0, time.Now()
		s.SetMetrics(func() string { // one request at a time
			now := time.Now()
			seconds += now.Sub(last).Seconds() * 8 * math.Float64frombits(one.usage.Load())
			last = now
			return fmt.Sprintf("process_cpu_seconds_total %f\nprocess_resident_memory_bytes 1\ntidb_server_maxprocs 8\n"+
				"tidb_server_memory_quota_bytes 100\n", seconds)
		})
		list = append(list, one)
	}
	return list
}

// startBusy starts a plane with two servers, whose status ports it knows.
func startBusy(t *testing.T, s []*busyServer, rebalance int) *testPlane {
	t.Helper()
	return start(t, mysqlListener+twoServers(s[0].Server, s[1].Server, loadFields(rebalance), statusPort(t, s[0].Server), statusPort(t, s[1].Server)))
}

// measured reports whether the CPU usage of both servers is known as it is set.
func measured(p *testPlane, servers []*busyServer) bool {
	svc, _ := p.Router.Table().Service("tidb")
	for i, m := range svc.Members() {
		l, want := m.Load(), math.Float64frombits(servers[i].usage.Load())
		if l == nil || math.Abs(l.CPU-want) > 0.05 || math.Abs(l.Latest-want) > 0.05 {
			return false
		}
	}
	return true
}

// Sessions move off a busy server, only as many as the difference allows, then stay, and
// do not return for balance. New sessions go to the other server.
func TestMySQLBusyServerLosesSessions(t *testing.T) {
	t.Parallel()
	servers := busyServers(t, 0.1, 0.1)
	p := startBusy(t, servers, 10000)
	openMany(t, p, 20)
	if a, b := servers[0].Conns(), servers[1].Conns(); a != 10 || b != 10 {
		t.Fatalf("%d and %d sessions", a, b)
	}
	servers[0].set(0.95)
	testkit.WaitFor(t, "sessions move", func() bool { p.Sweep(time.Now()); return p.MoveCounts().Moved > 0 })
	servers[0].set(0.3)
	testkit.WaitFor(t, "the server is no longer busy", func() bool { p.Sweep(time.Now()); return measured(p, servers) })
	testkit.WaitFor(t, "no session is to move", func() bool {
		p.Sweep(time.Now())
		return p.MoveCounts().Wanted["overload"] == 0 && servers[0].Conns()+servers[1].Conns() == 20
	})
	c, left := p.MoveCounts(), servers[0].Conns()
	if left == 10 || left == 0 || c.Moved != uint64(10-left) || c.Stayed != 0 {
		t.Errorf("%d sessions are left; %+v", left, c)
	}
	settle(p) // nothing for balance either: the server has just lost sessions
	if got := p.MoveCounts(); got.Moved != c.Moved || got.Wanted["balance"]+got.Wanted["overload"] != 0 {
		t.Errorf("%d moves later, to move %v", got.Moved-c.Moved, got.Wanted)
	}
}

func TestMySQLNewSessionsAvoidBusyServer(t *testing.T) {
	t.Parallel()
	servers := busyServers(t, 0.95, 0.1)
	p := startBusy(t, servers, 10000)
	testkit.WaitFor(t, "the usage is known", func() bool { return measured(p, servers) })
	openMany(t, p, 12)
	if a, b := servers[0].Conns(), servers[1].Conns(); a != 2 || b != 10 {
		t.Errorf("%d sessions at the busy server and %d at the other, want 2 and 10", a, b)
	}
	steps := p.Router.Explain(&routing.Input{Listener: "db", User: "app"}, time.Now()).Steps
	found := false
	for _, step := range steps {
		for _, e := range step.Endpoints {
			found = found || strings.HasPrefix(e.Load, "CPU 9") && strings.HasSuffix(e.Load, " (overloaded), memory 1 %, counts as 20 % of its weight")
		}
	}
	if !found {
		t.Errorf("explain does not say why: %+v", steps)
	}
}

// settle looks at the sessions a few times.
func settle(p *testPlane) {
	for range 5 {
		p.Sweep(time.Now())
		p.reconciler.sessions.step(time.Now())
	}
}

// Sessions stay where they are if the other server is as busy.
func TestMySQLBusyServersKeepSessions(t *testing.T) {
	t.Parallel()
	servers := busyServers(t, 0.95, 0.9)
	p := startBusy(t, servers, 0) // a late reading may put one into another class
	openMany(t, p, 8)
	testkit.WaitFor(t, "the usage is known", func() bool { p.Sweep(time.Now()); return measured(p, servers) })
	settle(p)
	if c := p.MoveCounts(); c.Moved != 0 || c.Wanted["overload"] != 0 {
		t.Errorf("%d have moved, to move: %v", c.Moved, c.Wanted)
	}
}

// Sessions stay where they are once the metrics of a server are gone, or malformed.
func TestMySQLSessionsStayWithoutMetrics(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lost    int
		metrics func() string
	}{
		"gone":      {1, nil},
		"own":       {0, nil},
		"malformed": {1, func() string { return "process_cpu_seconds_total x\n" }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := busyServers(t, 0.1, 0.1) // whatever the reading of a slow machine, they are calm
			p := startBusy(t, servers, 10000)
			openMany(t, p, 8)
			testkit.WaitFor(t, "the usage is known", func() bool { return measured(p, servers) })
			servers[tt.lost].SetMetrics(tt.metrics)
			svc, _ := p.Router.Table().Service("tidb")
			testkit.WaitFor(t, "the usage is unknown", func() bool {
				l := svc.Members()[tt.lost].Load()
				return l.CPU < 0 && l.Problem != "" && l.Share == 1
			})
			servers[0].set(0.95)
			if tt.lost != 0 {
				testkit.WaitFor(t, "the first server is busy", func() bool {
					p.Sweep(time.Now())
					return svc.Members()[0].Load().CPU > 0.85
				})
			}
			settle(p)
			if c := p.MoveCounts(); c.Moved != 0 || c.Wanted["overload"] != 0 {
				t.Errorf("%d have moved, to move: %v", c.Moved, c.Wanted)
			}
		})
	}
}
