package netio

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/proxyproto"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// A session moves to another server, in the clear or with TLS, as often as it likes.
// Its client notices nothing.
func TestASessionMoves(t *testing.T) {
	server, client := secure("db.example.com")
	for _, test := range []struct{ above, from, to bool }{
		{}, {to: true}, {from: true}, {from: true, to: true}, {above: true}, {above: true, from: true, to: true},
	} {
		t.Run(fmt.Sprintf("%v %v %v", test.above, test.from, test.to), func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{})
			target := func(name string, secured bool) Target {
				v := lineServer{name: name}
				if secured {
					v.tls = server
				}
				to := r.at(v.serve(t))
				if secured {
					to.Profile.TLS = client
				}
				return to
			}
			all := greeted(t, r, func(s *lineSession) { s.tls = server }, target("a", test.from))
			var c net.Conn = dial(t, r.serve(t, Listener{}))
			if test.above {
				c = tls.Client(&eager{Conn: c, first: "tls\n", skip: "hello\ngo\n"}, client)
				mustWrite(t, c, "login me\n")
			} else {
				mustRead(t, c, "hello\n")
				mustWrite(t, c, "login me\n")
			}
			mustRead(t, c, "ok\n")
			s := testkit.Receive(t, "a session", all)
			testkit.Receive(t, "the end of the login", s.opened)
			ask(t, c, "a", "who")
			sockets := openSockets(t)
			for i := range 5 {
				name, secured := fmt.Sprint("b", i), test.to == (i%2 == 0)
				b := s.move(target(name, secured), nil)
				if secured {
					b.wait("connected", "welcome", "go", "connected", "ok", "adopted")
				} else {
					b.wait("connected", "welcome", "ok", "adopted")
				}
				ask(t, c, name, "who")
				unseen := !test.above && !secured
				before := s.moved[relay.Upstream].Load()
				const bulk = 8 << 20
				mustWrite(t, c, fmt.Sprintf("bulk %d\n", bulk))
				if _, err := io.ReadFull(c, make([]byte, bulk)); err != nil {
					t.Fatal(err)
				}
				if n := s.moved[relay.Upstream].Load() - before; unseen != (n > 0) {
					t.Errorf("%d of %d bytes moved unseen", n, bulk)
				}
			}
			testkit.WaitFor(t, "the old servers' sockets to be closed", func() bool { return openSockets(t) <= sockets+5 })
			e := r.end(t, c)
			if e.in == 0 || e.out < 5*8<<20 {
				t.Errorf("counted %d bytes in, %d out", e.in, e.out)
			}
		})
	}
}

// end ends a client in order and returns the ending.
func (r *rig) end(t *testing.T, c net.Conn) ending {
	t.Helper()
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, c, "")
	return r.wantEnd(t, ClientFIN)
}

// A move takes the counts along, and the settings of the new service.
func TestAMoveToAnotherService(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
	c, s := loggedIn(t, r.serve(t, Listener{}), all)
	other := NewMeter("l", "other", r.Loops())
	to := Target{Addr: mustAddr(lineServer{name: "b", proxy: true}.serve(t)), Profile: &Profile{
		Meter: other, SendProxy: proxyproto.V1, IdleTimeout: time.Second,
	}}
	s.move(to, nil).wait("connected", "welcome", "ok", "adopted")
	ask(t, c, "b", "who")
	if got := r.meter.Counts(); got.Active != 0 || got.Connections != 1 {
		t.Errorf("the old service counts %+v", got)
	}
	testkit.WaitFor(t, "the counts of the new service", func() bool { // bytes that moved unseen are counted after they have gone
		return other.Counts() == Counts{Active: 1, BytesIn: 4, BytesOut: 7}
	})
	mustEnd(t, c, "leave\n")
	r.wantEnd(t, IdleTimeout)
	if got := other.Counts(); got.Active != 0 {
		t.Errorf("%d are active", got.Active)
	}
}

