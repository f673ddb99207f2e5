package netio

import (
	"crypto/tls"
	"errors"
	"runtime/debug"

	"penstock/netio/proxyproto"
	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
	"penstock/netio/tlsstream"
)

// A Greeter is a Session of a protocol in which the proxy speaks with the client
// before there is an endpoint, and in which TLS begins in the middle of a
// connection (MySQL; PostgreSQL; STARTTLS).
//
//	Greet ──> Received, Sent ... ──> Conn.Connect ──> Plan.Next ... Connected ──> Start ──> as a Session
//	              Conn.StartTLS ──> Secured              └──> Refused
//
// A panic in any of its methods ends the connection with Internal.
type Greeter interface {
	Session
	// Greet hands over the client's stream once Handler.Route has returned the
	// plan. It is not read until the session calls SetReading; what came behind
	// a PROXY header is told at once. Received, Sent, Ended and Failed follow for
	// relay.Client by the rules of Session, except that a client that ends or
	// fails ends the connection with ClientGone, unless the session calls
	// Conn.End, or Conn.Connect in Ended. The session leaves this phase by
	// Conn.Connect or Conn.End. There is no deadline: the session arms a timer of
	// its own (Conn.Arm).
	Greet(c *Conn, client stream.Stream)
	// Secured reports that a TLS handshake begun by Conn.StartTLS is over. A
	// failed one is Failed.
	Secured(side relay.Side)
	// Refused reports that no endpoint took the connection, with the last error.
	// The session may send the client a message and calls Conn.End or Conn.Fail
	// in this call; otherwise both sides are reset.
	Refused(why Reason, err error)
	// Leaving reports that the node ends the connection: a drain, a timer, its
	// endpoint's removal, memory. The session may send the client a last message;
	// the streams are closed after it, as by Conn.End with clean, unless the
	// session ends the connection itself in this call.
	Leaving(why Reason, clean bool)
}

// proceed goes on with a connection that has a plan: it is greeted, or an endpoint
// is asked for.
func (c *Conn) proceed() {
	if c.flags&sessioned == 0 {
		if g, ok := c.plan.(Greeter); ok {
			c.greet(g)
			return
		}
	}
	c.connect(nil)
}

// greet hands the client's stream over.
func (c *Conn) greet(g Greeter) {
	c.flags |= sessioned
	c.phase = phaseGreeting
	c.times.identified, c.times.decided = 0, 0 // that is up to the session
	c.loop.Disarm(&c.timer)
	c.must(func() {
		g.Greet(c, c.clientStream())
		if c.phase == phaseGreeting && c.ident != nil && len(c.ident.buf) > 0 {
			early := c.ident.takeBuffer()
			c.setCharge(0)
			c.received(relay.Client, early)
		}
	})
}

// takeBuffer returns what was read, once. It is valid until the ident gets other bytes.
func (id *ident) takeBuffer() []byte {
	b := id.buf
	id.buf = b[:0]
	return b
}

// receivedEarly takes bytes that come before the relay.
func (c *Conn) receivedEarly(p []byte) {
	if c.flags&sessioned != 0 {
		c.received(relay.Client, p)
		return
	}
	c.identify(p)
}

// endedEarly ends the connection of a client that has sent its end of stream before
// there is an endpoint, unless a Greeter goes on with it.
func (c *Conn) endedEarly() {
	if c.phase == phaseGreeting {
		c.relay.NoteEnded(relay.Client)
		if c.session().Ended(relay.Client); c.phase != phaseGreeting {
			return
		}
	}
	c.abort(ClientGone)
}

// tellFailedEarly tells a Greeter of a client that failed before there is an
// endpoint; true: that has ended the connection.
func (c *Conn) tellFailedEarly(err error) bool {
	if c.flags&sessioned == 0 || errors.Is(err, reactor.ErrPanic) {
		return false
	}
	c.must(func() { c.session().Failed(relay.Client, err) })
	return c.phase == phaseClosed
}

// clientSecured is called when TLS that a Greeter began with the client stands.
func (c *Conn) clientSecured() {
	c.loop.Disarm(&c.timer)
	c.phase = phaseGreeting
	c.serverName = c.tls.ConnectionState().ServerName
	c.must(func() { c.plan.(Greeter).Secured(relay.Client) })
}

