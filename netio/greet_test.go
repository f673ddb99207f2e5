package netio

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/proxyproto"
	"penstock/netio/relay"
)

var _ Greeter = (*lineSession)(nil)

// loopback is where clients of tests come from.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// A login arrives in pieces, before there is an endpoint, and counts.
func TestAGreeterSpeaksFirst(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
	c := dial(t, r.serve(t, Listener{}))
	mustRead(t, c, "hello\n")
	s := testkit.Receive(t, "a session", all)
	r.waitPhase(t, "greeting")
	if n := r.meter.Counts(); n != (Counts{}) {
		t.Errorf("counted %+v before there is a service", n)
	}
	for _, piece := range []string{"lo", "gin", " m", "e\n"} {
		mustWrite(t, c, piece)
	}
	mustRead(t, c, "ok\n")
	ask(t, c, "a", "who")
	want := Counts{Connections: 1, Active: 1, BytesIn: 9 + 4, BytesOut: uint64(len("welcome\nok\na: who\n"))}
	testkit.WaitFor(t, "the counts", func() bool { return r.meter.Counts() == want })
	c.CloseWrite()
	mustEnd(t, c, "")
	if e := r.wantEnd(t, ClientFIN); e.in != want.BytesIn || e.out != want.BytesOut {
		t.Errorf("ending %+v, want the counts of %+v", e, want)
	}
	if s.closed.Load() != 1 || s.starts.Load() != 1 {
		t.Errorf("closed %d times, started %d times", s.closed.Load(), s.starts.Load())
	}
}

// Bytes behind a PROXY header are told in the greeting, and its addresses are passed
// on to every endpoint.
func TestAGreeterBehindAProxyHeader(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	one, two := r.at(lineServer{name: "a", proxy: true, refuse: true}.serve(t)), r.at(lineServer{name: "b", proxy: true}.serve(t))
	one.Profile.SendProxy, two.Profile.SendProxy = proxyproto.V1, proxyproto.V1
	all := greeted(t, r, nil, one, two)
	c := dial(t, r.serve(t, Listener{ProxyFrom: loopback}))
	mustWrite(t, c, "PROXY TCP4 192.0.2.1 192.0.2.2 1 2\r\nlogin me\n")
	mustRead(t, c, "hello\nok\n")
	ask(t, c, "b", "who")
	s := testkit.Receive(t, "a session", all)
	testkit.Receive(t, "the end of the login", s.opened)
	done := make(chan struct{})
	s.conn.Post(func() {
		defer close(done)
		h := s.conn.Describe()
		if h.Source != mustAddr("192.0.2.1:1") || h.Destination != mustAddr("192.0.2.2:2") {
			t.Errorf("the next endpoint would be told %v to %v", h.Source, h.Destination)
		}
	})
	<-done
	testkit.WaitFor(t, "no bytes to be charged", func() bool { return r.Stats().BudgetUsed == 0 })
}

// TLS begins in the middle on both sides; what has come of it already is not lost.
func TestStartTLS(t *testing.T) {
	server, client := secure("db.example.com")
	for name, test := range map[string]struct{ above, below, early bool }{
		"client":       {above: true},
		"client early": {above: true, early: true},
		"server":       {below: true},
		"both":         {above: true, below: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{})
			v := lineServer{name: "a"}
			if test.below {
				v.tls = server
			}
			to := r.at(v.serve(t))
			if test.below {
				to.Profile.TLS = client
			}
			all := greeted(t, r, func(s *lineSession) { s.tls = server }, to)
			raw := dial(t, r.serve(t, Listener{}))
			var c net.Conn = raw
			mustRead(t, c, "hello\n")
			switch {
			case test.early:
				// The hello is in the same segment as the request for TLS.
				c = tls.Client(&eager{Conn: raw, first: "tls\n", skip: "go\n"}, client)
			case test.above:
				mustWrite(t, c, "tls\n")
				mustRead(t, c, "go\n")
				c = tls.Client(raw, client)
			}
			mustWrite(t, c, "login me\n")
			mustRead(t, c, "ok\n")
			ask(t, c, "a", "who")
			s := testkit.Receive(t, "a session", all)
			r.onConns(func(c *Conn) {
				if test.above && (c.ServerName() != "db.example.com" || c.TLS() == nil || !c.TLS().HandshakeComplete) {
					t.Errorf("server name %q, TLS %v", c.ServerName(), c.TLS())
				}
				if s.allow() {
					t.Error("bytes may move unseen through TLS")
				}
			})
			testkit.WaitFor(t, "no handshake to be left", func() bool { st := r.Stats(); return st.Handshakes == 0 && st.BudgetUsed == 0 })
		})
	}
}

