package netio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/internal/testkit"
	"penstock/netio/proxyproto"
)

func TestBucketFillsAtItsRate(t *testing.T) {
	var b bucket
	now := time.Hour
	take := func(n int) (got int) {
		for range n {
			if b.take(10, now) {
				got++
			}
		}
		return got
	}
	if got := take(100); got != 10 {
		t.Errorf("%d at once, want the burst of 10", got)
	}
	now += 250 * time.Millisecond
	if got := take(100); got != 2 {
		t.Errorf("%d after a quarter of a second, want 2", got)
	}
	now -= time.Second // another loop's clock
	if got := take(100); got != 0 {
		t.Errorf("%d from a clock that went back", got)
	}
	now += time.Hour
	if got := take(100); got != 10 {
		t.Errorf("%d after an hour, want the burst of 10", got)
	}
}

// rule 10: sources are counted by IPv4 address or IPv6 /64, and removed at
// zero.
func TestSourcesAreCountedAndForgotten(t *testing.T) {
	var s sources
	addr := netip.MustParseAddr
	for _, test := range []struct {
		addr string
		ok   bool
	}{
		{"192.0.2.1", true},
		{"::ffff:192.0.2.1", true}, // the same
		{"192.0.2.1", false},
		{"192.0.2.2", true},
		{"2001:db8::1", true},
		{"2001:db8::ffff:1", true}, // the same /64
		{"2001:db8::2%eth0", false},
		{"2001:db8:0:1::1", true},
	} {
		if ok := s.add(addr(test.addr), 2); ok != test.ok {
			t.Errorf("%s: %v", test.addr, ok)
		}
	}
	for _, a := range []string{"192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::5", "2001:db8::6", "2001:db8:0:1::2"} {
		s.remove(addr(a))
	}
	if len(s.n) != 0 {
		t.Errorf("left: %v", s.n)
	}
}

// rule 12: a source is trusted by its address, regardless of the zone.
func TestTrustedSources(t *testing.T) {
	spec := Listener{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fe80::/64")}}
	for addr, want := range map[string]bool{
		"10.1.2.3": true, "11.1.2.3": false, "fe80::1": true, "fe80::1%eth0": true, "fe80:0:0:1::1%eth0": false,
	} {
		if got := spec.trusts(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	if spec.trusts(netip.Addr{}) {
		t.Error("no address is trusted")
	}
}

// rule 10: each limit refuses with its reason, reports it to the handler once,
// and counts it.
func TestLimits(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	header := string(proxyproto.Append(nil, proxyproto.V1, proxyproto.Header{
		Source: mustAddr("198.51.100.7:4711"), Destination: mustAddr("203.0.113.1:443"),
	}))
	for name, test := range map[string]struct {
		spec  Listener
		first string // first bytes of a client
		why   Reason
	}{
		"connections at once":     {Listener{MaxConnections: 2}, "", LimitConnections},
		"of one source":           {Listener{MaxPerSource: 2}, "", LimitPerSource},
		"of one source by header": {Listener{MaxPerSource: 2, ProxyFrom: loopback}, header, LimitPerSource},
		"per second":              {Listener{MaxPerSecond: 2}, "", LimitRate},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
			addr := r.serve(t, test.spec)
			var open []net.Conn
			for range 2 {
				c := dial(t, addr)
				mustWrite(t, c, test.first)
				roundTrip(t, c, "let in")
				open = append(open, c)
			}
			r.setTokens(0, time.Hour) // otherwise a busy machine may refill the bucket
			if test.first == "" {
				mustBeTurnedAway(t, addr)
			} else if served(addr, test.first) {
				t.Error("one too many was served")
			}
			if e := r.wantEnd(t, test.why); e.routed || e.listener != "l" || !e.client.IsValid() {
				t.Errorf("ending %+v", e)
			}
			if n := r.Stats().Refused[test.why]; n != 1 {
				t.Errorf("%d counted", n)
			}
			for _, c := range open {
				roundTrip(t, c, "not disturbed")
				c.Close()
			}
			r.waitEndings(t, 3)
			if n := r.Listeners()[0].Connections; n != 0 {
				t.Errorf("the listener counts %d when all are gone", n)
			}
			r.setTokens(1, 0)
			testkit.WaitFor(t, "a place to be free", func() bool {
				return served(addr, test.first)
			})
		})
	}
}

// setTokens sets the tokens in the buckets of all listeners, and stops their
// refill for some time.
func (r *rig) setTokens(n float64, until time.Duration) {
	r.Engine.mu.Lock()
	defer r.Engine.mu.Unlock()
	for _, l := range r.listeners {
		l.rate.mu.Lock()
		l.rate.tokens = n
		l.rate.at += until
		l.rate.mu.Unlock()
	}
}

// served reports whether a new client is accepted. The reset of a refused one
// may arrive at any step.
func served(addr, first string) bool {
	c, err := net.DialTimeout("tcp", addr, testkit.Patience)
	if err != nil {
		return false
	}
	defer c.Close()
	if _, err = io.WriteString(c, first+"x"); err != nil {
		return false
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return err == nil
}

// Connections are distributed evenly over the loops.
func TestConnectionsAreSpread(t *testing.T) {
	const n = 40
	r := newRig(t, Config{Loops: 4}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	for range n {
		roundTrip(t, dial(t, addr), "x")
	}
	for loop, got := range r.Stats().PerLoop {
		if got != n/4 {
			t.Errorf("loop %d has %d of %d connections", loop, got, n)
		}
	}
	if s := r.Listeners()[0]; s.Connections != n {
		t.Errorf("the listener counts %d", s.Connections)
	}
	if list := r.Connections(7); len(list) != 7 {
		t.Errorf("%d connections listed, want 7", len(list))
	}
	list := r.Connections(1000)
	if len(list) != n {
		t.Fatalf("%d connections listed, want %d", len(list), n)
	}
	for _, i := range list {
		if i.Listener != "l" || i.Phase != "relaying" || i.BytesIn != 1 || i.BytesOut != 1 || i.Label == "" || !i.Peer.IsValid() {
			t.Fatalf("listed as %+v", i)
		}
	}
}

// rule 10: without free descriptors the engine stops accepting; clients wait
// and are served later.
func TestAcceptingRestsWithoutDescriptors(t *testing.T) {
	if !alone(t) {
		return
	}
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	roundTrip(t, dial(t, addr), "x")
	// Allocate the client's descriptor before they run out.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	to := mustAddr(addr)
	free := useUpDescriptors(t)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		t.Fatal(err)
	}
	testkit.WaitFor(t, "accepting to rest", func() bool { return r.Stats().AcceptRests > 1 })
	if ends := r.endings(); len(ends) != 0 {
		t.Errorf("connections ended: %+v", ends)
	}
	free()
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.Read(fd, make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
}

// rule 10: a connection without descriptors for both of its sides waits until
// another one has ended.
func TestAcceptingRestsWithoutRoom(t *testing.T) {
	r := newRig(t, Config{Log: quiet}, testkit.Serve(t, echo), Profile{})
	r.files = 2 // nothing reads it before the first listener
	addr := r.serve(t, Listener{})
	first, second, third := dial(t, addr), dial(t, addr), dial(t, addr)
	roundTrip(t, first, "x")
	roundTrip(t, second, "x")
	mustWrite(t, third, "y")
	testkit.WaitFor(t, "accepting to rest", func() bool { return r.Stats().AcceptRests > 1 })
	if !r.Exhausted() {
		t.Error("the engine does not say that it is exhausted")
	}
	if n := r.Stats().Connections; n != 2 {
		t.Errorf("%d connections where there is room for 2", n)
	}
	first.Close()
	mustRead(t, third, "y")
	second.Close()
	testkit.WaitFor(t, "a place to be free", func() bool { return r.Stats().Connections == 1 })
	if !r.Exhausted() {
		t.Error("ready at once, though the next one may be too many")
	}
	r.restLasts = 0
	if r.Exhausted() {
		t.Error("exhausted for ever")
	}
}

// The number of connections is limited to half of the spare descriptors,
// because each takes two.
func TestRoomIsForBothSides(t *testing.T) {
	if !alone(t) {
		return
	}
	used := len(openFiles())
	low := unix.Rlimit{Cur: 1000, Max: 1000}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	if n := roomFor(); n > int64(1000-used-16)/2 || n < 350 {
		t.Errorf("room for %d connections with 1000 descriptors, %d in use", n, used)
	}
}

const aloneEnv = "NETIO_TEST_ALONE"

// alone runs the test in a separate process, and reports whether this is that
// process: otherwise descriptors of other tests that the garbage collector
// closes would become free while this test has used up all.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(aloneEnv) != "" {
		return true
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), aloneEnv+"=1")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Errorf("%v\n%s", err, out)
	}
	return false
}

