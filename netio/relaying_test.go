package netio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/internal/testkit"
)

func TestPlainRoundTripsAndCleanEnd(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	c := dial(t, r.serve(t, Listener{}))
	for range 3 {
		roundTrip(t, c, "hello")
	}
	c.CloseWrite()
	mustEnd(t, c, "")
	if e := r.wantEnd(t, ClientFIN); e.in != 15 || e.out != 15 || !e.routed {
		t.Errorf("ending %+v, want 15 bytes each way", e)
	}
	if got := r.meter.Counts(); got != (Counts{Connections: 1, BytesIn: 15, BytesOut: 15}) {
		t.Errorf("meter %+v", got)
	}
}

// rule 6: a listener that does not sniff lets the server speak first.
func TestServerSpeaksFirst(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "220 ready\r\n")
		echo(c)
	}), Profile{})
	c := dial(t, r.serve(t, Listener{}))
	mustRead(t, c, "220 ready\r\n")
	roundTrip(t, c, "QUIT")
}

func TestDataThatArrivesWhileConnecting(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	to := mustAddr(testkit.Serve(t, echo))
	refused := mustAddr(testkit.FreeAddress(t))
	profile := &Profile{Meter: r.meter}
	r.route = func(*Conn) (Plan, Reason) {
		// The first attempt fails, so the client's bytes are well ahead.
		return &plan{targets: []Target{{Addr: refused, Profile: profile}, {Addr: to, Profile: profile}}}, OK
	}
	c := dial(t, r.serve(t, Listener{}))
	mustWrite(t, c, "early")
	c.CloseWrite()
	mustEnd(t, c, "early")
	r.wantEnd(t, ClientFIN)
}

// rule 7: an end of stream is forwarded and the other direction continues,
// whichever side ends first.
func TestHalfCloseInBothDirections(t *testing.T) {
	t.Run("client first", func(t *testing.T) {
		r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
			question, _ := io.ReadAll(c)
			_, _ = c.Write(bytes.ToUpper(question))
		}), Profile{})
		c := dial(t, r.serve(t, Listener{}))
		mustWrite(t, c, "question")
		c.CloseWrite()
		mustEnd(t, c, "QUESTION")
		r.wantEnd(t, ClientFIN)
	})
	t.Run("endpoint first", func(t *testing.T) {
		heard := make(chan string, 1)
		r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
			c.CloseWrite() // at once
			all, _ := io.ReadAll(c)
			heard <- string(all)
		}), Profile{})
		c := dial(t, r.serve(t, Listener{}))
		mustEnd(t, c, "")
		mustWrite(t, c, "still heard")
		c.CloseWrite()
		if got := <-heard; got != "still heard" {
			t.Errorf("the endpoint heard %q", got)
		}
		r.wantEnd(t, UpstreamFIN)
	})
}

// rule 7: a large answer after a half-close arrives complete.
func TestLargeAnswerAfterHalfClose(t *testing.T) {
	answer := bytes.Repeat([]byte("0123456789abcdef"), 50<<20/16)
	r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		_, _ = c.Write(answer)
	}), Profile{})
	c := dial(t, r.serve(t, Listener{}))
	mustWrite(t, c, "all of it")
	c.CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, answer) {
		t.Fatalf("%d of %d bytes, %v", len(got), len(answer), err)
	}
	r.wantEnd(t, ClientFIN)
}

// rule 7: a reset is forwarded as a reset.
func TestResetInBothDirections(t *testing.T) {
	t.Run("client", func(t *testing.T) {
		end := make(chan error, 1)
		r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
			_, err := io.Copy(c, c)
			end <- err
		}), Profile{})
		c := dial(t, r.serve(t, Listener{}))
		roundTrip(t, c, "x")
		reset(t, c)
		if err := <-end; !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the endpoint saw %v", err)
		}
		r.wantEnd(t, ClientReset)
	})
	t.Run("endpoint after one byte", func(t *testing.T) {
		r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
			_, _ = c.Write([]byte("x"))
			_, _ = io.ReadFull(c, make([]byte, 4))
			_ = c.SetLinger(0)
		}), Profile{})
		c := dial(t, r.serve(t, Listener{}))
		mustRead(t, c, "x")
		mustWrite(t, c, "quit")
		mustBeReset(t, c)
		r.wantEnd(t, UpstreamReset)
	})
}

