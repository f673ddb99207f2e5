package netio

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// errRefused is how a lineSession tells its plan of a server that refuses a login.
var errRefused = errors.New("the server refuses the login")

// lineSession is a Greeter of a protocol of lines:
//
//	proxy   hello                   client  tls                 begins TLS behind the proxy's go
//	                                        login NAME          asks for an endpoint
//	server  welcome                 proxy   tls                 begins TLS behind the server's go
//	                                        login NAME
//	server  ok                      is passed to the client; from then on all bytes are
//	server  no                      the plan is asked for another endpoint
//
// Its fields are set before the connection comes, and read by its loop only.
type lineSession struct {
	plan
	t       testing.TB
	tls     *tls.Config   // towards clients
	pacer   Pacer         // with a delay, from the login on
	bad     string        // the callback that panics
	idle    atomic.Bool   // Idle, in the greeting
	goOn    bool          // a client that ends before its login is known gets an endpoint
	opened  chan struct{} // closed at the server's first ok
	moved   [2]atomic.Int64
	starts  atomic.Int64
	closed  atomic.Int64
	leftFor atomic.Value // Reason given to Leaving
	clean   atomic.Bool
	fails   [2]atomic.Value // error given to Failed

	conn    *Conn
	streams [2]stream.Stream
	buf     [2][]byte
	name    string
	open    bool
	standby *lineStandby
	timer   reactor.Timer
	expired chan struct{} // closed when the timer has fired
}

// onLoop calls fn on the connection's loop and waits for it.
func (s *lineSession) onLoop(fn func()) {
	done := make(chan struct{})
	s.conn.Post(func() { defer close(done); fn() })
	<-done
}

// Expired implements reactor.Expirer.
func (s *lineSession) Expired(*reactor.Timer) { close(s.expired) }

func (s *lineSession) may(panicIn string) {
	if s.bad == panicIn {
		panic("on purpose, in " + panicIn)
	}
}

func (s *lineSession) Greet(c *Conn, client stream.Stream) {
	s.may("Greet")
	s.conn, s.streams[relay.Client] = c, client
	s.timer.Init(s)
	client.Send([]byte("hello\n"))
	client.SetReading(true)
}

// line returns the next line of a side, without its end.
func (s *lineSession) line(from relay.Side) (string, bool) {
	line, rest, ok := bytes.Cut(s.buf[from], []byte("\n"))
	if ok {
		s.buf[from] = rest
	}
	return string(line), ok
}

func (s *lineSession) Received(from relay.Side, p []byte) {
	s.may("Received")
	if s.open {
		s.pass(from, p)
		return
	}
	s.buf[from] = append(s.buf[from], p...)
	for !s.open {
		line, ok := s.line(from)
		if !ok {
			return
		}
		if from == relay.Client {
			s.fromClient(line)
		} else {
			s.fromServer(line)
		}
	}
	rest := s.buf[from]
	s.buf[from] = nil
	s.pass(from, rest)
}

func (s *lineSession) pass(from relay.Side, p []byte) {
	if len(p) > 0 && s.streams[from.Other()].Send(p) > 0 {
		s.streams[from].SetReading(false)
	}
}

func (s *lineSession) fromClient(line string) {
	if s.bad == "line" && line != "tls" {
		panic("on purpose, in a line")
	}
	switch {
	case line == "tls":
		s.streams[relay.Client].Send([]byte("go\n"))
		early := s.buf[relay.Client]
		s.buf[relay.Client] = nil
		s.streams[relay.Client] = s.conn.StartTLS(relay.Client, s.tls, early)
	case strings.HasPrefix(line, "login "):
		s.name = line[len("login "):]
		if s.pacer != nil {
			s.conn.SetPacer(s.pacer, time.Hour)
		}
		s.conn.Connect(nil)
	case line == "bye":
		s.conn.End("told", true)
	case line == "fault":
		s.conn.Fail("told", errors.New("a fault"), true)
	case line == "reset":
		s.conn.End("told", false)
	}
}

func (s *lineSession) fromServer(line string) {
	up := s.streams[relay.Upstream]
	switch line {
	case "welcome":
		if s.conn.UpstreamTLS() != nil {
			up.Send([]byte("tls\n"))
			return
		}
		up.Send([]byte("login " + s.name + "\n"))
	case "go":
		s.streams[relay.Upstream] = s.conn.StartTLS(relay.Upstream, s.conn.UpstreamTLS(), nil)
	case "no":
		s.conn.Connect(errRefused)
	case "ok":
		s.open = true
		s.streams[relay.Client].Send([]byte("ok\n"))
		s.streams[relay.Client].SetReading(true)
		s.allow()
		close(s.opened)
	}
}

