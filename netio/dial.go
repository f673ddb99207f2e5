package netio

import (
	"errors"
	"fmt"
	"net"
	"time"

	"penstock/netio/pipe"
	"penstock/netio/proxyproto"
	"penstock/netio/reactor"
	"penstock/netio/relay"
)

// Errors that Plan.Next receives, possibly wrapped. All others are the
// system's (ECONNREFUSED, EHOSTUNREACH, ...). ConnectReason maps them to
// reasons.
var (
	// ErrConnectTimeout says that an attempt took longer than the profile's
	// ConnectTimeout.
	ErrConnectTimeout = errors.New("connect timeout")
	// ErrUpstreamTLS says that the TLS handshake with the endpoint failed.
	ErrUpstreamTLS = errors.New("tls with the endpoint")
)

const defaultConnectTimeout = time.Second

func (p *Profile) connectTimeout() time.Duration {
	if p.ConnectTimeout <= 0 {
		return defaultConnectTimeout
	}
	return p.ConnectTimeout
}

// connect makes the next attempt; err is how the one before ended. In
// ModePlain the client is not read meanwhile: what it says waits in the
// kernel. One that resets is noticed all the same.
func (c *Conn) connect(err error) {
	var to Target
	c.loop.failure = err
	c.guarded(func() (why Reason) {
		to, why = c.plan.Next(c, err)
		if why == OK && to.Profile == nil && to.Wait <= 0 {
			why = Internal
		}
		return why
	})
	c.loop.failure = nil
	if c.phase != phaseRouting {
		return // refused, now or later
	}
	c.markDecided()
	l := c.loop
	if to.Wait > 0 {
		c.phase = phaseWaiting
		l.Arm(&c.timer, to.Wait)
		return
	}
	c.phase = phaseConnecting
	if c.times.connecting == 0 {
		c.mark(&c.times.connecting)
	}
	c.setProfile(to.Profile)
	c.active = l.Now()
	l.Arm(&c.timer, to.Profile.connectTimeout())
	c.above = nil
	c.flags &^= asked
	if c.asksForTLS(&to) {
		c.upstream.Init(l.Loop, (*askingSide)(c))
	} else {
		c.upstream.Init(l.Loop, (*upstreamSide)(c))
	}
	switch {
	case to.Serve != nil:
		c.serveInside(to.Serve)
	case to.Unix != "":
		c.upstream.DialUnix(to.Unix)
	default:
		c.upstream.Dial(to.Addr, reactor.TCPOptions{}) // see keepAlive
	}
}

// Wake calls the plan's Next again, on the connection's loop, if the connection
// waits by then. It may be called from any goroutine.
func (c *Conn) Wake() {
	c.loop.Post(func() {
		if c.phase == phaseWaiting {
			c.proceed()
		}
	})
}

// serveInside joins the client to a pipe, whose other end is served in this
// process.
func (c *Conn) serveInside(serve func(*pipe.Conn)) {
	local, remote := net.TCPAddrFromAddrPort(c.Local()), net.TCPAddrFromAddrPort(c.Client())
	end, other := pipe.New(c.loop.Loop, (*upstreamSide)(c), local, remote)
	c.above = end
	c.connected()
	if c.phase != phaseRelaying {
		end.Abort()
	}
	serve(other)
}

// setProfile counts the connection as active where it belongs now.
func (c *Conn) setProfile(p *Profile) {
	c.profile = p
	meter := p.Meter.shard(c.loop.index)
	if meter == c.meter {
		return
	}
	if c.meter != nil {
		c.meter.active.Add(-1)
	}
	c.meter = meter
	meter.active.Add(1)
}

// countRouted counts the connection under the service that it got to, or that
// could not be got to last: once, as the count must never go back.
func (c *Conn) countRouted() {
	if c.flags&routedCounted == 0 {
		c.flags |= routedCounted
		c.meter.accepted.Add(1)
		if c.flags&sessioned != 0 { // what a Greeter was told before
			c.meter.fromPeer.Add(c.relay.Bytes(relay.Client))
		}
	}
}

// connectFailed is the end of an attempt.
func (c *Conn) connectFailed(err error) {
	c.loop.Disarm(&c.timer)
	if c.above != nil {
		err = fmt.Errorf("%w: %w", ErrUpstreamTLS, err)
	}
	c.connect(err)
}

