package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/internal/testkit"
)

// closedPort returns an address that refuses connections. It has a dedicated
// IP: another test could listen on a port of 127.0.0.1.
func closedPort(t *testing.T) string {
	t.Helper()
	return freeAddress(t, "127.15.0.1")
}

// freeAddress returns an address of an IP that no socket listens on.
func freeAddress(t *testing.T, ip string) string {
	t.Helper()
	l := testkit.ListenOn(t, "tcp", ip+":0")
	l.Close()
	return l.Addr().String()
}

// blackHole returns an address that neither accepts nor refuses connections:
// its accept queue is full, so the kernel drops every further SYN.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	dial(t, addr) // fills the queue, which has one place
	return addr
}

func TestMisbehavingEndpoints(t *testing.T) {
	t.Parallel()
	oneByte := testkit.Serve(t, func(c *net.TCPConn) {
		fmt.Fprint(c, "x")
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	})
	heard := make(chan string, 1)
	halfClosing := testkit.Serve(t, func(c *net.TCPConn) {
		closeWrite(c)
		text, _ := io.ReadAll(c)
		heard <- string(text)
	})
	n := startNode(t, service("one-byte", []string{oneByte})+listener("one-byte", "service: one-byte")+
		service("half-closing", []string{halfClosing})+listener("half-closing", "service: half-closing")+
		service("closed", []string{closedPort(t)})+listener("closed", "service: closed")+
		service("hole", []string{blackHole(t)}, "connect: {timeout: 200ms, attempts: 1}")+listener("hole", "service: hole")+
		service("no-socket", []string{"unix:" + shortDir(t) + "/none"})+listener("no-socket", "service: no-socket")+
		service("nowhere", []string{"nowhere.invalid:80"})+listener("nowhere", "service: nowhere")+
		"---\nkind: Service\nname: empty\nspec: {}\n"+listener("empty", "service: empty")+listener("nothing"))

	c := dial(t, n.addr("one-byte"))
	mustRead(t, c, "x")
	mustWrite(t, c, "y")
	mustReset(t, c)
	n.wantEnd(c, "upstream_reset")

	c = dial(t, n.addr("half-closing"))
	mustEnd(t, c)
	mustWrite(t, c, "still here")
	closeWrite(c)
	if got := <-heard; got != "still here" {
		t.Errorf("an endpoint that half-closed heard %q", got)
	}
	n.wantEnd(c, "upstream_fin")

	for name, reason := range map[string]string{
		"closed": "connect_refused", "hole": "connect_timeout", "no-socket": "connect_error",
		"nowhere": "no_endpoint", "empty": "no_endpoint", "nothing": "no_route",
	} {
		n.wantRefused(name, reason)
	}
}

// rule 17: a failed connect is retried on another endpoint; nothing is retried
// after the first byte was sent upstream.
func TestOnlyConnectsAreRetried(t *testing.T) {
	t.Parallel()
	var cut atomic.Int32
	cutting := testkit.Serve(t, func(c *net.TCPConn) {
		cut.Add(1)
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	})
	good := named(t, "good")
	n := startNode(t, service("refusing", []string{closedPort(t), good})+listener("refusing", "service: refusing")+
		service("hole", []string{blackHole(t), good}, "connect: {timeout: 200ms}")+listener("hole", "service: hole")+
		service("cutting", []string{cutting, cutting[:len("127.0.0.")] + "2" + cutting[len("127.0.0.1"):]})+
		listener("cutting", "service: cutting"))
	for _, name := range []string{"refusing", "hole"} {
		most := 0
		for range 4 {
			c := dial(t, n.addr(name))
			mustRead(t, c, "good\n")
			closeWrite(c)
			mustEnd(t, c)
			c.Close()
			most = max(most, n.wantEnd(c, "client_fin").Attempts)
		}
		if most != 2 {
			t.Errorf("%s: at most %d attempts, want 2", name, most)
		}
	}
	c := dial(t, n.addr("cutting"))
	mustWrite(t, c, "a request")
	mustReset(t, c)
	if a := n.wantEnd(c, "upstream_reset"); a.Attempts != 1 || cut.Load() != 1 {
		t.Errorf("%d attempts, %d connections at the endpoint: a request was sent twice", a.Attempts, cut.Load())
	}
}

