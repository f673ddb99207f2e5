package pipe

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/net/nettest"

	"penstock/internal/testkit"
	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newLoop runs a loop until the test ends.
func newLoop(t testing.TB) *reactor.Loop {
	t.Helper()
	l, err := reactor.NewLoop(reactor.Config{OnPanic: func(v any, _ []byte) {
		if v != "told" {
			t.Error("panic:", v)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := l.Run(); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l
}

// on runs f on the loop and waits for it.
func on(t testing.TB, l *reactor.Loop, f func()) {
	t.Helper()
	done := make(chan struct{})
	if !l.Post(func() { defer close(done); f() }) {
		t.Fatal("the loop has ended")
	}
	<-done
}

// joint is two pipes that a relay joins, as one side of both.
type joint struct {
	relay relay.Relay
	ends  [2]*Pipe
}

type side struct {
	*joint
	at relay.Side
}

func (s side) Connected()        { panic("there is nothing to connect") }
func (s side) Received(p []byte) { s.relay.Received(s.at, p) }
func (s side) Moved(int)         { panic("nothing moves by itself") }
func (s side) Sent()             { s.relay.Sent(s.at) }
func (s side) Ended()            { s.relay.Ended(s.at) }
func (s side) Failed(error)      { s.relay.Failed(s.at) }

// newJoint gives two Conns that are joined through a loop.
func newJoint(t testing.TB, l *reactor.Loop) (j *joint, a, b *Conn) {
	t.Helper()
	j = &joint{}
	addr := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	on(t, l, func() {
		j.ends[0], a = New(l, side{j, relay.Client}, addr, addr)
		j.ends[1], b = New(l, side{j, relay.Upstream}, addr, addr)
		j.relay.Start(j.ends[0], j.ends[1], nil, 0)
	})
	t.Cleanup(func() { _ = a.Close(); _ = b.Close() })
	return j, a, b
}

// It is a net.Conn as the standard library understands it.
func TestItIsAConn(t *testing.T) {
	l := newLoop(t)
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		_, a, b := newJoint(t, l)
		return a, b, func() { _ = a.Close(); _ = b.Close() }, nil
	})
}

func TestManyBytesArriveInOrderUnderHalfClose(t *testing.T) {
	l := newLoop(t)
	_, a, b := newJoint(t, l)
	want := make([]byte, 20<<20)
	for i := range want {
		want[i] = byte(i * 7 >> 3)
	}
	go func() {
		for p := want; len(p) > 0; {
			n := min(len(p), 1+len(p)*7919%200_000)
			if _, err := a.Write(p[:n]); err != nil {
				t.Error(err)
			}
			p = p[n:]
		}
		if err := a.CloseWrite(); err != nil {
			t.Error(err)
		}
	}()
	got, err := io.ReadAll(b)
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(want), err)
	}
	if _, err := b.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	_ = b.Close()
	if answer, err := io.ReadAll(a); string(answer) != "answer" || err != nil {
		t.Errorf("%q, %v after the half-close", answer, err)
	}
}

// heard is an owner that notes what it is told.
type heard struct {
	bytes   atomic.Int64
	sent    chan struct{}
	ended   chan struct{}
	failed  chan error
	panicky bool
}

func newHeard() *heard {
	return &heard{sent: make(chan struct{}, 10), ended: make(chan struct{}, 10), failed: make(chan error, 10)}
}

func (h *heard) Connected() {}
func (h *heard) Received(p []byte) {
	h.bytes.Add(int64(len(p)))
	if h.panicky {
		panic("told")
	}
}
func (h *heard) Moved(int)        {}
func (h *heard) Sent()            { h.sent <- struct{}{} }
func (h *heard) Ended()           { h.ended <- struct{}{} }
func (h *heard) Failed(err error) { h.failed <- err }

func newHalf(t testing.TB) (l *reactor.Loop, h *heard, d *Pipe, c *Conn) {
	l, h = newLoop(t), newHeard()
	on(t, l, func() { d, c = New(l, h, &net.TCPAddr{}, &net.TCPAddr{}) })
	return l, h, d, c
}

// Nobody reads: the owner is told to stop at once, and to go on when room is.
func TestAReaderThatDoesNotReadHoldsItsClientBack(t *testing.T) {
	l, h, d, c := newHalf(t)
	defer c.Close()
	chunk := make([]byte, 32<<10)
	var pending []int
	on(t, l, func() {
		for range 3 {
			pending = append(pending, d.Send(chunk))
		}
	})
	if pending[0] != 0 || pending[1] != 0 || pending[2] != 3*len(chunk) {
		t.Errorf("pending %v, want none up to %d", pending, room)
	}
	if d.Settled() {
		t.Error("it calls itself settled")
	}
	buf := make([]byte, 3*len(chunk)-room/2-1)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatal(err)
	}
	on(t, l, func() {})
	if len(h.sent) > 0 {
		t.Error("Sent with more than half of the room full")
	}
	if _, err := c.Read(buf[:1]); err != nil {
		t.Fatal(err)
	}
	testkit.Receive(t, "Sent", h.sent)
}

