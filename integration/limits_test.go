package integration

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/internal/testkit"
)

// rule 10: listener limits refuse connections with a reason; established
// connections are not affected.
func TestListenerLimits(t *testing.T) {
	t.Parallel()
	n := startNode(t, service("echo", []string{testkit.Serve(t, echo)})+
		listener("few", "service: echo", "limits: {connections: 3}")+
		listener("source", "service: echo", "limits: {perSource: 2}")+
		listener("rate", "service: echo", "limits: {connectionsPerSecond: 5}"))
	few := n.addr("few")
	held := []*net.TCPConn{dial(t, few), dial(t, few), dial(t, few)}
	for _, c := range held {
		roundTrip(t, c, "x")
	}
	n.wantRefused("few", "limit_connections")
	if v := n.metric("refused_connections_total", `reason="limit_connections"`); v != 1 {
		t.Errorf("refused_connections_total is %v", v)
	}
	for _, c := range held {
		roundTrip(t, c, "undisturbed")
	}
	held[0].Close()
	n.end(held[0].LocalAddr())
	roundTrip(t, dial(t, few), "a place is free")
	n.apply(listener("few", "service: echo", "limits: {connections: 1}"))
	roundTrip(t, held[1], "a lower limit touches nobody")
	n.wantRefused("few", "limit_connections")

	source := n.addr("source")
	one, two := dialFrom(t, "127.0.0.1", source), dialFrom(t, "127.0.0.1", source)
	roundTrip(t, one, "x")
	roundTrip(t, two, "x")
	n.wantRefused("source", "limit_per_source")
	roundTrip(t, dialFrom(t, "127.0.0.99", source), "another source")
	one.Close()
	n.end(one.LocalAddr())
	roundTrip(t, dialFrom(t, "127.0.0.1", source), "the place is free")

	rate := n.addr("rate")
	isServed := func() bool {
		c, err := net.DialTimeout("tcp", rate, testkit.Patience)
		if err != nil {
			return false
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(testkit.Patience))
		_, _ = io.WriteString(c, "x")
		_, err = io.ReadFull(c, make([]byte, 1))
		return err == nil
	}
	served, asked := 0, 0
	testkit.WaitFor(t, "more in a second than are taken", func() bool { // a busy machine may need several attempts
		for range 30 { // the burst is one second's worth
			if asked++; isServed() {
				served++
			}
		}
		return served < asked
	})
	limited := 0.0
	testkit.WaitFor(t, "all that were not served to be counted", func() bool {
		limited = n.metric("connections_total", `listener="rate"`, `result="limit_rate"`)
		return int(limited) >= asked-served
	})
	if served < 5 || int(limited) != asked-served {
		t.Errorf("of %d connections at once %d were served and %v refused, with 5 per second", asked, served, limited)
	}
	testkit.WaitFor(t, "the next second, in which somebody is served again", isServed)
}

// startLimited starts the node with a limit of open files.
func (n *node) startLimited(limit int, resources string) {
	n.t.Helper()
	n.start([]string{"sh", "-c", fmt.Sprintf("ulimit -n %d; exec \"$@\"", limit), "sh", program(n.t), "start", "--dev", "--data-dir", n.dir,
		"--cluster", "127.0.0.1:0", "--http", "127.0.0.1:0", "--access-log", "closed", "--log-format", "json",
		"--drain-wait", "0s", "--drain-timeout", "0s", "--resources", resources})
}

// More unfinished hellos than there are descriptors end by their deadline,
// including those that waited to be accepted; then the node is ready again.
func TestUnfinishedHellosReleaseDescriptors(t *testing.T) {
	t.Parallel()
	const limit = 96
	n := newNode(t)
	n.startLimited(limit, n.file("resources.yaml", service("echo", []string{testkit.Serve(t, echo)})+listener("plain", "service: echo")+
		listener("tls", "protocol: tls", "timeouts: {hello: 1s}", "hosts: [{names: [a.example.com], service: echo}]")))
	addr, plain := n.addr("tls"), n.addr("plain")
	var all []net.Conn
	testkit.WaitFor(t, "accepting to rest", func() bool {
		for range limit {
			c := dial(t, addr)
			mustWrite(t, c, string(hello(sni("a.example.com"))[:20]))
			all = append(all, c)
		}
		return n.metric("accept_rests_total") > 0
	})
	for i, c := range all {
		if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("hello %d does not end: %v", i, err)
		}
	}
	testkit.WaitFor(t, "the node to be ready again", func() bool { code, _ := n.fetch("/readyz"); return code == 200 })
	roundTrip(t, dial(t, plain), "hello")
}

