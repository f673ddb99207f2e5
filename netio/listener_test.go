package netio

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"penstock/internal/testkit"
	"penstock/netio/clienthello"
	"penstock/netio/reactor"
)

func tcp(name, address string) Listener {
	return Listener{Name: name, Network: "tcp", Address: address}
}

// tellListener makes connections start with the name of their listener.
func (r *rig) tellListener(t testing.TB) {
	t.Helper()
	names := make(map[string]Target)
	route := func(c *Conn) (Plan, Reason) { return &plan{targets: []Target{names[c.Listener()]}}, OK }
	for _, name := range []string{"a", "b", "c"} {
		to := testkit.Serve(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, name)
			echo(c)
		})
		names[name] = Target{Addr: mustAddr(to), Profile: &Profile{Meter: r.meter}}
	}
	r.route = route
}

func TestListenersOnEveryKindOfAddress(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	for name, test := range map[string]struct{ network, address, dial string }{
		"IPv4":           {"tcp", "127.0.0.1:0", "127.0.0.1"},
		"IPv6":           {"tcp", "[::1]:0", "::1"},
		"IPv4 wildcard":  {"tcp", "0.0.0.0:0", "127.0.0.2"},
		"IPv6 wildcard":  {"tcp", "[::]:0", "::1"},
		"both wildcards": {"tcp", ":0", "127.0.0.3"},
		"unix":           {"unix", path, path},
		"abstract":       {"unix", fmt.Sprintf("@penstock-test-%d", os.Getpid()), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
			addr := r.serve(t, Listener{Network: test.network, Address: test.address})
			if test.network == "tcp" {
				_, port, err := net.SplitHostPort(addr)
				if err != nil {
					t.Fatal(err)
				}
				addr = net.JoinHostPort(test.dial, port)
			}
			c, err := net.Dial(test.network, addr)
			if err != nil {
				if test.dial == "::1" && errors.Is(err, syscall.EADDRNOTAVAIL) {
					testkit.NotTested(t, "IPv6: %v", err)
				}
				t.Fatal(err)
			}
			defer c.Close()
			roundTrip(t, c, "hello")
			r.Close()
			if _, err := os.Lstat(path); test.network == "unix" && err == nil {
				t.Error("the socket's file is still there")
			}
		})
	}
}

