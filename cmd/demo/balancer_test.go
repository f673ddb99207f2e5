package demo

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a backend that handles each connection with serve.
type peer struct {
	addr  string
	count atomic.Int64 // connections so far
}

func newPeer(t *testing.T, serve func(*net.TCPConn)) *peer {
	t.Helper()
	p := &peer{}
	p.addr = testkit.Serve(t, func(c *net.TCPConn) {
		p.count.Add(1)
		serve(c)
	})
	return p
}

// refusingPeer is a peer that refuses connections.
func refusingPeer(t *testing.T) *peer { return &peer{addr: testkit.FreeAddress(t)} }

func echo(c *net.TCPConn) {
	io.Copy(c, c)
	c.CloseWrite()
}

// sendName returns a handler that sends a word and closes.
func sendName(word string) func(*net.TCPConn) {
	return func(c *net.TCPConn) { io.WriteString(c, word) }
}

// startBalancer starts a balancer for peers, all of them ready, and returns its
// address.
func startBalancer(t *testing.T, peers ...*peer) (*balancer, string) {
	t.Helper()
	b := newBalancer(len(peers))
	var targets []string
	for i, p := range peers {
		targets = append(targets, p.addr)
		b.setReady(i, true)
	}
	l := testkit.Listen(t)
	b.open(l, targets)
	t.Cleanup(b.close)
	return b, l.Addr().String()
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(time.Minute))
	return c.(*net.TCPConn)
}

// readAll returns everything that a new connection receives.
func readAll(t *testing.T, addr string) string {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	text, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// clientOf returns the balancer's key of a connection.
func clientOf(conn net.Conn) client {
	return client{conn.LocalAddr().String(), conn.RemoteAddr().String()}
}

func TestBalancerTakesTurns(t *testing.T) {
	_, addr := startBalancer(t, newPeer(t, sendName("a")), newPeer(t, sendName("b")), newPeer(t, sendName("c")))
	got := ""
	for range 6 {
		got += readAll(t, addr)
	}
	if got != "abcabc" {
		t.Errorf("the turns were %q", got)
	}
}

func TestBalancerRetriesFailedConnects(t *testing.T) {
	dead := refusingPeer(t)
	b, addr := startBalancer(t, dead, newPeer(t, sendName("a")))
	for range 4 {
		if got := readAll(t, addr); got != "a" {
			t.Errorf("answered by %q", got)
		}
	}
	if c := b.counts(0); c.refused == 0 || c.total != 0 || c.open != 0 {
		t.Errorf("the dead one has %+v", c)
	}
	if c := b.counts(1); c.refused != 0 || c.total != 4 {
		t.Errorf("the other one has %+v", c)
	}
}

// An established connection is not retried elsewhere: the node may have acted
// on it.
func TestBalancerDoesNotRetryEstablishedConnections(t *testing.T) {
	breaks := newPeer(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1)) // a reset that comes sooner may look like a failed connect
		c.SetLinger(0)
		c.Close()
	})
	other := newPeer(t, sendName("b"))
	_, addr := startBalancer(t, breaks, other)
	c := dial(t, addr)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(c); err == nil || len(text) > 0 {
		t.Errorf("heard %q, %v; want a reset", text, err)
	}
	if other.count.Load() != 0 {
		t.Error("the other node got the connection")
	}
}

func TestBalancerWithoutBackendsCloses(t *testing.T) {
	dead := refusingPeer(t)
	_, addr := startBalancer(t, dead, dead)
	if got := readAll(t, addr); got != "" {
		t.Errorf("heard %q", got)
	}
}

// A draining node keeps its connections and gets no new ones.
func TestBalancerAvoidsDrainingNode(t *testing.T) {
	drains, other := newPeer(t, echo), newPeer(t, echo)
	b, addr := startBalancer(t, drains, other)
	b.setReady(0, false)
	var draining atomic.Bool
	ready := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if draining.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer ready.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { b.probe(ctx, 0, ready.URL) })
	testkit.WaitFor(t, "the node is up", func() bool { return b.counts(0).up })
	var kept net.Conn
	for drains.count.Load() == 0 {
		kept = dial(t, addr)
		mustEcho(t, kept, "x")
	}
	draining.Store(true)
	testkit.WaitFor(t, "the node is out", func() bool { return !b.counts(0).up })
	before := drains.count.Load()
	for range 4 {
		mustEcho(t, dial(t, addr), "x")
	}
	if got := drains.count.Load() - before; got != 0 {
		t.Errorf("it got %d connections while it drained", got)
	}
	mustEcho(t, kept, "still there")
	draining.Store(false)
	testkit.WaitFor(t, "the node is up again", func() bool { return b.counts(0).up })
	ready.CloseClientConnections()
	ready.Listener.Close()
	testkit.WaitFor(t, "the node is found dead", func() bool { return !b.counts(0).up })
}

