package netio

import (
	"crypto/tls"
	"errors"
	"time"

	"penstock/netio/budget"
	"penstock/netio/clienthello"
	"penstock/netio/proxyproto"
	"penstock/netio/relay"
)

// ident is what a connection remembers until its relay begins: the bytes that
// were read to find out where it wants to go, and what they said.
type ident struct {
	conn       *Conn
	next, prev *ident // in loop.silent
	silent     bool   // in loop.silent: nothing came yet

	buf        []byte // what was read and is not used up: it goes to the endpoint
	need       int    // length of buf before it is worth looking at again
	charge     int64  // to the memory budget
	hold       budget.Holder
	place      budget.Holder // among the handshakes with clients
	header     *proxyproto.Header
	hello      clienthello.Hello
	helloNext  bool // the client has asked for TLS (Listener.StartTLS), or needs not
	gssRefused bool // its GSSENCRequest was refused
	// intercepted: the node answers the hello itself (Listener.Intercept).
	intercepted bool

	why     Reason // phaseRefusing: what the connection ends with
	failure error  // the same: Conn.Failure then
}

// maxIdentity is the most that can be held of a connection whose identity is
// not known yet.
const maxIdentity = clienthello.MaxSize + proxyproto.MaxV2

// takeIdent gives the connection an ident, a spare one if there is one.
func (c *Conn) takeIdent() *ident {
	l := c.loop
	if n := len(l.spare); n > 0 {
		c.ident = l.spare[n-1]
		l.spare[n-1] = nil
		l.spare = l.spare[:n-1]
	} else {
		c.ident = new(ident)
	}
	c.ident.conn = c
	return c.ident
}

// releaseIdent releases the ident and everything charged for it.
func (c *Conn) releaseIdent() {
	id, l := c.ident, c.loop
	if id == nil {
		return
	}
	l.silent.remove(id)
	c.setCharge(0)
	c.leaveHandshakes()
	c.ident = nil
	if len(l.spare) >= maxSpareIdents {
		return
	}
	buf := id.buf[:0]
	if cap(buf) > maxSpareBuffer {
		buf = nil
	}
	*id = ident{buf: buf}
	l.spare = append(l.spare, id)
}

// start begins with what the listener asks for first.
func (c *Conn) start() {
	switch {
	case len(c.spec.ProxyFrom) > 0 && c.peer.IsValid() && c.spec.trusts(c.peer):
		c.phase = phaseProxy
	case c.spec.Mode == ModePlain:
		c.route()
		return
	default:
		c.phase = phaseHello
	}
	c.loop.silent.add(c.takeIdent())
	c.armIdentify()
	c.listen()
}

// listen reads from a client that has said nothing yet, unless there is no
// memory for what it would say. Its time runs in either case.
func (c *Conn) listen() {
	c.client.SetReading(!c.loop.starving.Load() || !c.crowded())
}

func (c *Conn) armIdentify() {
	d := c.spec.HelloTimeout
	if c.phase == phaseProxy {
		d = c.spec.ProxyTimeout
	}
	c.loop.Arm(&c.timer, d)
}

// identify takes the first bytes of a connection, as they come.
func (c *Conn) identify(p []byte) {
	id := c.ident
	if id == nil {
		return // closed in this very call
	}
	c.loop.silent.remove(id)
	data := p
	if len(id.buf) > 0 {
		id.buf = append(id.buf, p...)
		data = id.buf
	}
	if len(data) < id.need {
		return
	}
	if c.phase == phaseProxy {
		n, why := c.readProxyHeader(data)
		if n == 0 {
			c.more(data, why)
			return
		}
		if data = data[n:]; len(data) > 0 {
			c.mark(&c.times.first[relay.Client])
		}
		id.need = 0
		c.setCharge(0) // from here on it counts under the client's own address
		if c.spec.Mode == ModePlain {
			c.client.SetReading(false)
			c.keep(data)
			c.route()
			return
		}
		c.phase = phaseHello
		c.armIdentify()
	}
	if len(data) == 0 { // as if it had just come
		c.keep(nil)
		c.loop.silent.add(id)
		c.listen()
		return
	}
	if c.spec.StartTLS != NoStartTLS && !c.beforeTLS(data) {
		return
	}
	if n, why := c.readHello(data); n == 0 {
		c.more(data, why)
		return
	}
	c.client.SetReading(false)
	c.flags |= alertable
	if own := c.intercept(); own != nil || c.spec.Mode == ModeTerminate {
		id.intercepted = own != nil
		c.terminate(data, own)
		return
	}
	c.keep(data)
	c.route()
}

// intercept returns the configuration with which the node answers the hello
// itself; nil: it does not.
func (c *Conn) intercept() *tls.Config {
	if c.spec.Intercept == nil {
		return nil
	}
	return c.spec.Intercept(&c.ident.hello)
}

// more waits for more bytes behind those, or closes where none will help.
func (c *Conn) more(data []byte, why Reason) {
	if why != OK {
		c.abort(why)
		return
	}
	c.ident.buf = append(c.ident.buf[:0], data...)
	c.setCharge(maxIdentity)
}

// keep keeps bytes that are still needed, and no others. They may lie in the
// buffer already.
func (c *Conn) keep(data []byte) {
	id := c.ident
	id.buf = append(id.buf[:0], data...)
	c.setCharge(int64(len(data)))
}

