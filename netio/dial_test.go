package netio

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/proxyproto"
)

// rule 17: a failed connect is retried on another endpoint; the plan gets the
// previous error, and the client notices nothing.
func TestConnectIsRetriedOnAnotherEndpoint(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	profile := &Profile{Meter: r.meter}
	p := &plan{targets: []Target{
		{Addr: mustAddr(testkit.FreeAddress(t)), Profile: profile},
		{Unix: filepath.Join(t.TempDir(), "nobody"), Profile: profile},
		{Addr: netip.AddrPort{}, Profile: profile},
		{Addr: mustAddr(testkit.Serve(t, echo)), Profile: profile},
	}}
	r.route = func(*Conn) (Plan, Reason) { return p, OK }
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "hello")
	c.CloseWrite()
	mustEnd(t, c, "")
	r.wantEnd(t, ClientFIN)
	want := []error{syscall.ECONNREFUSED, syscall.ENOENT, syscall.EAFNOSUPPORT}
	for i, err := range p.errs {
		if !errors.Is(err, want[i]) {
			t.Errorf("error %d: %v, want %v", i, err, want[i])
		}
	}
	if len(p.errs) != len(want) || p.took <= 0 {
		t.Errorf("errors %v, took %v", p.errs, p.took)
	}
	if got := r.meter.Counts(); got.Connections != 1 || got.Active != 0 {
		t.Errorf("meter %+v: retries count once", got)
	}
}

// late is a plan whose endpoint becomes known after some calls.
type late struct {
	plan
	looks int
}

func (p *late) Next(c *Conn, err error) (Target, Reason) {
	if p.looks--; p.looks >= 0 {
		if err != nil {
			return Target{}, Internal
		}
		return Target{Wait: time.Millisecond}, OK
	}
	return p.plan.Next(c, err)
}

// Until an endpoint is known the plan is polled, and no byte of the client is
// lost.
func TestAClientWaitsForItsEndpointToBeKnown(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	p := &late{looks: 20, plan: plan{targets: []Target{
		{Addr: mustAddr(testkit.FreeAddress(t)), Profile: &Profile{Meter: r.meter}},
		{Addr: mustAddr(testkit.Serve(t, echo)), Profile: &Profile{Meter: r.meter}},
	}}}
	r.route = func(*Conn) (Plan, Reason) { return p, OK }
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "hello")
	c.CloseWrite()
	mustEnd(t, c, "")
	r.wantEnd(t, ClientFIN)
	if p.looks != -2 || len(p.errs) != 1 {
		t.Errorf("%d looks too many, errors %v", -p.looks-2, p.errs)
	}
	if got := r.meter.Counts(); got.Connections != 1 || got.Active != 0 {
		t.Errorf("meter %+v: who waits counts once", got)
	}
}

// A client whose endpoint never becomes known waits until the engine is closed.
func TestAClientThatWaitsEndsWithTheEngine(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	r.route = func(*Conn) (Plan, Reason) { return &late{looks: 1 << 30}, OK }
	dial(t, r.serve(t, Listener{}))
	testkit.WaitFor(t, "the client to wait", func() bool {
		list := r.Connections(1)
		return len(list) == 1 && list[0].Phase == "waiting"
	})
	r.Close()
	r.wantEnd(t, Shutdown)
}

// A connection is counted once, for the service that accepted it.
func TestRetryOnAnotherService(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	other := NewMeter("l", "other", r.Loops())
	r.route = func(*Conn) (Plan, Reason) {
		return &plan{targets: []Target{
			{Addr: mustAddr(testkit.FreeAddress(t)), Profile: &Profile{Meter: other}},
			{Addr: mustAddr(testkit.Serve(t, echo)), Profile: &Profile{Meter: r.meter}},
		}}, OK
	}
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "hello")
	if got := r.meter.Counts(); got != (Counts{Connections: 1, Active: 1, BytesIn: 5, BytesOut: 5}) {
		t.Errorf("the one that took it has %+v", got)
	}
	if got := other.Counts(); got != (Counts{}) {
		t.Errorf("the one that did not has %+v", got)
	}
}