// rule 10: without free descriptors the node stops accepting; waiting clients
// are served later, and established connections are not affected.
func TestOutOfDescriptors(t *testing.T) {
	t.Parallel()
	const limit, clients = 96, 100
	n := newNode(t)
	file := n.file("resources.yaml", service("echo", []string{testkit.Serve(t, echo)})+listener("plain", "service: echo"))
	n.startLimited(limit, file)
	addr := n.addr("plain")
	first := dial(t, addr)
	roundTrip(t, first, "x")
	busy := keepBusy(t, first)
	var waiting []net.Conn
	served, turnedAway := 0, 0
	for range clients {
		c, err := net.DialTimeout("tcp", addr, testkit.Patience) // accepted by the kernel, perhaps not by the node
		if err == nil {
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(testkit.Patience))
			_, err = io.WriteString(c, "x")
		}
		switch {
		case err == nil:
			waiting = append(waiting, c)
		case errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE):
			turnedAway++
		default:
			t.Fatal(err)
		}
	}
	testkit.WaitFor(t, "/readyz to say so", func() bool {
		code, why := n.fetch("/readyz")
		return code == 503 && strings.Contains(why, "out of file descriptors")
	})
	// One after another is served and closes, so that the next one gets in.
	for _, c := range waiting {
		switch n, err := c.Read(make([]byte, 1)); {
		case n == 1:
			served++
		case errors.Is(err, syscall.ECONNRESET):
			turnedAway++
		default:
			t.Fatalf("after %d served: %v", served, err)
		}
		c.Close()
	}
	t.Logf("%d served, %d turned away", served, turnedAway)
	if turnedAway > 0 {
		t.Errorf("%d of %d were turned away: they should have waited", turnedAway, clients)
	}
	busy()
	testkit.WaitFor(t, "the node to answer again", func() bool { return n.run("status").code == 0 })
	if v := n.metric("accept_rests_total"); v == 0 {
		t.Error("accepting never rested: the limit was not reached")
	}
	if v := n.metric("connections_total", `result="limit_files"`); v != 0 {
		t.Errorf("%v were turned away for want of descriptors", v)
	}
	roundTrip(t, dial(t, addr), "as before")
	testkit.WaitFor(t, "the node to be ready again", func() bool { code, _ := n.fetch("/readyz"); return code == 200 })
	n.wantFewDescriptors(limit)
}

func (n *node) wantFewDescriptors(limit int) {
	n.t.Helper()
	testkit.WaitFor(n.t, "descriptors to be given back", func() bool { return n.proc.Descriptors() < limit/2 })
}

// A node raises its limit of open files as far as it may.
func TestFileLimitIsRaised(t *testing.T) {
	t.Parallel()
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	n := newNode(t)
	n.start([]string{"sh", "-c", "ulimit -S -n 128; exec \"$@\"", "sh", program(t), "start", "--dev", "--data-dir", n.dir,
		"--cluster", "127.0.0.1:0", "--http", "127.0.0.1:0", "--drain-wait", "0s"})
	_, metrics := n.fetch("/metrics")
	_, rest, _ := strings.Cut(metrics, "\nprocess_max_fds ")
	value, _, _ := strings.Cut(rest, "\n")
	if limit, err := strconv.ParseFloat(value, 64); err != nil || uint64(limit) != own.Max {
		t.Errorf("the limit is %q, want %d", value, own.Max)
	}
}

// rule 10: over the memory budget no client is dropped: hellos that have not
// begun wait, and everyone is served in the end. Only a hello that takes more
// than a second may be dropped in favour of one that waits.
func TestMemoryBudget(t *testing.T) {
	t.Parallel()
	upstream := newManualServer(t)
	n := startNode(t, service("upstream", []string{upstream.addr()})+service("echo", []string{testkit.Serve(t, echo)})+
		listener("plain", "service: echo")+
		listener("tls", "protocol: tls", "service: upstream", "timeouts: {hello: 10m}"), "--memory-budget", "1")
	busy := keepBusy(t, dial(t, n.addr("plain")))
	// Each of these may grow to 16 KiB; all but the last byte arrives.
	whole := string(hello(sni("a.example.com"), extension(0xfe99, make([]byte, 14<<10))))
	tls := n.addr("tls")
	var hoarders []*net.TCPConn
	for range 100 {
		c := dial(t, tls)
		mustWrite(t, c, whole[:len(whole)-1])
		hoarders = append(hoarders, c)
	}
	// A connection that has to give way counts until its loop has closed it, so more may be
	// in use for a moment. Without a bound all of them would hold 1.6 MB.
	testkit.WaitFor(t, "the budget to be used, and not more", func() bool {
		v := n.metric("memory_budget_used_bytes")
		return v > 800<<10 && v <= 1<<20+2*64<<10
	})
	late := dial(t, tls)
	mustWrite(t, late, whole)
	busy()
	for _, c := range hoarders {
		_, _ = io.WriteString(c, whole[len(whole)-1:]) // may be too late
	}
	refused := func() (list []access) {
		for _, a := range n.accesses() {
			if a.Reason == "limit_memory" {
				list = append(list, a)
			}
		}
		return list
	}
	testkit.WaitFor(t, "everybody to be served, or to have been too slow", func() bool {
		return len(upstream.accepted)+len(refused()) == len(hoarders)+1
	})
	for range len(upstream.accepted) {
		mustRead(t, upstream.accept(), whole)
	}
	for _, a := range refused() {
		if a.Duration < 1 {
			t.Errorf("refused for want of memory: %+v", a)
		}
	}
	testkit.WaitFor(t, "all bytes to be given back", func() bool { return n.metric("memory_budget_used_bytes") == 0 })
}
