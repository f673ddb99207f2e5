package netio

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"penstock/internal/testkit"
)

// TestNothingIsLeftBehind runs misbehaving clients and endpoints while
// listeners change constantly, and checks the accounting when all are gone.
func TestNothingIsLeftBehind(t *testing.T) {
	const clients, each = 16, 15
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	spec, config := terminating(t, "api.example.com")
	endpoints := []string{
		testkit.Serve(t, echo),
		testkit.Serve(t, func(c *net.TCPConn) { _, _ = c.Write([]byte("x")); _ = c.SetLinger(0) }),
		testkit.Serve(t, func(c *net.TCPConn) { c.CloseWrite(); _, _ = io.Copy(io.Discard, c) }),
		testkit.Serve(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }),
		testkit.FreeAddress(t),
	}
	r := newRig(t, Config{
		Log: quiet, CloseTimeout: 300 * time.Millisecond, BindRetry: time.Millisecond, BindRetryMax: time.Millisecond,
	}, endpoints[0], Profile{})
	profile := &Profile{
		Meter: r.meter, ConnectTimeout: time.Second, IdleTimeout: 200 * time.Millisecond,
		HalfClosedTimeout: 100 * time.Millisecond, MaxAge: 300 * time.Millisecond,
	}
	r.route = func(c *Conn) (Plan, Reason) {
		if c.ID()%7 == 0 {
			return nil, "no_route"
		}
		first, second := endpoints[c.ID()%5], endpoints[c.ID()/5%5]
		p := plan{targets: []Target{{Addr: mustAddr(first), Profile: profile}, {Addr: mustAddr(second), Profile: profile}}}
		switch c.ID() % 3 {
		case 0:
			return &framed{plan: p, tame: true, started: make(chan struct{})}, OK
		case 1:
			return &patient{plan: p, d: 20 * time.Millisecond}, OK
		}
		return &p, OK
	}
	addrs := []string{testkit.FreeAddress(t), testkit.FreeAddress(t), testkit.FreeAddress(t)}
	specs := func(shift int) []Listener {
		list := []Listener{
			{Name: "plain", MaxPerSource: 12},
			{Name: "hello", Mode: ModeHello, HelloTimeout: 100 * time.Millisecond},
			{
				Name: "tls", Mode: ModeTerminate, TLSConfig: spec.TLSConfig,
				HelloTimeout: 100 * time.Millisecond, HandshakeTimeout: 200 * time.Millisecond,
			},
		}
		for i := range list {
			list[i].Network, list[i].Address = "tcp", addrs[(i+shift)%len(addrs)]
		}
		return list
	}
	r.SetListeners(specs(0))
	dial(t, addrs[0]).Close() // warm up
	hello := clientHello(t, "api.example.com")
	before := openSockets(t)

	stop := make(chan struct{})
	var changes, work sync.WaitGroup
	changes.Go(func() {
		tick := time.NewTicker(15 * time.Millisecond)
		defer tick.Stop()
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			case <-tick.C:
				r.SetListeners(specs(i)[:3-i%4/3])
				r.Connections(10)
			}
		}
	})
	for i := range clients {
		work.Go(func() {
			chance := rand.New(rand.NewPCG(seed, uint64(i)))
			for range each {
				misbehave(chance, addrs[chance.IntN(len(addrs))], hello, config)
			}
		})
	}
	work.Wait()
	close(stop)
	changes.Wait()
	r.SetListeners(nil)
	testkit.WaitFor(t, "all to be over", func() bool { return r.Stats().Connections == 0 && r.listening() == 0 })
	testkit.WaitFor(t, "the memory to be given back", func() bool { return r.Stats().BudgetUsed == 0 })
	if s := r.Stats(); s.Handshakes != 0 || s.Pending != 0 {
		t.Errorf("stats %+v", s)
	}
	if n := r.meter.Counts().Active; n != 0 {
		t.Errorf("the meter has %d connections", n)
	}
	testkit.WaitFor(t, "all sockets to be closed", func() bool { return openSockets(t) <= before })
	ends := make(map[Reason]int)
	for _, e := range r.waitEndings(t, len(r.endings())) {
		ends[e.why]++
	}
	t.Logf("%v", ends)
	if ends[Internal] > 0 || len(ends) < 8 {
		t.Errorf("ended by %v", ends)
	}
}

// misbehave is one client with random behaviour. Its result is ignored.
func misbehave(chance *rand.Rand, addr string, hello []byte, config *tls.Config) {
	raw, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
	if err != nil {
		return
	}
	defer raw.Close()
	c := raw.(*net.TCPConn)
	_ = c.SetDeadline(time.Now().Add(time.Duration(chance.IntN(500)) * time.Millisecond))
	switch chance.IntN(8) {
	case 0: // closes at once
	case 1:
		_ = c.SetLinger(0)
	case 2:
		_, _ = c.Write(hello[:chance.IntN(len(hello))])
	case 3:
		_, _ = c.Write(make([]byte, chance.IntN(1<<20)))
		_ = c.SetLinger(0)
	case 4:
		_, _ = c.Write(hello)
		_ = c.CloseWrite()
		_, _ = io.Copy(io.Discard, c)
	case 5:
		_, _ = io.Copy(io.Discard, c)
	default:
		s := tls.Client(c, config)
		_, _ = s.Write([]byte("hello"))
		if chance.IntN(2) == 0 {
			_ = s.CloseWrite()
		}
		_, _ = io.Copy(io.Discard, s)
	}
}