// StartTLS puts TLS on a side whose stream is in the clear: as server towards the
// client, as client towards the endpoint. early is what has arrived of TLS already;
// it is copied. StartTLS returns the stream that replaces the side's; it is not read
// until SetReading. Secured or Failed(side, err) follows. Sent does not follow for
// bytes that are pending in the clear.
//
// Towards the client it may be called between Greet and Connect. The handshake has
// the HandshakeTimeout of the listener, and a place among the handshakes with
// clients; where there is none, the connection ends with LimitHandshakes. Towards
// the endpoint it may be called after Start, and the session sets the deadline.
// Failed gets ErrUpstreamTLS then.
func (c *Conn) StartTLS(side relay.Side, config *tls.Config, early []byte) stream.Stream {
	if side == relay.Upstream {
		return c.startUpstreamTLS(config, early)
	}
	if c.phase != phaseGreeting || c.tls != nil {
		panic("netio: StartTLS towards a client that is not being greeted, or has TLS")
	}
	if c.ident == nil {
		c.takeIdent()
	}
	if len(c.ident.buf) > 0 { // Greet has called this
		early = append(c.ident.takeBuffer(), early...)
	}
	c.phase = phaseHandshake
	if !c.enterHandshakes() {
		c.client.SetReading(false)
		c.Post(func() {
			c.loop.engine.refused.count(LimitHandshakes)
			c.abort(LimitHandshakes)
		})
		return &c.client
	}
	c.tls = c.loop.local.Server(&c.client, config, early, (*clientSide)(c))
	c.client.SetOwner(c.tls)
	c.loop.Arm(&c.timer, c.spec.HandshakeTimeout)
	return c.tls
}

func (c *Conn) startUpstreamTLS(config *tls.Config, early []byte) stream.Stream {
	if a, ok := c.above.(*adopted); ok {
		return a.of.StartTLS(config, early)
	}
	if c.phase != phaseRelaying || c.above != nil {
		panic("netio: StartTLS towards an endpoint that is not connected, or has TLS")
	}
	over := c.loop.local.Client(&c.upstream, config, (*upstreamSide)(c))
	c.above = over
	startClient(&c.upstream, over, early)
	if p := c.pacing(); p != nil {
		return p.wrap(c, relay.Upstream, over)
	}
	return over
}

// startClient begins TLS towards an endpoint on its connected socket.
func startClient(under *reactor.Socket, over *tlsstream.Stream, early []byte) {
	under.SetOwner(over)
	over.Connected()
	if len(early) > 0 {
		over.Received(early)
	}
}

// isShaking reports whether a TLS stream's handshake is not over, or failed.
func isShaking(s *tlsstream.Stream) bool { return s.ConnectionState().Version == 0 }

// Connect asks the plan for an endpoint and connects to it; err goes to Plan.Next.
// Plan.Connected and Start follow, or Refused, after the call has returned. The
// client is not read meanwhile. Connect may be called again after Start, while
// nothing of the client has been sent to the endpoint: the present upstream is
// aborted then. While an attempt is under way it does nothing.
func (c *Conn) Connect(err error) {
	if c.phase != phaseGreeting && c.phase != phaseRelaying || c.flags&sessioned == 0 {
		return
	}
	c.clientStream().SetReading(false)
	c.upstreamStream().Abort()
	c.above = nil
	c.relay.Renew(relay.Upstream)
	c.flags &^= probing
	c.loop.Disarm(&c.timer)
	c.phase = phaseConnecting
	c.markDecided()
	c.Post(func() {
		switch {
		case c.phase != phaseConnecting:
		case c.isDelayed():
			c.wait()
		default:
			c.connect(err)
		}
	})
}

// UpstreamTLS returns Profile.TLS of the present target; for a Greeter, netio does
// not begin TLS itself. nil: it is to be in the clear, or there is no target yet.
func (c *Conn) UpstreamTLS() *tls.Config {
	if c.profile == nil {
		return nil
	}
	return c.profile.TLS
}

// refuse ends the connection of a session that no endpoint takes. A fault may be the
// session's own: it is not asked then.
func (c *Conn) refuse(why Reason) {
	err := c.loop.failure
	if g, ok := c.plan.(Greeter); ok && why != Internal {
		c.must(func() { g.Refused(why, err) })
	}
	if c.phase != phaseClosed {
		c.loop.failure = err
		c.abort(why)
	}
}

// stopSession ends the connection of a session from here. It may be one of many that
// a drain goes through, so a panic goes no further.
func (c *Conn) stopSession(why Reason, clean bool) {
	g, ok := c.plan.(Greeter)
	if !ok || c.phase == phaseClosed {
		c.End(why, clean)
		return
	}
	defer func() {
		if v := recover(); v != nil {
			c.loop.panicked(v, debug.Stack())
			c.abort(Internal)
		}
	}()
	c.stay()
	g.Leaving(why, clean)
	c.End(why, clean)
}

// proxyHeader returns the PROXY header that was received, or nil.
func (c *Conn) proxyHeader() *proxyproto.Header {
	if c.ident != nil && c.ident.header != nil {
		return c.ident.header
	}
	if c.origin != nil {
		return c.origin.header
	}
	return nil
}

// keepProxyHeader keeps it for the endpoints that a Greeter connects to later.
func (c *Conn) keepProxyHeader(s Session) {
	if _, ok := s.(Greeter); !ok || c.ident == nil || c.ident.header == nil {
		return
	}
	if c.origin == nil {
		c.origin = &origin{source: c.Peer()}
	}
	c.origin.header = c.ident.header
}
