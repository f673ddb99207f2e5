package netio

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/clienthello"
	"penstock/netio/proxyproto"
)

// seen is the state of a connection when Route was called.
type seen struct {
	name   string
	alpn   []string
	client netip.AddrPort
	header *proxyproto.Header
	state  *tls.ConnectionState
}

// watch reports the state of each connection at Route.
func (r *rig) watch() <-chan seen {
	c := make(chan seen, 10_000)
	route := r.route
	r.route = func(conn *Conn) (Plan, Reason) {
		s := seen{name: conn.ServerName(), client: conn.Client(), header: conn.ProxyHeader(), state: conn.TLS()}
		if h := conn.Hello(); h != nil {
			s.alpn = h.ALPN
		}
		c <- s
		return route(conn)
	}
	return c
}

func TestHelloIsReadAndPassedOn(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	routed := r.watch()
	hello := clientHello(t, "api.example.com", "h2")
	c := dial(t, r.serve(t, Listener{Mode: ModeHello}))
	roundTrip(t, c, string(hello)+"and more")
	if s := <-routed; s.name != "api.example.com" || !slices.Equal(s.alpn, []string{"h2"}) {
		t.Errorf("routed by %+v", s)
	}
	c.CloseWrite()
	mustEnd(t, c, "")
	if e := r.wantEnd(t, ClientFIN); e.in != uint64(len(hello)+8) {
		t.Errorf("%d bytes in, want the hello's too", e.in)
	}
	testkit.WaitFor(t, "no bytes to be charged", func() bool { return r.Stats().BudgetUsed == 0 })
}

// rule 1: a hello may be segmented at any byte (package clienthello tests each
// position).
func TestHelloInTwoPieces(t *testing.T) {
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	routed := r.watch()
	hello := clientHello(t, "api.example.com")
	addr := r.serve(t, Listener{Mode: ModeHello})
	for i := 1; i < len(hello); i += 13 {
		c := dial(t, addr)
		mustWrite(t, c, string(hello[:i]))
		testkit.WaitFor(t, "the first part to be read", func() bool { return r.Stats().BudgetUsed > 0 })
		mustWrite(t, c, string(hello[i:]))
		mustRead(t, c, string(hello))
		if s := <-routed; s.name != "api.example.com" {
			t.Fatalf("cut at %d: routed by %+v", i, s)
		}
		c.Close()
		testkit.WaitFor(t, "the memory to be given back", func() bool { return r.Stats().BudgetUsed == 0 })
	}
}

// rule 1: a connection without a valid hello in time is closed with its reason,
// without a call of Route.
func TestNoHello(t *testing.T) {
	long := append([]byte{22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc}, make([]byte, clienthello.MaxSize)...)
	cut := clientHello(t, "api.example.com")[:100]
	for name, test := range map[string]struct {
		sent []byte
		end  func(*net.TCPConn)
		why  Reason
	}{
		"garbage":              {sent: []byte("GET / HTTP/1.1\r\n\r\n"), why: BadHello},
		"longer than the cap":  {sent: long, why: HelloTooLong},
		"nothing in time":      {why: HelloTimeout},
		"the half of one":      {sent: cut, why: HelloTimeout},
		"an end before it":     {end: func(c *net.TCPConn) { c.CloseWrite() }, why: ClientGone},
		"an end in its middle": {sent: cut, end: func(c *net.TCPConn) { c.CloseWrite() }, why: ClientGone},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
			routed := r.watch()
			spec := Listener{Mode: ModeHello, HelloTimeout: testkit.Patience}
			if test.why == HelloTimeout {
				spec.HelloTimeout = 150 * time.Millisecond
			}
			c := dial(t, r.serve(t, spec))
			_, _ = c.Write(test.sent)
			if test.end != nil {
				test.end(c)
			}
			mustBeReset(t, c)
			if e := r.wantEnd(t, test.why); e.routed || len(routed) != 0 {
				t.Error("it was routed")
			}
			testkit.WaitFor(t, "the memory to be given back", func() bool { return r.Stats().BudgetUsed == 0 })
		})
	}
}

