package reactor

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runLoop runs a loop until the test ends.
func runLoop(t testing.TB, c Config) *Loop {
	t.Helper()
	l, err := NewLoop(c)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Run() }()
	t.Cleanup(func() {
		l.Close()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := l.Pending(); n != 0 {
			t.Errorf("%d bytes pending after the end", n)
		}
	})
	return l
}

// do runs fn on the loop and waits for it.
func do(t testing.TB, l *Loop, fn func()) {
	t.Helper()
	done := make(chan struct{})
	if !l.Post(func() { fn(); close(done) }) {
		t.Fatal("the loop has ended")
	}
	testkit.Receive(t, "the loop to run a function", done)
}

// until asks on the loop until cond holds.
func until(t testing.TB, l *Loop, what string, cond func() bool) {
	t.Helper()
	testkit.WaitFor(t, what, func() (ok bool) {
		do(t, l, func() { ok = cond() })
		return ok
	})
}

type acceptFuncs struct {
	accepted func(fd int, peer netip.AddrPort)
	failed   func(err error, rest time.Duration)
}

func (a acceptFuncs) Accepted(fd int, peer netip.AddrPort) { a.accepted(fd, peer) }
func (a acceptFuncs) Room() bool                           { return true }
func (a acceptFuncs) AcceptFailed(err error, rest time.Duration) {
	if a.failed != nil {
		a.failed(err, rest)
	}
}

// serve listens on a free port; accepted is called on the loop.
func serve(t testing.TB, l *Loop, accepted func(fd int, peer netip.AddrPort)) netip.AddrPort {
	t.Helper()
	fd, addr, err := ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var ln *Listener
	do(t, l, func() { ln, err = l.Listen(fd, acceptFuncs{accepted: accepted}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		do(t, l, ln.Stop)
		closeFD(int32(fd))
	})
	return addr
}

func dialTCP(t testing.TB, addr netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * testkit.Patience))
	return c.(*net.TCPConn)
}

// listenTCP is a server of the test's own; accepted waits for a connection.
func listenTCP(t testing.TB) (addr netip.AddrPort, accepted func() *net.TCPConn) {
	t.Helper()
	ln := testkit.Listen(t)
	_ = ln.SetDeadline(time.Now().Add(testkit.Patience))
	return ln.Addr().(*net.TCPAddr).AddrPort(), func() *net.TCPConn {
		t.Helper()
		c, err := ln.AcceptTCP()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(3 * testkit.Patience))
		return c
	}
}

// peer is an owner that records what it is told, and does what its hooks say.
// Its fields are the loop's.
type peer struct {
	Socket
	got       []byte
	moved     int
	connected bool
	sent      int
	ended     bool
	err       error

	onReceived  func(p []byte)
	onMoved     func(n int)
	onConnected func()
	onSent      func()
	onEnded     func()
	onFailed    func(err error)
}

func (p *peer) Connected() {
	p.connected = true
	if p.onConnected != nil {
		p.onConnected()
	}
}

func (p *peer) Received(b []byte) {
	if p.onReceived != nil {
		p.onReceived(b)
		return
	}
	p.got = append(p.got, b...)
}

func (p *peer) Moved(n int) {
	p.moved += n
	if p.onMoved != nil {
		p.onMoved(n)
	}
}

func (p *peer) Sent() {
	p.sent++
	if p.onSent != nil {
		p.onSent()
	}
}

func (p *peer) Ended() {
	p.ended = true
	if p.onEnded != nil {
		p.onEnded()
	}
}

func (p *peer) Failed(err error) {
	p.err = err
	if p.onFailed != nil {
		p.onFailed(err)
	}
}

// pair gives both ends of a connection: one on the loop, one the test's.
func pair(t testing.TB, l *Loop) (*peer, *net.TCPConn) {
	t.Helper()
	ch := make(chan *peer, 1)
	addr := serve(t, l, func(fd int, from netip.AddrPort) {
		p := &peer{}
		p.Init(l, p)
		p.Adopt(fd, from)
		ch <- p
	})
	c := dialTCP(t, addr)
	return testkit.Receive(t, "the connection to be accepted", ch), c
}

// echo serves connections that send back what they get, and end when it ends.
func echo(t testing.TB, l *Loop) netip.AddrPort {
	return serve(t, l, func(fd int, from netip.AddrPort) {
		p := &peer{}
		p.onReceived = func(b []byte) {
			if p.Send(b) > 0 {
				p.SetReading(false)
			}
		}
		p.onSent = func() { p.SetReading(true) }
		p.onEnded = p.CloseWrite
		p.Init(l, p)
		p.Adopt(fd, from)
		p.SetReading(true)
	})
}

func TestEchoesWithBackpressure(t *testing.T) {
	l := runLoop(t, Config{})
	addr := echo(t, l)
	var wg sync.WaitGroup
	for i := range 8 {
		c := dialTCP(t, addr)
		data := bytes.Repeat([]byte{byte(i), 1, 2, 3, 5, 7, 11}, 500_000)
		wg.Go(func() {
			_, _ = c.Write(data)
			_ = c.CloseWrite()
		})
		wg.Go(func() {
			got, err := io.ReadAll(c)
			if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
				t.Errorf("connection %d: %d bytes of %d came back, %v", i, len(got), len(data), err)
			}
		})
	}
	wg.Wait()
}