// eager sends something with the first bytes that are written, and skips its answer.
type eager struct {
	net.Conn
	first, skip string
}

func (e *eager) Write(p []byte) (int, error) {
	first := e.first
	e.first = ""
	n, err := e.Conn.Write(append([]byte(first), p...))
	return n - len(first), err
}

func (e *eager) Read(p []byte) (int, error) {
	if e.skip != "" {
		if _, err := io.ReadFull(e.Conn, make([]byte, len(e.skip))); err != nil {
			return 0, err
		}
		e.skip = ""
	}
	return e.Conn.Read(p)
}

// How a STARTTLS handshake fails is told by the same reasons as any other.
func TestStartTLSThatFails(t *testing.T) {
	server, client := secure("db.example.com")
	start := func(t *testing.T, c *net.TCPConn) {
		mustWrite(t, c, "tls\n")
		mustRead(t, c, "go\n")
	}
	for name, test := range map[string]struct {
		client func(*testing.T, *rig, *net.TCPConn)
		why    Reason
		told   bool // by Failed
	}{
		"untrusted": {func(t *testing.T, r *rig, c *net.TCPConn) {
			start(t, c)
			_ = tls.Client(c, &tls.Config{ServerName: "db.example.com"}).Handshake()
		}, HandshakeRefused, true},
		"garbage": {func(t *testing.T, r *rig, c *net.TCPConn) { start(t, c); mustWrite(t, c, "this is no TLS") }, HandshakeFailed, true},
		"leaves":  {func(t *testing.T, r *rig, c *net.TCPConn) { start(t, c); c.CloseWrite() }, HandshakeFailed, true},
		"silent":  {func(t *testing.T, r *rig, c *net.TCPConn) { start(t, c) }, HandshakeTimeout, false},
		"truncated": {func(t *testing.T, r *rig, c *net.TCPConn) {
			start(t, c)
			if err := tls.Client(c, client).Handshake(); err != nil {
				t.Error(err)
			}
			r.waitPhase(t, "greeting")
			c.CloseWrite()
		}, ClientGone, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{})
			all := greeted(t, r, func(s *lineSession) { s.tls = server }, r.at(testkit.FreeAddress(t)))
			spec := Listener{}
			if test.why == HandshakeTimeout {
				spec.HandshakeTimeout = 150 * time.Millisecond
			}
			c := dial(t, r.serve(t, spec))
			mustRead(t, c, "hello\n")
			test.client(t, r, c)
			r.wantEnd(t, test.why)
			if s := testkit.Receive(t, "a session", all); (s.fails[relay.Client].Load() != nil) != test.told || s.closed.Load() != 1 {
				t.Errorf("told of %v", s.fails[relay.Client].Load())
			}
			if n := r.Stats().Handshakes; n != 0 {
				t.Errorf("%d handshakes are left", n)
			}
		})
	}
}

// A STARTTLS handshake takes a place among those with clients.
func TestStartTLSTakesAPlace(t *testing.T) {
	server, client := secure("db.example.com")
	r := newRig(t, Config{MaxHandshakes: 8}, "", Profile{}) // 7 of them with clients
	greeted(t, r, func(s *lineSession) { s.tls = server }, r.at(lineServer{name: "a"}.serve(t)))
	addr := r.serve(t, Listener{})
	var holder *net.TCPConn
	for range 7 {
		holder = dial(t, addr)
		mustRead(t, holder, "hello\n")
		mustWrite(t, holder, "tls\n")
		mustRead(t, holder, "go\n")
	}
	testkit.WaitFor(t, "the handshakes", func() bool { return r.Stats().Handshakes == 7 })
	other := dial(t, addr)
	mustRead(t, other, "hello\n")
	mustWrite(t, other, "tls\n")
	mustBeReset(t, other)
	r.wantEnd(t, LimitHandshakes)
	if n := r.Stats().Refused[LimitHandshakes]; n != 1 {
		t.Errorf("%d were refused", n)
	}
	c := tls.Client(holder, client)
	mustWrite(t, c, "login me\n")
	mustRead(t, c, "ok\n")
	next := dial(t, addr)
	mustRead(t, next, "hello\n")
	c = tls.Client(&eager{Conn: next, first: "tls\n", skip: "go\n"}, client)
	mustWrite(t, c, "login me\n")
	mustRead(t, c, "ok\n")
}

