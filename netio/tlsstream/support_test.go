package tlsstream

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio/stream"
)

func TestMain(m *testing.M) {
	if kind := os.Getenv(serverEnv); kind != "" {
		if err := serve(kind); err != nil {
			fmt.Fprintln(os.Stderr, "server:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// A fakeLoop runs what is posted on a goroutine of its own, and after each
// call checks what the test waits for.
type fakeLoop struct {
	mu     sync.Mutex
	wake   sync.Cond
	queue  []func()
	closed bool
	conds  []*condition
	ended  chan struct{}
	after  sync.Mutex // held by what runs in the loop's place
}

type condition struct {
	met  func() bool
	done chan struct{}
}

func newFakeLoop(t testing.TB) *fakeLoop {
	l := &fakeLoop{ended: make(chan struct{})}
	l.wake.L = &l.mu
	go l.run()
	t.Cleanup(l.close)
	return l
}

func (l *fakeLoop) close() {
	l.mu.Lock()
	l.closed = true
	l.wake.Signal()
	l.mu.Unlock()
	<-l.ended
}

func (l *fakeLoop) Post(fn func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.queue = append(l.queue, fn)
	l.wake.Signal()
	return true
}

func (l *fakeLoop) run() {
	defer close(l.ended)
	for {
		l.mu.Lock()
		for len(l.queue) == 0 && !l.closed {
			l.wake.Wait()
		}
		if l.closed {
			l.mu.Unlock()
			return
		}
		fn := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		fn()
		kept := l.conds[:0]
		for _, c := range l.conds {
			if c.met() {
				close(c.done)
			} else {
				kept = append(kept, c)
			}
		}
		l.conds = kept
	}
}

// do runs fn on the loop and waits for it; after its end, in its place: still
// once, and one at a time.
func (l *fakeLoop) do(fn func()) {
	done := make(chan struct{})
	if l.Post(func() { defer close(done); fn() }) {
		select {
		case <-done:
			return
		case <-l.ended:
		}
	}
	<-l.ended
	l.after.Lock()
	defer l.after.Unlock()
	select {
	case <-done: // by the loop, just before its end
	default:
		fn()
	}
}

// What is done around a loop's end runs once, and alone.
func TestLoopEndsBetweenCalls(t *testing.T) {
	const callers, calls = 8, 10
	for range 300 {
		l := newFakeLoop(t)
		n := 0
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range calls {
					l.do(func() { n++ })
				}
			})
		}
		l.do(func() {})
		l.close()
		wg.Wait()
		if n != callers*calls {
			t.Fatalf("%d calls ran, want %d", n, callers*calls)
		}
	}
}

// until waits for what becomes true on the loop.
func (l *fakeLoop) until(t testing.TB, what string, met func() bool) {
	t.Helper()
	c := &condition{met: met, done: make(chan struct{})}
	l.Post(func() { l.conds = append(l.conds, c) })
	testkit.Receive(t, what, c.done)
}

// memStream is one end of a connection in memory, on a loop. The peer's bytes
// wait in arrived until they are read; window bounds what does not count as
// pending for the sender.
type memStream struct {
	loop    *fakeLoop
	owner   stream.Owner
	peer    *memStream
	arrived []byte
	reading bool
	ended   bool // the peer's end is behind arrived
	failed  error
	told    bool
	dead    bool
	waiting bool // owes Sent
	queued  bool
	sentEnd bool
	cut     func() int // size of the next Received, nil: everything
	sends   int        // calls of Send
	seen    []byte     // everything that was sent to the peer, if recorded
	record  bool
	most    int // the most that ever waited in arrived
}

const memWindow = 64 << 10

func newMemPair(l *fakeLoop) (a, b *memStream) {
	a, b = &memStream{loop: l}, &memStream{loop: l}
	a.peer, b.peer = b, a
	return a, b
}

func (m *memStream) Send(p []byte) int {
	if m.dead || m.sentEnd {
		panic("Send on an ended stream")
	}
	m.sends++
	if m.record {
		m.seen = append(m.seen, p...)
	}
	if m.peer.dead {
		return 0
	}
	m.peer.arrived = append(m.peer.arrived, p...)
	m.peer.most = max(m.peer.most, len(m.peer.arrived))
	m.peer.schedule()
	pending := max(0, len(m.peer.arrived)-memWindow)
	m.waiting = m.waiting || pending > 0
	return pending
}

func (m *memStream) SetReading(on bool) {
	if m.dead {
		panic("SetReading on an ended stream")
	}
	m.reading = on
	m.schedule()
}

func (m *memStream) PipeTo(stream.Stream) bool { return false }

func (m *memStream) CloseWrite() {
	if !m.sentEnd {
		m.sentEnd = true
		m.peer.ended = true
		m.peer.schedule()
	}
}

func (m *memStream) Close() {
	m.CloseWrite()
	m.dead = true
}

func (m *memStream) Abort() {
	m.dead = true
	m.peer.fail(stream.ErrReset)
}

func (m *memStream) fail(err error) {
	m.failed = err
	m.schedule()
}

func (m *memStream) schedule() {
	if m.queued || m.dead || m.owner == nil {
		return
	}
	m.queued = true
	m.loop.Post(m.deliver)
}

// deliver is one event of this stream.
func (m *memStream) deliver() {
	m.queued = false
	switch {
	case m.dead:
	case m.failed != nil:
		m.dead = true
		m.owner.Failed(m.failed)
	case m.reading && len(m.arrived) > 0:
		n := len(m.arrived)
		if m.cut != nil {
			n = min(n, m.cut())
		}
		// A buffer with something behind it, that is reused at once.
		p := append(append(make([]byte, 0, n+100), m.arrived[:n]...), make([]byte, 100)...)
		m.arrived = m.arrived[n:]
		m.owner.Received(p[:n])
		for i := range p {
			if i >= n && p[i] != 0 {
				panic("written behind the bytes received")
			}
			p[i] = 0xdb
		}
		if len(m.arrived) <= memWindow && m.peer.waiting {
			m.peer.waiting = false
			m.loop.Post(func() {
				if !m.peer.dead {
					m.peer.owner.Sent()
				}
			})
		}
		m.schedule()
	case m.reading && m.ended && !m.told:
		m.told = true
		m.owner.Ended()
	}
}

// conn is the other end of a memStream for a peer that blocks: a net.Conn.
type conn struct {
	m     *memStream
	mu    sync.Mutex
	ready sync.Cond
	buf   []byte
	err   error
}

func newConn(m *memStream) *conn {
	c := &conn{m: m}
	c.ready.L = &c.mu
	m.owner = c
	m.loop.do(func() { m.SetReading(true) })
	return c
}

func (c *conn) Connected() {}
func (c *conn) Moved(int)  {}
func (c *conn) Sent()      {}
func (c *conn) Received(p []byte) {
	c.mu.Lock()
	c.buf = append(c.buf, p...)
	c.mu.Unlock()
	c.ready.Broadcast()
}
func (c *conn) Ended() { c.Failed(io.EOF) }
func (c *conn) Failed(err error) {
	c.mu.Lock()
	c.err = err
	c.mu.Unlock()
	c.ready.Broadcast()
}

func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.buf) == 0 && c.err == nil {
		c.ready.Wait()
	}
	if len(c.buf) == 0 {
		return 0, c.err
	}
	n := copy(p, c.buf)
	c.buf = c.buf[n:]
	return n, nil
}

