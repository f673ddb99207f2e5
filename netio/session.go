package netio

import (
	"math"
	"runtime/debug"
	"time"

	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// A Session is a Plan that takes the relay's place: it sees what both sides
// say, and decides what is said to the other. It belongs to one connection and
// is called on its loop alone, after Plan.Connected.
//
// It is told the events of both streams as a relay.Relay is, by the same
// rules: p is valid during the call only, Sent follows a Send that left bytes
// pending, and nothing comes from a side that failed. Bytes that came before
// there was an endpoint are told by Received, like all others.
//
// A session ends its connection by Conn.End. The last that it is told is
// Closed, whoever ended it.
type Session interface {
	Plan
	// Start hands over the streams. Neither is read yet: SetReading is the
	// session's to call. first, a PROXY header or nothing, has been sent.
	Start(c *Conn, client, upstream stream.Stream)
	// Received brings bytes of a side.
	Received(from relay.Side, p []byte)
	// Moved tells that n bytes of a side went to the other by themselves, as
	// the session has allowed by MayMove.
	Moved(from relay.Side, n int)
	// Sent tells that a side has taken all that was pending for it.
	Sent(to relay.Side)
	// Ended tells that a side has sent its end of stream.
	Ended(from relay.Side)
	// Failed tells that a side is dead. Unless the session calls Conn.End
	// now, the other side is aborted and the connection ends with
	// ClientReset or UpstreamReset.
	Failed(from relay.Side, err error)
	// MemoryAvailable tells that memory that Conn.Reserve refused may be there now.
	MemoryAvailable()
	// Idle tells that a clean end would cost neither side anything now:
	// nothing is under way. Drains and maximum ages wait for such a moment.
	Idle() bool
	// Closed tells that the connection is over, before Handler.Closed: the
	// streams are closed, and what the session holds, memory and timers, is
	// to be given back.
	Closed(why Reason)
}

// session is the plan as a Session; only where the flag says that it is one.
func (c *Conn) session() Session { return c.plan.(Session) }

// beginSession hands the streams over instead of joining them.
func (c *Conn) beginSession(s Session) {
	l := c.loop
	c.flags |= sessioned
	c.relay = relay.Relay{}
	if c.above == nil {
		if header := c.appendProxyHeader(l.scratch[:0]); len(header) > 0 {
			l.scratch = header
			c.upstream.Send(header)
		}
	}
	c.phase = phaseRelaying
	c.countRouted()
	c.active = l.Now()
	c.startTimers()
	s.Start(c, c.clientStream(), c.upstreamStream())
	if c.phase == phaseRelaying && c.ident != nil && len(c.ident.buf) > 0 {
		c.meter.fromPeer.Add(uint64(len(c.ident.buf)))
		c.received(relay.Client, c.ident.buf)
	}
	if c.phase == phaseRelaying { // or finish has done it
		c.forget()
		c.spec = nil
	}
}

// received tells the session of bytes, where there is one.
func (c *Conn) received(from relay.Side, p []byte) {
	if c.flags&sessioned == 0 {
		c.relay.Received(from, p)
		return
	}
	c.relay.Moved(from, len(p))
	c.session().Received(from, p)
	c.leaveIfIdle()
}

// moved does the same for bytes that the session has not seen.
func (c *Conn) moved(from relay.Side, n int) {
	c.relay.Moved(from, n)
	if c.flags&sessioned != 0 {
		c.session().Moved(from, n)
		c.leaveIfIdle()
	}
}

// leaveIfIdle closes a session that is to leave as soon as that costs
// nothing: such a moment may be a short one.
func (c *Conn) leaveIfIdle() {
	if c.flags&leaving == 0 || !c.isIdle() {
		return
	}
	why := MaxAge
	if c.loop.draining != nil {
		why = Drained
	}
	c.stop(why, true)
}

// closeSession tells the session of its end. A panic in that must not keep the
// connection from ending.
func (c *Conn) closeSession(why Reason) {
	if c.flags&sessioned == 0 {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			c.loop.panicked(v, debug.Stack())
		}
		if h := c.loop.holds[c]; h != nil {
			c.loop.hungry.leave(h)
			c.Release(math.MaxInt64) // all that is left
			delete(c.loop.holds, c)
		}
	}()
	c.session().Closed(why)
}

// End ends the connection of a session, from inside an event, a timer or a
// function given to Post. clean: both streams are closed after what is pending
// for them has been sent; else both are reset. The session's Closed is called
// before it returns.
func (c *Conn) End(why Reason, clean bool) {
	if c.phase != phaseRelaying {
		return
	}
	if !clean {
		c.abort(why)
		return
	}
	c.clientStream().Close()
	c.upstreamStream().Close()
	c.finish(why)
}

// Fail is End with an error for Handler.Closed to see as Conn.Failure. Clean is
// the client's end alone: the endpoint is reset, so that it hears that nobody waits
// for its answers, and no client has a local port left in TIME_WAIT with each of
// its faults.
func (c *Conn) Fail(why Reason, err error, clean bool) {
	if c.phase == phaseRelaying {
		c.loop.failure = err
		c.upstreamStream().Abort()
		c.End(why, clean)
	}
}

// MayMove allows the next n bytes of a side, at most, to go to the other side
// unseen, told by Moved; those that Received brings count as well. It replaces
// what is left of an earlier allowance. It returns false where the bytes have
// to be seen, such as under TLS.
//
// While there is an allowance the side is read only when the other one takes
// what comes. What is sent to the other side goes behind what has moved.
func (c *Conn) MayMove(from relay.Side, n int) bool {
	if c.tls != nil || c.above != nil || c.phase != phaseRelaying {
		return false
	}
	if from == relay.Client {
		return c.client.PipeUpTo(&c.upstream, n)
	}
	return c.upstream.PipeUpTo(&c.client, n)
}

// Arm and Disarm are those of the connection's loop. A session disarms its
// timers when it is Closed.
func (c *Conn) Arm(t *reactor.Timer, d time.Duration) { c.loop.Arm(t, d) }

// Disarm makes sure that the timer does not fire.
func (c *Conn) Disarm(t *reactor.Timer) { c.loop.Disarm(t) }

// Now is the time of the connection's loop.
func (c *Conn) Now() time.Duration { return c.loop.Now() }

// Loop is the number of its loop, for counters that have a part for each.
func (c *Conn) Loop() int { return c.loop.index }

// Post has fn called on the connection's loop. It may be called from any
// goroutine. fn is dropped where the connection is over by then.
func (c *Conn) Post(fn func()) {
	c.loop.Post(func() { c.guard(fn) })
}

// Guard calls fn as an event of the connection: should it panic, the
// connection ends with Internal. Timers of a session call it.
func (c *Conn) Guard(fn func()) { c.guard(fn) }

func (c *Conn) guard(fn func()) {
	if c.phase == phaseClosed {
		return
	}
	done := false
	defer func() {
		if !done {
			c.abort(Internal)
		}
	}()
	fn()
	done = true
	if c.phase == phaseRelaying {
		c.leaveIfIdle()
	}
}