// rule 16: an endpoint that fails in use is ejected, is shown as ejected, and
// returns.
func TestEjectionAndReturn(t *testing.T) {
	t.Parallel()
	var sick atomic.Bool
	sick.Store(true)
	flaky := testkit.Serve(t, func(c *net.TCPConn) {
		if sick.Load() {
			_ = c.SetLinger(0) // reset before the first byte
			return
		}
		fmt.Fprint(c, "flaky\n")
		echo(c)
	})
	good := named(t, "good")
	n := startNode(t, service("s", []string{flaky, good}, "ejection: {failures: 2, window: 10s, duration: 5s, maxShare: 50}")+
		listener("edge", "service: s"))
	addr := n.addr("edge")
	// A client sees the reset, or is served by another endpoint if the reset came
	// so early that the connect failed; either counts.
	resets := 0
	testkit.WaitFor(t, "the ejection to be seen in status", func() bool {
		switch line, err := firstLine(addr); {
		case errors.Is(err, syscall.ECONNRESET):
			resets++
		case err != nil || line != "good\n":
			t.Fatalf("read %q, %v", line, err)
		}
		return n.endpoint("s", flaky).Health == "ejected"
	})
	if resets > 2 {
		t.Errorf("%d clients were reset before 2 failures ejected the endpoint", resets)
	}
	if v := n.metric("endpoint_ejected", fmt.Sprintf("endpoint=%q", flaky)); v != 1 {
		t.Errorf("endpoint_ejected is %v", v)
	}
	sick.Store(false)
	testkit.WaitFor(t, "the endpoint to come back", func() bool { return n.endpoint("s", flaky).Health != "ejected" })
	answers := map[string]int{}
	for range 8 {
		line, err := firstLine(addr)
		if err != nil {
			t.Fatal(err)
		}
		answers[line]++
	}
	if answers["flaky\n"] != 4 || answers["good\n"] != 4 {
		t.Errorf("after its return: %v", answers)
	}
}

// firstLine connects and reads the endpoint's first line.
func firstLine(address string) (string, error) {
	c, err := net.DialTimeout("tcp", address, testkit.Patience)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(testkit.Patience))
	return bufio.NewReader(c).ReadString('\n')
}

// rule 16: active checks remove an endpoint that is down, and restore it.
func TestHealthChecks(t *testing.T) {
	t.Parallel()
	const check = "healthCheck: {type: tcp, interval: 100ms, timeout: 2s, rise: 2, fall: 2}"
	at, good := freeAddress(t, "127.15.0.4"), named(t, "good") // a dedicated IP: the test listens on it later
	n := startNode(t, service("s", []string{at, good}, check)+listener("edge", "service: s")+
		service("down", []string{at}, check)+listener("down", "service: down"))
	testkit.WaitFor(t, "the dead endpoint to be found", func() bool {
		return n.endpoint("s", at).Health == "unhealthy" &&
			n.endpoint("down", at).Health == "unhealthy" &&
			n.endpoint("s", good).Health == "healthy"
	})
	if e := n.endpoint("s", at); e.Error == "" {
		t.Error("status does not say why the endpoint is unhealthy")
	}
	edge := n.addr("edge")
	for range 6 {
		c := dial(t, edge)
		mustRead(t, c, "good\n")
		c.Close()
	}
	n.wantRefused("down", "no_healthy_endpoint")

	l := testkit.ListenOn(t, "tcp", at)
	testkit.ServeOn(t, l, func(c net.Conn) { fmt.Fprint(c, "back\n") })
	testkit.WaitFor(t, "the endpoint to be found healthy", func() bool { return n.endpoint("s", at).Health == "healthy" })
	mustRead(t, dial(t, n.addr("down")), "back\n")
}

// answerCounts counts answers by endpoint.
type answerCounts struct {
	mu sync.Mutex
	n  map[string]int
}

// countAnswers opens the given number of connections, a few at a time, and
// counts the answers by endpoint.
func countAnswers(t *testing.T, address string, connections int, from ...string) map[string]int {
	t.Helper()
	s := answerCounts{n: map[string]int{}}
	var clients sync.WaitGroup
	next := make(chan struct{})
	for range 8 {
		clients.Go(func() {
			for range next {
				d := net.Dialer{Timeout: testkit.Patience}
				if len(from) > 0 {
					d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from[0])}
				}
				c, err := d.Dial("tcp", address)
				if err != nil {
					t.Error(err)
					continue
				}
				line, err := bufio.NewReader(c).ReadString('\n')
				c.Close()
				if err != nil {
					t.Error(err)
				}
				s.mu.Lock()
				s.n[line]++
				s.mu.Unlock()
			}
		})
	}
	for range connections {
		next <- struct{}{}
	}
	close(next)
	clients.Wait()
	return s.n
}

