package netio

import (
	"math"
	"runtime/debug"
	"time"

	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// A Session is a Plan that replaces the relay: it receives the bytes of both
// sides and decides what each side is sent. It belongs to one connection and
// is called on its loop only, after Plan.Connected.
//
// It gets the events of both streams by the same rules as a relay.Relay: p is
// valid during the call only, Sent follows a Send that left bytes pending, and
// nothing follows from a side that failed. Received also brings the bytes that
// arrived before there was an endpoint.
//
// A session ends its connection with Conn.End. Closed is the last call to it,
// whoever ended the connection.
type Session interface {
	Plan
	// Start hands over the streams. Neither is read until the session calls
	// SetReading. A PROXY header, if one is wanted, has been sent.
	Start(c *Conn, client, upstream stream.Stream)
	// Received brings bytes of a side.
	Received(from relay.Side, p []byte)
	// Moved reports that n bytes went from one side to the other unseen, as
	// the session allowed with MayMove.
	Moved(from relay.Side, n int)
	// Sent reports that nothing is pending for a side any more.
	Sent(to relay.Side)
	// Ended reports that a side has sent its end of stream.
	Ended(from relay.Side)
	// Failed reports that a side failed. Unless the session calls Conn.End in
	// this call, the other side is aborted and the connection ends with
	// ClientReset or UpstreamReset.
	Failed(from relay.Side, err error)
	// MemoryAvailable reports that a Reserve that was refused may succeed now.
	MemoryAvailable()
	// Idle reports whether nothing is under way, so that a clean end would
	// lose nothing. Drains and maximum ages wait for such a moment.
	Idle() bool
	// Closed reports that the connection has ended and its streams are closed.
	// The session must release its memory and timers. Handler.Closed follows.
	Closed(why Reason)
}

// A HoldingSession may hold its client back: time in which it does is no idle time.
type HoldingSession interface {
	Session
	// Holds reports whether the client is not read although it may have bytes.
	Holds() bool
}

// An AnsweringSession knows at which of its idle moments a client expects its
// connection to go on.
type AnsweringSession interface {
	Session
	// Answered reports whether the event at hand has completed an answer with which
	// the client may be done. A session that is to leave ends behind such an answer,
	// or once it has been quiet for a while.
	Answered() bool
}

// session is the plan as a Session; only where the flag says that it is one.
func (c *Conn) session() Session { return c.plan.(Session) }

// beginSession hands the streams over instead of joining them.
func (c *Conn) beginSession(s Session) {
	l := c.loop
	c.flags |= sessioned
	if c.above == nil {
		if header := c.appendProxyHeader(l.scratch[:0], c.profile); len(header) > 0 {
			l.scratch = header
			c.upstream.Send(header)
		}
	}
	c.phase = phaseRelaying
	c.countRouted()
	c.active = l.Now()
	c.startTimers()
	client, upstream := c.pacedStreams()
	if c.spec != nil { // not a second time
		c.pace(relay.Client, int(c.relay.Bytes(relay.Client)))
	}
	s.Start(c, client, upstream)
	if c.phase == phaseRelaying && c.ident != nil && len(c.ident.buf) > 0 {
		early := c.ident.takeBuffer()
		c.meter.fromPeer.Add(uint64(len(early)))
		c.received(relay.Client, early)
		c.pace(relay.Client, len(early))
	}
	if c.phase == phaseRelaying { // or finish has done it, or a next attempt needs it
		c.keepProxyHeader(s)
		c.releaseIdent()
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
	if c.flags&leaving == 0 || from != relay.Upstream {
		c.session().Received(from, p)
		c.leaveIfIdle()
		return
	}
	// If this is the end of the last answer, it leaves in one segment with the end of
	// the connection: a client that has read the one can see the other, and does not
	// send a command in between.
	c.client.SetCork(true)
	c.session().Received(from, p)
	if c.leaveIfIdle(); c.phase != phaseClosed {
		c.client.SetCork(false)
	}
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
	if s, ok := c.plan.(AnsweringSession); ok && !s.Answered() {
		return
	}
	why := MaxAge
	if d := c.loop.leavers[c]; d != nil {
		if !d.matches(c) {
			c.stay()
			return
		}
		why = d.why
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

// End ends the connection of a session. It may be called from an event, a
// timer or a function given to Post. If clean is true, both streams are closed
// after their pending bytes are sent, otherwise both are reset. End calls the
// session's Closed before it returns.
func (c *Conn) End(why Reason, clean bool) {
	if c.phase == phaseClosed || c.flags&sessioned == 0 {
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

// Fail is End with an error that Handler.Closed gets from Conn.Failure. clean
// concerns the client only. The endpoint is always reset, so that it learns
// that nobody waits for its answers, and so that a client's faults leave no
// local ports in TIME_WAIT.
func (c *Conn) Fail(why Reason, err error, clean bool) {
	if c.phase != phaseClosed && c.flags&sessioned != 0 {
		c.loop.failure = err
		c.upstreamStream().Abort()
		c.End(why, clean)
	}
}

// MayMove allows up to n more bytes of a side to go to the other side unseen,
// reported by Moved; bytes that Received brings count too. It replaces what is
// left of an earlier allowance. It returns false where bytes must be seen,
// such as with TLS or a Pacer.
//
// With an allowance, a side is read only while the other one can take bytes.
// What is sent to the other side goes behind the bytes that moved.
func (c *Conn) MayMove(from relay.Side, n int) bool {
	if c.tls != nil || c.phase != phaseRelaying || c.isPaced(from) {
		return false
	}
	upstream := &c.upstream
	if c.above != nil {
		a, ok := c.above.(*adopted)
		if !ok || a.of.tls != nil {
			return false
		}
		upstream = &a.of.socket
	}
	if from == relay.Client {
		return c.client.PipeUpTo(upstream, n)
	}
	return upstream.PipeUpTo(&c.client, n)
}

// Arm arms a timer on the connection's loop. A session must disarm its timers
// in Closed.
func (c *Conn) Arm(t *reactor.Timer, d time.Duration) { c.loop.Arm(t, d) }

// Disarm stops the timer if it is armed.
func (c *Conn) Disarm(t *reactor.Timer) { c.loop.Disarm(t) }

// Now returns the time of the connection's loop.
func (c *Conn) Now() time.Duration { return c.loop.Now() }

// Loop returns the index of the connection's loop, for counters with one shard
// per loop.
func (c *Conn) Loop() int { return c.loop.index }

// Post calls fn on the connection's loop, unless the connection has ended by
// then. Post may be called from any goroutine.
func (c *Conn) Post(fn func()) {
	c.loop.Post(func() { c.guard(fn) })
}

// Guard calls fn as an event of the connection: if fn panics, the connection
// ends with Internal. Timers of a session use it.
func (c *Conn) Guard(fn func()) { c.guard(fn) }

func (c *Conn) guard(fn func()) {
	if c.phase == phaseClosed {
		return
	}
	c.must(fn)
	c.leaveIfIdle()
}

// must calls fn; if that panics, the connection ends before the panic goes on.
func (c *Conn) must(fn func()) {
	done := false
	defer func() {
		if !done {
			c.abort(Internal)
		}
	}()
	fn()
	done = true
}