// rule 8: clients that never read cost a bounded number of bytes. What the kernel keeps
// for them is little, because its memory for TCP is that of all tests on the machine.
func TestReadersThatNeverRead(t *testing.T) {
	const readers = 12
	r := newRig(t, Config{}, testkit.Serve(t, func(c *net.TCPConn) {
		_ = c.SetWriteBuffer(64 << 10)
		chunk := make([]byte, 64<<10)
		for {
			if _, err := c.Write(chunk); err != nil {
				return
			}
		}
	}), Profile{})
	addr := r.serve(t, Listener{})
	for range readers {
		_ = dial(t, addr).SetReadBuffer(4 << 10)
	}
	// All buffers are full when no byte moves any more.
	last := r.meter.Counts().BytesOut
	still := 0
	testkit.WaitFor(t, "everything to stand still", func() bool {
		now := r.meter.Counts().BytesOut
		if now == last && r.Stats().Connections == readers && now > readers<<16 {
			still++
		} else {
			still = 0
		}
		last = now
		return still > 50
	})
	if pending := r.Stats().Pending; pending > readers*(64<<10) {
		t.Errorf("%d bytes pending for %d readers, over 64 KiB each", pending, readers)
	}
	if n := len(r.endings()); n != 0 {
		t.Errorf("%d connections ended: %+v", n, r.endings())
	}
}

func TestIdleTimeout(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Second // enough for a busy machine to send in time
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{IdleTimeout: limit})
	c := dial(t, r.serve(t, Listener{}))
	begun := time.Now()
	roundTrip(t, c, "x")
	mustEnd(t, c, "")
	if d := time.Since(begun); d < limit-10*time.Millisecond {
		t.Errorf("ended after %v", d)
	}
	r.wantEnd(t, IdleTimeout)
}

// An endpoint that accepts and sends nothing is an idle connection.
func TestEndpointThatSaysNothing(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	// The client sends in time.
	r := newRig(t, Config{}, testkit.Serve(t, func(*net.TCPConn) { <-silent }), Profile{IdleTimeout: 2 * time.Second})
	t.Cleanup(func() { close(silent) })
	c := dial(t, r.serve(t, Listener{}))
	mustWrite(t, c, "anyone?")
	mustEnd(t, c, "")
	r.wantEnd(t, IdleTimeout)
}

// rule 7: a half-closed connection has a shorter timeout; because the rest of
// the answer is missing, it must not end cleanly.
func TestHalfClosedTimeout(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	r := newRig(t, Config{}, testkit.Serve(t, func(*net.TCPConn) { <-silent }),
		Profile{IdleTimeout: time.Hour, HalfClosedTimeout: 100 * time.Millisecond})
	t.Cleanup(func() { close(silent) })
	c := dial(t, r.serve(t, Listener{}))
	mustWrite(t, c, "question")
	testkit.WaitFor(t, "more than that timeout to pass before it", func() bool {
		list := r.Connections(1)
		return len(list) == 0 || list[0].Idle > 200*time.Millisecond
	})
	c.CloseWrite()
	mustBeReset(t, c)
	r.wantEnd(t, HalfClosedTimeout)
}

// rule 9: a maximum age, randomly shortened by up to a tenth.
func TestMaxAge(t *testing.T) {
	t.Parallel()
	const age = 10 * time.Second // of which a busy machine may take nine for its round trip
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{MaxAge: age, IdleTimeout: time.Hour})
	begun := time.Now()
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "x")
	mustEnd(t, c, "")
	if d := time.Since(begun); d < age*9/10-10*time.Millisecond {
		t.Errorf("ended after %v", d)
	}
	r.wantEnd(t, MaxAge)
}

