package netio

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Parallel("5")
	goleak.VerifyTestMain(m)
}

// ending records one call of Handler.Closed.
type ending struct {
	id       uint64
	listener string
	client   netip.AddrPort
	why      Reason
	routed   bool
	in, out  uint64
	failure  error
	owed     bool
	times    Times
	accepted time.Time
}

// handler routes every connection with its function and records all endings.
type handler struct {
	route func(c *Conn) (Plan, Reason)

	mu   sync.Mutex
	ends []ending
}

func (h *handler) Route(c *Conn) (Plan, Reason) { return h.route(c) }

func (h *handler) Closed(c *Conn, why Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := ending{
		id: c.ID(), listener: c.Listener(), client: c.Client(), why: why,
		routed: c.Plan() != nil, failure: c.Failure(), owed: c.Owed(), times: c.Times(), accepted: c.Accepted(),
	}
	e.in, e.out = c.Bytes()
	h.ends = append(h.ends, e)
}

func (h *handler) endings() []ending {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]ending(nil), h.ends...)
}

// waitEndings waits until n connections have ended and returns them. None may
// have been reported twice.
func (h *handler) waitEndings(t testing.TB, n int) []ending {
	t.Helper()
	testkit.WaitFor(t, "the endings of connections", func() bool { return len(h.endings()) >= n })
	ends := h.endings()
	seen := make(map[uint64]bool)
	for _, e := range ends {
		if seen[e.id] {
			t.Errorf("connection %d ended twice: %+v", e.id, ends)
		}
		seen[e.id] = true
	}
	if len(ends) != n {
		t.Fatalf("%d endings, want %d: %+v", len(ends), n, ends)
	}
	return ends
}

// wantEnd waits for the single expected ending.
func (h *handler) wantEnd(t testing.TB, why Reason) ending {
	t.Helper()
	e := h.waitEndings(t, 1)[0]
	if e.why != why {
		t.Fatalf("ended with %q, want %q", e.why, why)
	}
	return e
}

// plan tries its targets in order and gives up with the reason of the last
// error.
type plan struct {
	targets []Target
	errs    []error
	took    time.Duration
	label   string
}

func (p *plan) Next(_ *Conn, err error) (Target, Reason) {
	if err != nil {
		p.errs = append(p.errs, err)
	}
	if len(p.errs) == len(p.targets) {
		return Target{}, ConnectReason(err)
	}
	return p.targets[len(p.errs)], OK
}

func (p *plan) Connected(_ *Conn, took time.Duration) { p.took = took }
func (p *plan) Description() string                   { return p.label }

// rig is an engine with its handler.
type rig struct {
	*Engine
	*handler
	meter *Meter
}

// newRig starts an engine whose connections go to an address with a profile;
// tests can set route instead before they connect.
func newRig(t testing.TB, cfg Config, to string, p Profile) *rig {
	t.Helper()
	r := &rig{handler: new(handler)}
	cfg.Handler = r.handler
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	if cfg.Loops == 0 {
		cfg.Loops = 2
	}
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.Engine = e
	t.Cleanup(e.Close)
	r.meter = NewMeter("l", "s", e.Loops())
	p.Meter = r.meter
	target := Target{Profile: &p}
	if to != "" {
		target.Addr = mustAddr(to)
	}
	r.route = func(*Conn) (Plan, Reason) { return &plan{targets: []Target{target}, label: to}, OK }
	return r
}

// serve sets a single listener and returns its address.
func (r *rig) serve(t testing.TB, spec Listener) string {
	t.Helper()
	if spec.Name == "" {
		spec.Name = "l"
	}
	if spec.Network == "" {
		spec.Network, spec.Address = "tcp", "127.0.0.1:0"
	}
	r.SetListeners([]Listener{spec})
	return r.address(t, spec.Name)
}

func (r *rig) address(t testing.TB, name string) string {
	t.Helper()
	for _, s := range r.Listeners() {
		if s.Name == name && s.Err == nil {
			return s.Address
		}
	}
	t.Fatalf("%q does not listen: %+v", name, r.Listeners())
	return ""
}

// onConns calls do for each connection on its loop, one loop at a time.
func (r *rig) onConns(do func(c *Conn)) {
	var mu sync.Mutex
	r.onLoops(func(l *loop) {
		mu.Lock()
		defer mu.Unlock()
		var next *Conn
		for c := l.conns.head; c != nil; c = next {
			next = c.next
			do(c)
		}
	})
}

func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

// dial connects to the rig; the connection is closed at the end of the test.
func dial(t testing.TB, addr string) *net.TCPConn {
	t.Helper()
	return dialFrom(t, "", addr)
}

// dialFrom is dial from a local address; "": any.
func dialFrom(t testing.TB, from, to string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: testkit.Patience}
	c, err := d.Dial("tcp", to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(testkit.Patience)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func mustWrite(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatalf("write: %v", err)
	}
}

func mustRead(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got[:n], err, want)
	}
}

// mustEnd reads the rest, which must equal want and end cleanly.
func mustEnd(t testing.TB, c net.Conn, want string) {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q and a clean end", got, err, want)
	}
}

// mustBeReset reads until a reset.
func mustBeReset(t testing.TB, c net.Conn) {
	t.Helper()
	if rest, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read %q, %v, want a reset", rest, err)
	}
}

// mustBeTurnedAway connects and expects a reset, which may come before connect
// returns.
func mustBeTurnedAway(t testing.TB, addr string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", addr, testkit.Patience)
	if err != nil {
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal(err)
		}
		return
	}
	defer c.Close()
	mustBeReset(t, c)
}

// roundTrip sends a text and expects its echo.
func roundTrip(t testing.TB, c net.Conn, s string) {
	t.Helper()
	mustWrite(t, c, s)
	mustRead(t, c, s)
}

func reset(t testing.TB, c *net.TCPConn) {
	t.Helper()
	if err := c.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// clientHello returns the ClientHello of a TLS client for a name.
func clientHello(t testing.TB, name string, alpn ...string) []byte {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(client, &tls.Config{ServerName: name, NextProtos: alpn, InsecureSkipVerify: name == ""}).Handshake()
	}()
	buf := make([]byte, 16<<10)
	n, err := server.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	client.Close()
	<-done
	return buf[:n]
}

// openSockets counts the sockets of the process. (Loops also keep pipes and
// other descriptors.)
func openSockets(t testing.TB) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func mustAddr(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// quiet is for tests that cause log errors on purpose.
var quiet = slog.New(slog.DiscardHandler)
