package integration

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// echoClients is a set of established connections that constantly exchange data.
type echoClients struct {
	t          *testing.T
	conns      []net.Conn
	roundTrips []atomic.Int64
	quit       chan struct{}
	wg         sync.WaitGroup
}

// startEchoClients makes every connection send to its echoing endpoint, in
// sizes from one byte to several TLS records.
func startEchoClients(t *testing.T, conns []net.Conn) *echoClients {
	c := &echoClients{t: t, conns: conns, roundTrips: make([]atomic.Int64, len(conns)), quit: make(chan struct{})}
	for i := range conns {
		_ = conns[i].SetDeadline(time.Now().Add(10 * testkit.Patience))
		c.wg.Go(func() { c.exchange(i) })
	}
	return c
}

func (c *echoClients) exchange(i int) {
	out, in := make([]byte, 40_000), make([]byte, 40_000)
	for k := range out {
		out[k] = byte(i + k*k)
	}
	sizes := []int{1, 100, 5_000, 40_000}
	for {
		select {
		case <-c.quit:
			return
		default:
		}
		size := sizes[int(c.roundTrips[i].Load())%len(sizes)]
		_, err := c.conns[i].Write(out[:size])
		if err == nil {
			_, err = io.ReadFull(c.conns[i], in[:size])
		}
		if err != nil || string(in[:size]) != string(out[:size]) {
			c.t.Errorf("established connection %d broke after %d round trips: %v", i, c.roundTrips[i].Load(), err)
			return
		}
		c.roundTrips[i].Add(1)
	}
}

// waitProgress waits until every connection has made more round trips.
func (c *echoClients) waitProgress(after string) {
	c.t.Helper()
	var before []int64
	for i := range c.roundTrips {
		before = append(before, c.roundTrips[i].Load())
	}
	testkit.WaitFor(c.t, "all connections to go on after: "+after, func() bool {
		if c.t.Failed() {
			c.t.Fatalf("after: %s", after)
		}
		for i := range c.roundTrips {
			if c.roundTrips[i].Load() < before[i]+2 {
				return false
			}
		}
		return true
	})
}

func (c *echoClients) stop() {
	close(c.quit)
	c.wg.Wait()
}