// rule 1: a trickling hello hits the deadline, however often a byte arrives.
func TestTrickledHelloMeetsTheDeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
	c := dial(t, r.serve(t, Listener{Mode: ModeHello, HelloTimeout: 200 * time.Millisecond}))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for _, b := range clientHello(t, "api.example.com") {
		if _, err := c.Write([]byte{b}); err != nil || len(r.endings()) > 0 {
			break
		}
		<-tick.C
	}
	r.wantEnd(t, HelloTimeout)
}

// A client without a route gets a TLS alert.
func TestRefusedHelloGetsAnAlert(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	r.route = func(*Conn) (Plan, Reason) { return nil, "no_route" }
	c := dial(t, r.serve(t, Listener{Mode: ModeHello}))
	err := tls.Client(c, &tls.Config{ServerName: "nobody.example.com"}).Handshake()
	if err == nil || err.Error() != "remote error: tls: unrecognized name" {
		t.Errorf("the client saw %v", err)
	}
	r.wantEnd(t, "no_route")
}

// rule 12: headers are accepted only from trusted sources, in any segmentation.
func TestProxyHeaderIn(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	elsewhere := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	client := netip.MustParseAddrPort("198.51.100.7:4711")
	header := proxyproto.Header{Source: client, Destination: netip.MustParseAddrPort("203.0.113.1:443"), UniqueID: []byte("id-1")}
	v1 := proxyproto.Append(nil, proxyproto.V1, header)
	v2 := proxyproto.Append(nil, proxyproto.V2, header)
	local := proxyproto.Append(nil, proxyproto.V2, proxyproto.Header{Local: true})
	hello := clientHello(t, "api.example.com")
	for name, test := range map[string]struct {
		mode   Mode
		from   []netip.Prefix
		header []byte
		client netip.AddrPort // invalid: that of the socket
		passed bool           // the header is not parsed and is forwarded as data
	}{
		"version 1":                       {from: loopback, header: v1, client: client},
		"version 2":                       {from: loopback, header: v2, client: client},
		"local":                           {from: loopback, header: local},
		"from nobody trusted":             {from: elsewhere, header: v1, passed: true},
		"before a hello":                  {from: loopback, header: v1, client: client, mode: ModeHello},
		"version 2, before a hello":       {from: loopback, header: v2, client: client, mode: ModeHello},
		"not expected and not looked for": {header: v2, passed: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
			routed := r.watch()
			addr := r.serve(t, Listener{Mode: test.mode, ProxyFrom: test.from})
			data := []byte("data")
			if test.mode == ModeHello {
				data = hello
			}
			back := data
			if test.passed {
				back = append(bytes.Clone(test.header), data...)
			}
			all := append(bytes.Clone(test.header), data...)
			for _, cut := range []int{0, 1, len(test.header) - 1, len(test.header), len(test.header) + 1} {
				c := dial(t, addr)
				mustWrite(t, c, string(all[:cut]))
				mustWrite(t, c, string(all[cut:]))
				mustRead(t, c, string(back))
				want := test.client
				if !want.IsValid() {
					want = c.LocalAddr().(*net.TCPAddr).AddrPort()
				}
				if s := <-routed; s.client != want || (s.header == nil) != test.passed {
					t.Errorf("cut at %d: routed with %+v", cut, s)
				}
				c.Close()
			}
		})
	}
}

// rule 12: a trusted source that sends no header is closed.
func TestNoProxyHeader(t *testing.T) {
	for name, test := range map[string]struct {
		sent []byte
		end  func(*net.TCPConn)
		why  Reason
	}{
		"absent":            {sent: []byte("GET / HTTP/1.1\r\n\r\n"), why: BadProxyHeader},
		"oversized":         {sent: append([]byte("PROXY TCP4 "), bytes.Repeat([]byte("1"), 200)...), why: BadProxyHeader},
		"version 2 too big": {sent: []byte("\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff"), why: BadProxyHeader},
		"the client leaves": {sent: []byte("PROXY TCP4 1"), end: func(c *net.TCPConn) { c.CloseWrite() }, why: ClientGone},
		"cut":               {sent: []byte("PROXY TCP4 1"), why: ProxyTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, testkit.Serve(t, echo), Profile{})
			addr := r.serve(t, Listener{
				ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, ProxyTimeout: time.Nanosecond,
			})
			spec := *r.listeners["l"].spec.Load()
			if spec.ProxyTimeout != 3*time.Second {
				t.Errorf("%v to send a header, at least 3s is due", spec.ProxyTimeout)
			}
			if spec.ProxyTimeout = testkit.Patience; test.why == ProxyTimeout {
				spec.ProxyTimeout = 100 * time.Millisecond
			}
			r.listeners["l"].spec.Store(&spec)
			c := dial(t, addr)
			_, _ = c.Write(test.sent)
			if test.end != nil {
				test.end(c)
			}
			mustBeReset(t, c)
			r.wantEnd(t, test.why)
		})
	}
}

