package netio

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/stream"
)

// Failure returns the error of the connection itself, and nil if nothing
// failed.
func TestFailureIsTheConnectionsOwn(t *testing.T) {
	r := newRig(t, Config{Loops: 1}, "", Profile{})
	to := func(address string) {
		target := Target{Addr: mustAddr(address), Profile: &Profile{Meter: r.meter}}
		r.route = func(*Conn) (Plan, Reason) { return &plan{targets: []Target{target}}, OK }
	}
	echoes, refuses := testkit.Serve(t, echo), testkit.FreeAddress(t)
	resets := testkit.Serve(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1))
		_ = c.SetLinger(0)
	})
	addr := r.serve(t, Listener{})
	for i, test := range []struct {
		name, to string
		client   func(c *net.TCPConn) // nil: refused
		why      Reason
		failure  error
	}{
		{"endpoint resets", resets, func(c *net.TCPConn) { mustWrite(t, c, "x") }, UpstreamReset, stream.ErrReset},
		{"clean end", echoes, func(c *net.TCPConn) { roundTrip(t, c, "x"); c.CloseWrite() }, ClientFIN, nil},
		{"client resets", echoes, func(c *net.TCPConn) { roundTrip(t, c, "x"); reset(t, c) }, ClientReset, stream.ErrReset},
		{"clean end again", echoes, func(c *net.TCPConn) { roundTrip(t, c, "x"); c.CloseWrite() }, ClientFIN, nil},
		{"nobody there", refuses, nil, ConnectRefused, syscall.ECONNREFUSED},
		{"clean end after that", echoes, func(c *net.TCPConn) { roundTrip(t, c, "x"); c.CloseWrite() }, ClientFIN, nil},
	} {
		r.onLoops(func(*loop) { to(test.to) })
		if test.client == nil {
			mustBeTurnedAway(t, addr)
		} else {
			test.client(dial(t, addr))
		}
		e := r.waitEndings(t, i+1)[i]
		if e.why != test.why || !errors.Is(e.failure, test.failure) || (e.failure == nil) != (test.failure == nil) {
			t.Errorf("%s: %q, %v, want %q, %v", test.name, e.why, e.failure, test.why, test.failure)
		}
	}
}

// All relayed bytes count as activity, in either direction and however they are
// moved.
func TestAllBytesCountAsActivity(t *testing.T) {
	for name, size := range map[string]int{"a few": 1, "many, moved by the kernel": 8 << 20} {
		t.Run(name, func(t *testing.T) {
			said := make(chan struct{})
			r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
				_, _ = io.CopyN(io.Discard, c, int64(size))
				<-said
				_, _ = c.Write(make([]byte, size))
				_, _ = io.Copy(io.Discard, c) // its end would count as activity, too
			}), Profile{})
			c := dial(t, r.serve(t, Listener{}))
			idleFor := func(d time.Duration) {
				r.onConns(func(c *Conn) { c.active = c.loop.Now() - d })
			}
			testkit.WaitFor(t, "the relay", func() bool { return r.meter.Counts().Connections == 1 })
			idleFor(time.Hour)
			if _, err := c.Write(make([]byte, size)); err != nil {
				t.Fatal(err)
			}
			testkit.WaitFor(t, "the client's bytes to count", func() bool { return r.meter.Counts().BytesIn == uint64(size) })
			if idle := r.Connections(1)[0].Idle; idle > testkit.Patience {
				t.Errorf("idle for %v after the client spoke", idle)
			}
			idleFor(time.Hour)
			close(said)
			if _, err := io.CopyN(io.Discard, c, int64(size)); err != nil {
				t.Fatal(err)
			}
			testkit.WaitFor(t, "the endpoint's bytes to count", func() bool { return r.meter.Counts().BytesOut == uint64(size) })
			for _, i := range r.Connections(1) {
				if i.Idle > testkit.Patience {
					t.Errorf("idle for %v after the endpoint spoke", i.Idle)
				}
			}
		})
	}
}