// If no endpoint is left, the client gets a reset and the handler the reason.
func TestConnectGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		target func(t *testing.T) Target
		tls    bool
		why    Reason
	}{
		"refused": {target: func(t *testing.T) Target { return Target{Addr: mustAddr(testkit.FreeAddress(t))} }, why: ConnectRefused},
		"timeout": {target: func(t *testing.T) Target { return Target{Addr: deafAddress(t)} }, why: ConnectTimeout},
		"timeout in the TLS handshake": {
			target: func(t *testing.T) Target {
				return Target{Addr: mustAddr(testkit.Serve(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) }))}
			},
			tls: true, why: ConnectTimeout,
		},
		"no TLS there": {
			target: func(t *testing.T) Target { return Target{Addr: mustAddr(testkit.Serve(t, echo))} },
			tls:    true, why: UpstreamTLS,
		},
		"a reset in the TLS handshake": {
			target: func(t *testing.T) Target {
				return Target{Addr: mustAddr(testkit.Serve(t, func(c *net.TCPConn) {
					_, _ = c.Read(make([]byte, 1))
					_ = c.SetLinger(0)
				}))}
			},
			tls: true, why: UpstreamTLS,
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{})
			profile := &Profile{Meter: r.meter, ConnectTimeout: testkit.Patience}
			if test.why == ConnectTimeout {
				profile.ConnectTimeout = 100 * time.Millisecond
			}
			if test.tls {
				profile.TLS = &tls.Config{ServerName: "db.example.com"}
			}
			target := test.target(t)
			target.Profile = profile
			r.route = func(*Conn) (Plan, Reason) { return &plan{targets: []Target{target, target}}, OK }
			mustBeTurnedAway(t, r.serve(t, Listener{}))
			if e := r.wantEnd(t, test.why); !e.routed {
				t.Error("it was not routed")
			}
			if got := r.meter.Counts(); got != (Counts{Connections: 1}) {
				t.Errorf("meter %+v", got)
			}
		})
	}
}

// deafAddress returns an address where SYNs are not answered: its listener's
// queue is full.
func deafAddress(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*syscall.SockaddrInet4).Port))
	for { // until the queue is full
		c, err := net.DialTimeout("tcp", addr.String(), 500*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
}

// A connection whose client resets while its endpoint is being connected is
// closed.
func TestClientThatLeavesWhileConnecting(t *testing.T) {
	r := newRig(t, Config{}, deafAddress(t).String(), Profile{ConnectTimeout: time.Hour})
	c := dial(t, r.serve(t, Listener{}))
	testkit.WaitFor(t, "the attempt", func() bool {
		list := r.Connections(1)
		return len(list) == 1 && list[0].Phase == "connecting"
	})
	reset(t, c)
	r.wantEnd(t, ClientGone)
}

func TestUnixEndpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sock")
	testkit.ServeOn(t, testkit.ListenOn(t, "unix", path), func(c net.Conn) { _, _ = io.Copy(c, c) })
	r := newRig(t, Config{}, "", Profile{})
	r.route = func(*Conn) (Plan, Reason) {
		return &plan{targets: []Target{{Unix: path, Profile: &Profile{Meter: r.meter}}}}, OK
	}
	c := dial(t, r.serve(t, Listener{}))
	roundTrip(t, c, "hello")
	c.CloseWrite()
	mustEnd(t, c, "")
}