func TestBadAddressesAreReported(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.SetListeners([]Listener{
		tcp("no port", "127.0.0.1"),
		tcp("a name", "nowhere.example.com:80"),
		tcp("not ours", "192.0.2.1:0"),
		{Name: "no network", Network: "sctp", Address: "127.0.0.1:0"},
		{Name: "a file", Network: "unix", Address: file},
		{Name: "a long path", Network: "unix", Address: filepath.Join(dir, strings.Repeat("x", 200))},
		tcp("good", "127.0.0.1:0"),
	})
	for _, s := range r.Listeners() {
		if (s.Err == nil) != (s.Name == "good") {
			t.Errorf("%s: %v", s.Name, s.Err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "precious" {
		t.Errorf("the file has %q, %v", b, err)
	}
	roundTrip(t, dial(t, r.address(t, "good")), "the others are not concerned")
}

// A port that is taken is reported, and bound once it is free.
func TestUnbindablePortHeals(t *testing.T) {
	squatter := testkit.Listen(t)
	r := newRig(t, Config{BindRetry: 10 * time.Millisecond, BindRetryMax: 20 * time.Millisecond}, testkit.Serve(t, echo), Profile{})
	addr := squatter.Addr().String()
	r.SetListeners([]Listener{tcp("a", addr)})
	if s := r.Listeners()[0]; !errors.Is(s.Err, syscall.EADDRINUSE) || s.Address != addr {
		t.Fatalf("status %+v", s)
	}
	squatter.Close()
	testkit.WaitFor(t, "the address to be bound", func() bool { return r.Listeners()[0].Err == nil })
	roundTrip(t, dial(t, addr), "healed")
}

func TestUnixSocketFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	spec := []Listener{{Name: "a", Network: "unix", Address: path}}
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	r := newRig(t, Config{BindRetry: 10 * time.Millisecond}, testkit.Serve(t, echo), Profile{})
	r.SetListeners(spec)
	if err := r.Listeners()[0].Err; !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatalf("with someone listening there: %v", err)
	}
	old.Close()
	testkit.WaitFor(t, "the stale file to be replaced", func() bool { return r.Listeners()[0].Err == nil })
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	roundTrip(t, c, "hello")
	// The file was replaced by another process and must not be removed.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.SetListeners(nil)
	testkit.WaitFor(t, "the socket to be closed", func() bool { return r.listening() == 0 })
	if _, err := os.Lstat(path); err != nil {
		t.Error("the file of somebody else was removed")
	}
}

// listening returns the number of listening sockets, including those being
// retired.
func (r *rig) listening() int {
	var n atomic.Int64
	r.onLoops(func(l *loop) { n.Add(int64(len(l.sockets))) })
	return int(n.Load())
}

// A change of only the specification keeps the socket, and applies to new
// connections.
func TestChangeInPlace(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	before := dial(t, addr)
	roundTrip(t, before, "x")
	r.SetListeners([]Listener{{Name: "l", Network: "tcp", Address: "127.0.0.1:0", Mode: ModeHello, HelloTimeout: 50 * time.Millisecond}})
	if got := r.address(t, "l"); got != addr {
		t.Fatalf("the address went from %s to %s", addr, got)
	}
	mustBeTurnedAway(t, addr) // sends no hello; the reset may come before dial returns
	roundTrip(t, before, "as before")
	if r.listening() != 1 {
		t.Errorf("%d sockets listen", r.listening())
	}
}

// A connection does not keep the replaced specification of its listener, such
// as certificates and tables, in memory.
func TestReplacedSpecificationIsLetGo(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	spec, config := terminating(t, "api.example.com")
	spec.Name, spec.Network, spec.Address = "l", "tcp", "127.0.0.1:0"
	table := weak.Make(func() *[1 << 20]byte {
		table, inner := new([1 << 20]byte), spec.TLSConfig
		spec.TLSConfig = func(h *clienthello.Hello) (*tls.Config, Reason) {
			table[0]++
			return inner(h)
		}
		return table
	}())
	c := tls.Client(dial(t, r.serve(t, spec)), config)
	roundTrip(t, c, "x")
	r.SetListeners([]Listener{tcp("l", "127.0.0.1:0")})
	spec = Listener{}
	testkit.WaitFor(t, "the old specification to be collected", func() bool {
		runtime.GC()
		return table.Value() == nil
	})
	roundTrip(t, c, "as before")
}

func TestChangeOfAddress(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	old := r.serve(t, Listener{})
	before := dial(t, old)
	roundTrip(t, before, "x")
	fresh := testkit.FreeAddress(t)
	r.SetListeners([]Listener{tcp("l", fresh)})
	roundTrip(t, dial(t, fresh), "at the new one")
	testkit.WaitFor(t, "the old socket to be closed", func() bool { return r.listening() == 1 })
	if _, err := net.Dial("tcp", old); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("at the old address: %v", err)
	}
	roundTrip(t, before, "as before")
}

// A change between one address and the wildcard: both cannot be open at the
// same time.
func TestChangeBetweenWildcardAndAddress(t *testing.T) {
	r := newRig(t, Config{BindRetry: time.Hour}, testkit.Serve(t, echo), Profile{})
	everywhere, err := net.Listen("tcp", "0.0.0.0:0") // finds a port that is free on all addresses
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(everywhere.Addr().String())
	everywhere.Close()
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "127.0.0.2"} {
		r.SetListeners([]Listener{tcp("l", host+":"+port)})
		if s := r.Listeners()[0]; s.Err != nil {
			t.Fatalf("%s: %v", host, s.Err)
		}
		if host == "0.0.0.0" {
			host = "127.0.0.9"
		}
		roundTrip(t, dial(t, host+":"+port), "hello")
	}
}