func TestPostsFromManyGoroutinesKeepTheirOrder(t *testing.T) {
	l := runLoop(t, Config{})
	const senders, each = 8, 5000
	var last [senders]int // the loop's
	var wg sync.WaitGroup
	for s := range senders {
		wg.Go(func() {
			for i := range each {
				l.Post(func() {
					if last[s] != i {
						t.Errorf("sender %d: %d came after %d", s, i, last[s])
					}
					last[s]++
				})
			}
		})
	}
	wg.Wait()
	do(t, l, func() {
		if last != [senders]int{each, each, each, each, each, each, each, each} {
			t.Errorf("counts %v", last)
		}
	})
}

type runFunc func(t *Task)

func (f runFunc) RunTask(t *Task) { f(t) }

func TestTasksRunOnceAfterWhatQueuesThem(t *testing.T) {
	l := runLoop(t, Config{})
	var task Task
	var log []string
	turns := 0
	task.Init(runFunc(func(*Task) {
		log = append(log, "task")
		if turns++; turns < 3 {
			l.Defer(&task) // for the next turn: posts come in between
			l.Post(func() { log = append(log, "post") })
		}
	}))
	do(t, l, func() {
		l.Defer(&task)
		l.Defer(&task)
		log = append(log, "done")
	})
	until(t, l, "three turns", func() bool { return turns == 3 })
	if got := fmt.Sprint(log); got != "[done task post task post task]" {
		t.Error(got)
	}
}

func TestAPanicCostsOneSocketOnly(t *testing.T) {
	panics := make(chan any, 10)
	l := runLoop(t, Config{OnPanic: func(v any, stack []byte) {
		if len(stack) == 0 {
			t.Error("no stack")
		}
		panics <- v
	}})
	p, c := pair(t, l)
	healthy, hc := pair(t, l)
	var tm Timer
	var task Task
	tm.Init(expireFunc(func(*Timer) { panic("timer") }))
	task.Init(runFunc(func(*Task) { panic("task") }))
	p.onReceived = func([]byte) { panic("owner") }
	p.onFailed = func(error) { panic("owner again") }
	do(t, l, func() { p.SetReading(true); healthy.SetReading(true) })
	_, _ = c.Write([]byte("x"))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("its peer got %v", err)
	}
	do(t, l, func() { l.Defer(&task); l.Arm(&tm, 0) })
	l.Post(func() { panic("post") })
	seen := map[any]bool{}
	for range 5 {
		select {
		case v := <-panics:
			seen[v] = true
		case <-time.After(testkit.Patience):
			t.Fatalf("only %v", seen)
		}
	}
	if len(seen) != 5 || p.err != ErrPanic {
		t.Errorf("%v, told %v", seen, p.err)
	}
	_, _ = hc.Write([]byte("fine"))
	until(t, l, "the other socket continues", func() bool { return string(healthy.got) == "fine" })
}

func TestCloseEndsTheLoopAndItsSockets(t *testing.T) {
	l, err := NewLoop(Config{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- l.Run() }()
	p := &peer{}
	backend, accepted := listenTCP(t)
	do(t, l, func() { p.Init(l, p); p.Dial(backend, TCPOptions{}) })
	c := accepted()
	l.Close()
	l.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer got %v", err)
	}
	if p.err != nil || l.Post(func() { t.Error("called") }) {
		t.Error("a closed loop accepted work or notified an owner")
	}
	l.Close()
}

// A descriptor that is closed and opened again in one turn, with a report for
// its former socket still to come, must not disturb the new one.
func TestReportsOfAFormerSocketAreDropped(t *testing.T) {
	l := runLoop(t, Config{})
	backend, accepted := listenTCP(t)
	for range 50 {
		var ps [8]*peer
		var cs [8]*net.TCPConn
		for i := range ps {
			p := &peer{}
			do(t, l, func() { p.Init(l, p); p.Dial(backend, TCPOptions{}); p.SetReading(true) })
			ps[i], cs[i] = p, accepted()
		}
		fresh := &peer{}
		aborted := 0
		for _, p := range ps {
			p.onReceived = func([]byte) {
				// The first one that is told closes the others, whose
				// reports are in the same batch, and dials in their place.
				for _, q := range ps {
					if q != p && q.isOpen() {
						q.Abort()
						aborted++
					}
				}
				if fresh.loop == nil {
					fresh.Init(l, fresh)
					fresh.Dial(backend, TCPOptions{})
					fresh.SetReading(true)
				}
				p.Abort()
			}
		}
		do(t, l, func() {
			for _, c := range cs {
				_, _ = c.Write([]byte("x"))
				_ = c.CloseWrite()
			}
		})
		c := accepted()
		_, _ = c.Write([]byte("for the new one"))
		until(t, l, "the new one's bytes", func() bool { return string(fresh.got) == "for the new one" })
		do(t, l, func() {
			if fresh.ended || fresh.err != nil || !fresh.connected || aborted != len(ps)-1 {
				t.Fatalf("ended %v, connected %v, %v, %d aborted", fresh.ended, fresh.connected, fresh.err, aborted)
			}
			fresh.Abort()
		})
		for _, c := range append(cs[:], c) {
			c.Close()
		}
	}
}
