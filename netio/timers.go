package netio

import (
	"errors"
	"math/rand/v2"
	"time"

	"penstock/netio/pipe"
	"penstock/netio/reactor"
	"penstock/netio/relay"
)

const (
	// quietTime is how long nothing must have moved before a connection
	// counts as being between two messages.
	quietTime = 50 * time.Millisecond
	// quietPoll is how often one is looked at that should be closed and is
	// busy.
	quietPoll = 25 * time.Millisecond
	// trifle is how many bytes of this process nobody misses: a frame of HTTP/2
	// that says no more than that the answer was whole, or answers a PING.
	trifle = 64
)

// Expired implements reactor.Expirer: the deadline of the phase.
func (c *Conn) Expired(*reactor.Timer) {
	switch c.phase {
	case phaseProxy:
		c.abort(c.unheard(ProxyTimeout))
	case phaseHello:
		c.abort(c.unheard(HelloTimeout))
	case phaseHandshake:
		c.abort(HandshakeTimeout)
	case phaseMeshHeader:
		c.abort(c.unheard(MeshHeaderTimeout))
	case phaseWaiting:
		if !c.waits() {
			c.proceed()
		}
	case phaseConnecting:
		c.connectTimedOut()
	case phaseRefusing:
		c.loop.failure = c.ident.failure
		c.dismiss(c.ident.why)
	case phaseRelaying:
		c.keepAlive()
		c.checkTimers()
	}
}

// keepAlive begins to probe the endpoint. A connection that lives short never
// comes to it, and saves three system calls; the client's socket has it from
// the listening one for nothing.
func (c *Conn) keepAlive() {
	if c.flags&probing == 0 {
		c.flags |= probing
		c.upstreamSocket().SetKeepAlive(c.loop.engine.tcp.KeepAlive)
	}
}

// startTimers sets what ends the connection by time.
func (c *Conn) startTimers() {
	c.loop.Disarm(&c.timer)
	c.setExpiry()
	c.checkTimers()
}

func (c *Conn) setExpiry() {
	if age := c.profile.MaxAge; age > 0 {
		c.expiry = c.born + age - jitter(age)
	}
}

// checkTimers closes a relayed connection that is due, and sets the timer for
// the next look at it otherwise. Bytes only store when they came; so a busy
// connection costs one look per timeout, not one per byte.
func (c *Conn) checkTimers() {
	now := c.loop.Now()
	limit, why := c.idleLimit()
	var next time.Duration // from now; 0: never
	if limit > 0 {
		next = c.active + limit - now
		if next <= 0 && (c.isHeld() || c.moves()) {
			c.active, next = now, limit
		}
		if next <= 0 {
			c.stop(why, true)
			return
		}
	}
	if age := c.profile.MaxAge; age > 0 {
		left := c.expiry - now
		if left <= 0 {
			// From here to the maximum age, a quiet moment is waited for.
			if left = c.born + age - now; left <= 0 || now-c.active >= quietTime && c.isIdle() {
				c.stop(MaxAge, c.isIdle())
				return
			}
			c.leaveSoon(nil)
			left = min(left, quietPoll)
		}
		if next == 0 || left < next {
			next = left
		}
	}
	if probe := c.loop.engine.tcp.KeepAlive; probe > 0 && c.flags&probing == 0 && (next == 0 || probe < next) {
		next = probe
	}
	if next > 0 {
		c.loop.Arm(&c.timer, next)
	}
}

// moves tells whether the peers took something out of the kernel: a slow reader
// may live on that for minutes after the last byte went through here. It is
// asked when the time is over, and only what is the same at two looks stands
// still; so a reader that is stuck may get the time twice.
func (c *Conn) moves() bool {
	was := c.unsent
	c.unsent = uint32(c.client.Unsent() + c.upstreamSocket().Unsent())
	return c.unsent != 0 && c.unsent != was
}

// idleLimit is how long the connection may be silent as it is now.
func (c *Conn) idleLimit() (time.Duration, Reason) {
	if limit := c.profile.HalfClosedTimeout; limit > 0 && c.relay.HalfClosed() {
		return limit, HalfClosedTimeout
	}
	return c.profile.IdleTimeout, IdleTimeout
}

// leaveSoon has a session end as soon as it is quiet, by the drain, or by its age
// without one. A relay is looked at again and again: it cannot know.
func (c *Conn) leaveSoon(by *drain) {
	if c.flags&sessioned == 0 {
		return
	}
	c.flags |= leaving
	if by != nil {
		c.loop.leavers[c] = by
	}
}

// stay takes leaveSoon back.
func (c *Conn) stay() {
	if c.flags&leaving != 0 {
		c.flags &^= leaving
		delete(c.loop.leavers, c)
	}
}

// isIdle tells that nothing is under way as far as can be known.
func (c *Conn) isIdle() bool {
	if c.flags&sessioned != 0 {
		return (c.phase == phaseRelaying || c.phase == phaseGreeting) && c.settled() && c.session().Idle()
	}
	return c.phase == phaseRelaying && !c.isHeld() && c.relay.Idle() && c.settled() && c.loop.Now()-c.active >= quietTime
}

// settled tells the same of what the sockets move by themselves, of which the
// relay hears afterwards.
func (c *Conn) settled() bool {
	if d, ok := c.above.(*pipe.Pipe); ok && !d.Settled() {
		return false
	}
	return c.client.Settled() && c.upstreamSocket().Settled()
}

// stop ends the connection from here; clean as in relay.Stop.
func (c *Conn) stop(why Reason, clean bool) {
	if c.flags&sessioned != 0 {
		c.stopSession(why, clean && c.isIdle())
		return
	}
	if c.phase != phaseRelaying {
		c.abort(why)
		return
	}
	c.relay.Stop(clean && c.settled())
	c.finish(why)
}

func (c *Conn) sent(s relay.Side) {
	if c.phase == phaseRelaying {
		c.active = c.loop.Now()
		if c.flags&sessioned == 0 {
			c.relay.Sent(s)
			return
		}
		c.session().Sent(s)
		c.leaveIfIdle()
	} else if c.flags&sessioned != 0 && s == relay.Client {
		c.session().Sent(s)
	}
}

func (c *Conn) ended(s relay.Side) {
	c.active = c.loop.Now()
	if c.flags&sessioned != 0 {
		c.relay.NoteEnded(s)
		if c.session().Ended(s); c.phase != phaseRelaying {
			return
		}
	} else if o := c.relay.Ended(s); o != relay.Open {
		c.finish(Reason(o.String()))
		return
	}
	c.checkTimers() // the half-closed timeout may be the shorter one
}

// failed ends a relay of which one side died.
func (c *Conn) failed(s relay.Side, err error) {
	why := UpstreamReset
	if s == relay.Client {
		why = ClientReset
		if d, ok := c.above.(*pipe.Pipe); c.relay.Owes(relay.Client) || ok && d.Unread() > trifle {
			c.flags |= owed
		}
	}
	if errors.Is(err, reactor.ErrPanic) {
		c.abort(Internal)
		return
	}
	if c.flags&sessioned != 0 {
		c.must(func() { c.session().Failed(s, err) })
		if c.phase != phaseRelaying {
			c.loop.failure = nil
			return
		}
	}
	c.abort(why)
}

// jitter is a chance part of a maximum age, up to a tenth: connections that
// were made together shall not all be made again together.
func jitter(age time.Duration) time.Duration {
	if age < 10 {
		return 0
	}
	return rand.N(age / 10)
}
