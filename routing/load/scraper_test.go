package load

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"penstock/internal/testkit"
	"penstock/routing/endpoint"
)

// served is a server with metrics.
func served(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// group returns endpoints of one group.
func group(n int) (*endpoint.Group, []*endpoint.Endpoint) {
	g := endpoint.NewGroup("tidb", func(endpoint.Event) {})
	var specs []endpoint.Spec
	for i := range n {
		addr := netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:4000", i+1))
		specs = append(specs, endpoint.Spec{Address: addr.String(), Addr: addr})
	}
	return g, g.Update(specs, time.Now())
}

func testCheck(interval time.Duration) *Check {
	rules := testRules
	rules.Interval = interval
	return &Check{Path: "/metrics", Timeout: time.Minute, Rules: rules}
}

// pipes are servers in memory, by address, so that time is virtual.
type pipes map[string]chan net.Conn

func (p pipes) dial(ctx context.Context, _, address string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p[address] <- there:
		return here, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// pipeListener accepts the connections of an address.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// serve serves an address until the test ends.
func (p pipes) serve(address string, handler http.HandlerFunc) (stop func()) {
	l := &pipeListener{make(chan net.Conn), make(chan struct{})}
	p[address] = l.conns
	s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	return func() { _ = s.Close() }
}

// pass lets virtual time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A server with metrics gets a load, one without counts as the others do, and neither has a
// load once it is no target any more.
func TestScraper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, p := time.Now(), pipes{}
		var fails atomic.Bool
		defer p.serve("good:1", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/metrics" || r.Method != http.MethodGet || fails.Load() {
				http.NotFound(w, r)
				return
			}
			fmt.Fprintf(w, "process_cpu_seconds_total %f\ntidb_server_maxprocs 4\n", time.Since(begin).Seconds()*4)
		})()
		defer p.serve("bad:1", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "process_cpu_seconds_total secret\n") })()
		s := New(Config{Dial: p.dial})
		defer s.Close()
		g, e := group(2)
		check := testCheck(5 * time.Second)
		targets := []Target{{g, e[0], "good:1", check}, {g, e[1], "bad:1", check}}
		s.Set(targets)
		synctest.Wait()
		if l := e[0].Load(); l.CPU >= 0 || l.Share != 1 {
			t.Errorf("after one sample: %+v", l)
		}
		pass(6 * time.Second)
		if l := e[0].Load(); l.CPU < 0.99 || l.Class != "overloaded" || l.Share != 0.2 || e[0].LoadShare() != 0.2 {
			t.Errorf("busy: %+v", l)
		}
		if l := e[1].Load(); l.CPU >= 0 || l.Share != 0.2 || l.Problem != "metrics: process_cpu_seconds_total is not a number from 0 up" {
			t.Errorf("unknown: %+v", l)
		}
		s.Set(targets) // changes nothing
		if e[0].Load().CPU < 0 {
			t.Error("a target that stays is forgotten")
		}
		fails.Store(true)
		pass(9 * time.Second)
		if l := e[0].Load(); l.CPU < 0.99 || l.Share != 0.2 {
			t.Errorf("one failure later: %+v", l)
		}
		pass(12 * time.Second)
		if l := e[0].Load(); l.CPU >= 0 || l.Share != 1 || !strings.Contains(l.Problem, "404") {
			t.Errorf("vanished: %+v", l)
		}
		s.Set(targets[:1])
		if e[1].Load() != nil || e[1].LoadShare() != 1 || e[0].Load() == nil {
			t.Error("the load of a server that is no target counts")
		}
	})
}

// What cannot be read is a problem with a short text, and no more connections are open than
// the bound says.
func TestScraperFailures(t *testing.T) {
	var open, most atomic.Int64
	stop := make(chan struct{})
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		defer open.Add(-1)
		select {
		case <-stop:
		case <-ctx.Done():
		}
		return nil, context.DeadlineExceeded
	}
	s := New(Config{Dial: dial})
	g, e := group(3 * concurrency)
	check := testCheck(time.Minute)
	var targets []Target
	for _, one := range e {
		targets = append(targets, Target{g, one, "10.0.0.1:10080", check})
	}
	s.Set(targets)
	testkit.WaitFor(t, "as many are asked as may be", func() bool { return open.Load() == concurrency })
	close(stop)
	testkit.WaitFor(t, "all have failed", func() bool {
		for _, one := range e {
			if one.Load().Problem == "" {
				return false
			}
		}
		return true
	})
	if n := most.Load(); n != concurrency {
		t.Errorf("%d were asked at once, want %d", n, concurrency)
	}
	s.Close()
}

func TestScraperTimeout(t *testing.T) {
	stop := make(chan struct{})
	address := served(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "process_cpu_seconds_total 1\n")
		w.(http.Flusher).Flush()
		<-stop
	})
	defer close(stop)
	redirect := served(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Location", "http://"+address)
		w.WriteHeader(http.StatusFound)
	})
	s := New(Config{})
	defer s.Close()
	g, e := group(2)
	check := testCheck(time.Minute)
	check.Timeout = 50 * time.Millisecond
	patient := testCheck(time.Minute)
	s.Set([]Target{{g, e[0], address, check}, {g, e[1], redirect, patient}})
	testkit.WaitFor(t, "both have failed", func() bool { return e[0].Load().Problem != "" && e[1].Load().Problem != "" })
	if p := e[0].Load().Problem; p != "metrics: no answer within 50ms" {
		t.Errorf("problem %q", p)
	}
	if p := e[1].Load().Problem; p != "metrics: status not accepted (302)" {
		t.Errorf("problem %q", p)
	}
}