// A standby that fails leaves the session where it was.
func TestAStandbyThatFails(t *testing.T) {
	server, client := secure("db.example.com")
	silent := testkit.Serve(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	goes := testkit.Serve(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, "welcome\ngo\n"); _, _ = io.Copy(io.Discard, c) })
	for name, test := range map[string]struct {
		to     func(*testing.T, *rig) Target
		tls    *tls.Config
		events []string
	}{
		"refused":    {to: func(t *testing.T, r *rig) Target { return r.at(testkit.FreeAddress(t)) }, events: []string{"failed: connect_refused"}},
		"no address": {to: func(*testing.T, *rig) Target { return Target{} }, events: []string{"failed: connect_error"}},
		"no path": {
			to: func(t *testing.T, _ *rig) Target { return Target{Unix: t.TempDir() + "/x"} }, events: []string{"failed: connect_error"},
		},
		"timeout": {to: func(t *testing.T, r *rig) Target { return r.at(deafAddress(t).String()) }, events: []string{"failed: connect_timeout"}},
		"reset": {
			to:     func(t *testing.T, r *rig) Target { return r.at(lineServer{drop: true}.serve(t)) },
			events: []string{"connected", "welcome", "failed: connect_error"},
		},
		"certificate": {
			to:     func(t *testing.T, r *rig) Target { return r.at(lineServer{tls: server}.serve(t)) },
			tls:    &tls.Config{ServerName: "other.example.com", RootCAs: client.RootCAs},
			events: []string{"connected", "welcome", "go", "failed: upstream_tls"},
		},
		"tls timeout": {
			to: func(_ *testing.T, r *rig) Target { return r.at(goes) }, tls: client,
			events: []string{"connected", "welcome", "go", "failed: connect_timeout"},
		},
		"silent": {to: func(_ *testing.T, r *rig) Target { return r.at(silent) }, events: []string{"connected"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{})
			all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
			c, s := loggedIn(t, r.serve(t, Listener{}), all)
			to := test.to(t, r)
			to.Profile = &Profile{Meter: r.meter, TLS: test.tls}
			if name == "timeout" || name == "tls timeout" {
				to.Profile.ConnectTimeout = 200 * time.Millisecond
			}
			b := s.move(to, nil)
			b.wait(test.events...)
			ask(t, c, "a", "still here")
			if got := r.meter.Counts(); got.Active != 1 || got.Connections != 1 {
				t.Errorf("counts %+v", got)
			}
			r.end(t, c)
			if len(b.events) > 0 {
				t.Errorf("more happened: %q", <-b.events)
			}
			if n := r.Stats().Handshakes; n != 0 {
				t.Errorf("%d handshakes are left", n)
			}
		})
	}
}

// Nothing is told of a standby after Abort, whatever it was doing.
func TestAStandbyIsAborted(t *testing.T) {
	server, client := secure("db.example.com")
	for _, at := range []string{"dialing", "connected", "welcome", "go", "ok"} {
		t.Run(at, func(t *testing.T) {
			r := newRig(t, Config{}, "", Profile{})
			all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
			c, s := loggedIn(t, r.serve(t, Listener{}), all)
			to := r.at(lineServer{name: "b", tls: server}.serve(t))
			to.Profile.TLS, to.Profile.ConnectTimeout = client, 50*time.Millisecond
			if at == "dialing" {
				to.Addr = deafAddress(t)
			}
			sockets := openSockets(t)
			b := s.move(to, func(b *lineStandby) { b.abortAt = at; b.stop = true })
			if at == "dialing" {
				s.conn.Post(b.link.Abort)
			}
			for event := ""; event != at && at != "dialing"; {
				event = testkit.Receive(t, at, b.events)
			}
			ask(t, c, "a", "still here")
			testkit.WaitFor(t, "its socket to be closed", func() bool { return openSockets(t) <= sockets })
			s.onLoop(func() { s.conn.Arm(&s.timer, 4*to.Profile.ConnectTimeout) })
			testkit.Receive(t, "the end of all deadlines", s.expired)
			if len(b.events) > 0 {
				t.Errorf("after its end: %q", <-b.events)
			}
			if n := r.Stats().Handshakes; n != 0 {
				t.Errorf("%d handshakes are left", n)
			}
			s.onLoop(b.link.Abort) // again
			r.end(t, c)
		})
	}
}

