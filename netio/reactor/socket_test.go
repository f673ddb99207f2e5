package reactor

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"penstock/internal/testkit"
	"penstock/netio/stream"
)

func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

func TestSocketIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(Socket{}); n > 96 {
		t.Errorf("a socket has %d bytes", n)
	}
	if n := unsafe.Sizeof(Timer{}); n > 48 {
		t.Errorf("a timer has %d bytes", n)
	}
}

// rule 8: a reader that never reads costs a bounded number of bytes.
func TestAPeerThatNeverReadsHoldsTheProducerBack(t *testing.T) {
	l := runLoop(t, Config{})
	p, c := pair(t, l)
	total, calls := 0, 0
	do(t, l, func() {
		piece := make([]byte, 64<<10)
		for pending := 0; pending == 0; calls++ {
			total += len(piece)
			pending = p.Send(piece)
		}
		if n := l.Pending(); n == 0 || n > int64(len(piece)) {
			t.Errorf("%d bytes pending after one piece of %d too many", n, len(piece))
		}
		if p.sent != 0 {
			t.Error("Sent was called before Send returned")
		}
		p.CloseWrite()
	})
	n, err := io.Copy(io.Discard, c)
	if err != nil || n != int64(total) {
		t.Errorf("%d bytes of %d arrived: %v", n, total, err)
	}
	until(t, l, "Sent", func() bool { return p.sent == 1 && l.Pending() == 0 && p.out == nil })
}