// rule 14: a weighted split counts connections, and the shares are exact; a
// missing weight is 1, and weight 0 gets none.
func TestWeightsAreExact(t *testing.T) {
	t.Parallel()
	route := func(weights ...string) string {
		text := "---\n" +
			"kind: MeshTCPRoute\n" +
			"name: split\n" +
			"spec:\n" +
			"  targetRef: {kind: Mesh}\n" +
			"  to:\n" +
			"  - targetRef: {kind: MeshService, name: s}\n" +
			"    rules:\n" +
			"    - default:\n" +
			"        backendRefs:\n"
		for i, w := range weights {
			text += fmt.Sprintf("        - {kind: MeshServiceSubset, name: s, tags: {version: v%d}%s}\n", i+1, w)
		}
		return text
	}
	var endpoints []string
	for i := range 3 {
		endpoints = append(endpoints, fmt.Sprintf("{address: %q, tags: {version: v%d}}", named(t, fmt.Sprint("v", i+1)), i+1))
	}
	n := startNode(t, service("s", endpoints)+listener("edge", "service: s")+route(", weight: 90", ", weight: 10", ", weight: 0"))
	addr := n.addr("edge")
	want := func(v1, v2, v3 int) {
		t.Helper()
		got := countAnswers(t, addr, v1+v2+v3)
		if got["v1\n"] != v1 || got["v2\n"] != v2 || got["v3\n"] != v3 {
			t.Errorf("of %d connections: %v, want %d, %d, %d", v1+v2+v3, got, v1, v2, v3)
		}
	}
	want(900, 100, 0)
	n.apply(route(", weight: 1", "", ", weight: 0"))
	want(100, 100, 0)
	n.apply(route("", "", ", weight: 2"))
	want(50, 50, 100)
	n.must("delete", "meshtcproute", "split")
	want(40, 40, 40) // round robin over its endpoints
}

// rule 15: the endpoint with fewest connections gets the next one.
// rule 18: with maglev a source keeps its endpoint, and local zones are preferred.
func TestBalancing(t *testing.T) {
	t.Parallel()
	var three []string
	for i := range 3 {
		three = append(three, named(t, fmt.Sprint("e", i)))
	}
	zoned := []string{
		fmt.Sprintf("{address: %q, tags: {zone: a}}", three[0]),
		fmt.Sprintf("{address: %q, tags: {zone: b}}", three[1]),
	}
	n := startNode(t, service("least", three, "balancing: {policy: leastConnections}")+listener("least", "service: least")+
		service("hashed", three, "balancing: {policy: maglev}")+listener("hashed", "service: hashed")+
		service("zoned", zoned, "balancing: {zone: zone}")+listener("zoned", "service: zoned"), "--tag", "zone=b")

	least := n.addr("least")
	held := map[string][]net.Conn{}
	for range 9 {
		c := dial(t, least)
		line, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		held[line] = append(held[line], c)
	}
	for name, conns := range held {
		if len(conns) != 3 {
			t.Errorf("least connections: %q has %d of 9", name, len(conns))
		}
	}
	for _, c := range held["e1\n"] { // the endpoint that loses its connections gets the next ones
		closeWrite(c)
		mustEnd(t, c)
		n.end(c.LocalAddr())
	}
	for range 3 {
		mustRead(t, dial(t, least), "e1\n")
	}

	seen := map[string]bool{}
	for i := range 12 {
		got := countAnswers(t, n.addr("hashed"), 5, fmt.Sprintf("127.0.0.%d", 40+i))
		if len(got) != 1 {
			t.Errorf("a source went to %v", got)
		}
		for name := range got {
			seen[name] = true
		}
	}
	if len(seen) < 2 {
		t.Errorf("12 sources all went to %v", seen)
	}
	if got := countAnswers(t, n.addr("zoned"), 10); got["e1\n"] != 10 {
		t.Errorf("a node of zone b sends to %v", got)
	}
}