// allow lets everything go unseen, where that can be.
func (s *lineSession) allow() bool {
	return s.conn.MayMove(relay.Client, 1<<30) && s.conn.MayMove(relay.Upstream, 1<<30)
}

func (s *lineSession) Secured(side relay.Side) {
	s.may("Secured")
	if side == relay.Upstream {
		s.streams[side].Send([]byte("login " + s.name + "\n"))
	}
	s.streams[side].SetReading(true)
}

func (s *lineSession) Start(_ *Conn, client, upstream stream.Stream) {
	s.may("Start")
	s.starts.Add(1)
	s.streams = [2]stream.Stream{client, upstream}
	s.buf[relay.Upstream] = nil
	upstream.SetReading(true)
}

func (s *lineSession) Refused(why Reason, err error) {
	s.may("Refused")
	s.streams[relay.Client].Send([]byte("refused " + string(why) + "\n"))
	s.conn.Fail(why, err, true)
}

func (s *lineSession) Leaving(why Reason, clean bool) {
	s.may("Leaving")
	s.leftFor.Store(why)
	s.clean.Store(clean)
	s.streams[relay.Client].Send([]byte("leave\n"))
}

func (s *lineSession) Moved(from relay.Side, n int) { s.moved[from].Add(int64(n)) }
func (s *lineSession) Sent(to relay.Side) {
	s.may("Sent")
	if s.open {
		s.streams[to.Other()].SetReading(true)
	}
}

func (s *lineSession) Ended(from relay.Side) {
	s.may("Ended")
	switch {
	case s.open && from == relay.Client:
		s.conn.End(ClientFIN, true)
	case s.open:
		s.conn.End(UpstreamFIN, true)
	case s.goOn:
		s.name = "nobody"
		s.conn.Connect(nil)
	}
}

func (s *lineSession) Failed(from relay.Side, err error) {
	s.may("Failed")
	s.fails[from].Store(err)
}
func (s *lineSession) MemoryAvailable() {}
func (s *lineSession) Idle() bool       { return s.open || s.idle.Load() }
func (s *lineSession) Closed(Reason) {
	s.closed.Add(1)
	s.conn.Disarm(&s.timer)
	if s.standby != nil {
		s.standby.link.Abort()
	}
	s.may("Closed")
}

// lineStandby logs in at another server, and then takes its place.
type lineStandby struct {
	s      *lineSession
	link   *Standby
	config *tls.Config
	stop   bool // do not adopt
	buf    []byte
	events chan string

	bad     string // the event at which it panics
	abortAt string // the event at which it is aborted
}

// move has a session dial another server, on its loop.
func (s *lineSession) move(to Target, change func(*lineStandby)) *lineStandby {
	b := &lineStandby{s: s, config: to.Profile.TLS, events: make(chan string, 16)}
	if change != nil {
		change(b)
	}
	s.onLoop(func() {
		b.link = s.conn.DialStandby(to, b)
		s.standby = b
	})
	return b
}

func (b *lineStandby) tell(event string) {
	b.events <- event
	if b.bad == event {
		panic("on purpose, in " + event)
	}
	if b.abortAt == event {
		b.link.Abort()
	}
}

func (b *lineStandby) Connected() {
	if b.tell("connected"); b.abortAt == "connected" {
		return
	}
	b.link.Stream().SetReading(true)
	if b.link.tls != nil {
		b.link.Stream().Send([]byte("login " + b.s.name + "\n"))
	}
}

func (b *lineStandby) Received(p []byte) {
	b.buf = append(b.buf, p...)
	for line, rest, ok := bytes.Cut(b.buf, []byte("\n")); ok; line, rest, ok = bytes.Cut(b.buf, []byte("\n")) {
		b.buf = append([]byte(nil), rest...)
		b.tell(string(line))
		switch {
		case b.abortAt == string(line):
			return
		case string(line) == "welcome" && b.config != nil:
			b.link.Stream().Send([]byte("tls\n"))
		case string(line) == "welcome":
			b.link.Stream().Send([]byte("login " + b.s.name + "\n"))
		case string(line) == "go":
			b.link.StartTLS(b.config, nil)
		case string(line) == "ok" && !b.stop:
			b.adopt()
			return
		}
	}
}

func (b *lineStandby) adopt() {
	c := b.s.conn
	c.MayMove(relay.Client, 0)
	c.MayMove(relay.Upstream, 0)
	c.Adopt(b.link)
	b.s.streams[relay.Upstream] = b.link.Stream()
	b.s.allow()
	b.events <- "adopted"
}