// rules 12 and 13: the outgoing header has the real addresses, also behind a
// wildcard, and describes TLS.
func TestProxyHeaderOut(t *testing.T) {
	headers := make(chan proxyproto.Header, 1)
	to := testkit.Serve(t, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		var b []byte
		for {
			more, err := in.ReadByte()
			if err != nil {
				t.Errorf("after %q: %v", b, err)
				return
			}
			b = append(b, more)
			h, n, err := proxyproto.Parse(b)
			if errors.Is(err, proxyproto.ErrMore) {
				continue
			}
			if err != nil || n != len(b) {
				t.Errorf("%q: %v", b, err)
				return
			}
			headers <- h
			_, _ = io.Copy(c, in)
			return
		}
	})
	hello := string(clientHello(t, "api.example.com", "h2"))
	sent := proxyproto.Header{
		Source: mustAddr("198.51.100.7:4711"), Destination: mustAddr("203.0.113.1:443"),
		UniqueID: []byte("from the first proxy"), Authority: "first.example.com",
	}
	for name, test := range map[string]struct {
		spec    Listener
		version proxyproto.Version
		first   string // sent before data
		data    string
		check   func(t *testing.T, h proxyproto.Header)
	}{
		"version 1": {version: proxyproto.V1, data: "data"},
		"version 2": {version: proxyproto.V2, data: "data", check: func(t *testing.T, h proxyproto.Header) {
			if len(h.UniqueID) != 16 {
				t.Errorf("unique id %x", h.UniqueID)
			}
		}},
		"after a hello": {spec: Listener{Mode: ModeHello}, version: proxyproto.V2, data: hello, check: func(t *testing.T, h proxyproto.Header) {
			if h.Authority != "api.example.com" || h.ALPN != "h2" || h.SSL != nil {
				t.Errorf("%+v", h)
			}
		}},
		"passed on": {
			spec:    Listener{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
			version: proxyproto.V2, first: string(proxyproto.Append(nil, proxyproto.V2, sent)), data: "data",
			check: func(t *testing.T, h proxyproto.Header) {
				if string(h.UniqueID) != string(sent.UniqueID) || h.Authority != sent.Authority {
					t.Errorf("%+v", h)
				}
			},
		},
	} {
		for _, wildcard := range []bool{false, true} {
			if wildcard {
				name += ", behind a wildcard"
			}
			t.Run(name, func(t *testing.T) {
				r := newRig(t, Config{}, to, Profile{SendProxy: test.version})
				spec := test.spec
				spec.Network, spec.Address = "tcp", "127.0.0.1:0"
				if wildcard {
					spec.Address = "0.0.0.0:0"
				}
				at := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), mustAddr(r.serve(t, spec)).Port())
				c := dial(t, at.String())
				mustWrite(t, c, test.first+test.data)
				mustRead(t, c, test.data)
				h := <-headers
				source, destination := c.LocalAddr().(*net.TCPAddr).AddrPort(), at
				if test.first != "" {
					source, destination = sent.Source, sent.Destination
				}
				if h.Source != source || h.Destination != destination {
					t.Errorf("from %v to %v, want %v to %v", h.Source, h.Destination, source, destination)
				}
				if test.check != nil {
					test.check(t, h)
				}
				c.CloseWrite()
				mustEnd(t, c, "")
				if e := r.wantEnd(t, ClientFIN); e.in != uint64(len(test.data)) {
					t.Errorf("%d bytes in, want those of the client alone", e.in)
				}
			})
		}
	}
}

// A panic in a plan closes its own connection with a reason, and no other.
func TestPanicsConcernOneConnection(t *testing.T) {
	for name, fault := range map[string]func(*plan) Plan{
		"in Next":      func(p *plan) Plan { return panicsNext{p} },
		"in Connected": func(p *plan) Plan { return panicsConnected{p} },
		"no plan":      func(*plan) Plan { return nil },
		"in Route":     func(*plan) Plan { panic("on purpose") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{Log: quiet, Loops: 1}, testkit.Serve(t, echo), Profile{})
			good := r.route
			bad := false // used on the single loop only
			r.route = func(c *Conn) (Plan, Reason) {
				p, why := good(c)
				if bad = !bad; !bad {
					return fault(p.(*plan)), why
				}
				return p, why
			}
			addr := r.serve(t, Listener{})
			other := dial(t, addr)
			roundTrip(t, other, "x")
			mustBeTurnedAway(t, addr)
			if e := r.wantEnd(t, Internal); e.routed != (name != "no plan" && name != "in Route") {
				t.Errorf("ending %+v", e)
			}
			roundTrip(t, other, "not disturbed")
		})
	}
}

type panicsNext struct{ *plan }

func (panicsNext) Next(*Conn, error) (Target, Reason) { panic("on purpose") }

type panicsConnected struct{ *plan }

func (panicsConnected) Connected(*Conn, time.Duration) { panic("on purpose") }
