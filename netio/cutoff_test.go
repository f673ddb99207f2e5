package netio

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// flood writes until the connection fails.
func flood(c net.Conn) {
	chunk := make([]byte, 256<<10)
	for {
		if _, err := c.Write(chunk); err != nil {
			return
		}
	}
}

// rule 7: a connection that is cut while its reader stalls has bytes in a pipe
// or in socket buffers, so its end must not look clean.
func TestStalledReaderIsNotEndedCleanly(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*rig) error{
		string(IdleTimeout): func(*rig) error { return nil },
		string(Drained):     func(r *rig) error { return r.Drain(t.Context(), 600*time.Millisecond) },
		string(Shutdown):    func(r *rig) error { r.Close(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Profile{}
			if name == string(IdleTimeout) {
				p.IdleTimeout = 2 * time.Second // long enough for the first bytes on a busy machine
			}
			r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) { flood(c) }), p)
			c := dial(t, r.serve(t, Listener{}))
			// Read enough for splicing to start, then stop.
			if _, err := io.CopyN(io.Discard, c, 4<<20); err != nil {
				t.Fatal(err)
			}
			testkit.WaitFor(t, "the relay to stand still", func() bool {
				list := r.Connections(1)
				return len(list) == 0 || list[0].Idle > 2*quietTime
			})
			if err := stop(r); err != nil {
				t.Fatal(err)
			}
			r.wantEnd(t, Reason(name))
			if n, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%d bytes more, then %v", n, err)
			}
		})
	}
}

// A reset by the client is detected although the endpoint never reads its bytes
// and keeps sending.
func TestClientResetIsToldToAnEndpointThatNeverReads(t *testing.T) {
	gone := make(chan struct{})
	r := newRig(t, Config{CloseTimeout: 200 * time.Millisecond}, testkit.Serve(t, func(c *net.TCPConn) {
		flood(c)
		close(gone)
	}), Profile{})
	c := dial(t, r.serve(t, Listener{}))
	go func() { _, _ = io.Copy(io.Discard, c) }()
	chunk := make([]byte, 64<<10)
	for {
		_ = c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		if _, err := c.Write(chunk); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	reset(t, c)
	r.wantEnd(t, ClientReset)
	testkit.Receive(t, "the endpoint to be told", gone)
}

// rule 7: bytes that a slow reader takes out of the kernel's buffer count as
// activity, although no byte passes through the relay.
func TestSlowReaderIsNotCutOffByTheHalfClosedTimeout(t *testing.T) {
	t.Parallel()
	const limit, size = time.Second, 1 << 20 // takes at least two and a half seconds to read
	p := Profile{HalfClosedTimeout: limit}
	t.Run("client", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) { _, _ = c.Write(make([]byte, size)) }), p)
		if n := readSlowly(t, dialNarrow(t, r.serve(t, Listener{}))); n != size {
			t.Errorf("%d bytes of %d", n, size)
		}
	})
	t.Run("endpoint", func(t *testing.T) {
		t.Parallel()
		got := make(chan int64, 1)
		r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
			_ = c.SetReadBuffer(32 << 10)
			got <- readSlowly(t, c)
		}), p)
		c := dial(t, r.serve(t, Listener{}))
		if _, err := c.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		c.CloseWrite()
		if n := <-got; n != size {
			t.Errorf("%d bytes of %d", n, size)
		}
	})
}

// rule 19: a connection with a stalled reader has bytes in flight, so a drain
// keeps it until the end of its window, although it is idle.
func TestDrainLeavesAStalledReaderToTheEnd(t *testing.T) {
	t.Parallel()
	var floods atomic.Bool
	floods.Store(true)
	r := newRig(t, Config{Loops: 1}, testkit.Serve(t, func(c *net.TCPConn) {
		if floods.CompareAndSwap(true, false) {
			flood(c)
		} else {
			echo(c)
		}
	}), Profile{})
	addr := r.serve(t, Listener{})
	stalled := dial(t, addr)
	if _, err := io.CopyN(io.Discard, stalled, 4<<20); err != nil {
		t.Fatal(err)
	}
	still := func() bool {
		for _, c := range r.Connections(2) {
			if c.Idle < 2*quietTime {
				return false
			}
		}
		return true
	}
	testkit.WaitFor(t, "the relay to stand still", still)
	other := dial(t, addr)
	roundTrip(t, other, "x")
	testkit.WaitFor(t, "the other one to be idle too", still)
	if err := r.Drain(t.Context(), 2*time.Second); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, other, "")
	if ends := r.waitEndings(t, 2); ends[0].in != 1 {
		t.Errorf("the stalled one was closed first: %+v", ends)
	}
}

// dialNarrow connects with a small receive buffer.
func dialNarrow(t *testing.T, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{Timeout: testkit.Patience, Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10) })
	}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// readSlowly reads in small pieces until the end, which must be clean.
func readSlowly(t *testing.T, c net.Conn) (got int64) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		<-tick.C
		n, err := io.CopyN(io.Discard, c, 4<<10)
		if got += n; err != nil {
			if !errors.Is(err, io.EOF) {
				t.Errorf("ended with %v", err)
			}
			return got
		}
	}
}
