package netio

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"penstock/netio/clienthello"
	"penstock/netio/proxyproto"
	"penstock/netio/reactor"
	"penstock/netio/relay"
	"penstock/netio/stream"
	"penstock/netio/tlsstream"
)

// Conn is one accepted connection: the actor that owns both sockets. Its
// methods may be called on its loop only.
//
// It is one allocation, the only one of an idle plain connection, and fills the size
// class of 512 bytes: TestConnectionsAreSmall. What is needed only until the relay
// begins is in ident, which is released then.
type Conn struct {
	client   reactor.Socket
	upstream reactor.Socket
	timer    reactor.Timer // the one deadline of the phase
	relay    relay.Relay

	loop       *loop
	listener   *listener
	spec       *Listener // as it was when the connection came; nil once relaying
	next, prev *Conn     // on the loop

	id         uint64
	at         *socket // that accepted it
	peer       netip.Addr
	peerPort   uint16
	flags      connFlags
	phase      phase
	origin     *origin // by the PROXY header; nil: peer is the client
	serverName string
	plan       Plan
	profile    *Profile    // of the last target
	meter      *meterShard // nil until there is a target
	ident      *ident      // nil while there is nothing to remember
	tls        *tlsstream.Stream
	above      stream.Stream // TLS on upstream, or a pipe or an adopted standby instead of it; nil: upstream itself

	born   time.Duration
	active time.Duration // the last byte; while connecting: the attempt's begin
	expiry time.Duration // when the maximum age is reached, or an attempt's end

	times  times
	unsent uint32 // bytes that the kernel held for the peers at the last look
}

type phase uint8

// The phases of a connection, in order; some are skipped.
const (
	phaseProxy      phase = iota // waits for the PROXY header
	phaseHello                   // waits for the ClientHello
	phaseHandshake               // TLS with the client
	phaseMeshHeader              // waits for the PROXY header inside TLS
	phaseRouting                 // inside a call to the handler or the plan
	phaseGreeting                // a Greeter speaks with the client
	phaseWaiting                 // for an endpoint to be known
	phaseConnecting              // to the endpoint, TLS with it included
	phaseRelaying
	phaseRefusing // no endpoint took it; the client is told after a while
	phaseClosed
)

var phaseNames = [...]string{"proxy_header", "hello", "handshake", "mesh_header", "routing", "greeting", "waiting", "connecting", "relaying", "refusing", "closed"}

type connFlags uint16

const (
	sourceCounted connFlags = 1 << iota // in listener.sources
	helloRead                           // ident.hello is valid
	alertable                           // a TLS client that can be told why it is closed
	routedCounted                       // in meter.accepted
	probing                             // keepalive probes go to the endpoint
	sessioned                           // plan is a Session and has the streams
	leaving                             // a session that ends at its next quiet moment
	pacedConn                           // loop.paced has its pacing
	asked                               // the endpoint was asked for TLS, behind the PROXY header
	owed                                // the client failed before it had all that was sent to it
)

// ID returns a number that is unique within the process.
func (c *Conn) ID() uint64 { return c.id }

// Listener returns the name of the listener that accepted the connection.
func (c *Conn) Listener() string { return c.listener.name }

// Peer returns the address of the other end of the socket; invalid for unix
// sockets.
func (c *Conn) Peer() netip.AddrPort { return netip.AddrPortFrom(c.peer, c.peerPort) }

// Client returns the client's address: that of the PROXY header, or Peer; invalid
// where that is a unix socket.
func (c *Conn) Client() netip.AddrPort {
	if c.origin != nil {
		return c.origin.source
	}
	return c.Peer()
}

// origin is where a connection comes from, by its PROXY header.
type origin struct {
	source netip.AddrPort // invalid: by a mesh header of a client on a unix socket
	mesh   *proxyproto.Mesh
	id     []byte          // with mesh: the header's UniqueID
	ssl    *proxyproto.SSL // with mesh: the client's TLS; nil: none
	alpn   string          // that ssl negotiated

	header *proxyproto.Header // of a Greeter, which connects more than once
}

// Mesh returns what the peer, a node of the mesh, says about the client; nil if the
// peer is the client. The caller must not modify it.
func (c *Conn) Mesh() *proxyproto.Mesh {
	if c.origin == nil {
		return nil
	}
	return c.origin.mesh
}

// MeshTLS returns the TLS of the client with the node of the mesh that Mesh is about,
// and the protocol that it negotiated; nil: none.
func (c *Conn) MeshTLS() (ssl *proxyproto.SSL, alpn string) {
	if c.origin == nil {
		return nil, ""
	}
	return c.origin.ssl, c.origin.alpn
}