// Constant configuration changes break no established connection, and each
// change applies to new ones when its command returns.
func TestChangesBreakNoConnection(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	first, second := ca.issue("a.example.com"), ca.issue("a.example.com")
	plainA, plainB := testkit.Serve(t, echo), testkit.Serve(t, echo)
	l := tls.NewListener(testkit.Listen(t), first.server())
	testkit.ServeOn(t, l, echoAny)
	secure := l.Addr().String()
	pass := func(name string, more ...string) string {
		return listener(name, append([]string{"protocol: tls", "hosts: [{names: [a.example.com], service: secure}]"}, more...)...)
	}
	end := func(name string, more string) string {
		return listener(name, "protocol: tls", "tls: {mode: terminate, certificateRefs: [a]"+more+"}", "service: plain")
	}
	n := startNode(t, certificate("a", first)+service("plain", []string{plainA, plainB})+service("secure", []string{secure})+
		listener("plain", "service: plain")+pass("pass")+end("end", ""))

	var conns []net.Conn
	plain, passing, ending := n.addr("plain"), n.addr("pass"), n.addr("end")
	for range 17 {
		conns = append(conns, dial(t, plain), dialTLS(t, passing, ca.Client("a.example.com")), dialTLS(t, ending, ca.Client("a.example.com")))
	}
	clients := startEchoClients(t, conns)
	clients.waitProgress("the start")
	do := func(what string, change func()) {
		t.Helper()
		change()
		clients.waitProgress(what)
	}
	serial := func() string {
		c := dialTLS(t, n.addr("end"), ca.Client("a.example.com"))
		roundTrip(t, c, "new")
		return c.ConnectionState().PeerCertificates[0].SerialNumber.String()
	}

	do("a listener is added", func() {
		n.apply(listener("more", "service: plain"))
		roundTrip(t, dial(t, n.addr("more")), "hello")
	})
	do("listeners are changed in place", func() {
		n.apply(listener("plain", "service: plain", "limits: {connections: 100}") +
			pass("pass", "timeouts: {hello: 1s}") +
			end("end", `, minVersion: "1.3"`))
		for name, was := range map[string]string{"plain": plain, "pass": passing, "end": ending} {
			if now := n.addr(name); now != was {
				t.Errorf("%s went from %s to %s", name, was, now)
			}
		}
	})
	do("a certificate is replaced", func() {
		before := serial()
		n.apply(certificate("a", second))
		if serial() == before {
			t.Error("new connections see the old certificate")
		}
	})
	do("a listener gets another protocol", func() {
		n.apply(pass("plain"))
		mustClose(t, func() net.Conn { c := dial(t, plain); mustWrite(t, c, "no hello"); return c }())
		n.apply(listener("plain", "service: plain"))
		roundTrip(t, dial(t, plain), "plain again")
	})
	do("an endpoint is removed", func() {
		n.apply(service("plain", []string{plainB}) + service("secure", []string{closedPort(t)}))
		if got := n.must("get", "service", "plain", "-o", "yaml"); strings.Contains(got, plainA) {
			t.Errorf("the endpoint is still there:\n%s", got)
		}
		n.apply(service("secure", []string{secure}))
	})
	do("a route comes and goes", func() {
		n.apply("---\n" +
			"kind: MeshTCPRoute\n" +
			"name: r\n" +
			"spec:\n" +
			"  to:\n" +
			"  - targetRef: {kind: MeshService, name: plain}\n" +
			"    rules:\n" +
			"    - default: {backendRefs: [{kind: MeshService, name: secure}]}\n")
		c := tls.Client(dial(t, plain), ca.Client("a.example.com"))
		roundTrip(t, c, "the route's backend speaks TLS")
		n.must("delete", "meshtcproute", "r")
		roundTrip(t, dial(t, plain), "plain")
	})
	do("a service in use is not deleted", func() {
		r := n.run("delete", "service", "plain")
		if r.code != 1 ||
			!strings.Contains(r.err, "Listener/plain") ||
			!strings.Contains(r.err, "Listener/end") ||
			!strings.Contains(r.err, "Listener/more") {
			t.Errorf("exit code %d: %s%s", r.code, r.out, r.err)
		}
		roundTrip(t, dial(t, plain), "still there")
	})
	do("listeners move to other ports", func() {
		n.apply(strings.ReplaceAll(listener("plain", "service: plain")+pass("pass")+end("end", ""), "127.0.0.1:0", "127.0.0.2:0"))
		roundTrip(t, dial(t, n.addr("plain")), "at the new one")
		testkit.WaitFor(t, "nobody to listen at the old one", func() bool {
			_, err := net.Dial("tcp", plain)
			return errors.Is(err, syscall.ECONNREFUSED)
		})
	})
	do("listeners get other names", func() {
		at := n.addr("plain")
		n.must("delete", "listener", "plain")
		n.apply(listenerAt("renamed", at, "service: plain"))
		roundTrip(t, dial(t, at), "under another name")
	})
	do("listeners are removed", func() {
		for _, name := range []string{"renamed", "pass", "end", "more"} {
			n.must("delete", "listener", name)
		}
	})
	do("all the rest is removed", func() {
		n.must("delete", "service", "plain")
		n.must("delete", "service", "secure")
		n.must("delete", "certificate", "a")
		if s := n.status(); len(s.Listeners)+len(s.Services) != 0 {
			t.Errorf("status still has %+v", s)
		}
	})
	clients.stop()
	for _, c := range conns {
		c.Close()
		n.end(c.LocalAddr())
	}
}

// rule 11: while a listener is removed, added again and moved, a client is
// either served completely or refused: no connection that the kernel has
// accepted is lost.
func TestNoQueuedConnectionIsLost(t *testing.T) {
	t.Parallel()
	echoing := testkit.Serve(t, echo)
	addresses := []string{freeAddress(t, "127.15.0.3"), freeAddress(t, "127.15.0.5")}
	n := startNode(t, service("echo", []string{echoing}))
	var stop atomic.Bool
	var served, refused [2]atomic.Int64
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() {
			for !stop.Load() {
				c, err := net.DialTimeout("tcp", addresses[i%2], testkit.Patience)
				if errors.Is(err, syscall.ECONNREFUSED) {
					refused[i%2].Add(1)
					continue
				}
				if err != nil {
					t.Errorf("dial: %v", err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(testkit.Patience))
				p := []byte("hello")
				_, err = c.Write(p)
				if err == nil {
					_, err = io.ReadFull(c, p)
				}
				c.Close()
				if err != nil {
					t.Errorf("a connection was lost after %d: %v; %s", served[i%2].Load(), err, n.logLinesAbout(c.LocalAddr().String()))
					return
				}
				served[i%2].Add(1)
			}
		})
	}
	more := func(what string, counters ...*atomic.Int64) {
		t.Helper()
		var before []int64
		for _, c := range counters {
			before = append(before, c.Load())
		}
		testkit.WaitFor(t, what, func() bool {
			for i, c := range counters {
				if c.Load() < before[i]+10 && !t.Failed() {
					return false
				}
			}
			return true
		})
	}
	for range 3 {
		n.apply(listenerAt("l", addresses[0], "service: echo"))
		more("clients to be served at the first address", &served[0], &refused[1])
		n.apply(listenerAt("l", addresses[1], "service: echo"))
		more("clients to be served at the second", &served[1], &refused[0])
		n.must("delete", "listener", "l")
		more("clients to find nobody", &refused[0], &refused[1])
	}
	stop.Store(true)
	clients.Wait()
}