// rule 10: over the memory budget no connection is dropped. Hellos that have
// begun may finish; others are read when memory is available again.
func TestMemoryBudgetHoldsReadingBack(t *testing.T) {
	const budget = 1 << 20
	r := newRig(t, Config{MemoryBudget: budget}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{Mode: ModeHello, HelloTimeout: time.Hour})
	hello := clientHello(t, "api.example.com")
	// Enough half hellos to exceed the limit.
	var halves []*net.TCPConn
	for range budget/maxIdentity + 1 {
		c := dial(t, addr)
		mustWrite(t, c, string(hello[:10]))
		halves = append(halves, c)
	}
	testkit.WaitFor(t, "the budget to be spent", func() bool { return r.Stats().BudgetUsed > budget })
	late := make([]*net.TCPConn, 20)
	for i := range late {
		late[i] = dial(t, addr)
		mustWrite(t, late[i], string(hello))
	}
	testkit.WaitFor(t, "all to be accepted", func() bool { return r.Stats().Connections == len(halves)+len(late) })
	if used := r.Stats().BudgetUsed; used > int64(len(halves))*maxIdentity+int64(r.Loops()*len(hello)) {
		t.Errorf("%d bytes are charged with a budget of %d", used, budget)
	}
	for _, c := range halves {
		mustWrite(t, c, string(hello[10:]))
		mustRead(t, c, string(hello))
	}
	for _, c := range late {
		mustRead(t, c, string(hello))
	}
	testkit.WaitFor(t, "no bytes to be charged", func() bool { return r.Stats().BudgetUsed == 0 })
	if ends := r.endings(); len(ends) != 0 {
		t.Errorf("connections ended: %+v", ends)
	}
}

// While the budget is exhausted, no connection of a source that has its share
// is read, including those from before. Their deadlines continue.
func TestSpentBudgetStopsReading(t *testing.T) {
	const budget = 1 << 20
	r := newRig(t, Config{Loops: 1, MemoryBudget: budget}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{Mode: ModeHello, HelloTimeout: time.Hour})
	hello := clientHello(t, "api.example.com")
	const enough = budget/maxIdentity + 1
	early := dial(t, addr)
	testkit.WaitFor(t, "it to be accepted", func() bool { return r.Stats().Connections == 1 })
	for range enough {
		mustWrite(t, dial(t, addr), string(hello[:10]))
	}
	testkit.WaitFor(t, "the budget to be spent", func() bool { return r.Stats().BudgetUsed > budget })
	late := dial(t, addr)
	for _, c := range []net.Conn{early, late} {
		mustWrite(t, c, string(hello))
	}
	testkit.WaitFor(t, "all to be accepted", func() bool { return r.Stats().Connections == enough+2 })
	for range 20 { // loop iterations that would report a read
		r.onConns(func(*Conn) {})
	}
	silent := 0
	r.onConns(func(c *Conn) {
		if c.phase != phaseHello {
			t.Errorf("one was read: %+v", c.info())
		} else if c.ident.silent {
			silent++
			if !c.timer.Armed() {
				t.Error("it has no deadline")
			}
		}
	})
	if silent != 2 {
		t.Errorf("%d connections hold nothing, want 2", silent)
	}
}

// Connections get memory in the order in which they started to wait: later ones
// that never finish cannot starve earlier ones.
func TestMemoryGoesToWhoWaitedLongest(t *testing.T) {
	const budget = 1 << 20
	r := newRig(t, Config{Loops: 1, MemoryBudget: budget}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{Mode: ModeHello, HelloTimeout: time.Hour})
	hello := clientHello(t, "api.example.com")
	begin := func(n int) (begun []*net.TCPConn) {
		before := r.Stats().Connections
		for range n {
			c := dial(t, addr)
			mustWrite(t, c, string(hello[:10]))
			begun = append(begun, c)
		}
		testkit.WaitFor(t, "all to be accepted", func() bool { return r.Stats().Connections == before+n })
		return begun
	}
	const enough = budget/maxIdentity + 1
	first := begin(enough)
	testkit.WaitFor(t, "the budget to be spent", func() bool { return r.Stats().BudgetUsed > budget })
	c := dial(t, addr)
	mustWrite(t, c, string(hello))
	testkit.WaitFor(t, "it to be accepted", func() bool { return r.Stats().Connections == enough+1 })
	begin(enough)
	for _, c := range first {
		reset(t, c)
	}
	mustRead(t, c, string(hello))
}