// A server's refusal is followed by another endpoint, which is all that counts.
func TestAGreeterConnectsAgain(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	server, client := secure("db.example.com")
	other := NewMeter("l", "other", r.Loops())
	targets := []Target{
		{Addr: mustAddr(lineServer{refuse: true}.serve(t)), Profile: &Profile{Meter: other}},
		r.at(testkit.FreeAddress(t)),
		{Addr: mustAddr(lineServer{refuse: true, tls: server}.serve(t)), Profile: &Profile{Meter: other, TLS: client}},
		r.at(lineServer{name: "d"}.serve(t)),
	}
	all := greeted(t, r, nil, targets...)
	c, s := loggedIn(t, r.serve(t, Listener{}), all)
	ask(t, c, "d", "who")
	if n := s.starts.Load(); n != 3 {
		t.Errorf("started %d times, want 3", n)
	}
	if len(s.errs) != 3 || !errors.Is(s.errs[0], errRefused) || ConnectReason(s.errs[1]) != ConnectRefused || !errors.Is(s.errs[2], errRefused) {
		t.Errorf("the plan got %v", s.errs)
	}
	if got := r.meter.Counts(); got.Active != 1 || got.Connections != 0 {
		t.Errorf("the last one counts %+v", got)
	}
	if got := other.Counts(); got.Active != 0 || got.Connections != 1 {
		t.Errorf("the first one counts %+v: it got the connection, and has it no more", got)
	}
	before := openSockets(t)
	c.CloseWrite()
	mustEnd(t, c, "")
	r.wantEnd(t, ClientFIN)
	testkit.WaitFor(t, "the sockets to be closed", func() bool { return openSockets(t) < before })
}

// Without an endpoint the session has the last word.
func TestAGreeterIsRefused(t *testing.T) {
	server, client := secure("db.example.com")
	plain := lineServer{name: "a"}
	for name, test := range map[string]struct {
		to  func(*testing.T, *rig) Target
		why Reason
	}{
		"refused": {func(t *testing.T, r *rig) Target { return r.at(testkit.FreeAddress(t)) }, ConnectRefused},
		"timeout": {func(t *testing.T, r *rig) Target {
			to := r.at(deafAddress(t).String())
			to.Profile.ConnectTimeout = 100 * time.Millisecond
			return to
		}, ConnectTimeout},
		"login":  {func(t *testing.T, r *rig) Target { return r.at(lineServer{refuse: true}.serve(t)) }, ConnectError},
		"served": {func(t *testing.T, r *rig) Target { return r.at(plain.serve(t)) }, OK},
		"tls": {func(t *testing.T, r *rig) Target {
			to := r.at(lineServer{tls: server}.serve(t))
			to.Profile.TLS = &tls.Config{ServerName: "other.example.com", RootCAs: client.RootCAs}
			return to
		}, UpstreamReset},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{})
			all := greeted(t, r, nil, test.to(t, r))
			c := dial(t, r.serve(t, Listener{}))
			mustRead(t, c, "hello\n")
			mustWrite(t, c, "login me\n")
			switch test.why {
			case OK:
				mustRead(t, c, "ok\n")
				return
			case UpstreamReset: // the session has not asked for another one
				mustBeReset(t, c)
			default:
				mustEnd(t, c, "refused "+string(test.why)+"\n")
			}
			if e := r.wantEnd(t, test.why); e.failure == nil {
				t.Error("the error is lost")
			}
			s := testkit.Receive(t, "a session", all)
			if err, _ := s.fails[relay.Upstream].Load().(error); test.why == UpstreamReset && !errors.Is(err, ErrUpstreamTLS) {
				t.Errorf("told of %v, want that TLS failed", err)
			}
		})
	}
}

// Conn.End and Conn.Fail work before there is an endpoint.
func TestAGreeterEndsInItsGreeting(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	all := greeted(t, r, nil, r.at(testkit.FreeAddress(t)))
	addr := r.serve(t, Listener{})
	for _, word := range []string{"bye", "fault", "reset"} {
		c := dial(t, addr)
		mustRead(t, c, "hello\n")
		mustWrite(t, c, word+"\n")
		if word == "reset" {
			mustBeReset(t, c)
		} else {
			mustEnd(t, c, "")
		}
		s := testkit.Receive(t, "a session", all)
		testkit.WaitFor(t, "its end", func() bool { return s.closed.Load() == 1 })
		s.conn.Post(func() { t.Error("called after the end") })
	}
	for _, e := range r.waitEndings(t, 3) {
		if e.why != "told" {
			t.Errorf("ended with %q", e.why)
		}
	}
}

