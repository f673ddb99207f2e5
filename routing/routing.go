// Package routing decides which destination a connection is for, which backend
// of it, and which endpoint. It holds the compiled table, the splits, the
// balancers and the state of endpoints. A decision opens no socket.
//
// A Table is immutable and compiled from resources; a change compiles the next
// one at a cost proportional to the change. State that outlives tables (counts
// of connections, health, ejection, the position in a split) belongs to
// endpoints and splits, which tables share.
//
// A decision has three steps: Resolve (listener, server name, ALPN -> service),
// Route (source, service -> weighted backends), Balance (backend -> endpoint).
// Explain runs the same steps and records the input and outcome of each.
package routing

import (
	"net/netip"
)

// Reason says why a connection cannot be routed. docs/reasons.md documents
// these reasons and those of netio.
type Reason string

// Reasons that routing returns.
const (
	OK Reason = ""
	// NoListener: the listener is not in the table (it was just removed).
	NoListener Reason = "no_listener"
	// NoServerName: the ClientHello has no server name, and the listener requires
	// one.
	NoServerName Reason = "no_sni"
	// BadServerName: the name is an IP address, malformed or ambiguous.
	BadServerName Reason = "bad_sni"
	// NoCertificate: the name is valid, but no certificate of the listener covers
	// it.
	NoCertificate Reason = "no_certificate"
	// NoRoute: the name is valid, but nothing is configured for it.
	NoRoute Reason = "no_route"
	// NoBackend: the destination does not exist, or no backend of the policy has
	// both a weight and endpoints.
	NoBackend Reason = "no_backend"
	// OriginateConflict: the listener has TLS of its own towards endpoints, and the
	// connection would go to a service of the mesh, or its requests one by one.
	OriginateConflict Reason = "originate_conflict"
	// NoEndpoint: the backend has no endpoint.
	NoEndpoint Reason = "no_endpoint"
	// NoHealthyEndpoint: the backend has endpoints, but none is usable.
	NoHealthyEndpoint Reason = "no_healthy_endpoint"
	// RetriesExhausted: the attempts or the retry budget are used up.
	RetriesExhausted Reason = "retries_exhausted"
	// PermissionDenied: a TrafficPermission denies it, or none allows it.
	PermissionDenied Reason = "permission_denied"
	// Overflow: the service's circuit breaker allows no more, and its queue is full.
	Overflow Reason = "upstream_overflow"
	// QueueTimeout: it waited in that queue for queueTimeout.
	QueueTimeout Reason = "queue_timeout"
)

// Input is what is known about a connection when it is routed.
type Input struct {
	Listener string
	// ServerName is as the client sent it; HasServerName distinguishes "" from
	// none.
	ServerName    string
	HasServerName bool
	ALPN          []string
	// User is the user name as which a mysql client logs in; "" for other clients.
	User string
	// Client is the client's address, after the PROXY header.
	Client netip.Addr
	// Tags describe the connection in addition to those of the table (node,
	// listener and network): the client's identity. Tests and explain may set any.
	Tags map[string]string
	// IdentityUndecided says that the client's certificate has no single SPIFFE ID
	// that is valid, but one or more that are not. Its Tags have no identity then.
	IdentityUndecided bool
}
