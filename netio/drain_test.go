package netio

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// rule 19: a drain accepts waiting connections, and then closes all over the
// window, most idle first.
func TestDrainClosesMostIdleFirst(t *testing.T) {
	const n = 10
	r := newRig(t, Config{Loops: 1}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	conns := make([]*net.TCPConn, n)
	order := make(map[uint64]int)
	for i := range conns {
		conns[i] = dial(t, addr)
		roundTrip(t, conns[i], "x")
	}
	for i, c := range r.Connections(n) { // most recent first
		order[c.ID] = n - 1 - i
	}
	// An order of activity that differs from the previous ones.
	spoke := []int{3, 7, 1, 9, 0, 4, 8, 2, 6, 5}
	for _, i := range spoke {
		roundTrip(t, conns[i], "y")
		idle := r.idleOf(t, conns[i])
		testkit.WaitFor(t, "time to pass", func() bool { return r.idleOf(t, conns[i]) > idle+2*time.Millisecond })
	}
	const over = 500 * time.Millisecond
	begun := time.Now()
	if err := r.Drain(t.Context(), over); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begun)
	var got []int
	for _, e := range r.waitEndings(t, n) {
		if e.why != Drained {
			t.Errorf("ended with %q", e.why)
		}
		got = append(got, order[e.id])
	}
	if !slices.Equal(got, spoke) {
		t.Errorf("closed in the order %v, want %v", got, spoke)
	}
	if took < over*(n-1)/n {
		t.Errorf("all were closed within %v, the window is %v", took, over)
	}
	for _, c := range conns {
		mustEnd(t, c, "")
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a drained engine listens: %v", err)
	}
}

// idleOf returns the idle time of a client's connection.
func (r *rig) idleOf(t testing.TB, c *net.TCPConn) time.Duration {
	t.Helper()
	for _, i := range r.Connections(1000) {
		if i.Peer == c.LocalAddr().(*net.TCPAddr).AddrPort() {
			return i.Idle
		}
	}
	t.Fatalf("no connection from %v", c.LocalAddr())
	return 0
}

// rule 19: busy connections stay until the window ends, and then must not end
// cleanly; connections that close meanwhile shorten the window.
func TestDrainLeavesBusyConnectionsToTheEnd(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	idle, busy := dial(t, addr), dial(t, addr)
	roundTrip(t, idle, "x")
	end := make(chan error, 1)
	go func() {
		p := make([]byte, 1)
		for {
			if _, err := busy.Write(p); err != nil {
				end <- err
				return
			}
			if _, err := io.ReadFull(busy, p); err != nil {
				end <- err
				return
			}
		}
	}()
	testkit.WaitFor(t, "it to be busy", func() bool { return r.meter.Counts().BytesIn > 100 })
	const over = 400 * time.Millisecond
	begun := time.Now()
	if err := r.Drain(t.Context(), over); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < over {
		t.Errorf("the busy connection was closed after %v", took)
	}
	mustEnd(t, idle, "")
	if err := <-end; errors.Is(err, io.EOF) {
		t.Errorf("the busy connection ended with %v", err)
	}
	r.waitEndings(t, 2)
}

func TestDrainEndsWithTheLastConnection(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "x")
	done := make(chan error, 1)
	go func() { done <- r.Drain(t.Context(), time.Hour) }()
	testkit.WaitFor(t, "the drain to begin", func() bool { return r.listening() == 0 })
	roundTrip(t, c, "still served")
	c.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	r.wantEnd(t, ClientFIN)
}

func TestDrainThatIsInterrupted(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "x")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Drain(ctx, time.Hour) }()
	testkit.WaitFor(t, "the drain to begin", func() bool { return r.listening() == 0 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("drain: %v", err)
	}
	roundTrip(t, c, "still served")
	// A second drain uses its own window.
	if err := r.Drain(t.Context(), 0); err != nil {
		t.Error(err)
	}
	r.wantEnd(t, Drained)
}