// The connection's end is the standby's.
func TestAStandbyEndsWithItsConnection(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
	gone := make(chan error, 1)
	to := r.at(testkit.Serve(t, func(c *net.TCPConn) { _, err := io.Copy(io.Discard, c); gone <- err }))
	c, s := loggedIn(t, r.serve(t, Listener{}), all)
	s.move(to, nil).wait("connected")
	reset(t, c)
	r.wantEnd(t, ClientReset)
	if err := testkit.Receive(t, "the standby's end", gone); err == nil {
		t.Error("it ended in order, want a reset")
	}
}

// What is pending for the old server reaches it after the move.
func TestAMoveLeavesTheOldServerItsBytes(t *testing.T) {
	const much = 32 << 20 // more than the system takes
	r := newRig(t, Config{}, "", Profile{})
	goOn, got := make(chan struct{}), make(chan int64, 1)
	old := testkit.Serve(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "welcome\n")
		_, _ = io.ReadFull(c, make([]byte, len("login me\n")))
		_, _ = io.WriteString(c, "ok\n")
		<-goOn
		n, err := io.Copy(io.Discard, c)
		if err != nil {
			t.Error(err)
		}
		got <- n
	})
	all := greeted(t, r, nil, r.at(old))
	c, s := loggedIn(t, r.serve(t, Listener{}), all)
	pending := 0
	s.onLoop(func() { pending = s.streams[relay.Upstream].Send(make([]byte, much)) })
	if pending == 0 {
		t.Fatal("the system took everything at once")
	}
	s.move(r.at(lineServer{name: "b"}.serve(t)), nil).wait("connected", "welcome", "ok", "adopted")
	ask(t, c, "b", "who")
	close(goOn)
	if n := testkit.Receive(t, "the old server's bytes", got); n != much {
		t.Errorf("%d bytes of %d", n, much)
	}
	ask(t, c, "b", "still here")
	r.end(t, c)
}

// A move that would lose bytes which are under way unseen is a fault.
func TestAMoveWithBytesUnderWay(t *testing.T) {
	r := newRig(t, Config{Log: quiet}, "", Profile{})
	all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
	c, s := loggedIn(t, r.serve(t, Listener{}), all)
	b := s.move(r.at(lineServer{name: "b"}.serve(t)), func(b *lineStandby) { b.stop = true })
	b.wait("connected", "welcome", "ok")
	_ = c.SetReadBuffer(4 << 10)
	mustWrite(t, c, fmt.Sprintf("bulk %d\n", 64<<20)) // which the client does not read
	testkit.WaitFor(t, "bytes in a pipe", func() bool {
		piping := false
		s.onLoop(func() { piping = s.conn.upstream.Piping() })
		return piping
	})
	s.conn.Post(b.adopt)
	mustBeReset(t, c)
	r.wantEnd(t, Internal)
}

// Faults of the session in a standby's events end the session's connection alone.
func TestPanicsOfAStandby(t *testing.T) {
	server, client := secure("db.example.com")
	for _, where := range []string{"connected", "welcome", "ok", "ended", "failed: connect_refused"} {
		for _, secured := range []bool{false, true} {
			t.Run(fmt.Sprint(where, " ", secured), func(t *testing.T) {
				r := newRig(t, Config{Log: quiet, Loops: 1}, "", Profile{})
				all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
				addr := r.serve(t, Listener{})
				other, _ := loggedIn(t, addr, all)
				c, s := loggedIn(t, addr, all)
				v := lineServer{name: "b"}
				if secured {
					v.tls = server
				}
				to := r.at(v.serve(t))
				switch where {
				case "ended":
					to = r.at(testkit.Serve(t, func(*net.TCPConn) {}))
				case "failed: connect_refused":
					to = r.at(testkit.FreeAddress(t))
				}
				if secured {
					to.Profile.TLS = client
				}
				b := s.move(to, func(b *lineStandby) { b.bad = where; b.stop = true })
				for event := ""; event != where; {
					event = testkit.Receive(t, where, b.events)
				}
				mustBeReset(t, c)
				r.wantEnd(t, Internal)
				ask(t, other, "a", "not disturbed")
			})
		}
	}
}