// rule 9: at its maximum age a connection that is still busy is cut, and that must
// not look like its end.
func TestMaxAgeCutsABusyConnection(t *testing.T) {
	const age = time.Hour
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{MaxAge: age, IdleTimeout: age})
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "x")
	r.onConns(func(c *Conn) {
		now := c.loop.Now()
		c.born, c.expiry, c.active = now-age, now-age/20, now+age // however long this takes, it is not quiet
		c.checkTimers()
	})
	mustBeReset(t, c)
	r.wantEnd(t, MaxAge)
}

// Simultaneous connections do not all reach their maximum age at the same time.
func TestMaxAgesDiffer(t *testing.T) {
	const n, age = 10, 100 * time.Second
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{MaxAge: age})
	addr := r.serve(t, Listener{})
	for range n {
		roundTrip(t, dial(t, addr), "x")
	}
	ages := map[time.Duration]bool{}
	r.onConns(func(c *Conn) {
		d := c.expiry - c.born
		ages[d] = true
		if d < age*9/10 || d > age {
			t.Errorf("closed from %v on", d)
		}
	})
	if len(ages) < n/2 {
		t.Errorf("%d connections have the ages %v", n, ages)
	}
}

// rule 9: close to its maximum age a busy connection is not cut, but closed at
// its first quiet moment.
func TestMaxAgeWaitsForAQuietMoment(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{MaxAge: time.Hour, IdleTimeout: time.Hour})
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "x")
	r.onConns(func(c *Conn) {
		c.expiry, c.active = c.loop.Now(), c.loop.Now()
		c.checkTimers()
		if c.phase != phaseRelaying {
			t.Error("a connection was closed in the middle of its work")
		}
	})
	mustEnd(t, c, "")
	r.wantEnd(t, MaxAge)
}

func TestRoundTripsAllocateNothing(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{IdleTimeout: time.Hour})
	c := dial(t, r.serve(t, Listener{}))
	p := []byte(strings.Repeat("x", 256))
	trip := func() {
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, p); err != nil {
			t.Fatal(err)
		}
	}
	trip()
	if n := testing.AllocsPerRun(200, trip); n >= 1 {
		t.Errorf("a round trip allocates %v times", n)
	}
}

// rule 9: small messages are sent at once, and dead peers are detected on both
// sides; towards the endpoint once a connection has some age.
func TestSocketOptions(t *testing.T) {
	to := testkit.Serve(t, echo)
	r := newRig(t, Config{KeepAlive: time.Second}, to, Profile{IdleTimeout: time.Hour})
	addr := r.serve(t, Listener{})
	c := dial(t, addr)
	roundTrip(t, c, "x")
	client := c.LocalAddr().(*net.TCPAddr).AddrPort()
	for name, peer := range map[string]netip.AddrPort{"client": client, "endpoint": mustAddr(to)} {
		found := false
		for fd := range 1 << 10 {
			if local, remote := socketAddrs(fd); remote != peer || local == client {
				continue
			}
			found = true
			for option, want := range map[[2]int]int{
				{unix.IPPROTO_TCP, unix.TCP_NODELAY}:  1,
				{unix.SOL_SOCKET, unix.SO_KEEPALIVE}:  1,
				{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE}: 1,
			} {
				testkit.WaitFor(t, fmt.Sprintf("option %v towards the %s to be %d", option, name, want), func() bool {
					got, err := unix.GetsockoptInt(fd, option[0], option[1])
					return err == nil && got == want
				})
			}
		}
		if !found {
			t.Errorf("no socket towards the %s", name)
		}
	}
}

// socketAddrs returns the addresses of a connected IPv4 socket.
func socketAddrs(fd int) (local, peer netip.AddrPort) {
	addr := func(get func(int) (unix.Sockaddr, error)) netip.AddrPort {
		a, err := get(fd)
		in, ok := a.(*unix.SockaddrInet4)
		if err != nil || !ok {
			return netip.AddrPort{}
		}
		return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
	}
	return addr(unix.Getsockname), addr(unix.Getpeername)
}