// UniqueID returns an ID of the connection that is unique among nodes: that of the
// mesh header if there is one with an ID.
func (c *Conn) UniqueID() []byte {
	if c.origin != nil && len(c.origin.id) > 0 {
		return c.origin.id
	}
	return binary.BigEndian.AppendUint64(c.loop.engine.instance[:], c.id)
}

// Local returns the address that the peer connected to; invalid for unix
// sockets. On a wildcard address it asks the kernel.
func (c *Conn) Local() netip.AddrPort {
	if c.at.wildcard {
		return c.client.LocalAddr()
	}
	return c.at.local
}

// Hello returns the parsed ClientHello; nil in ModePlain, and once relaying.
func (c *Conn) Hello() *clienthello.Hello {
	if c.ident == nil || c.flags&helloRead == 0 {
		return nil
	}
	return &c.ident.hello
}

// ServerName returns the name in the ClientHello exactly as sent, or "".
func (c *Conn) ServerName() string { return c.serverName }

// ProxyHeader returns the PROXY header that was received, or nil; nil once
// relaying.
func (c *Conn) ProxyHeader() *proxyproto.Header {
	if c.ident == nil {
		return nil
	}
	return c.ident.header
}

// Plan returns what Handler.Route returned, or nil.
func (c *Conn) Plan() Plan { return c.plan }

// TLS returns the state of TLS with the client in ModeTerminate, or nil.
func (c *Conn) TLS() *tls.ConnectionState {
	if c.tls == nil {
		return nil
	}
	state := c.tls.ConnectionState()
	return &state
}

// Bytes returns the number of bytes received from the client and from the
// endpoint.
func (c *Conn) Bytes() (in, out uint64) {
	return c.relay.Bytes(relay.Client), c.relay.Bytes(relay.Upstream)
}

// ClientEnded reports whether the client has sent its end of stream.
func (c *Conn) ClientEnded() bool { return c.relay.HasEnded(relay.Client) }

// Owed reports whether a client that failed had not received everything that
// the other side wrote for it. Bytes that the kernel had taken count as
// received.
func (c *Conn) Owed() bool { return c.flags&owed != 0 }

// Age returns the time since the connection was accepted.
func (c *Conn) Age() time.Duration { return c.loop.Now() - c.born }

// Idle returns the time since the last byte of the connection.
func (c *Conn) Idle() time.Duration { return c.loop.Now() - c.active }

// Phase returns how far the connection has come: see ConnectionInfo.
func (c *Conn) Phase() string { return phaseNames[c.phase] }

func (c *Conn) info() ConnectionInfo {
	i := ConnectionInfo{
		ID: c.id, Listener: c.listener.name, Peer: c.Peer(), Client: c.Client(), ServerName: c.serverName,
		Phase: c.Phase(), Age: c.Age(), Idle: c.Idle(),
	}
	i.BytesIn, i.BytesOut = c.Bytes()
	if p, ok := c.plan.(Described); ok {
		i.Label = p.Description()
	}
	return i
}

// clientStream is what the client is heard through and spoken to.
func (c *Conn) clientStream() stream.Stream {
	if c.tls != nil {
		return c.tls
	}
	return &c.client
}

func (c *Conn) upstreamStream() stream.Stream {
	if c.above != nil {
		return c.above
	}
	return &c.upstream
}

// upstreamSocket is the socket that the endpoint is reached by.
func (c *Conn) upstreamSocket() *reactor.Socket {
	if a, ok := c.above.(*adopted); ok {
		return &a.of.socket
	}
	return &c.upstream
}

// clientSide and upstreamSide are the connection as the owner of its streams.
type (
	clientSide   Conn
	upstreamSide Conn
)

var (
	_ stream.Owner = (*clientSide)(nil)
	_ stream.Owner = (*upstreamSide)(nil)
)

// Connected is called when the TLS handshake with the client is complete.
func (s *clientSide) Connected() {
	c := (*Conn)(s)
	c.leaveHandshakes()
	if c.flags&sessioned != 0 {
		c.clientSecured()
		return
	}
	if c.spec.MeshHeader && !c.ident.intercepted {
		c.awaitMeshHeader()
		return
	}
	c.route()
}

func (s *clientSide) Received(p []byte) {
	c := (*Conn)(s)
	c.active = c.loop.Now()
	if c.times.first[relay.Client] == 0 {
		c.markFirst(relay.Client)
	}
	if c.phase == phaseMeshHeader {
		c.readMeshHeader(p)
		return
	}
	if c.phase != phaseRelaying {
		c.receivedEarly(p)
		return
	}
	c.meter.fromPeer.Add(uint64(len(p)))
	c.received(relay.Client, p)
	c.pace(relay.Client, len(p))
}