// A listener that is removed and added again at once must not wait for the
// grace period of its own old socket.
func TestRemovedAndBack(t *testing.T) {
	r := newRig(t, Config{BindRetry: time.Hour}, testkit.Serve(t, echo), Profile{})
	for _, spec := range []Listener{
		tcp("l", testkit.FreeAddress(t)),
		{Name: "l", Network: "unix", Address: filepath.Join(t.TempDir(), "sock")},
		{Name: "l", Network: "unix", Address: fmt.Sprintf("@penstock-back-%d", os.Getpid())},
	} {
		for range 5 {
			r.SetListeners([]Listener{spec})
			if s := r.Listeners()[0]; s.Err != nil {
				t.Fatal(s.Err)
			}
			c, err := net.Dial(spec.Network, spec.Address)
			if err != nil {
				t.Fatal(err)
			}
			roundTrip(t, c, "hello")
			c.Close()
			r.SetListeners(nil)
		}
	}
}

// Listeners swap addresses, or one takes over another's, in one change.
func TestAddressesChangeHands(t *testing.T) {
	r := newRig(t, Config{BindRetry: time.Hour}, "", Profile{})
	r.tellListener(t)
	one, two := testkit.FreeAddress(t), testkit.FreeAddress(t)
	r.SetListeners([]Listener{tcp("a", one), tcp("b", two)})
	mustRead(t, dial(t, one), "a")
	mustRead(t, dial(t, two), "b")
	r.SetListeners([]Listener{tcp("a", two), tcp("b", one)})
	mustRead(t, dial(t, one), "b")
	mustRead(t, dial(t, two), "a")
	r.SetListeners([]Listener{tcp("c", one)})
	mustRead(t, dial(t, one), "c")
	testkit.WaitFor(t, "the other socket to be closed", func() bool { return r.listening() == 1 })
	for _, s := range r.Listeners() {
		if s.Name != "c" || s.Err != nil {
			t.Errorf("status %+v", s)
		}
	}
}

// rule 11: while listeners change under load, a client is either served
// completely or refused: no connection that the kernel has accepted is lost.
func TestNoConnectionIsLostWhenListenersGo(t *testing.T) {
	r := newRig(t, Config{BindRetry: time.Millisecond}, testkit.Serve(t, echo), Profile{})
	addr := testkit.FreeAddress(t)
	var stop atomic.Bool
	var served, refused atomic.Int64
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				// A SYN to a retiring socket gets no answer.
				c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
				if err != nil {
					if !errors.Is(err, syscall.ECONNREFUSED) && !os.IsTimeout(err) {
						t.Errorf("dial: %v", err)
						return
					}
					refused.Add(1)
					continue
				}
				p := []byte("hello")
				_, err = c.Write(p)
				if err == nil {
					_, err = io.ReadFull(c, p)
				}
				c.Close()
				if err != nil {
					t.Errorf("a connection was lost after %d: %v", served.Load(), err)
					return
				}
				served.Add(1)
			}
		})
	}
	for range 3 {
		had := served.Load()
		r.SetListeners([]Listener{tcp("l", addr)})
		testkit.WaitFor(t, "clients to be served", func() bool { return served.Load() > had+20 || t.Failed() })
		r.SetListeners(nil)
		had = refused.Load()
		testkit.WaitFor(t, "clients to find nobody", func() bool { return refused.Load() > had || t.Failed() })
	}
	stop.Store(true)
	clients.Wait()
	t.Logf("%d served, %d refused", served.Load(), refused.Load())
}

func TestListenersAfterClose(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	c := dial(t, addr)
	roundTrip(t, c, "x")
	before := openSockets(t)
	r.Close()
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a connection ended cleanly in a shutdown in its middle")
	}
	r.wantEnd(t, Shutdown)
	r.SetListeners([]Listener{tcp("l", addr)})
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a closed engine listens: %v", err)
	}
	// The listening socket, and both sides of the connection.
	if n := openSockets(t); n > before-3 {
		t.Errorf("%d sockets, %d when it ran", n, before)
	}
}