// mustEcho sends a text to an echo server and expects it back.
func mustEcho(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("said %q, heard %q, %v", text, got, err)
	}
}

func TestBalancerCopiesEveryByte(t *testing.T) {
	_, addr := startBalancer(t, newPeer(t, echo))
	sent := make([]byte, 5<<20+17)
	rand.Read(sent)
	var wg sync.WaitGroup
	for range 4 {
		c := dial(t, addr)
		wg.Go(func() {
			c.Write(sent)
			c.CloseWrite()
		})
		wg.Go(func() {
			got, err := io.ReadAll(c)
			if err != nil || !bytes.Equal(got, sent) {
				t.Errorf("%d bytes came back of %d, the same: %t, %v", len(got), len(sent), bytes.Equal(got, sent), err)
			}
		})
	}
	wg.Wait()
}

// Each side may half-close while the other continues.
func TestBalancerForwardsHalfCloses(t *testing.T) {
	asked := make(chan string, 1)
	answers := newPeer(t, func(c *net.TCPConn) {
		io.WriteString(c, "greeting")
		c.CloseWrite()
		text, _ := io.ReadAll(c)
		asked <- string(text)
	})
	_, addr := startBalancer(t, answers)
	c := dial(t, addr)
	if text, err := io.ReadAll(c); err != nil || string(text) != "greeting" {
		t.Fatalf("heard %q, %v", text, err)
	}
	io.WriteString(c, "after the end of the other side")
	c.CloseWrite()
	if got := <-asked; got != "after the end of the other side" {
		t.Errorf("the peer heard %q", got)
	}
}

func TestBalancerForwardsResets(t *testing.T) {
	met := make(chan error, 1)
	_, addr := startBalancer(t, newPeer(t, func(c *net.TCPConn) {
		io.WriteString(c, "x")
		_, err := io.ReadAll(c)
		met <- err
	}))
	c := dial(t, addr)
	io.ReadFull(c, make([]byte, 1))
	c.SetLinger(0)
	c.Close()
	if err := <-met; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer met %v, want a reset", err)
	}
}

// Only connections of the killed process are excused.
func TestBalancerExcusesConnectionsOfKilledNode(t *testing.T) {
	var victims sync.Map // connections of the killed node
	killed := newPeer(t, func(c *net.TCPConn) {
		victims.Store(c, nil)
		echo(c)
	})
	b, addr := startBalancer(t, killed, newPeer(t, echo))
	die := func() { // what the kernel does with a killed process's connections
		victims.Range(func(c, _ any) bool {
			c.(net.Conn).Close()
			return true
		})
	}
	on := []net.Conn{dial(t, addr), dial(t, addr), dial(t, addr), dial(t, addr)}
	for _, c := range on {
		mustEcho(t, c, "x") // ensures that each is assigned to a node
	}
	if c := b.counts(0); c.open != 2 {
		t.Fatalf("the node carries %d connections, want 2", c.open)
	}
	if b.excused(clientOf(on[0])) {
		t.Error("excused before the kill")
	}
	b.markKilled(0)
	die()
	excused := 0
	for _, c := range on {
		io.WriteString(c, "y")
		_, err := io.ReadFull(c, make([]byte, 1))
		is := b.excused(clientOf(c))
		if broken := err != nil; is != broken {
			t.Errorf("broken: %t, excused: %t", broken, is)
		}
		if is {
			excused++
		}
	}
	if excused != 2 || b.carriedByKilledNodes() != 2 {
		t.Errorf("%d connections are excused, the node carried %d; want 2 of 2", excused, b.carriedByKilledNodes())
	}
	b.markStarted(0)
	on = []net.Conn{dial(t, addr), dial(t, addr)}
	for _, c := range on {
		mustEcho(t, c, "x")
	}
	die() // without a kill
	broken := 0
	for _, c := range on {
		io.WriteString(c, "y")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			broken++
		}
		if b.excused(clientOf(c)) {
			t.Error("what broke on the node's next process is excused")
		}
	}
	if broken != 1 {
		t.Errorf("%d of 2 connections broke, want the one on the node", broken)
	}
}