// openFiles lists the process's descriptors with their targets.
func openFiles() (list []string) {
	for fd := range 1 << 10 {
		if to, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil {
			list = append(list, fmt.Sprintf("%d %s", fd, to))
		}
	}
	return list
}

// useUpDescriptors takes all free descriptors until the returned function is
// called.
func useUpDescriptors(t *testing.T) (free func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := limit
	low.Cur = min(limit.Cur, 500)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	// An accept call without a connection holds a descriptor while it runs, so all
	// are taken only if none is free for a while.
	var files []int
	misses := 0
	testkit.WaitFor(t, "descriptors to be gone", func() bool {
		for {
			f, err := unix.Dup(0)
			if err != nil {
				misses++
				return misses == 10
			}
			files, misses = append(files, f), 0
		}
	})
	free = sync.OnceFunc(func() {
		if t.Failed() {
			t.Logf("descriptors, %d of them to use them up: %q", len(files), openFiles())
		}
		for _, f := range files {
			unix.Close(f)
		}
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(free)
	return free
}

// A connection without a descriptor for its endpoint is closed with that
// reason, and counted.
func TestDiallingWithoutDescriptors(t *testing.T) {
	if !alone(t) {
		return
	}
	r := newRig(t, Config{Loops: 1}, testkit.FreeAddress(t), Profile{})
	route := r.route
	var free func()
	r.route = func(c *Conn) (Plan, Reason) {
		free = useUpDescriptors(t)
		return route(c)
	}
	mustBeTurnedAway(t, r.serve(t, Listener{}))
	r.wantEnd(t, LimitFiles)
	free()
	if n := r.Stats().Refused[LimitFiles]; n != 1 {
		t.Errorf("%d counted", n)
	}
}

// ConnectReason reflects the error of the last attempt.
func TestConnectReasons(t *testing.T) {
	if why := ConnectReason(syscall.EMFILE); why != LimitFiles {
		t.Errorf("reason %q", why)
	}
	for err, want := range map[error]Reason{
		syscall.ECONNREFUSED:       ConnectRefused,
		syscall.ETIMEDOUT:          ConnectTimeout,
		ErrConnectTimeout:          ConnectTimeout,
		ErrUpstreamTLS:             UpstreamTLS,
		syscall.EHOSTUNREACH:       ConnectError,
		errors.New("what is this"): ConnectError,
	} {
		if why := ConnectReason(err); why != want {
			t.Errorf("%v: reason %q, want %q", err, why, want)
		}
	}
}
