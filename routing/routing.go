// Package routing decides: which destination a connection is for, which
// backend of it, which endpoint. It holds the compiled table, the splits, the
// balancers and the state of endpoints. It opens no socket while it resolves.
//
// A Table is immutable and compiled from resources; a change compiles the next
// one from it at the cost of the change. What outlives tables (counts of
// connections, health, ejection, the place in a split) belongs to endpoints
// and splits, which tables share.
//
// A decision has the steps of the path of a connection: Resolve (listener,
// server name, ALPN -> service), Route (source, service -> weighted backends),
// Balance (backend -> endpoint). Explain runs the very same steps and writes
// down what each one saw.
package routing

import (
	"net/netip"
)

// Reason says why there is no way for a connection. They are documented in
// docs/reasons.md beside netio's.
type Reason string

// The reasons that routing gives.
const (
	OK Reason = ""
	// NoListener: the listener is not in the table (it has just been removed).
	NoListener Reason = "no_listener"
	// NoServerName: the hello has no name, and the listener wants one.
	NoServerName Reason = "no_sni"
	// BadServerName: the name is an IP address, malformed or doubtful.
	BadServerName Reason = "bad_sni"
	// NoCertificate: the name is valid and none of the listener's certificates is for it.
	NoCertificate Reason = "no_certificate"
	// NoRoute: the name is valid and nothing is configured for it.
	NoRoute Reason = "no_route"
	// NoBackend: the policy's backends are all of weight 0 or lead nowhere.
	NoBackend Reason = "no_backend"
	// NoEndpoint: the backend has no endpoint.
	NoEndpoint Reason = "no_endpoint"
	// NoHealthyEndpoint: it has some, and none is usable.
	NoHealthyEndpoint Reason = "no_healthy_endpoint"
	// RetriesExhausted: the attempts or the retry budget are used up.
	RetriesExhausted Reason = "retries_exhausted"
)

// Input is what is known of a connection when it is to be routed.
type Input struct {
	Listener string
	// ServerName is as the client sent it; HasServerName tells none from "".
	ServerName    string
	HasServerName bool
	ALPN          []string
	// Client is the client's address (after the PROXY header).
	Client netip.Addr
	// Tags are known of the connection apart from what the table itself
	// adds (node, listener and network tags): the client's identity. Tests
	// and explain may give any.
	Tags map[string]string
}