func (s *clientSide) Moved(n int) {
	s.active = s.loop.Now()
	if s.times.first[relay.Client] == 0 {
		(*Conn)(s).markFirst(relay.Client)
	}
	s.meter.fromPeer.Add(uint64(n))
	(*Conn)(s).moved(relay.Client, n)
	(*Conn)(s).pace(relay.Client, n)
}

func (s *clientSide) Sent() { (*Conn)(s).sent(relay.Client) }

func (s *clientSide) Ended() {
	c := (*Conn)(s)
	if c.phase != phaseRelaying {
		c.endedEarly()
		return
	}
	c.ended(relay.Client)
}

func (s *clientSide) Failed(err error) {
	c := (*Conn)(s)
	c.loop.failure = err
	if errors.Is(err, tlsstream.ErrBusy) {
		c.loop.engine.refused.count(LimitHandshakes)
	}
	if c.phase != phaseRelaying && c.tellFailedEarly(err) {
		return
	}
	switch {
	case c.phase == phaseRelaying:
		c.failed(relay.Client, err)
	case c.phase == phaseRefusing:
		c.abort(c.ident.why)
	case errors.Is(err, reactor.ErrPanic):
		c.abort(Internal)
	case errors.Is(err, tlsstream.ErrBusy):
		c.abort(LimitHandshakes)
	case c.phase == phaseHandshake:
		c.abort(handshakeReason(err))
	default:
		c.abort(ClientGone)
	}
}

func (s *upstreamSide) Connected() {
	c := (*Conn)(s)
	if c.phase == phaseRelaying { // TLS that a Greeter began
		c.must(func() { c.plan.(Greeter).Secured(relay.Upstream) })
		return
	}
	c.connected()
}

func (s *upstreamSide) Received(p []byte) {
	s.active = s.loop.Now()
	if s.times.first[relay.Upstream] == 0 {
		(*Conn)(s).markFirst(relay.Upstream)
	}
	s.meter.fromUpstr.Add(uint64(len(p)))
	(*Conn)(s).received(relay.Upstream, p)
	(*Conn)(s).pace(relay.Upstream, len(p))
}

func (s *upstreamSide) Moved(n int) {
	s.active = s.loop.Now()
	if s.times.first[relay.Upstream] == 0 {
		(*Conn)(s).markFirst(relay.Upstream)
	}
	s.meter.fromUpstr.Add(uint64(n))
	(*Conn)(s).moved(relay.Upstream, n)
	(*Conn)(s).pace(relay.Upstream, n)
}

func (s *upstreamSide) Sent() { (*Conn)(s).sent(relay.Upstream) }

func (s *upstreamSide) Ended() { (*Conn)(s).ended(relay.Upstream) }

func (s *upstreamSide) Failed(err error) {
	c := (*Conn)(s)
	if c.phase == phaseRelaying {
		if over, ok := c.above.(*tlsstream.Stream); ok && isShaking(over) {
			err = fmt.Errorf("%w: %w", ErrUpstreamTLS, err)
		}
		c.loop.failure = err
		c.failed(relay.Upstream, err)
		return
	}
	c.connectFailed(err)
}

// abort resets whatever there is and ends the connection.
func (c *Conn) abort(why Reason) {
	c.clientStream().Abort()
	c.upstreamStream().Abort()
	c.finish(why)
}

// finish ends the connection, whose streams are closed already. Every
// connection ends here, once.
func (c *Conn) finish(why Reason) {
	if c.phase == phaseClosed {
		return
	}
	c.phase = phaseClosed
	l := c.loop
	l.Disarm(&c.timer)
	c.stopPacing()
	c.stay()
	if c.meter != nil {
		c.countRouted()
		c.meter.active.Add(-1)
	}
	l.passBy(c)
	l.conns.remove(c)
	l.open.Add(-1)
	c.listener.open.Add(-1)
	if c.flags&sourceCounted != 0 {
		c.listener.sources.remove(c.Client().Addr())
	}
	defer c.releaseIdent() // what the handler may still ask for
	c.closeSession(why)
	l.engine.handler.Closed(c, why)
	if c.flags&pacedConn != 0 {
		delete(l.paced, c)
	}
	l.failure = nil
	if l.draining != nil {
		l.draining.connClosed()
	}
}

// Failure returns the error behind the reason, if there is one: what was wrong
// with a handshake, a header or a connect. It is valid in Handler.Closed only.
func (c *Conn) Failure() error { return c.loop.failure }

// isErrno tells that err is, or wraps, one of the system's errors.
func isErrno(err error, list ...syscall.Errno) bool {
	var e syscall.Errno
	return errors.As(err, &e) && slices.Contains(list, e)
}