// readProxyHeader returns how many bytes the header took; 0 while there is
// none, with the reason to give up.
func (c *Conn) readProxyHeader(data []byte) (int, Reason) {
	h, n, err := proxyproto.Parse(data)
	switch {
	case errors.Is(err, proxyproto.ErrMore):
		c.ident.need = n
		return 0, OK
	case err != nil:
		c.loop.failure = err
		return 0, BadProxyHeader
	}
	c.ident.header = &h
	if h.Local || !h.Source.IsValid() {
		return n, OK // the proxy speaks for itself, or cannot tell
	}
	c.origin = &origin{source: h.Source} // the header is let go
	if !c.countSource() {
		return 0, LimitPerSource
	}
	return n, OK
}

// countSource counts the client that a header named; false: it has its limit.
func (c *Conn) countSource() bool {
	limit := c.spec.MaxPerSource
	if limit <= 0 || !c.Client().IsValid() {
		return true
	}
	if !c.listener.sources.add(c.Client().Addr(), limit) {
		c.loop.engine.refused.count(LimitPerSource)
		return false
	}
	c.flags |= sourceCounted
	return true
}

// readHello does the same for the ClientHello.
func (c *Conn) readHello(data []byte) (int, Reason) {
	h, n, err := clienthello.Parse(data)
	switch {
	case errors.Is(err, clienthello.ErrMore):
		c.ident.need = n
		return 0, OK
	case errors.Is(err, clienthello.ErrTooLong):
		c.loop.failure = err
		return 0, HelloTooLong
	case err != nil:
		c.loop.failure = err
		return 0, BadHello
	}
	c.ident.hello = h
	c.flags |= helloRead
	c.serverName = h.ServerName
	return n, OK
}

// terminate begins TLS with the client, whose hello data begins with. config is nil
// if the listener is to choose it.
func (c *Conn) terminate(data []byte, config *tls.Config) {
	c.guarded(func() (why Reason) {
		if config != nil {
			return OK
		}
		config, why = c.spec.TLSConfig(&c.ident.hello)
		if why == OK && config == nil {
			why = Internal
		}
		return why
	})
	if c.phase == phaseClosed {
		return
	}
	if !c.enterHandshakes() {
		c.loop.engine.refused.count(LimitHandshakes)
		c.abort(LimitHandshakes)
		return
	}
	c.phase = phaseHandshake
	c.flags &^= alertable // from here on that is for crypto/tls to do
	// The hello goes no further: it is not what the client sends.
	c.times.first[relay.Client] = 0
	c.tls = c.loop.local.Server(&c.client, config, data, (*clientSide)(c))
	c.client.SetOwner(c.tls)
	c.ident.buf = c.ident.buf[:0] // copied
	c.setCharge(0)
	c.loop.Arm(&c.timer, c.spec.HandshakeTimeout)
}

// Alerts that tell a TLS client why it is closed (RFC 8446, section 6): in the
// clear, since no key has been agreed.
var (
	alertNoRoute    = []byte{21, 3, 3, 0, 2, 2, 112} // unrecognized_name
	alertNoEndpoint = []byte{21, 3, 3, 0, 2, 2, 80}  // internal_error

	alertAccessDenied = []byte{21, 3, 3, 0, 2, 2, 49} // access_denied
)

// turnAway ends a connection for which there is no way to go.
func (c *Conn) turnAway(why Reason) {
	if c.phase == phaseClosed {
		return // in this very call
	}
	c.loop.engine.refused.count(why) // where it is a limit's
	if c.flags&sessioned != 0 {
		c.refuse(why)
		return
	}
	if p, ok := c.plan.(RetryDelayer); ok {
		if d := p.RetryDelay(why); d > 0 {
			c.refuseLater(why, d)
			return
		}
	}
	c.dismiss(why)
}

// refuseLater keeps the client waiting for its refusal, unheard.
func (c *Conn) refuseLater(why Reason, after time.Duration) {
	c.upstreamStream().Abort()
	if c.ident == nil {
		c.takeIdent()
	}
	c.ident.why, c.ident.failure = why, c.loop.failure
	c.phase = phaseRefusing
	c.loop.Arm(&c.timer, after)
}

// dismiss ends the connection of a client for which there is no way. One whose
// hello the node answered has got its answer, and ends in order.
func (c *Conn) dismiss(why Reason) {
	orderly := c.Mesh() != nil && c.spec.Orderly != nil && c.spec.Orderly(why)
	if id := c.ident; orderly || id != nil && id.intercepted {
		c.clientStream().Close()
		c.upstreamStream().Abort()
		c.finish(why)
		return
	}
	if c.flags&alertable == 0 {
		c.abort(why)
		return
	}
	if c.spec.Alert == nil || c.spec.Alert(why) {
		alert := alertNoRoute
		if why == PermissionDenied {
			alert = alertAccessDenied
		} else if c.plan != nil {
			alert = alertNoEndpoint
		}
		c.client.Send(alert)
	}
	c.client.Close()
	c.upstreamStream().Abort()
	c.finish(why)
}

// guarded calls into a handler or a plan. The connection is closed with the
// reason that the call gives, if any; and when it panics, lest it stay behind
// without a timer or an event that would ever end it.
func (c *Conn) guarded(call func() Reason) {
	why := Internal
	c.phase = phaseRouting
	defer func() {
		if why != OK {
			c.turnAway(why)
		}
	}()
	why = call()
}

// route asks where to.
func (c *Conn) route() {
	c.mark(&c.times.identified)
	c.guarded(func() (why Reason) {
		c.plan, why = c.loop.engine.handler.Route(c)
		if why == OK && c.plan == nil {
			why = Internal
		}
		return why
	})
	switch {
	case c.phase != phaseRouting:
	case c.isDelayed():
		c.wait()
	default:
		c.proceed()
	}
}
