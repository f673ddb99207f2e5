package netio

import (
	"math"
	"time"

	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// A Pacer bounds the rate at which the bytes of a connection are read. It belongs to
// one connection and is called on its loop only.
//
// A side is charged for bytes after they came, and is then not read for as long as
// the Pacer says; TCP's window holds the peer back meanwhile. So no byte is lost or
// kept, and a side exceeds its budget by what one read brings at most: the loop's
// read buffer (64 KiB), or what Room allowed to be spliced.
type Pacer interface {
	// Paces reports whether bytes from a side have a bound. It must not change.
	Paces(from relay.Side) bool
	// Charge counts n bytes that came from a side, and returns for how long it must
	// not be read.
	Charge(from relay.Side, n int) time.Duration
	// Owed returns for how long everything that was charged for a side keeps it held at
	// the rates of now, which may have changed. Delay does for the connection's delay; a
	// reason refuses the connection.
	Owed(from relay.Side) time.Duration
	Delay() (time.Duration, Reason)
	// Room returns how many bytes a side may bring at once.
	Room(from relay.Side) int64
}

// pacing is the state of a connection with a Pacer.
type pacing struct {
	pacer Pacer
	delay time.Duration // before the plan is asked for an endpoint
	until time.Duration // of the loop's time: the end of the delay
	sides [2]*pacedSide
}

// pacedSide is one side of it. It stands between the side's stream and the relay or
// session, which reads only while it wants to and the Pacer lets it.
type pacedSide struct {
	stream.Stream
	conn  *Conn
	timer reactor.Timer // armed while the side is held
	from  relay.Side
	paced bool
	wants bool          // the relay or session wants to read
	held  bool          // the Pacer does not let it
	until time.Duration // of the loop's time: it is held until then, or shorter
}

// recheck is how often who is held or delayed is looked at again: a rate may have risen
// meanwhile, as it does when the cluster begins to give a node what it has demand for.
const recheck = 200 * time.Millisecond

// SetPacer gives the connection a Pacer, and makes it wait for delay before its plan
// is asked for an endpoint. It may be called in Handler.Route, and by a Greeter before
// its first Conn.Connect. A connection without a Pacer has no field for one: that keeps
// it small.
func (c *Conn) SetPacer(p Pacer, delay time.Duration) {
	c.flags |= pacedConn
	both := new([2]pacedSide)
	c.loop.paced[c] = &pacing{pacer: p, delay: delay, sides: [2]*pacedSide{&both[0], &both[1]}}
}

// pacing returns the state of a connection with a Pacer, or nil.
func (c *Conn) pacing() *pacing {
	if c.flags&pacedConn == 0 {
		return nil
	}
	return c.loop.paced[c]
}

// Pacer returns what SetPacer was given, or nil.
func (c *Conn) Pacer() Pacer {
	if p := c.pacing(); p != nil {
		return p.pacer
	}
	return nil
}

// pacedStreams returns the two streams as a relay or session gets them.
func (c *Conn) pacedStreams() (client, upstream stream.Stream) {
	client, upstream = c.clientStream(), c.upstreamStream()
	state := c.pacing()
	if state == nil {
		return client, upstream
	}
	return state.wrap(c, relay.Client, client), state.wrap(c, relay.Upstream, upstream)
}

// wrap puts a side's pacing on its stream, at first and whenever that is replaced.
func (state *pacing) wrap(c *Conn, from relay.Side, s stream.Stream) *pacedSide {
	p := state.sides[from]
	if p.conn == nil {
		p.conn, p.from, p.paced = c, from, state.pacer.Paces(from)
		p.timer.Init(p)
	}
	p.Stream, p.wants = s, false
	return p
}

// SetReading implements stream.Stream.
func (p *pacedSide) SetReading(on bool) {
	p.wants = on
	p.Stream.SetReading(on && !p.held)
}

// PipeTo implements stream.Stream: what is spliced at once keeps to the budget.
func (p *pacedSide) PipeTo(dst stream.Stream) bool {
	to, ok := dst.(*pacedSide)
	if !ok {
		return p.Stream.PipeTo(dst)
	}
	if p.paced && (p.conn.tls != nil || p.conn.above != nil) {
		return false
	}
	piped := p.Stream.PipeTo(to.Stream)
	if p.paced {
		p.allow()
	}
	return piped
}

// allow lets the socket splice what the budget has room for.
func (p *pacedSide) allow() {
	c := p.conn
	if c.tls != nil || c.above != nil || c.flags&sessioned != 0 {
		return
	}
	n := int(min(c.pacing().pacer.Room(p.from), math.MaxInt32))
	if p.from == relay.Client {
		c.client.PipeUpTo(&c.upstream, n)
	} else {
		c.upstream.PipeUpTo(&c.client, n)
	}
}

// pace charges bytes that came from a side, and holds it if they exceed the budget.
func (c *Conn) pace(from relay.Side, n int) {
	state := c.pacing()
	if state == nil || n == 0 || !state.sides[from].paced || c.phase != phaseRelaying {
		return
	}
	p := state.sides[from]
	wait := state.pacer.Charge(from, n)
	p.allow()
	if wait <= 0 {
		return
	}
	p.held, p.until = true, c.loop.Now()+wait
	p.Stream.SetReading(false)
	c.loop.Arm(&p.timer, min(wait, recheck))
}

// Expired implements reactor.Expirer: the side may be read again, if it owes nothing.
func (p *pacedSide) Expired(*reactor.Timer) {
	c := p.conn
	if c.phase == phaseRelaying {
		if rest := min(p.until-c.loop.Now(), c.pacing().pacer.Owed(p.from)); rest > 0 {
			c.loop.Arm(&p.timer, min(rest, recheck))
			return
		}
	}
	p.held = false
	if p.conn.phase == phaseRelaying {
		p.conn.active = p.conn.loop.Now()
		p.allow()
		p.Stream.SetReading(p.wants)
	}
}

// isDelayed reports whether the connection has a delay that has not begun.
func (c *Conn) isDelayed() bool { return c.flags&pacedConn != 0 && c.pacing().delay > 0 }

// wait begins the delay of a connection, which has it once.
func (c *Conn) wait() {
	p := c.pacing()
	p.until = c.loop.Now() + p.delay
	c.phase = phaseWaiting
	c.markDecided()
	c.loop.Arm(&c.timer, min(p.delay, recheck))
	p.delay = 0
}

// waits goes on with the delay, and reports whether the connection still waits or is
// refused.
func (c *Conn) waits() bool {
	p := c.pacing()
	if p == nil {
		return false
	}
	rest, why := p.pacer.Delay()
	if why != OK {
		c.turnAway(why)
		return true
	}
	if rest = min(rest, p.until-c.loop.Now()); rest <= 0 {
		return false
	}
	c.loop.Arm(&c.timer, min(rest, recheck))
	return true
}

func (c *Conn) isPaced(from relay.Side) bool {
	p := c.pacing()
	return p != nil && p.sides[from].paced
}

// isHeld reports whether the Pacer or the session holds a side that may have bytes.
func (c *Conn) isHeld() bool {
	if s, ok := c.plan.(HoldingSession); ok && c.flags&sessioned != 0 && s.Holds() {
		return true
	}
	p := c.pacing()
	return p != nil && (p.sides[relay.Client].held || p.sides[relay.Upstream].held)
}

// stopPacing disarms the timers of a connection that ends.
func (c *Conn) stopPacing() {
	if p := c.pacing(); p != nil {
		c.loop.Disarm(&p.sides[relay.Client].timer)
		c.loop.Disarm(&p.sides[relay.Upstream].timer)
	}
}
