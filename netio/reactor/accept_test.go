package reactor

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
)

const fewFilesEnv = "REACTOR_TEST_FEW_FILES"

// rule 10: out of descriptors, accepting rests and resumes; nobody is dropped.
func TestAcceptRestsWithoutDescriptors(t *testing.T) {
	if os.Getenv(fewFilesEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), fewFilesEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	l := runLoop(t, Config{})
	fd, addr, err := ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var accepted []*peer
	var rests []time.Duration
	do(t, l, func() {
		_, err = l.Listen(fd, acceptFuncs{
			accepted: func(fd int, from netip.AddrPort) {
				p := &peer{}
				p.Init(l, p)
				p.Adopt(fd, from)
				p.Send([]byte("hello"))
				accepted = append(accepted, p)
			},
			failed: func(err error, rest time.Duration) {
				if !errors.Is(err, syscall.EMFILE) {
					t.Errorf("failed with %v", err)
				}
				rests = append(rests, rest)
			},
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	const conns = 40
	var clients []interface {
		io.Reader
		Close() error
	}
	for range conns / 2 {
		clients = append(clients, dialTCP(t, addr))
	}
	until(t, l, "the first half", func() bool { return len(accepted) == conns/2 })
	do(t, l, func() { // so that none is accepted before the limit is set
		for range conns / 2 {
			clients = append(clients, dialTCP(t, addr))
		}
		setFileLimit(t, uint64(lowestFree(t)))
	})
	until(t, l, "rests", func() bool { return len(rests) >= 3 })
	do(t, l, func() {
		for i := 1; i < len(rests); i++ {
			if rests[i] < rests[i-1] || rests[i] <= 0 || rests[i] > maxRest {
				t.Errorf("rests %v", rests)
			}
		}
		for _, p := range accepted {
			p.Abort()
		}
	})
	until(t, l, "the second half", func() bool { return len(accepted) == conns })
	for _, c := range clients[conns/2:] {
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Errorf("dropped: %v", err)
		}
	}
}

// lowestFree is the lowest descriptor not in use.
func lowestFree(t *testing.T) int {
	fd, err := syscall.Dup(0)
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Close(fd)
	return fd
}

func setFileLimit(t *testing.T, n uint64) {
	var r syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		t.Fatal(err)
	}
	r.Cur = n
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &r); err != nil {
		t.Fatal(err)
	}
}

func TestRaiseFileLimit(t *testing.T) {
	if os.Getenv(fewFilesEnv) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		cmd.Env = append(os.Environ(), fewFilesEnv+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	setFileLimit(t, 64)
	n, err := RaiseFileLimit()
	var r syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r)
	if err != nil || n <= 64 || n != r.Cur || n != r.Max {
		t.Errorf("raised to %d, %v; the limits are %+v", n, err, r)
	}
}

// rule 11: a listening socket is given up without losing its queue.
func TestStopAndDrainLoseNoConnection(t *testing.T) {
	l := runLoop(t, Config{})
	fd, addr, err := ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeFD(int32(fd))
	var ln *Listener
	serve := acceptFuncs{accepted: func(fd int, from netip.AddrPort) {
		p := &peer{}
		p.Init(l, p)
		p.Adopt(fd, from)
		p.Send([]byte("hello"))
		p.Close()
	}}
	do(t, l, func() { ln, err = l.Listen(fd, serve) })
	if err != nil {
		t.Fatal(err)
	}
	var clients []io.Reader
	do(t, l, func() {
		for range 20 {
			clients = append(clients, dialTCP(t, addr))
		}
		ln.Stop()
		ln.Stop()
		if n, err := ln.Drain(); n != 20 || err != nil {
			t.Errorf("drained %d, %v", n, err)
		}
		if n, err := ln.Drain(); n != 0 || err != nil {
			t.Errorf("drained %d more, %v", n, err)
		}
	})
	// Another listener for the same socket may follow.
	do(t, l, func() { ln, err = l.Listen(fd, serve) })
	clients = append(clients, dialTCP(t, addr))
	for i, c := range clients {
		if got, err := io.ReadAll(c); string(got) != "hello" || err != nil {
			t.Errorf("client %d: %q, %v", i, got, err)
		}
	}
	do(t, l, ln.Stop)
}

func TestOneListeningSocketOnSeveralLoops(t *testing.T) {
	a, b := runLoop(t, Config{}), runLoop(t, Config{})
	fd, addr, err := ListenTCP(netip.MustParseAddrPort("[::1]:0"), TCPOptions{})
	if err != nil {
		testkit.NotTested(t, "IPv6: %v", err)
	}
	defer closeFD(int32(fd))
	var n [2]atomic.Int64
	var lns [2]*Listener
	for i, l := range []*Loop{a, b} {
		do(t, l, func() {
			lns[i], err = l.Listen(fd, acceptFuncs{accepted: func(fd int, from netip.AddrPort) {
				n[i].Add(1)
				if !from.Addr().Is6() {
					t.Errorf("from %v", from)
				}
				// Handed over to the other loop.
				to := []*Loop{b, a}[i]
				to.Post(func() {
					p := &peer{}
					p.Init(to, p)
					p.Adopt(fd, from)
					p.Send(fmt.Append(nil, p.LocalAddr()))
					p.Close()
				})
			}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		if got, err := io.ReadAll(dialTCP(t, addr)); string(got) != addr.String() || err != nil {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if n[0].Load()+n[1].Load() != 50 {
		t.Errorf("accepted %d and %d", n[0].Load(), n[1].Load())
	}
	do(t, a, lns[0].Stop)
	do(t, b, lns[1].Stop)
}

// rule 9: options of the listening socket are those of the accepted ones.
func TestAcceptedSocketsInheritTheOptions(t *testing.T) {
	l := runLoop(t, Config{})
	fd, addr, err := ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), TCPOptions{KeepAlive: 77 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer closeFD(int32(fd))
	got := make(chan [4]int, 1)
	var ln *Listener
	do(t, l, func() {
		ln, err = l.Listen(fd, acceptFuncs{accepted: func(fd int, _ netip.AddrPort) {
			var v [4]int
			v[0], _ = syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
			v[1], _ = syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_KEEPALIVE)
			v[2], _ = syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE)
			v[3], _ = syscall.GetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL)
			closeFD(int32(fd))
			got <- v
		}})
	})
	if err != nil {
		t.Fatal(err)
	}
	dialTCP(t, addr)
	if v := <-got; v != [4]int{1, 1, 77, 77} {
		t.Errorf("nodelay, keepalive, idle, interval: %v", v)
	}
	do(t, l, ln.Stop)
}

func TestAListeningSocketThatDiesIsTold(t *testing.T) {
	l := runLoop(t, Config{})
	fd, _, err := ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeFD(int32(fd))
	failed := make(chan time.Duration, 2)
	do(t, l, func() {
		_, err = l.Listen(fd, acceptFuncs{failed: func(_ error, rest time.Duration) { failed <- rest }})
		if err == nil {
			err = syscall.Shutdown(fd, syscall.SHUT_RD) // it listens no more
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if rest := <-failed; rest != 0 {
		t.Errorf("rests for %v", rest)
	}
	do(t, l, func() {
		if _, err := l.Listen(1<<20, acceptFuncs{}); err == nil {
			t.Error("listens on no descriptor")
		}
	})
}

func TestAddressesThatCannotBeListenedOn(t *testing.T) {
	fd, addr, err := ListenTCP(netip.MustParseAddrPort("127.0.0.1:0"), TCPOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeFD(int32(fd))
	if _, _, err := ListenTCP(addr, TCPOptions{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("the same port twice: %v", err)
	}
	if _, _, err := ListenTCP(netip.AddrPort{}, TCPOptions{}); err == nil {
		t.Error("listens on no address")
	}
	if _, err := ListenUnix(""); err == nil {
		t.Error("listens on no path")
	}
}