// connectTimedOut is the same when its time is over.
func (c *Conn) connectTimedOut() {
	c.upstreamStream().Abort()
	err := ErrConnectTimeout
	if c.above != nil {
		err = fmt.Errorf("%w: %w", ErrUpstreamTLS, err)
	}
	c.connect(err)
}

// connected is called when the endpoint's socket is connected, and again when
// TLS on it stands, if the profile wants that.
func (c *Conn) connected() {
	if c.profile.TLS != nil && c.above == nil && c.flags&sessioned == 0 {
		// A PROXY header goes before TLS, in the clear.
		if header := c.appendProxyHeader(c.loop.scratch[:0], c.profile); len(header) > 0 && c.flags&asked == 0 {
			c.upstream.Send(header)
			c.loop.scratch = header
		}
		over := c.loop.local.Client(&c.upstream, c.profile.TLS, (*upstreamSide)(c))
		c.above = over
		c.upstream.SetOwner(over)
		over.Connected()
		return
	}
	c.mark(&c.times.connected)
	c.guarded(func() Reason {
		c.plan.Connected(c, c.loop.Now()-c.active)
		return OK
	})
	if c.phase != phaseRouting {
		return
	}
	if s, ok := c.plan.(Session); ok {
		c.beginSession(s)
	} else {
		c.beginRelay()
	}
}

// beginRelay joins the two sides and lets go of all that was needed to get
// here. From here on nothing is retried.
func (c *Conn) beginRelay() {
	l := c.loop
	first := l.scratch[:0]
	if c.above == nil && c.flags&asked == 0 {
		first = c.appendProxyHeader(first, c.profile)
	}
	if preface := c.profile.Preface; preface != nil {
		var err error
		if c.spec.StartTLS != NoStartTLS && c.tls == nil {
			l.failure = fmt.Errorf("%w: beyond the mesh nobody asks it for TLS before the hello of a client that is passed through", ErrUpstreamTLS)
			c.abort(UpstreamTLS)
			return
		}
		if first, err = preface(c, first); err != nil {
			l.failure = err
			c.abort(MeshHeaderTooLong)
			return
		}
	}
	fromClient := 0
	if c.ident != nil {
		fromClient = len(c.ident.buf)
		if len(first) == 0 {
			first = c.ident.buf
		} else {
			first = append(first, c.ident.buf...)
			l.scratch = first
		}
	}
	c.phase = phaseRelaying
	c.countRouted()
	c.active = l.Now()
	c.meter.fromPeer.Add(uint64(fromClient))
	client, upstream := c.pacedStreams()
	c.relay.Start(client, upstream, first, fromClient)
	c.pace(relay.Client, fromClient)
	c.releaseIdent()
	c.spec = nil // what it leads to, certificates or more, may be replaced
	c.startTimers()
}

// appendProxyHeader appends the header that a profile wants sent.
func (c *Conn) appendProxyHeader(dst []byte, p *Profile) []byte {
	if p.SendProxy == proxyproto.None {
		return dst
	}
	h := c.Describe()
	if add := p.ProxyTLVs; add != nil {
		h.Custom = add(c)
	}
	return proxyproto.Append(dst, p.SendProxy, h)
}

// Describe returns the PROXY header that describes the connection, for callers
// that send one themselves. It may be called in Handler.Route, Plan.Next and
// Profile.Preface.
func (c *Conn) Describe() proxyproto.Header {
	h := proxyproto.Header{Source: c.Client(), Destination: c.Local(), Authority: c.serverName}
	if in := c.proxyHeader(); in != nil {
		if in.Destination.IsValid() && !in.Local {
			h.Destination = in.Destination
		}
		h.UniqueID, h.SSL, h.ALPN = in.UniqueID, in.SSL, in.ALPN
		if h.Authority == "" || in.Mesh != nil {
			h.Authority = in.Authority
		}
	}
	if hello := c.Hello(); hello != nil && len(hello.ALPN) == 1 {
		h.ALPN = hello.ALPN[0]
	}
	if h.UniqueID == nil {
		h.UniqueID = c.UniqueID()
	}
	if state := c.TLS(); state != nil && c.Mesh() == nil {
		h.ALPN = state.NegotiatedProtocol
		h.SSL = describeTLS(state)
	}
	return h
}
