package netio

// Reason says why a connection ended. The list is fixed and documented
// (docs/reasons.md); each reason is a label in metrics and in the access log.
// Reasons that a Handler gives are its own, of the same form.
type Reason string

// OK is no reason: the connection goes on.
const OK Reason = ""

// The reasons that netio itself gives.
const (
	// ClientFIN and UpstreamFIN: both sides ended in order; the named one first.
	ClientFIN   Reason = "client_fin"
	UpstreamFIN Reason = "upstream_fin"
	// ClientReset and UpstreamReset: that side aborted, or was cut off.
	ClientReset   Reason = "client_reset"
	UpstreamReset Reason = "upstream_reset"
	// ConnectRefused, ConnectTimeout and ConnectError: the last attempt to
	// connect failed so, and no other endpoint was left.
	ConnectRefused Reason = "connect_refused"
	ConnectTimeout Reason = "connect_timeout"
	ConnectError   Reason = "connect_error"
	// UpstreamTLS: the TLS handshake with the endpoint failed.
	UpstreamTLS Reason = "upstream_tls"
	// IdleTimeout, HalfClosedTimeout, MaxAge: a timer of the profile.
	IdleTimeout       Reason = "idle_timeout"
	HalfClosedTimeout Reason = "half_closed_timeout"
	MaxAge            Reason = "max_age"
	// BadProxyHeader and ProxyTimeout: a trusted source sent no valid
	// PROXY header, or none in time.
	BadProxyHeader Reason = "bad_proxy_header"
	ProxyTimeout   Reason = "proxy_timeout"
	// BadHello: what came is no ClientHello. HelloTooLong: longer than
	// clienthello.MaxSize. HelloTimeout: not whole in time.
	BadHello     Reason = "bad_hello"
	HelloTooLong Reason = "hello_too_long"
	HelloTimeout Reason = "hello_timeout"
	// HandshakeFailed, HandshakeTimeout: TLS with the client.
	HandshakeFailed  Reason = "handshake_failed"
	HandshakeTimeout Reason = "handshake_timeout"
	// HandshakeNoCertificate: the client showed no certificate, and one is
	// required. HandshakeBadCertificate: its certificate was refused.
	HandshakeNoCertificate  Reason = "handshake_no_certificate"
	HandshakeBadCertificate Reason = "handshake_bad_certificate"
	// HandshakeRefused: the client refuses the certificate that it was shown.
	HandshakeRefused Reason = "handshake_refused"
	// ClientGone: the client left before a route or an endpoint was found.
	ClientGone Reason = "client_gone"
	// The limits of the listener and of the node. LimitMemory is for those
	// who hold bytes of a connection themselves: netio makes clients wait.
	LimitConnections Reason = "limit_connections"
	LimitPerSource   Reason = "limit_per_source"
	LimitRate        Reason = "limit_rate"
	LimitMemory      Reason = "limit_memory"
	LimitHandshakes  Reason = "limit_handshakes"
	// LimitFiles: the process or the system is out of descriptors.
	LimitFiles Reason = "limit_files"
	// LimitPorts: the system has no local port left for the endpoint.
	LimitPorts Reason = "limit_ports"
	// Drained: closed by a drain. Shutdown: the node ended before that.
	Drained  Reason = "drained"
	Shutdown Reason = "shutdown"
	// Internal: a fault in Penstock itself.
	Internal Reason = "internal_error"
)