// More unfinished hellos from one address than fit do not block other
// addresses: the oldest are evicted, whichever loops they are on.
func TestHellosOfOneAddressKeepNobodyOut(t *testing.T) {
	const budget = 1 << 20
	r := newRig(t, Config{MemoryBudget: budget, Log: quiet}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{Mode: ModeHello, HelloTimeout: time.Hour})
	hello := clientHello(t, "api.example.com")
	const enough = budget/maxIdentity + 1
	for range 2 * enough {
		mustWrite(t, dialFrom(t, "127.0.0.9", addr), string(hello[:10]))
	}
	testkit.WaitFor(t, "the budget to be spent", func() bool { return r.Stats().BudgetUsed > budget })
	for range 20 {
		c := dialFrom(t, "127.0.0.10", addr)
		mustWrite(t, c, string(hello[:10]))
		mustWrite(t, c, string(hello[10:]))
		mustRead(t, c, string(hello))
	}
	for _, e := range r.endings() {
		if e.why != LimitMemory || e.client.Addr() != netip.MustParseAddr("127.0.0.9") {
			t.Errorf("ended: %+v", e)
		}
	}
	if n := r.Stats().Evicted["l"]; n == 0 || int(n) != len(r.endings()) {
		t.Errorf("%d evictions are counted, %d connections ended", n, len(r.endings()))
	}
}

// More unfinished hellos than fit, each from another address, do not block
// others until their deadline.
func TestHellosOfManyAddressesKeepNobodyOut(t *testing.T) {
	const budget = 1 << 20
	r := newRig(t, Config{MemoryBudget: budget, Log: quiet}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{Mode: ModeHello, HelloTimeout: time.Hour})
	hello := clientHello(t, "api.example.com")
	for i := range budget/maxIdentity + 2 {
		mustWrite(t, dialFrom(t, fmt.Sprintf("127.0.1.%d", i+1), addr), string(hello[:10]))
	}
	testkit.WaitFor(t, "the budget to be spent", func() bool { return r.Stats().BudgetUsed > budget-maxIdentity })
	for i := range 3 {
		c := dialFrom(t, fmt.Sprintf("127.0.2.%d", i+1), addr)
		mustWrite(t, c, string(hello))
		mustRead(t, c, string(hello))
	}
}

// rule 10: waiting for memory does not extend the deadline of a hello.
func TestDeadlinesRunWithoutMemory(t *testing.T) {
	t.Parallel()
	const budget = 1 << 20
	r := newRig(t, Config{Loops: 1, MemoryBudget: budget}, testkit.Serve(t, echo), Profile{})
	addr := r.serve(t, Listener{Mode: ModeHello, HelloTimeout: time.Hour})
	hello := clientHello(t, "api.example.com")
	const enough = budget/maxIdentity + 2
	for range enough {
		mustWrite(t, dial(t, addr), string(hello[:10]))
	}
	testkit.WaitFor(t, "the budget to be spent", func() bool { return r.Stats().BudgetUsed > budget })
	r.serve(t, Listener{Mode: ModeHello, Address: addr, Network: "tcp", HelloTimeout: 2 * time.Second}) // all have begun by then
	var late []net.Conn
	for range 20 {
		c := dial(t, addr)
		mustWrite(t, c, string(hello[:10]))
		late = append(late, c)
	}
	for _, c := range late {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%s is still open", c.LocalAddr())
		}
	}
	// On a slow machine the early ones have held memory long enough to be evicted.
	testkit.WaitFor(t, "their ends to be told", func() bool { return len(r.endings()) >= len(late) })
	for _, e := range r.endings() {
		if e.why != LimitMemory {
			t.Errorf("ended by %q", e.why)
		}
	}
}