// A server that ends or resets after it was moved to is told as the upstream.
func TestTheNewServerIsTheUpstream(t *testing.T) {
	server, client := secure("db.example.com")
	for _, secured := range []bool{false, true} {
		for why, drop := range map[Reason]bool{UpstreamFIN: false, UpstreamReset: true} {
			t.Run(fmt.Sprint(why, " ", secured), func(t *testing.T) {
				r := newRig(t, Config{}, "", Profile{})
				all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
				c, s := loggedIn(t, r.serve(t, Listener{}), all)
				v := lineServer{name: "b", tls: server}
				to := r.at(v.serve(t))
				if secured {
					to.Profile.TLS = client
				}
				b := s.move(to, nil)
				for event := ""; event != "adopted"; {
					event = testkit.Receive(t, "the move", b.events)
				}
				ask(t, c, "b", "who")
				if drop {
					mustWrite(t, c, "reset\n")
					mustBeReset(t, c)
				} else {
					mustWrite(t, c, "end\n")
					mustEnd(t, c, "")
				}
				if e := r.wantEnd(t, why); drop != (e.failure != nil) {
					t.Errorf("failure %v", e.failure)
				}
			})
		}
	}
}

// A drain ends a session that has moved at a quiet moment, and one that is moving.
func TestADrainOfSessionsThatMove(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
	addr := r.serve(t, Listener{})
	moved, s := loggedIn(t, addr, all)
	s.move(r.at(lineServer{name: "b"}.serve(t)), nil).wait("connected", "welcome", "ok", "adopted")
	moving, s2 := loggedIn(t, addr, all)
	s2.move(r.at(lineServer{name: "c"}.serve(t)), func(b *lineStandby) { b.stop = true }).wait("connected", "welcome", "ok")
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	defer cancel()
	if err := r.Drain(ctx, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	mustEnd(t, moved, "leave\n")
	mustEnd(t, moving, "leave\n")
	for _, e := range r.waitEndings(t, 2) {
		if e.why != Drained {
			t.Errorf("ended with %q", e.why)
		}
	}
}

// A Pacer holds the new server as it held the old one.
func TestAMoveKeepsThePace(t *testing.T) {
	r := newRig(t, Config{}, "", Profile{})
	all := greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
	route := r.route
	pacer := &slowPacer{}
	r.route = func(c *Conn) (Plan, Reason) {
		c.SetPacer(pacer, 0)
		return route(c)
	}
	c, s := loggedIn(t, r.serve(t, Listener{}), all)
	s.move(r.at(lineServer{name: "b"}.serve(t)), nil).wait("connected", "welcome", "ok", "adopted")
	ask(t, c, "b", "who")
	var held stream.Stream
	s.onLoop(func() {
		pacer.slow = true
		held = s.conn.pacing().sides[relay.Upstream]
		if held != s.streams[relay.Upstream] {
			t.Error("the session reads past the pacer")
		}
	})
	ask(t, c, "b", "who")
	s.onLoop(func() {
		if !s.conn.isHeld() {
			t.Error("the new server is not held")
		}
		pacer.slow = false
	})
	ask(t, c, "b", "who") // once the time is over
	r.end(t, c)
	if pacer.login != len("login me\n") {
		t.Errorf("the login counts %d bytes", pacer.login)
	}
}

// slowPacer holds the endpoint for a while after each read, while it is slow.
type slowPacer struct {
	slow  bool
	login int // bytes of the first charge of the client
}

func (p *slowPacer) Paces(relay.Side) bool { return true }
func (p *slowPacer) Charge(from relay.Side, n int) time.Duration {
	if from == relay.Client && p.login == 0 {
		p.login = n
	}
	if from == relay.Upstream && p.slow {
		return 300 * time.Millisecond
	}
	return 0
}
func (p *slowPacer) Owed(relay.Side) time.Duration  { return 300 * time.Millisecond }
func (p *slowPacer) Delay() (time.Duration, Reason) { return 0, OK }
func (p *slowPacer) Room(relay.Side) int64          { return 1 << 20 }