// rule 11: a retiring socket accepts no new connections and keeps its queue; so
// a queue that close finds empty stays empty.
func TestRetiringSocketKeepsItsQueue(t *testing.T) {
	for _, spec := range []Listener{
		tcp("tcp", "127.0.0.1:0"),
		tcp("tcp6", "[::1]:0"),
		{Name: "unix", Network: "unix", Address: filepath.Join(t.TempDir(), "sock")},
		{Name: "abstract", Network: "unix", Address: fmt.Sprintf("@penstock-queue-%d", os.Getpid())},
	} {
		t.Run(spec.Name, func(t *testing.T) {
			s, err := bind(&spec, reactor.TCPOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(s.fd)
			queued, err := net.Dial(spec.Network, s.bound)
			if err != nil {
				t.Fatal(err)
			}
			defer queued.Close()
			if err := s.refuseNew(); err != nil {
				t.Fatal(err)
			}
			if late, err := net.DialTimeout(spec.Network, s.bound, 50*time.Millisecond); err == nil {
				late.Close()
				t.Error("a new connection was taken")
			}
			fd, _, err := unix.Accept(s.fd)
			if err != nil {
				t.Fatalf("the queued connection: %v", err)
			}
			mustWrite(t, queued, "x")
			if n, err := unix.Read(fd, make([]byte, 8)); n != 1 || err != nil {
				t.Errorf("read %d, %v", n, err)
			}
			unix.Close(fd)
			if fd, _, err := unix.Accept(s.fd); err == nil {
				unix.Close(fd)
				t.Error("another one was in the queue")
			}
		})
	}
}

// A socket that was closed to make way for a listener whose address is
// unavailable anyway must not be given to a third one.
func TestMakingWayInVain(t *testing.T) {
	r := newRig(t, Config{BindRetry: time.Hour}, testkit.Serve(t, echo), Profile{})
	address := testkit.FreeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	foreign, err := net.Listen("tcp", "127.0.0.9:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Close()
	r.log = quiet
	r.SetListeners([]Listener{tcp("old", address)})
	r.SetListeners([]Listener{tcp("greedy", "0.0.0.0:"+port), tcp("heir", address)})
	list := r.Listeners()
	if list[0].Err == nil || list[1].Err != nil {
		t.Fatalf("status %+v", list)
	}
	roundTrip(t, dial(t, address), "hello")
}

// A wildcard address means both families: if only one can be bound, that is an
// error, and a listener's own socket makes way.
func TestAllAddressesAreBothFamilies(t *testing.T) {
	for range 10 { // another program may have the port in the other family
		if listensOnBothFamilies(t) {
			return
		}
	}
	t.Fatal("ten ports, and none was bound for both families")
}

// listensOnBothFamilies reports false if the port of its attempt cannot be
// bound for both families although this process has released it.
func listensOnBothFamilies(t *testing.T) bool {
	foreign, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		testkit.NotTested(t, "IPv6: %v", err)
	}
	defer foreign.Close()
	_, port, _ := net.SplitHostPort(foreign.Addr().String())
	r := newRig(t, Config{BindRetry: time.Hour}, testkit.Serve(t, echo), Profile{})
	r.log = quiet
	r.SetListeners([]Listener{tcp("l", ":"+port)})
	if s := r.Listeners()[0]; !errors.Is(s.Err, syscall.EADDRINUSE) {
		t.Errorf("with half of it taken: %+v", s)
	}
	foreign.Close()
	for _, address := range []string{"[::1]:" + port, ":" + port} {
		r.SetListeners([]Listener{tcp("l", address)})
	}
	if s := r.Listeners()[0]; errors.Is(s.Err, syscall.EADDRINUSE) {
		t.Logf("port %s: %v", port, s.Err)
		return false
	}
	roundTrip(t, dial(t, "[::1]:"+port), "hello")
	roundTrip(t, dial(t, "127.0.0.1:"+port), "hello")
	return true
}