// A listener whose address is taken is reported, disturbs no other, and
// recovers.
func TestTakenAddress(t *testing.T) {
	t.Parallel()
	squatter := testkit.ListenOn(t, "tcp", "127.15.0.2:0") // a dedicated IP, so that no other test gets the port
	at := squatter.Addr().String()
	n := startNode(t, service("echo", []string{testkit.Serve(t, echo)})+listenerAt("taken", at, "service: echo")+
		listener("free", "service: echo"))
	l := n.listener("taken")
	if l.State != "failed" || l.Address != at || !strings.Contains(l.Error, "address already in use") {
		t.Errorf("status: %+v", l)
	}
	if table := n.must("status"); !strings.Contains(table, "address already in use") {
		t.Errorf("the table does not tell:\n%s", table)
	}
	if got := n.must("get", "listener", "taken"); !strings.Contains(got, at) {
		t.Errorf("get:\n%s", got)
	}
	if v := n.metric("listener_up", `listener="taken"`); v != 0 {
		t.Errorf("listener_up is %v", v)
	}
	roundTrip(t, dial(t, n.addr("free")), "not concerned")
	squatter.Close()
	testkit.WaitFor(t, "the address to be bound", func() bool { return n.listener("taken").State == "listening" })
	roundTrip(t, dial(t, at), "healed")
	if l := n.listener("taken"); l.Error != "" {
		t.Errorf("status: %+v", l)
	}
}

// An apply takes effect completely or not at all.
func TestApplyIsAllOrNothing(t *testing.T) {
	t.Parallel()
	n := startNode(t, service("echo", []string{testkit.Serve(t, echo)})+listener("l", "service: echo"))
	before := n.must("get", "listeners", "-o", "yaml") + n.must("get", "services", "-o", "yaml")
	r := n.pipe(service("new", []string{"127.0.0.1:1"})+listener("bad", "service: nobody"), "apply", "-f", "-")
	if r.code != 1 || !strings.Contains(r.err, "there is no such Service (nobody)") {
		t.Errorf("exit code %d: %s", r.code, r.err)
	}
	if after := n.must("get", "listeners", "-o", "yaml") + n.must("get", "services", "-o", "yaml"); after != before {
		t.Errorf("something was applied:\n%s", after)
	}
	if out := n.apply(service("new", []string{"127.0.0.1:1"})); out != "Service/new created\n" {
		t.Errorf("apply says %q", out)
	}
	if out := n.apply(service("new", []string{"127.0.0.1:2"})); out != "Service/new configured\n" {
		t.Errorf("apply says %q", out)
	}
	if out := n.apply(service("new", []string{"127.0.0.1:2"})); out != "Service/new unchanged\n" {
		t.Errorf("apply says %q", out)
	}
	diff := n.pipe(service("new", []string{"127.0.0.1:3"}), "diff", "-f", "-")
	if diff.code != 0 ||
		!strings.Contains(diff.out, "-    - address: 127.0.0.1:2") ||
		!strings.Contains(diff.out, "+    - address: 127.0.0.1:3") {
		t.Errorf("diff: exit code %d\n%s%s", diff.code, diff.out, diff.err)
	}
	if got := n.must("get", "service", "new", "-o", "yaml"); !strings.Contains(got, "127.0.0.1:2") {
		t.Errorf("diff changed something:\n%s", got)
	}
	explained := n.must("explain", "--listener", "l")
	if !strings.Contains(explained, "decision: connect to 127.0.0.1:") {
		t.Errorf("explain:\n%s", explained)
	}
	top := n.must("top", "--once", "-o", "json", "--interval", "100ms")
	if !strings.Contains(top, `"node":"n1"`) {
		t.Errorf("top: %s", fmt.Sprint(top))
	}
}
