package netio

import (
	"errors"
	"syscall"

	"penstock/netio/tlsstream"
)

// Reason says why a connection ended. The list is fixed and documented
// (docs/reasons.md); each reason is a label in metrics and in the access log.
// Reasons that a Handler gives are its own, of the same form.
type Reason string

// OK means that there is no reason to end: the connection continues.
const OK Reason = ""

// The reasons that netio itself gives.
const (
	// ClientFIN and UpstreamFIN: both sides ended in order; the named one first.
	ClientFIN   Reason = "client_fin"
	UpstreamFIN Reason = "upstream_fin"
	// ClientReset and UpstreamReset: that side aborted, or was cut off.
	ClientReset   Reason = "client_reset"
	UpstreamReset Reason = "upstream_reset"
	// ConnectRefused, ConnectTimeout and ConnectError: how the last attempt to
	// connect failed, with no other endpoint left.
	ConnectRefused Reason = "connect_refused"
	ConnectTimeout Reason = "connect_timeout"
	ConnectError   Reason = "connect_error"
	// UpstreamTLS: the TLS handshake with the endpoint failed.
	UpstreamTLS Reason = "upstream_tls"
	// IdleTimeout, HalfClosedTimeout, MaxAge: that timer of the profile
	// expired.
	IdleTimeout       Reason = "idle_timeout"
	HalfClosedTimeout Reason = "half_closed_timeout"
	MaxAge            Reason = "max_age"
	// BadProxyHeader and ProxyTimeout: a trusted source sent no valid
	// PROXY header, or none in time.
	BadProxyHeader Reason = "bad_proxy_header"
	ProxyTimeout   Reason = "proxy_timeout"
	// BadHello: the bytes are not a ClientHello. HelloTooLong: it is longer
	// than clienthello.MaxSize. HelloTimeout: it was not complete in time.
	BadHello     Reason = "bad_hello"
	HelloTooLong Reason = "hello_too_long"
	HelloTimeout Reason = "hello_timeout"
	// TLSRequired: a client of PostgreSQL does not use TLS, which is due.
	TLSRequired Reason = "tls_required"
	// HandshakeFailed, HandshakeTimeout: the TLS handshake with the client
	// failed, or was not complete in time.
	HandshakeFailed  Reason = "handshake_failed"
	HandshakeTimeout Reason = "handshake_timeout"
	// HandshakeNoCertificate: the client sent no certificate, and one is
	// required. HandshakeBadCertificate: its certificate was refused.
	HandshakeNoCertificate  Reason = "handshake_no_certificate"
	HandshakeBadCertificate Reason = "handshake_bad_certificate"
	// HandshakeRefused: the client refused the server's certificate.
	HandshakeRefused Reason = "handshake_refused"
	// ClientGone: the client left before a route or an endpoint was found.
	ClientGone Reason = "client_gone"
	// The limits of the listener and of the node. LimitMemory: the connection
	// was evicted, or could not be read, because the memory budget is used up.
	LimitConnections Reason = "limit_connections"
	LimitPerSource   Reason = "limit_per_source"
	LimitRate        Reason = "limit_rate"
	LimitMemory      Reason = "limit_memory"
	LimitHandshakes  Reason = "limit_handshakes"
	// LimitFiles: the process or the system is out of descriptors.
	LimitFiles Reason = "limit_files"
	// LimitPorts: the system has no local port left for the endpoint.
	LimitPorts Reason = "limit_ports"
	// Drained: a drain closed it. Shutdown: the node stopped before a drain
	// did.
	Drained  Reason = "drained"
	Shutdown Reason = "shutdown"
	// ClosedByOperator: an operator closed it.
	ClosedByOperator Reason = "closed_by_operator"
	// EndpointRemoved: its endpoint left the service, whose setting closed it.
	EndpointRemoved Reason = "endpoint_removed"
	// IdentityRevoked: the certificate of the client was revoked.
	IdentityRevoked Reason = "identity_revoked"
	// PermissionDenied: the client may not connect. PermissionRevoked: it may no
	// longer be connected.
	PermissionDenied  Reason = "permission_denied"
	PermissionRevoked Reason = "permission_revoked"
	// MeshBadHeader, MeshHeaderTimeout: a peer of the mesh sent no valid header
	// inside TLS, or none in time. MeshHeaderTooLong: what the endpoint was to be told
	// of the client exceeds a header.
	MeshBadHeader     Reason = "mesh_bad_header"
	MeshHeaderTimeout Reason = "mesh_header_timeout"
	MeshHeaderTooLong Reason = "mesh_header_too_long"
	// Internal: a fault in Penstock itself.
	Internal Reason = "internal_error"
)

// handshakeReason names why TLS with a client failed.
func handshakeReason(err error) Reason {
	switch {
	case errors.Is(err, tlsstream.ErrNoCertificate):
		return HandshakeNoCertificate
	case errors.Is(err, tlsstream.ErrBadCertificate):
		return HandshakeBadCertificate
	case errors.Is(err, tlsstream.ErrRefused):
		return HandshakeRefused
	}
	return HandshakeFailed
}

// ConnectReason returns the reason for closing a connection whose last attempt
// failed with err.
func ConnectReason(err error) Reason {
	switch {
	case errors.Is(err, ErrConnectTimeout) || isErrno(err, syscall.ETIMEDOUT):
		return ConnectTimeout
	case errors.Is(err, tlsstream.ErrBusy):
		return LimitHandshakes
	case errors.Is(err, ErrUpstreamTLS):
		return UpstreamTLS
	case isErrno(err, syscall.ECONNREFUSED):
		return ConnectRefused
	case isErrno(err, syscall.EMFILE, syscall.ENFILE):
		return LimitFiles
	case isErrno(err, syscall.EADDRNOTAVAIL):
		return LimitPorts
	}
	return ConnectError
}