func (c *conn) Write(p []byte) (int, error) {
	err := net.ErrClosed
	c.m.loop.do(func() {
		if !c.m.dead && !c.m.sentEnd {
			c.m.Send(p)
			err = nil
		}
	})
	return len(p), err
}

// CloseWrite ends the stream below TLS.
func (c *conn) CloseWrite() { c.m.loop.do(c.m.CloseWrite) }
func (c *conn) Close() error {
	c.m.loop.do(func() {
		if !c.m.dead {
			c.m.Close()
		}
	})
	c.Failed(net.ErrClosed)
	return nil
}
func (c *conn) LocalAddr() net.Addr              { return noAddr{} }
func (c *conn) RemoteAddr() net.Addr             { return noAddr{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// owner notes what it is told; it is read on the loop.
type owner struct {
	s         *Stream
	connected int
	got       []byte
	calls     int // of Received
	sent      int
	ended     int
	failed    error
	onData    func(p []byte)
	onUp      func()
	keep      bool // got is wanted
}

func (o *owner) Connected() {
	o.mustLive()
	o.connected++
	if o.onUp != nil {
		o.onUp()
	}
}
func (o *owner) Received(p []byte) {
	o.mustLive()
	if o.connected == 0 || o.ended > 0 {
		panic("Received out of order")
	}
	o.calls++
	if o.keep {
		o.got = append(o.got, p...)
	}
	if o.onData != nil {
		o.onData(p)
	}
}
func (o *owner) Moved(int) { panic("Moved") }
func (o *owner) Sent()     { o.mustLive(); o.sent++ }
func (o *owner) Ended()    { o.mustLive(); o.ended++ }
func (o *owner) Failed(err error) {
	o.mustLive()
	o.failed = err
}
func (o *owner) mustLive() {
	if o.failed != nil {
		panic("told after Failed: " + o.failed.Error())
	}
}

// ends are both ends of a TLS connection under test: the Stream with its
// owner, and crypto/tls as the peer.
type ends struct {
	loop  *fakeLoop
	local *Local
	under *memStream // below the Stream
	far   *memStream // below the peer
	own   *owner
	s     *Stream
	conn  *conn
	peer  *tls.Conn
	// beside is what the peer does on goroutines of its own; the test waits for
	// it in the end, once conn is closed.
	beside sync.WaitGroup
}

type role bool

const (
	asServer role = false
	asClient role = true
)

func (r role) String() string {
	if r == asClient {
		return "client"
	}
	return "server"
}

// newEnds makes a Stream in that role whose peer has not begun.
func newEnds(t testing.TB, r role, server, client *tls.Config) *ends {
	l := newFakeLoop(t)
	return newEndsOn(t, l, NewLocal(l, NewPool(100)), r, server, client)
}

func newEndsOn(t testing.TB, l *fakeLoop, local *Local, r role, server, client *tls.Config) *ends {
	e := &ends{loop: l, local: local}
	e.under, e.far = newMemPair(l)
	e.conn = newConn(e.far)
	t.Cleanup(e.beside.Wait)
	t.Cleanup(func() { e.conn.Close() })
	e.own = &owner{keep: true}
	l.do(func() {
		if r == asServer {
			e.s = local.Server(e.under, server, nil, e.own)
		} else {
			e.s = local.Client(e.under, client, e.own)
		}
		e.own.s = e.s
		e.under.owner = e.s
		e.s.SetReading(true)
		if r == asClient {
			e.s.Connected()
		}
	})
	t.Cleanup(func() { l.do(e.s.Abort) })
	if r == asServer {
		e.peer = tls.Client(e.conn, client)
	} else {
		e.peer = tls.Server(e.conn, server)
	}
	return e
}

// connect makes a Stream and finishes its handshake.
func connect(t testing.TB, r role, server, client *tls.Config) *ends {
	t.Helper()
	e := newEnds(t, r, server, client)
	e.handshake(t)
	return e
}

func (e *ends) handshake(t testing.TB) {
	t.Helper()
	if err := e.peer.Handshake(); err != nil {
		t.Fatalf("the peer's handshake: %v", err)
	}
	e.loop.until(t, "Connected", func() bool { return e.own.connected == 1 || e.own.failed != nil })
	if e.own.failed != nil {
		t.Fatalf("the handshake failed: %v", e.own.failed)
	}
}

// failure waits for Failed.
func (e *ends) failure(t testing.TB) error {
	t.Helper()
	e.loop.until(t, "Failed", func() bool { return e.own.failed != nil })
	return e.own.failed
}

// mustFail checks what Failed brought.
func (e *ends) mustFail(t testing.TB, want error) error {
	t.Helper()
	err := e.failure(t)
	if !errors.Is(err, want) {
		t.Fatalf("failed with %v, want %v", err, want)
	}
	return err
}

// received waits until n bytes in all have come.
func (e *ends) received(t testing.TB, n int) []byte {
	t.Helper()
	e.loop.until(t, "bytes", func() bool { return len(e.own.got) >= n || e.own.failed != nil })
	if e.own.failed != nil {
		t.Fatalf("failed: %v", e.own.failed)
	}
	return e.own.got
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const serverName = "api.example.com"

// configs makes a server's and a client's config that trust each other, for
// one version only where it is not 0.
func configs(t testing.TB, version uint16) (server, client *tls.Config) {
	t.Helper()
	a := certs.NewCA("test authority")
	server = Defaults(&tls.Config{Certificates: []tls.Certificate{a.Issue(serverName).TLS}})
	client = Defaults(&tls.Config{RootCAs: a.Pool, ServerName: serverName})
	if version != 0 {
		server.MinVersion, server.MaxVersion = version, version
	}
	return server, client
}

var versions = map[string]uint16{"TLS1.2": tls.VersionTLS12, "TLS1.3": tls.VersionTLS13}

// eachKind runs a test for both versions and roles.
func eachKind(t *testing.T, test func(t *testing.T, version uint16, r role)) {
	for name, version := range versions {
		for _, r := range []role{asServer, asClient} {
			t.Run(name+"/"+r.String(), func(t *testing.T) { test(t, version, r) })
		}
	}
}