// rule 11: connections that the kernel has accepted before a drain are served.
func TestDrainServesWhoWaits(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	const n = 50
	var conns []*net.TCPConn
	for range n {
		c := dial(t, addr)
		mustWrite(t, c, "x") // before the drain, which closes idle connections
		conns = append(conns, c)
	}
	var drained atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Drain(t.Context(), 2*time.Second); err != nil {
			t.Error(err)
		}
		drained.Store(true)
	}()
	for _, c := range conns {
		mustRead(t, c, "x")
	}
	if drained.Load() {
		t.Error("the drain was over before the connections")
	}
	<-done
	for _, e := range r.waitEndings(t, n) {
		if e.why != Drained || e.in != 1 {
			t.Errorf("ending %+v", e)
		}
	}
}

// After a cancelled or a completed drain the engine can serve again; remaining
// connections stay, and the old window does not close them.
func TestResumedEngineServesAgain(t *testing.T) {
	for name, over := range map[string]time.Duration{"given up": time.Hour, "over": 0} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
			addr := r.serve(t, Listener{})
			old := dial(t, addr)
			roundTrip(t, old, "x")
			ctx, cancel := context.WithCancel(t.Context())
			drained := make(chan error, 1)
			go func() { drained <- r.Drain(ctx, over) }()
			testkit.WaitFor(t, "the listener to close", func() bool { return len(r.Listeners()) == 0 })
			if over > 0 {
				cancel()
			}
			if err := <-drained; (err != nil) != (over > 0) {
				t.Fatalf("drain: %v", err)
			}
			cancel()
			r.Resume()
			r.onLoops(func(l *loop) {
				if l.draining != nil {
					t.Error("a loop still drains")
				}
			})
			again := dial(t, r.serve(t, Listener{}))
			roundTrip(t, again, "y")
			if over > 0 {
				roundTrip(t, old, "z")
				// The end of the last connection ends a drain, but has no effect after
				// Resume.
				old.Close()
				testkit.WaitFor(t, "the old connection to be gone", func() bool { return len(r.Connections(10)) == 1 })
			}
			roundTrip(t, again, "w")
		})
	}
}

// A closed engine cannot be resumed.
func TestClosedEngineIsNotResumed(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	r.Close()
	r.Resume()
	r.SetListeners([]Listener{{Name: "l", Network: "tcp", Address: "127.0.0.1:0"}})
	for _, s := range r.Listeners() {
		if s.Err == nil {
			t.Errorf("it listens on %s", s.Address)
		}
	}
}

// A drain of some connections leaves the others, and those about which match
// changes its mind.
func TestDrainSomeClosesWhatMatches(t *testing.T) {
	const n = 12
	r := newRig(t, Config{Loops: 2}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	var chosen sync.Map // peer -> stays after all
	conns := make([]*net.TCPConn, n)
	for i := range conns {
		conns[i] = dial(t, addr)
		roundTrip(t, conns[i], "x")
		if i%2 == 0 {
			chosen.Store(conns[i].LocalAddr().(*net.TCPAddr).AddrPort(), i == 0)
		}
	}
	const over = 300 * time.Millisecond
	asked := map[netip.AddrPort]int{}
	var mu sync.Mutex
	begun := time.Now()
	r.DrainSome(over, EndpointRemoved, func(c *Conn) bool {
		stays, found := chosen.Load(c.Peer())
		mu.Lock()
		defer mu.Unlock()
		asked[c.Peer()]++
		return found && (stays == false || asked[c.Peer()] == 1)
	})
	for _, e := range r.waitEndings(t, n/2-1) {
		if e.why != EndpointRemoved {
			t.Errorf("ended with %q", e.why)
		}
	}
	if took := time.Since(begun); took < over/2 {
		t.Errorf("all were closed within %v, the window is %v", took, over)
	}
	for i, c := range conns {
		if i%2 == 0 && i > 0 {
			mustEnd(t, c, "")
		} else {
			roundTrip(t, c, "y")
		}
	}
	if got := r.Stats().Connections; got != n/2+1 {
		t.Errorf("%d connections are left, want %d", got, n/2+1)
	}
}

// A connection that was routed before is still on its way when the drain begins.
func TestDrainSomeClosesLateConnections(t *testing.T) {
	r := newRig(t, Config{Loops: 1}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{})
	r.DrainSome(300*time.Millisecond, EndpointRemoved, func(*Conn) bool { return true })
	c := dial(t, addr)
	roundTrip(t, c, "x")
	mustEnd(t, c, "")
	r.wantEnd(t, EndpointRemoved)
	roundTrip(t, dial(t, addr), "x")
}
