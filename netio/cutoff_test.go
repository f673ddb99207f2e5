package netio

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
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

// rule 7: what is cut off while its reader stalls has bytes under way, in a
// pipe or unread before it, and must not look complete.
func TestStalledReaderIsNotEndedCleanly(t *testing.T) {
	for name, stop := range map[string]func(*rig) error{
		string(IdleTimeout): func(*rig) error { return nil },
		string(Drained):     func(r *rig) error { return r.Drain(t.Context(), 600*time.Millisecond) },
		string(Shutdown):    func(r *rig) error { r.Close(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			p := Profile{}
			if name == string(IdleTimeout) {
				p.IdleTimeout = 200 * time.Millisecond
			}
			r := newRig(t, Config{}, endpoint(t, func(c *net.TCPConn) { flood(c) }), p)
			c := dial(t, r.serve(t, Listener{}))
			// Enough is read for the splicing to begin, and then nothing.
			if _, err := io.CopyN(io.Discard, c, 4<<20); err != nil {
				t.Fatal(err)
			}
			waitFor(t, "the relay to stand still", func() bool {
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

// A client that is gone is found out although the endpoint has not read what
// it said, and goes on talking.
func TestClientResetIsToldToAnEndpointThatNeverReads(t *testing.T) {
	gone := make(chan struct{})
	r := newRig(t, Config{CloseTimeout: 200 * time.Millisecond}, endpoint(t, func(c *net.TCPConn) {
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
	select {
	case <-gone:
	case <-time.After(patience):
		t.Error("the endpoint was not told")
	}
}

// rule 7: what a slow reader takes out of the kernel's buffer is no silence,
// though no byte passes through the relay any more.
func TestSlowReaderIsNotCutOffByTheHalfClosedTimeout(t *testing.T) {
	const limit, size = 300 * time.Millisecond, 1 << 20
	r := newRig(t, Config{}, endpoint(t, func(c *net.TCPConn) { _, _ = c.Write(make([]byte, size)) }),
		Profile{HalfClosedTimeout: limit})
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 32<<10) })
	}}
	c, err := d.Dial("tcp", r.serve(t, Listener{}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	got := int64(0)
	for err == nil {
		<-tick.C
		var n int64
		n, err = io.CopyN(io.Discard, c, 4<<10)
		got += n
	}
	if got != size || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes of %d, then %v", got, size, err)
	}
}