// A client that leaves before there is an endpoint ends the connection, unless the
// session goes on with it.
func TestAClientLeavesItsGreeting(t *testing.T) {
	for name, test := range map[string]struct {
		leave func(*testing.T, *net.TCPConn)
		goOn  bool
	}{
		"ends":   {leave: func(_ *testing.T, c *net.TCPConn) { c.CloseWrite() }},
		"resets": {leave: reset0},
		"goes on": {goOn: true, leave: func(t *testing.T, c *net.TCPConn) {
			c.CloseWrite()
			mustRead(t, c, "ok\n")
			c.Close()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{HalfClosedTimeout: time.Minute})
			greeted(t, r, func(s *lineSession) { s.goOn = test.goOn }, r.at(lineServer{name: "a"}.serve(t)))
			c := dial(t, r.serve(t, Listener{}))
			mustRead(t, c, "hello\n")
			test.leave(t, c)
			if test.goOn {
				r.Close()
				r.waitEndings(t, 1)
				return
			}
			r.wantEnd(t, ClientGone)
		})
	}
}

func reset0(t *testing.T, c *net.TCPConn) { reset(t, c) }

// A client that resets while the endpoint is being connected is gone, too.
func TestAClientLeavesWhileItsEndpointIsConnected(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	to := r.at(deafAddress(t).String())
	to.Profile.ConnectTimeout = time.Hour
	all := greeted(t, r, nil, to)
	c := dial(t, r.serve(t, Listener{}))
	mustRead(t, c, "hello\n")
	mustWrite(t, c, "login me\n")
	r.waitPhase(t, "connecting")
	reset(t, c)
	r.wantEnd(t, ClientGone)
	if s := testkit.Receive(t, "a session", all); s.closed.Load() != 1 || s.fails[relay.Client].Load() == nil {
		t.Errorf("closed %d times, told of %v", s.closed.Load(), s.fails[relay.Client].Load())
	}
}

// A panic in a callback ends its connection, and no other.
func TestPanicsOfAGreeter(t *testing.T) {
	server, client := secure("db.example.com")
	for _, where := range []string{
		"Greet", "Received", "Secured", "Start", "Refused", "Leaving", "Ended", "Failed", "Closed",
	} {
		t.Run(where, func(t *testing.T) {
			r := newRig(t, Config{Log: quiet, Loops: 1}, "", Profile{})
			bad := false
			to := r.at(lineServer{name: "a"}.serve(t))
			all := greeted(t, r, func(s *lineSession) {
				s.tls = server
				s.idle.Store(true)
				if bad {
					s.bad = where
					if where == "Refused" {
						s.targets = []Target{r.at(testkit.FreeAddress(t))}
					}
				}
			}, to)
			addr := r.serve(t, Listener{})
			other, _ := loggedIn(t, addr, all)
			r.onConns(func(*Conn) { bad = true })
			if where == "Greet" {
				mustBeTurnedAway(t, addr)
				r.wantEnd(t, Internal)
				ask(t, other, "a", "not disturbed")
				return
			}
			c := dial(t, addr)
			mustRead(t, c, "hello\n")
			switch where {
			case "Secured":
				_ = tls.Client(&eager{Conn: c, first: "tls\n", skip: "go\n"}, client).Handshake()
			case "Ended":
				c.CloseWrite()
			case "Failed", "Closed":
				reset(t, c)
			case "Leaving":
				r.DrainSome(0, Drained, func(c *Conn) bool { return c.phase == phaseGreeting })
			default:
				mustWrite(t, c, "login me\n")
			}
			want := Internal
			if where == "Closed" {
				want = ClientGone
			}
			r.wantEnd(t, want)
			if s := testkit.Receive(t, "a session", all); s.closed.Load() != 1 {
				t.Errorf("closed %d times", s.closed.Load())
			}
			ask(t, other, "a", "not disturbed")
		})
	}
}