func (b *lineStandby) Moved(int) {}
func (b *lineStandby) Sent()     {}
func (b *lineStandby) Ended()    { b.tell("ended") }
func (b *lineStandby) Failed(err error) {
	b.tell("failed: " + string(ConnectReason(err)))
}

// wait waits for the events, in that order.
func (b *lineStandby) wait(want ...string) {
	b.s.t.Helper()
	for _, w := range want {
		if got := testkit.Receive(b.s.t, w, b.events); got != w {
			b.s.t.Fatalf("the standby: %q, want %q", got, w)
		}
	}
}

// lineServer is a server of that protocol. It answers each line with its name and
// the line, except for "bulk N", which it answers with N bytes.
type lineServer struct {
	name   string
	tls    *tls.Config
	proxy  bool // a PROXY header comes first; the login's answer is then behind it
	refuse bool
	drop   bool // it resets the connection at the login
}

func (v lineServer) serve(t testing.TB) string {
	t.Helper()
	return testkit.Serve(t, func(tcp *net.TCPConn) {
		var c net.Conn = tcp
		in := bufio.NewReader(c)
		if v.proxy {
			if header, err := in.ReadString('\n'); err != nil || !strings.HasPrefix(header, "PROXY TCP4 ") {
				t.Errorf("the PROXY header: %q, %v", header, err)
			}
		}
		fmt.Fprint(c, "welcome\n")
		line, _ := in.ReadString('\n')
		if line == "tls\n" && v.tls != nil {
			fmt.Fprint(c, "go\n")
			c = tls.Server(c, v.tls)
			in = bufio.NewReader(c)
			line, _ = in.ReadString('\n')
		}
		switch {
		case !strings.HasPrefix(line, "login "):
			return
		case v.drop:
			_ = tcp.SetLinger(0)
			return
		case v.refuse:
			fmt.Fprint(c, "no\n")
			_, _ = io.Copy(io.Discard, c)
			return
		}
		fmt.Fprint(c, "ok\n")
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			switch line {
			case "end\n":
				_ = c.(interface{ CloseWrite() error }).CloseWrite()
				return
			case "reset\n":
				_ = tcp.SetLinger(0)
				return
			}
			n := 0
			if _, err := fmt.Sscanf(line, "bulk %d", &n); err == nil {
				_, _ = c.Write(make([]byte, n))
				continue
			}
			fmt.Fprintf(c, "%s: %s", v.name, line)
		}
	})
}

// greeted makes the rig's connections line sessions with those targets, which get
// the rig's meter, and returns a channel of them.
func greeted(t testing.TB, r *rig, change func(*lineSession), targets ...Target) <-chan *lineSession {
	all := make(chan *lineSession, 64)
	for i := range targets {
		if targets[i].Profile == nil {
			targets[i].Profile = &Profile{Meter: r.meter}
		}
	}
	r.route = func(*Conn) (Plan, Reason) {
		s := &lineSession{plan: plan{targets: targets}, t: t, opened: make(chan struct{}), expired: make(chan struct{})}
		if change != nil {
			change(s)
		}
		all <- s
		return s, OK
	}
	return all
}

// at is a target of a rig.
func (r *rig) at(addr string) Target {
	return Target{Addr: mustAddr(addr), Profile: &Profile{Meter: r.meter}}
}

// secure returns the configurations of both ends of TLS for a name.
func secure(name string) (server, client *tls.Config) {
	own := certs.SelfSigned(name)
	return &tls.Config{Certificates: []tls.Certificate{own.TLS}}, &tls.Config{ServerName: name, RootCAs: own.Pool()}
}

// loggedIn connects a client and waits until its login has succeeded.
func loggedIn(t testing.TB, addr string, all <-chan *lineSession) (*net.TCPConn, *lineSession) {
	t.Helper()
	c := dial(t, addr)
	mustRead(t, c, "hello\n")
	mustWrite(t, c, "login me\n")
	mustRead(t, c, "ok\n")
	s := testkit.Receive(t, "a session", all)
	testkit.Receive(t, "the end of the login", s.opened)
	return c, s
}

// ask sends a line and expects the answer of a server.
func ask(t testing.TB, c net.Conn, name, line string) {
	t.Helper()
	mustWrite(t, c, line+"\n")
	mustRead(t, c, name+": "+line+"\n")
}

// waitPhase waits until the newest connection is in a phase.
func (r *rig) waitPhase(t testing.TB, phase string) {
	t.Helper()
	testkit.WaitFor(t, "the phase "+phase, func() bool {
		list := r.Connections(1)
		return len(list) == 1 && list[0].Phase == phase
	})
}
