// Package netio carries bytes. It owns the reactor's loops, the listeners,
// the connections with their timers and limits, TLS and the PROXY protocol.
// It knows no service, no route and no Kafka: for every connection that it
// has identified it asks a Handler where to, and does what the Plan says.
//
// A connection is an actor (Conn): it owns the client's stream and the
// endpoint's stream, lives on one loop and is touched by that loop alone.
//
//	engine, err := netio.New(netio.Config{Handler: h, Log: log})
//	engine.SetListeners(list)         // now, and whenever they change
//	err = engine.Drain(ctx, 30*time.Second)
//	engine.Close()
//
// # What happens to a connection
//
//	accept.go    limits; the loop with the fewest connections takes it
//	identify.go  PROXY header and ClientHello, bounded by the memory budget;
//	             in ModeTerminate the TLS handshake
//	             -> Handler.Route
//	dial.go      attempts, until one connects or the plan gives up
//	             -> Plan.Next, Plan.Connected
//	relay        bytes, ends and resets from one side to the other
//	timers.go    idle, half-closed, maximum age; one timer per connection
//	conn.go      its end, once
//	             -> Handler.Closed
//
// A side that Penstock cuts off (a timer, a drain) gets a clean end only where
// nothing is under way; otherwise a reset, as a cut-off stream must not look
// complete. A client for whom there is no way is reset; in ModeHello it gets
// a TLS alert before.
//
// Listeners come, change and go in listener.go and socket.go; drain.go closes
// connections over a window.
package netio

import (
	"crypto/tls"
	"net/netip"
	"time"

	"penstock/netio/clienthello"
	"penstock/netio/pipe"
	"penstock/netio/proxyproto"
)

// A Handler decides about connections. Its methods are called on the
// connection's loop: they must not block and must not keep the loop for
// longer than a few microseconds.
type Handler interface {
	// Route is called once, when all that can be known of the connection is
	// known. It returns the plan, or the reason why there is none; then the
	// connection is closed with that reason.
	Route(c *Conn) (Plan, Reason)
	// Closed is called exactly once for each accepted connection, with the
	// reason for its end; c.Plan() is nil where no route was found. c must
	// not be kept.
	Closed(c *Conn, why Reason)
}

// A Plan is what one routed connection is to do. It belongs to that
// connection and is called on its loop alone.
type Plan interface {
	// Next names the endpoint to try. The first call has a nil err, each
	// later one the error of the attempt before, or nil after a wait. It
	// returns the target, or the reason to give up, for which there is
	// ConnectReason(err).
	Next(c *Conn, err error) (Target, Reason)
	// Connected tells that the endpoint of the last Next took the
	// connection (TLS towards it included), after that time. Nothing is
	// retried from here on.
	Connected(c *Conn, took time.Duration)
}

// A RetryDelayer is a Plan that keeps a client for a while when no endpoint could be reached,
// before it is closed: some clients connect again at once, for ever.
type RetryDelayer interface {
	// RetryDelay is for how long; 0: not at all.
	RetryDelay(why Reason) time.Duration
}

// Target is an endpoint that a connection is to be carried to.
type Target struct {
	// Addr is the endpoint's address; invalid when Unix is set.
	Addr netip.AddrPort
	// Unix is the path of a unix socket ("@name" is an abstract one).
	Unix string
	// Serve, where set, takes the connection in this process instead: it is
	// given the other end of what the client is joined to, with the client's
	// addresses. It is called on the loop, so it must hand the end to a
	// goroutine; whoever has it must close it. The profile's TLS and PROXY
	// header do not concern it.
	Serve func(*pipe.Conn)
	// Profile is shared by all connections of a service.
	Profile *Profile
	// Wait says that no endpoint is known yet, and after what time Next is
	// to be called again; the rest is of no matter then. 0: there is one.
	Wait time.Duration
}

// Profile is how connections of one service are treated. It is immutable.
type Profile struct {
	ConnectTimeout    time.Duration // one attempt, TLS included; 0: 1s
	IdleTimeout       time.Duration // no byte in either direction; 0: none
	HalfClosedTimeout time.Duration // no byte after one side's end; 0: IdleTimeout
	MaxAge            time.Duration // since accepted, up to 10 % earlier by chance or at a quiet moment; 0: none
	TLS               *tls.Config   // towards the endpoint; nil: plain
	SendProxy         proxyproto.Version
	Meter             *Meter // counts for this listener and service; never nil
}

// Mode is what a listener finds out before it routes.
type Mode uint8

// The modes of a listener.
const (
	// ModePlain routes at once: server-first protocols work.
	ModePlain Mode = iota
	// ModeHello reads the ClientHello, routes by it and passes it on.
	ModeHello
	// ModeTerminate reads the ClientHello, asks for a certificate, takes
	// the handshake and routes afterwards.
	ModeTerminate
)

// Listener is the specification of one listener; Name identifies it over
// changes. It is immutable once given to the engine.
type Listener struct {
	Name string
	// Network is "tcp" or "unix".
	Network string
	// Address is ip:port, [v6]:port, ":port" for all addresses of both
	// families (as is "[::]:port"), or a path ("@name": an abstract one).
	Address string
	Mode    Mode
	// TLSConfig gives the configuration for a hello in ModeTerminate, or
	// the reason to refuse. Called on the loop.
	TLSConfig func(h *clienthello.Hello) (*tls.Config, Reason)
	// Alert tells whether a TLS client that is refused after its hello gets an
	// alert before the connection is closed, or a plain FIN; nil: an alert.
	// Some clients take any alert for a failed login and give up, and try
	// again after a FIN. Called on the loop.
	Alert func(why Reason) bool
	// ProxyFrom are the sources that must send a PROXY header; from others,
	// and on unix sockets, one is not looked for.
	ProxyFrom []netip.Prefix

	ProxyTimeout     time.Duration // for the PROXY header; 0: 5s, never below 3s
	HelloTimeout     time.Duration // for the ClientHello; 0: 5s
	HandshakeTimeout time.Duration // for TLS; 0: 10s

	MaxConnections int // at once; 0: no limit
	MaxPerSource   int // at once from one client address (IPv6: /64), the PROXY header's if there is one; 0: no limit
	MaxPerSecond   int // accepted per second, with a burst of the same; 0: no limit
}

// ListenerStatus is how a listener is doing on this node.
type ListenerStatus struct {
	Name string
	// Address is the one bound (a port 0 is replaced by the real one).
	Address string
	// Err says why it does not listen; it is retried. nil: listening.
	Err         error
	Connections int
}