// That holds for bytes which are told behind a handshake too, where no socket has an
// event of its own.
func TestAPanicBehindAHandshake(t *testing.T) {
	server, client := secure("db.example.com")
	server.ClientAuth, client.Certificates = tls.RequestClientCert, server.Certificates // too much for a step within the event
	r := newRig(t, Config{Log: quiet}, "", Profile{})
	greeted(t, r, func(s *lineSession) { s.tls = server; s.bad = "line" }, r.at(testkit.FreeAddress(t)))
	raw := dial(t, r.serve(t, Listener{}))
	mustRead(t, raw, "hello\n")
	mustWrite(t, raw, "tls\n")
	mustRead(t, raw, "go\n")
	mustWrite(t, tls.Client(&coalescing{Conn: raw}, client), "login me\n")
	mustBeReset(t, raw)
	r.wantEnd(t, Internal)
}

// coalescing holds the second write back until the third.
type coalescing struct {
	net.Conn
	writes int
	held   []byte
}

func (c *coalescing) Write(p []byte) (int, error) {
	if c.writes++; c.writes == 2 {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	_, err := c.Conn.Write(append(c.held, p...))
	c.held = nil
	return len(p), err
}

// The node closes a connection in any of its phases, and the session has the last
// word where there is a client to hear it.
func TestTheNodeEndsAGreeter(t *testing.T) {
	server, _ := secure("db.example.com")
	for name, test := range map[string]struct {
		begin string // what the client says after the greeting
		phase string
		idle  bool
		end   string // what it reads until its clean end
	}{
		"greeting, idle": {phase: "greeting", idle: true, end: "leave\n"},
		"greeting, busy": {phase: "greeting"},
		"handshake":      {begin: "tls\n", phase: "handshake"},
		"connecting":     {begin: "login me\n", phase: "connecting"},
		"relaying":       {begin: "login me\n", phase: "relaying", end: "ok\nleave\n"},
	} {
		t.Run(strings.ReplaceAll(name, ", ", " "), func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{})
			to := r.at(lineServer{name: "a"}.serve(t))
			if test.phase == "connecting" {
				to = r.at(deafAddress(t).String())
				to.Profile.ConnectTimeout = time.Hour
			}
			all := greeted(t, r, func(s *lineSession) { s.tls = server; s.idle.Store(test.idle) }, to)
			c := dial(t, r.serve(t, Listener{}))
			mustRead(t, c, "hello\n")
			mustWrite(t, c, test.begin)
			s := testkit.Receive(t, "a session", all)
			r.waitPhase(t, test.phase)
			if test.phase == "relaying" {
				testkit.Receive(t, "the end of the login", s.opened)
			}
			r.DrainSome(0, Drained, func(*Conn) bool { return true })
			if test.end != "" {
				mustEnd(t, c, test.end)
			} else {
				mustBeReset(t, c)
			}
			r.wantEnd(t, Drained)
			if s.leftFor.Load() != Drained || s.clean.Load() != (test.end != "") || s.closed.Load() != 1 {
				t.Errorf("told of leaving for %v, clean %v", s.leftFor.Load(), s.clean.Load())
			}
		})
	}
}

// A drain that has come by takes a greeting at its first quiet moment.
func TestADrainTakesAGreetingsQuietMoment(t *testing.T) {
	t.Parallel()
	r := newRig(t, Config{}, "", Profile{})
	all := greeted(t, r, nil, r.at(testkit.FreeAddress(t)))
	c := dial(t, r.serve(t, Listener{}))
	mustRead(t, c, "hello\n")
	s := testkit.Receive(t, "a session", all)
	r.onLoops(func(l *loop) { l.drain(time.Hour, make(chan struct{})) })
	r.onConns(func(c *Conn) { c.leaveSoon(c.loop.draining) }) // as the drain does in its window
	s.idle.Store(true)
	mustWrite(t, c, "x")
	mustEnd(t, c, "leave\n")
	r.wantEnd(t, Drained)
	r.Resume()
}

// The times of the profile hold, and the session is told of them.
func TestAGreetersTimes(t *testing.T) {
	for why, profile := range map[Reason]Profile{
		IdleTimeout: {IdleTimeout: 100 * time.Millisecond},
		MaxAge:      {MaxAge: 100 * time.Millisecond},
	} {
		t.Run(string(why), func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{})
			to := r.at(lineServer{name: "a"}.serve(t))
			profile.Meter = r.meter
			to.Profile = &profile
			all := greeted(t, r, nil, to)
			c := dial(t, r.serve(t, Listener{}))
			mustRead(t, c, "hello\n")
			mustWrite(t, c, "login me\n")
			mustEnd(t, c, "ok\nleave\n")
			r.wantEnd(t, why)
			if s := testkit.Receive(t, "a session", all); s.leftFor.Load() != why {
				t.Errorf("told of %v", s.leftFor.Load())
			}
		})
	}
}
