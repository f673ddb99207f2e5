// Package netio carries bytes. It owns the event loops, the listeners, the
// connections with their timers and limits, TLS and the PROXY protocol. It
// knows no service, no route and no Kafka: it identifies a connection, asks a
// Handler where it leads, and follows the Plan that it gets. DESIGN.md gives
// the reasons and the invariants.
//
// A connection is an actor (Conn): it owns the client's stream and the
// endpoint's stream, and only the loop that it lives on touches it.
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
//	greet.go     a Greeter speaks with the client, and asks for an endpoint
//	dial.go      attempts, until one connects or the plan gives up
//	             -> Plan.Next, Plan.Connected
//	relay        bytes, ends and resets from one side to the other
//	timers.go    idle, half-closed, maximum age; one timer per connection
//	conn.go      its end, once
//	             -> Handler.Closed
//
// When a timer or a drain cuts a connection off, both sides get a clean end
// only if nothing is under way. Otherwise they get a reset, because a cut-off
// stream must not look complete. A client without a route is reset; in
// ModeHello it gets a TLS alert first.
//
// listener.go and socket.go add, change and remove listeners; drain.go closes
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

// A Handler decides about connections. The connection's loop calls its
// methods, which must not block or take longer than a few microseconds.
type Handler interface {
	// Route is called once, when the connection is identified. It returns the
	// plan, or the reason to close the connection with. A plan that comes with a
	// reason is not followed, but c.Plan returns it.
	Route(c *Conn) (Plan, Reason)
	// Closed is called exactly once for each accepted connection, with the
	// reason for its end. c.Plan() is nil if Route returned none. The handler
	// must not keep c.
	Closed(c *Conn, why Reason)
}

// A Plan says what one routed connection does. It belongs to that connection
// and is called on its loop only.
type Plan interface {
	// Next names the endpoint to try. err is nil in the first call and after a
	// wait, and otherwise the error of the last attempt. Next returns the
	// target, or the reason to give up: see ConnectReason.
	Next(c *Conn, err error) (Target, Reason)
	// Connected reports that the endpoint of the last Next accepted the
	// connection, TLS included, and how long that took. Nothing is retried
	// from here on.
	Connected(c *Conn, took time.Duration)
}

// A RetryDelayer is a Plan that delays closing a client when no endpoint could
// be reached. It is for clients that reconnect at once and never give up.
type RetryDelayer interface {
	// RetryDelay returns the delay; 0 means none.
	RetryDelay(why Reason) time.Duration
}

// Target is the endpoint that a connection goes to.
type Target struct {
	// Addr is the endpoint's address; invalid when Unix is set.
	Addr netip.AddrPort
	// Unix is the path of a unix socket ("@name" is an abstract one).
	Unix string
	// Serve, if set, serves the connection in this process: the client is
	// joined to a pipe, and Serve gets the pipe's other end, which has the
	// client's addresses. The loop calls Serve, so it must pass the Conn to a
	// goroutine, which must close it. TLS and SendProxy of the profile are
	// ignored.
	Serve func(*pipe.Conn)
	// Profile is shared by all connections of a service.
	Profile *Profile
	// Wait, if not 0, means that there is no endpoint yet and that Next is to be
	// called again after this time, or at Conn.Wake. All other fields are ignored
	// then.
	Wait time.Duration
}

// Profile holds the settings for connections of one service. It is immutable.
type Profile struct {
	ConnectTimeout    time.Duration // one attempt, TLS included; 0: 1s
	IdleTimeout       time.Duration // no byte in either direction; 0: none
	HalfClosedTimeout time.Duration // no byte after one side's end; 0: IdleTimeout
	MaxAge            time.Duration // since accepted, up to 10 % earlier by chance or at a quiet moment; 0: none
	TLS               *tls.Config   // towards the endpoint; nil: plain
	SendProxy         proxyproto.Version
	// Preface appends what the endpoint gets before the client's bytes, inside TLS,
	// or returns why it cannot, with which the connection ends. It is called on the
	// loop, once connected. nil: nothing. It is ignored for a Session and for Serve.
	Preface func(c *Conn, dst []byte) ([]byte, error)
	// ProxyTLVs returns the Custom TLVs of a connection's PROXY header; nil: none. It
	// runs on the loop.
	ProxyTLVs func(c *Conn) []proxyproto.TLV
	Meter     *Meter // counts for this listener and service; never nil
}

// Mode says what a listener reads before it routes.
type Mode uint8

// The modes of a listener.
const (
	// ModePlain routes at once: server-first protocols work.
	ModePlain Mode = iota
	// ModeHello reads the ClientHello, routes by it and passes it on.
	ModeHello
	// ModeTerminate reads the ClientHello, chooses the TLS configuration by
	// it, completes the handshake and routes afterwards.
	ModeTerminate
)

// Listener is the specification of one listener. Name identifies it when the
// specification changes. It must not be modified after SetListeners.
type Listener struct {
	Name string
	// Network is "tcp" or "unix".
	Network string
	// Address is ip:port, [v6]:port, ":port" for all addresses of both
	// families (as is "[::]:port"), or a path ("@name": an abstract one).
	Address string
	Mode    Mode
	// StartTLS says what precedes the hello in ModeHello and ModeTerminate.
	// HelloTimeout includes it.
	StartTLS StartTLS
	// TLSConfig returns the configuration for a hello in ModeTerminate, or the
	// reason to refuse the client. It is called on the loop.
	TLSConfig func(h *clienthello.Hello) (*tls.Config, Reason)
	// Intercept returns the configuration with which the node itself answers a
	// hello, in ModeHello and ModeTerminate; nil: the hello goes its usual way. After
	// the handshake the connection is routed as in ModeTerminate; without a route it
	// is closed in order. It is called on the loop for every hello. A nil Intercept
	// answers none.
	Intercept func(h *clienthello.Hello) *tls.Config
	// Alert reports whether a TLS client that is refused after its hello gets
	// an alert before the connection is closed; without one it gets a plain
	// FIN. nil means an alert. Some clients take any alert for a failed login
	// and give up, but retry after a FIN. It is called on the loop.
	Alert func(why Reason) bool
	// Orderly reports whether a client with a MeshHeader is refused by the end of the
	// stream rather than a reset, so that its node does not take this one for broken.
	// It is called on the loop. nil: none is.
	Orderly func(why Reason) bool
	// MeshHeader says that clients of ModeTerminate begin with a PROXY header inside
	// TLS, as proxyproto.ParseMesh reads it. TLSConfig must have verified that they
	// may say what is in it. ProxyTimeout bounds the wait for it.
	MeshHeader bool
	// ProxyFrom lists the sources that must send a PROXY header. Connections
	// from other sources, and on unix sockets, are never checked for one.
	ProxyFrom []netip.Prefix

	ProxyTimeout     time.Duration // for the PROXY header; 0: 5s, never below 3s
	HelloTimeout     time.Duration // for the ClientHello; 0: 5s
	HandshakeTimeout time.Duration // for TLS; 0: 10s

	MaxConnections int // at once; 0: no limit
	MaxPerSource   int // at once from one client address (IPv6: /64), the PROXY header's if there is one; 0: no limit
	MaxPerSecond   int // accepted per second, with a burst of the same; 0: no limit
}

// ListenerStatus is the state of a listener on this node.
type ListenerStatus struct {
	Name string
	// Address is the bound address, with the real port in place of port 0.
	Address string
	// Err says why it does not listen, or is nil. Binding is retried.
	Err         error
	Connections int
}
