package netio

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"penstock/internal/testkit"
	"penstock/netio/relay"
)

// answering is a lineSession that knows whether its client may be done: where idle says
// so, behind what a server has said.
type answering struct {
	*lineSession
	last relay.Side
}

func (s *answering) Received(from relay.Side, p []byte) {
	s.last = from
	s.lineSession.Received(from, p)
}

func (s *answering) Answered() bool { return s.last == relay.Upstream && s.idle.Load() }

// serveAnswering is greeted with sessions that are done where idle says so.
func serveAnswering(t testing.TB, r *rig) (addr string, all <-chan *lineSession) {
	t.Helper()
	all = greeted(t, r, nil, r.at(lineServer{name: "a"}.serve(t)))
	route := r.route
	r.route = func(c *Conn) (Plan, Reason) {
		p, why := route(c)
		return &answering{lineSession: p.(*lineSession)}, why
	}
	return r.serve(t, Listener{}), all
}

// drainAt is a drain of a window of an hour, of which that much is over.
func drainAt(l *loop, elapsed time.Duration) *drain {
	d := &drain{loop: l, why: Drained, match: func(*Conn) bool { return true }}
	d.timer.Init(d)
	d.begin(time.Hour)
	d.begun -= elapsed
	d.Expired(&d.timer)
	return d
}

// dataSegments returns how many segments with data a client has received.
func dataSegments(t testing.TB, c *net.TCPConn) uint32 {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var info *unix.TCPInfo
	if e := raw.Control(func(fd uintptr) { info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); e != nil || err != nil {
		t.Fatal(e, err)
	}
	return info.Data_segs_in
}

// Sessions that are all in use are told to leave one after the other, and not all at
// once; the last ones have a quarter of the window.
func TestADrainTellsBusySessionsOverItsWindow(t *testing.T) {
	const n = 12
	r := newRig(t, Config{Loops: 1}, "", Profile{})
	all := sessions(r, testkit.Serve(t, echo), func(f *framed) { f.quiet.Store(false) })
	addr := r.serve(t, Listener{})
	for range n {
		dial(t, addr)
		startedSession(t, all)
	}
	told := func(elapsed time.Duration) (now int) {
		r.onLoops(func(l *loop) {
			d := drainAt(l, elapsed)
			now = len(l.leavers)
			for c := range l.leavers {
				c.stay()
			}
			d.finish()
		})
		return now
	}
	for minutes, want := range map[int]int{0: 0, 15: n / 3, 30: 2 * n / 3, 45: n} {
		if got := told(time.Duration(minutes) * time.Minute); got != want {
			t.Errorf("%d of %d busy sessions are told after %d minutes of an hour, want %d", got, n, minutes, want)
		}
	}
}

// The end of a session that is to leave goes along with its last answer: between the two
// a client would send its next command.
func TestAnAnswerAndTheEndAreOneSegment(t *testing.T) {
	r := newRig(t, Config{Loops: 1}, "", Profile{})
	addr, all := serveAnswering(t, r)
	c, s := loggedIn(t, addr, all)
	s.onLoop(func() { s.conn.MayMove(relay.Upstream, 0) }) // as a session that looks at answers
	var d *drain
	r.onLoops(func(l *loop) { d = drainAt(l, 30*time.Minute) })
	r.onConns(func(c *Conn) { c.leaveSoon(d) })

	before := dataSegments(t, c)
	ask(t, c, "a", "not the last one")
	if got := dataSegments(t, c) - before; got != 1 {
		t.Fatalf("an answer has %d segments", got)
	}
	s.idle.Store(true)
	before = dataSegments(t, c)
	mustWrite(t, c, "the last one\n")
	mustEnd(t, c, "a: the last one\nleave\n")
	r.wantEnd(t, Drained)
	if got := dataSegments(t, c) - before; got != 1 {
		t.Errorf("the answer, the last word and the end came in %d segments, want 1", got)
	}
}

// A session that expects more of its client is not closed at an idle moment, until it
// has been quiet for a while. Nor is one whose client has spoken.
func TestADrainWaitsForAQuietClient(t *testing.T) {
	r := newRig(t, Config{Loops: 1}, "", Profile{})
	addr, all := serveAnswering(t, r)
	c, _ := loggedIn(t, addr, all)
	var d *drain
	r.onLoops(func(l *loop) { d = drainAt(l, 30*time.Minute) })
	r.onConns(func(c *Conn) { c.leaveSoon(d) })
	ask(t, c, "a", "more will follow")

	closes := func(active time.Duration) (closed bool) {
		r.onConns(func(c *Conn) {
			c.active = d.loop.Now() - active
			closed = d.closeQuiet(c)
		})
		return closed
	}
	if closes(maxQuiet - time.Millisecond) {
		t.Fatal("closed although its client has just spoken")
	}
	r.onConns(func(conn *Conn) {
		conn.client.SetReading(false)
		mustWrite(t, c, "crossing\n")
		testkit.WaitFor(t, "the bytes to be there", func() bool { return conn.client.Unread() > 0 })
		if conn.active = d.loop.Now() - maxQuiet; d.closeQuiet(conn) {
			t.Error("closed although the client's command has arrived")
		}
		conn.client.SetReading(true)
	})
	mustRead(t, c, "a: crossing\n")
	if !closes(maxQuiet) {
		t.Fatal("not closed although its client is quiet")
	}
	mustEnd(t, c, "leave\n")
	r.wantEnd(t, Drained)
}

// A session stays if the drain that told it to leave no longer concerns it.
func TestASessionStaysAfterAll(t *testing.T) {
	r := newRig(t, Config{Loops: 1}, "", Profile{})
	addr, all := serveAnswering(t, r)
	c, s := loggedIn(t, addr, all)
	s.onLoop(func() { s.conn.MayMove(relay.Upstream, 0) })
	r.onLoops(func(l *loop) {
		d := drainAt(l, 0)
		d.match = func(*Conn) bool { return false }
		for c := l.conns.head; c != nil; c = c.next {
			c.leaveSoon(d)
		}
	})
	s.idle.Store(true)
	ask(t, c, "a", "one")
	ask(t, c, "a", "two")
	r.onLoops(func(l *loop) {
		if len(l.leavers) > 0 {
			t.Error("it is still to leave")
		}
	})
}