// The owner does not read: a writer waits with room bytes, until its deadline
// or until somebody reads.
func TestAWriterWaitsForItsClient(t *testing.T) {
	l, h, d, c := newHalf(t)
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	n, err := c.Write(make([]byte, room+1))
	if n != room || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("wrote %d, %v, want %d and a deadline", n, err, room)
	}
	if h.bytes.Load() > 0 {
		t.Error("the owner was told of bytes and did not want to")
	}
	_ = c.SetWriteDeadline(time.Time{})
	done := make(chan error, 1)
	go func() { _, err := c.Write(make([]byte, 3*room)); done <- err }()
	on(t, l, func() { d.SetReading(true) })
	if err := testkit.Receive(t, "the writer", done); err != nil {
		t.Error(err)
	}
	_ = c.CloseWrite()
	testkit.Receive(t, "Ended", h.ended)
	if got := h.bytes.Load(); got != 4*room {
		t.Errorf("the owner has %d bytes before the end, want %d", got, 4*room)
	}
}

func TestEndsAndResets(t *testing.T) {
	t.Run("abort wakes everybody", func(t *testing.T) {
		l, h, d, c := newHalf(t)
		defer c.Close()
		errs := make(chan error, 2)
		go func() { _, err := c.Read(make([]byte, 1)); errs <- err }()
		go func() { _, err := c.Write(make([]byte, 2*room)); errs <- err }()
		on(t, l, func() { d.Abort() })
		for range 2 {
			if err := testkit.Receive(t, "an error", errs); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%v, want a reset", err)
			}
		}
		_ = c.Close()
		on(t, l, func() { d.SetReading(true) })
		on(t, l, func() {})
		if len(h.ended)+len(h.failed)+len(h.sent) > 0 {
			t.Error("the owner hears more after Abort")
		}
	})
	t.Run("close leaves what was sent", func(t *testing.T) {
		l, _, d, c := newHalf(t)
		defer c.Close()
		on(t, l, func() { d.Send([]byte("last words")); d.Close() })
		if got, err := io.ReadAll(c); string(got) != "last words" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a write: %v, want EPIPE", err)
		}
	})
	t.Run("a client that goes on after the end is reset", func(t *testing.T) {
		l, h, d, c := newHalf(t)
		on(t, l, func() { d.SetReading(true) })
		_, _ = c.Write([]byte("x"))
		_ = c.Close()
		testkit.Receive(t, "Ended", h.ended)
		on(t, l, func() { d.Send([]byte("more")) })
		if err := testkit.Receive(t, "Failed", h.failed); !errors.Is(err, stream.ErrReset) || h.bytes.Load() != 1 {
			t.Errorf("%v after %d bytes", err, h.bytes.Load())
		}
	})
	t.Run("the other end aborts", func(t *testing.T) {
		l, h, d, c := newHalf(t)
		on(t, l, func() { d.SetReading(true) })
		c.Abort()
		if err := testkit.Receive(t, "Failed", h.failed); !errors.Is(err, stream.ErrReset) {
			t.Error(err)
		}
		if len(h.ended) > 0 {
			t.Error("a reset looks like an end")
		}
	})
	t.Run("a panic is a failure", func(t *testing.T) {
		l, h, d, c := newHalf(t)
		defer c.Close()
		h.panicky = true
		on(t, l, func() { d.SetReading(true) })
		_, _ = c.Write([]byte("x"))
		if err := testkit.Receive(t, "Failed", h.failed); !errors.Is(err, reactor.ErrPanic) {
			t.Error(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a read: %v", err)
		}
	})
	t.Run("after the loop's end", func(t *testing.T) {
		l, _, d, c := newHalf(t)
		defer c.Close()
		on(t, l, func() { d.SetReading(true) })
		l.Close()
		for l.Post(func() {}) {
			runtime.Gosched()
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	l := newLoop(b)
	_, x, y := newJoint(b, l)
	go func() {
		buf := make([]byte, 1024)
		for {
			n, err := y.Read(buf)
			if err != nil {
				return
			}
			_, _ = y.Write(buf[:n])
		}
	}()
	buf := make([]byte, 256)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = x.Write(buf)
		if _, err := io.ReadFull(x, buf); err != nil {
			b.Fatal(err)
		}
	}
}