// What more follows at once does not go out before it: the peer would wake up
// twice.
func TestSendMoreWaitsForWhatFollows(t *testing.T) {
	l := runLoop(t, Config{})
	p, c := pair(t, l)
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		do(t, l, func() {
			if n := p.SendMore([]byte("head")); n != 0 {
				t.Errorf("%d bytes are kept", n)
			}
			_ = raw.Control(func(fd uintptr) {
				if n := unread(int32(fd)); n != 0 {
					t.Errorf("%d bytes went alone", n)
				}
			})
			p.Send([]byte("body"))
		})
		got := make([]byte, 8)
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "headbody" {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

func TestPausedReadingHoldsThePeerBack(t *testing.T) {
	l := runLoop(t, Config{})
	p, c := pair(t, l)
	data := randomBytes(32 << 20)
	written := make(chan error, 1)
	go func() {
		_, err := c.Write(data)
		_ = c.CloseWrite()
		written <- err
	}()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	select {
	case <-written:
		t.Fatal("32 MB went to a reader that does not read")
	case <-time.After(100 * time.Millisecond):
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	do(t, l, func() {
		if p.got != nil || p.ended {
			t.Error("notified while not reading")
		}
		p.SetReading(true)
	})
	until(t, l, "the end", func() bool { return p.ended })
	if !bytes.Equal(p.got, data) || <-written != nil {
		t.Errorf("%d bytes came of %d", len(p.got), len(data))
	}
}

// rule 7: FIN closes one direction only.
func TestHalfCloseBothWays(t *testing.T) {
	l := runLoop(t, Config{})
	p, c := pair(t, l)
	do(t, l, func() { p.SetReading(true); p.Send([]byte("first")); p.CloseWrite() })
	if got, err := io.ReadAll(c); string(got) != "first" || err != nil {
		t.Fatalf("got %q, %v", got, err)
	}
	_, _ = c.Write([]byte("afterwards"))
	until(t, l, "bytes after the own end", func() bool { return string(p.got) == "afterwards" })
	_ = c.CloseWrite()
	until(t, l, "the end", func() bool { return p.ended })
	do(t, l, func() {
		if p.err != nil {
			t.Error(p.err)
		}
		p.Close()
		if len(l.free) != len(l.sockets) {
			t.Error("a socket that ended both ways lingers")
		}
	})
}

// rule 7: after the peer's FIN all of 50 MB still go to it.
func TestFlushesFiftyMegabytesUnderHalfClose(t *testing.T) {
	l := runLoop(t, Config{})
	p, c := pair(t, l)
	data := randomBytes(50 << 20)
	rest := data
	push := func() {
		for len(rest) > 0 {
			n := min(len(rest), 200_000)
			pending := p.Send(rest[:n])
			if rest = rest[n:]; pending > 0 {
				return
			}
		}
		p.Close()
	}
	p.onSent, p.onEnded = push, push
	_ = c.CloseWrite()
	do(t, l, func() { p.SetReading(true) })
	h := sha256.New()
	if n, err := io.Copy(h, c); err != nil || n != int64(len(data)) {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if want := sha256.Sum256(data); !bytes.Equal(h.Sum(nil), want[:]) {
		t.Error("bytes differ")
	}
}

func abort(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// rule 7: a reset never becomes a clean end, and what came before it is heard.
func TestResetIsToldAfterTheBytesBeforeIt(t *testing.T) {
	t.Run("while reading", func(t *testing.T) {
		l := runLoop(t, Config{})
		p, c := pair(t, l)
		do(t, l, func() { p.SetReading(true) })
		_, _ = c.Write([]byte("last words"))
		abort(c)
		until(t, l, "Failed", func() bool { return p.err != nil })
		if !errors.Is(p.err, stream.ErrReset) || p.ended || string(p.got) != "last words" {
			t.Errorf("got %q, ended %v, %v", p.got, p.ended, p.err)
		}
	})
	t.Run("while paused with nothing to read", func(t *testing.T) {
		l := runLoop(t, Config{})
		p, c := pair(t, l)
		abort(c)
		until(t, l, "Failed", func() bool { return p.err != nil })
		if !errors.Is(p.err, stream.ErrReset) {
			t.Error(p.err)
		}
	})
	t.Run("while paused with something to read", func(t *testing.T) {
		l := runLoop(t, Config{})
		p, c := pair(t, l)
		_, _ = c.Write([]byte("answer"))
		until(t, l, "readable", func() bool { return p.flags&readable != 0 })
		abort(c)
		until(t, l, "hang-up", func() bool { return p.flags&hungUp != 0 })
		do(t, l, func() {
			if p.err != nil {
				t.Errorf("notified of %v with bytes unread", p.err)
			}
			p.SetReading(true)
		})
		until(t, l, "Failed", func() bool { return p.err != nil })
		if string(p.got) != "answer" || !errors.Is(p.err, stream.ErrReset) || p.ended {
			t.Errorf("got %q, ended %v, %v", p.got, p.ended, p.err)
		}
	})
	t.Run("while its destination is full", func(t *testing.T) {
		l := runLoop(t, Config{})
		p, c := pair(t, l)
		d, _ := pair(t, l)
		do(t, l, func() {
			for d.Send(make([]byte, 64<<10)) == 0 {
			}
			p.PipeTo(&d.Socket)
			p.SetReading(true)
		})
		abort(c)
		until(t, l, "Failed", func() bool { return errors.Is(p.err, stream.ErrReset) })
	})
	t.Run("while nobody wants what is to be read", func(t *testing.T) {
		l := runLoop(t, Config{CloseTimeout: 20 * time.Millisecond})
		p, c := pair(t, l)
		_, _ = c.Write([]byte("unheard"))
		until(t, l, "readable", func() bool { return p.flags&readable != 0 })
		abort(c)
		until(t, l, "Failed", func() bool { return errors.Is(p.err, stream.ErrReset) && len(p.got) == 0 })
	})
	t.Run("after its end", func(t *testing.T) {
		l := runLoop(t, Config{})
		p, c := pair(t, l)
		do(t, l, func() { p.SetReading(true) })
		_ = c.CloseWrite()
		until(t, l, "the end", func() bool { return p.ended })
		do(t, l, func() { p.Send([]byte("unread")) })
		abort(c)
		until(t, l, "Failed", func() bool { return errors.Is(p.err, stream.ErrReset) })
	})
	t.Run("discovered by writing", func(t *testing.T) {
		l := runLoop(t, Config{})
		p, c := pair(t, l)
		_, _ = c.Write([]byte("answer"))
		until(t, l, "readable", func() bool { return p.flags&readable != 0 })
		do(t, l, func() {
			abort(c)
			// The reset has arrived; the loop has not seen its report.
			first, second := p.Send([]byte("x")), p.Send([]byte("y"))
			if first+second != 0 {
				t.Errorf("Send to a reset socket keeps %d and %d", first, second)
			}
			p.SetReading(true)
		})
		until(t, l, "Failed", func() bool { return p.err != nil })
		if string(p.got) != "answer" || !errors.Is(p.err, stream.ErrReset) || p.ended {
			t.Errorf("got %q, ended %v, %v", p.got, p.ended, p.err)
		}
	})
}

func TestAbortSendsAReset(t *testing.T) {
	l := runLoop(t, Config{})
	p, c := pair(t, l)
	do(t, l, func() { p.SetReading(true); p.Abort(); p.Abort(); p.Send([]byte("x")); p.SetReading(true) })
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer got %v", err)
	}
	if p.err != nil || p.ended {
		t.Error("notified after Abort")
	}
}

// The peer may have taken a connection before the loop knows of it.
func TestAbortWhileConnectingSendsAReset(t *testing.T) {
	l := runLoop(t, Config{})
	backend, accepted := listenTCP(t)
	var c *net.TCPConn
	do(t, l, func() {
		p := &peer{}
		p.Init(l, p)
		p.Dial(backend, TCPOptions{})
		c = accepted()
		p.Abort()
	})
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the peer got %v", err)
	}
}

func TestCloseSendsWhatIsPendingAndLetsThePeerFinish(t *testing.T) {
	l := runLoop(t, Config{})
	p, c := pair(t, l)
	total := 0
	do(t, l, func() {
		piece := make([]byte, 64<<10)
		for pending := 0; pending < 1<<20; {
			pending = p.Send(piece)
			total += len(piece)
		}
		p.Close()
		if p.isOpen() {
			t.Error("open after Close")
		}
	})
	// The peer goes on sending: that must not cost it a byte.
	_, _ = c.Write([]byte("still talking"))
	n, err := io.Copy(io.Discard, c)
	if err != nil || n != int64(total) {
		t.Errorf("%d bytes of %d, %v", n, total, err)
	}
	if _, err := c.Write([]byte("bye")); err != nil {
		t.Errorf("write after its end: %v", err)
	}
	_ = c.Close()
	until(t, l, "all closed", func() bool { return len(l.free) == len(l.sockets) })
	if p.sent != 0 || p.ended || p.err != nil {
		t.Error("notified after Close")
	}
}

func TestCloseGivesUpOnAPeerThatDoesNotTakePart(t *testing.T) {
	for _, pending := range []bool{false, true} {
		l := runLoop(t, Config{CloseTimeout: 30 * time.Millisecond})
		p, c := pair(t, l)
		do(t, l, func() {
			for p.Send(make([]byte, 64<<10)) == 0 && pending {
			}
			p.Close()
		})
		until(t, l, "closed", func() bool { return len(l.free) == len(l.sockets) && l.Pending() == 0 })
		_, err := io.Copy(io.Discard, c)
		if cut := errors.Is(err, syscall.ECONNRESET); cut != pending {
			t.Errorf("pending %v: the peer got %v", pending, err)
		}
	}
}

// What is closed is in nobody's count any more: peers that do not take part
// must not keep more than some descriptors, and lose nothing by that.
func TestFewSocketsWaitForTheirPeersEnd(t *testing.T) {
	l := runLoop(t, Config{CloseTimeout: time.Hour, MaxClosing: 2})
	clients := make([]*net.TCPConn, 6)
	for i := range clients {
		var p *peer
		p, clients[i] = pair(t, l)
		do(t, l, func() {
			p.Send([]byte("farewell"))
			p.Close()
		})
	}
	do(t, l, func() {
		if n := len(l.sockets) - len(l.free); n != 2 || l.closing.n != 2 {
			t.Errorf("%d sockets are left, %d in the list", n, l.closing.n)
		}
	})
	for _, c := range clients {
		if got, err := io.ReadAll(c); err != nil || string(got) != "farewell" {
			t.Errorf("%q, %v", got, err)
		}
		c.Close()
	}
	until(t, l, "all closed", func() bool { return len(l.free) == len(l.sockets) && l.closing == closingList{} })
}

func TestASocketIsUsedAgainInItsCallbacks(t *testing.T) {
	l := runLoop(t, Config{})
	addr := echo(t, l)
	refusing := netip.MustParseAddrPort(testkit.FreeAddress(t))
	p := &peer{}
	failures := 0
	p.onFailed = func(error) {
		p.Init(l, p)
		if failures++; failures < 5 {
			p.Dial(refusing, TCPOptions{})
		} else {
			p.Dial(addr, TCPOptions{})
		}
	}
	p.onConnected = func() { p.SetReading(true); p.Send([]byte("at last")) }
	do(t, l, func() { p.Init(l, p); p.Dial(refusing, TCPOptions{}) })
	until(t, l, "the echo", func() bool { return string(p.got) == "at last" })
	if failures != 5 || !errors.Is(p.err, syscall.ECONNREFUSED) {
		t.Errorf("%d failures, %v", failures, p.err)
	}
	do(t, l, func() {
		if p.PeerAddr() != addr || !p.LocalAddr().Addr().IsLoopback() {
			t.Errorf("addresses %v, %v", p.PeerAddr(), p.LocalAddr())
		}
		p.Close()
	})
}

func TestWhatIsSentWhileConnectingArrives(t *testing.T) {
	l := runLoop(t, Config{})
	addr := echo(t, l)
	p := &peer{}
	do(t, l, func() {
		p.Init(l, p)
		p.Dial(addr, TCPOptions{KeepAlive: time.Minute})
		if p.Send([]byte("early")) != 5 {
			t.Error("not kept")
		}
		p.SetReading(true)
		p.CloseWrite()
		if p.connected {
			t.Error("Connected was called before Dial returned")
		}
	})
	until(t, l, "the end", func() bool { return p.ended })
	if string(p.got) != "early" || !p.connected || p.sent != 1 {
		t.Errorf("got %q, connected %v, Sent %d times", p.got, p.connected, p.sent)
	}
	do(t, l, func() {
		p.Close()
	})
}

func TestDialsThatFail(t *testing.T) {
	l := runLoop(t, Config{})
	dials := map[string]struct {
		dial func(p *peer)
		want error
	}{
		"not an address":     {func(p *peer) { p.Dial(netip.AddrPort{}, TCPOptions{}) }, syscall.EAFNOSUPPORT},
		"a path too long":    {func(p *peer) { p.DialUnix(strings.Repeat("x", 108)) }, syscall.EINVAL},
		"a path to nothing":  {func(p *peer) { p.DialUnix(t.TempDir() + "/none") }, syscall.ENOENT},
		"an abstract nobody": {func(p *peer) { p.DialUnix("@penstock-test-nobody") }, syscall.ECONNREFUSED},
	}
	for name, d := range dials {
		p := &peer{}
		do(t, l, func() {
			p.Init(l, p)
			d.dial(p)
			if p.err != nil {
				t.Error("notified before Dial returned")
			}
		})
		until(t, l, name, func() bool { return p.err != nil })
		if !errors.Is(p.err, d.want) {
			t.Errorf("%s: %v, want %v", name, p.err, d.want)
		}
	}
}

// A listener whose queue is full lets further dials wait.
func TestADialIsGivenUpByADeadline(t *testing.T) {
	l := runLoop(t, Config{})
	fd, e := newSocket(syscall.AF_INET)
	if e != 0 {
		t.Fatal(e)
	}
	t.Cleanup(func() { closeFD(fd) })
	var a sockaddr
	_ = a.setTCP(netip.MustParseAddrPort("127.0.0.1:0"))
	if err := errors.Join(errnoErr(bind(fd, &a)), syscall.Listen(int(fd), 0), errnoErr(name(syscall.SYS_GETSOCKNAME, fd, &a))); err != nil {
		t.Fatal(err)
	}
	gaveUp := 0
	do(t, l, func() {
		for range 4 {
			p, deadline := &peer{}, &Timer{}
			deadline.Init(expireFunc(func(*Timer) {
				if !p.connected {
					gaveUp++
				}
				p.Abort()
			}))
			p.Init(l, p)
			p.Dial(a.addrPort(), TCPOptions{})
			l.Arm(deadline, 20*time.Millisecond)
		}
	})
	until(t, l, "all given up", func() bool { return len(l.free) == 4 })
	if gaveUp < 2 {
		t.Errorf("%d dials were given up", gaveUp)
	}
}

func errnoErr(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func TestUnixSockets(t *testing.T) {
	for _, path := range []string{t.TempDir() + "/sock", "@penstock-test-" + t.Name()} {
		l := runLoop(t, Config{})
		fd, err := ListenUnix(path)
		if err != nil {
			t.Fatal(err)
		}
		data := randomBytes(4 << 20)
		var server, client peer
		server.onReceived = func(b []byte) {
			if server.Send(b) > 0 {
				server.SetReading(false)
			}
		}
		server.onSent = func() { server.SetReading(true) }
		server.onEnded = server.Close
		do(t, l, func() {
			_, err = l.Listen(fd, acceptFuncs{accepted: func(fd int, from netip.AddrPort) {
				if from.IsValid() {
					t.Errorf("the peer is %v", from)
				}
				server.Init(l, &server)
				server.Adopt(fd, from)
				server.SetReading(true)
			}})
			client.Init(l, &client)
			client.DialUnix(path)
			client.Send(data)
			client.CloseWrite()
			client.SetReading(true)
		})
		if err != nil {
			t.Fatal(err)
		}
		until(t, l, "the end", func() bool { return client.ended })
		if !client.connected || !bytes.Equal(client.got, data) || client.PeerAddr().IsValid() {
			t.Errorf("%s: %d bytes", path, len(client.got))
		}
		do(t, l, client.Close)
		closeFD(int32(fd))
	}
}

func TestUrgentDataDoesNotStallTheStream(t *testing.T) {
	l := runLoop(t, Config{})
	p, c := pair(t, l)
	do(t, l, func() { p.SetReading(true) })
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write([]byte("before"))
	_ = raw.Control(func(fd uintptr) { err = syscall.Sendto(int(fd), []byte("!"), syscall.MSG_OOB, nil) })
	_, _ = c.Write([]byte("after"))
	_ = c.CloseWrite()
	if err != nil {
		t.Fatal(err)
	}
	until(t, l, "the end", func() bool { return p.ended })
	if string(p.got) != "beforeafter" {
		t.Errorf("got %q", p.got)
	}
}

func TestNoAllocationsPerRoundTrip(t *testing.T) {
	l := runLoop(t, Config{})
	to := echo(t, l)
	front := serve(t, l, func(fd int, from netip.AddrPort) { newRelay(l, fd, from, to) })
	c := dialTCP(t, front)
	buf := make([]byte, 256)
	trip := func() {
		_, _ = c.Write(buf)
		if _, err := io.ReadFull(c, buf); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(2000, trip); n != 0 {
		t.Errorf("%v allocations per round trip", n)
	}
}
