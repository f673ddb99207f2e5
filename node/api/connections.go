package api

import (
	"strings"
	"time"

	"penstock/routing"
)

// The methods for connections of clients.
const (
	// MethodConnections lists the connections of all nodes: ConnectionsRequest ->
	// Connections.
	MethodConnections = "connections"
	// MethodConnectionsClose closes connections, for operators: CloseConnectionsRequest ->
	// ClosedConnections.
	MethodConnectionsClose = "connections.close"
	// MethodTrace describes what one connection did: TraceRequest -> Trace.
	MethodTrace = "trace"
	// MethodFlow sums up the open connections along their way: FlowRequest -> FlowResult.
	MethodFlow = "flow"
	// The other ones are between nodes, about the node that answers. They have the types
	// of the methods above.
	MethodConnectionsHere      = "connections.here"
	MethodConnectionsCloseHere = "connections.close.here"
	MethodTraceHere            = "trace.here"
	MethodFlowHere             = "flow.here"
)

// ConnectionFilter selects connections; a field with its zero value selects all.
type ConnectionFilter struct {
	Node     string `json:"node,omitempty"` // name or ID
	Listener string `json:"listener,omitempty"`
	Service  string `json:"service,omitempty"`
	Endpoint string `json:"endpoint,omitempty"` // address: as configured, or resolved
	// Client is an IP address or a network, such as 10.1.0.0/16.
	Client string `json:"client,omitempty"`
	// Who is a server name, identity, user, Kafka principal or client ID, whole.
	Who string `json:"who,omitempty"`
	ID  uint64 `json:"id,omitempty"` // on its node
	// Reason selects connections that ended for it (docs/reasons.md); with Ended.
	Reason string `json:"reason,omitempty"`
}

// The values of ConnectionsRequest.Sort. The largest comes first, for SortNewest the
// youngest.
const (
	SortNewest = "newest" // the default
	SortAge    = "age"
	SortIdle   = "idle"
	SortBytes  = "bytes" // both directions
)

// MaxConnections bounds ConnectionsRequest.Limit.
const MaxConnections = 10_000

// ConnectionsRequest asks for connections.
type ConnectionsRequest struct {
	ConnectionFilter
	// Ended selects those that have ended, as far as nodes remember them, instead of the
	// open ones. Failures selects those of them that ended otherwise than by a FIN.
	Ended    bool   `json:"ended,omitempty"`
	Failures bool   `json:"failures,omitempty"`
	Sort     string `json:"sort,omitempty"`
	Limit    int    `json:"limit"` // 1 to MaxConnections
}

// Connections lists connections.
type Connections struct {
	Connections []Connection `json:"connections"`
	// Total counts all that were selected, on the nodes that answered.
	Total int `json:"total"`
	// Missing are the nodes that did not answer, and why.
	Missing []string `json:"missing,omitempty"`
}

// MaxCloseWindow bounds CloseConnectionsRequest.Over.
const MaxCloseWindow = 24 * time.Hour

// CloseConnectionsRequest closes connections: at a moment that is safe for their protocol
// where there is one. At least one field of the filter must be set.
type CloseConnectionsRequest struct {
	ConnectionFilter
	// Over is the window over which they are closed, in nanoseconds, up to MaxCloseWindow;
	// 0: at once.
	Over time.Duration `json:"over,omitempty"`
}

// Summary implements rpc's summarizer, for the audit log.
func (r *CloseConnectionsRequest) Summary() string {
	return strings.Join(selection(r.ID, [][2]string{
		{"node", r.Node}, {"listener", r.Listener}, {"service", r.Service}, {"endpoint", r.Endpoint}, {"client", r.Client}, {"who", r.Who},
	}), ", ")
}

// ClosedConnections says how many connections are being closed.
type ClosedConnections struct {
	Closing int `json:"closing"`
	// Missing are the nodes that did not answer, and why.
	Missing []string `json:"missing,omitempty"`
}

// TraceRequest names a connection.
type TraceRequest struct {
	Node string `json:"node,omitempty"` // name or ID; "": the only node that knows the ID
	ID   uint64 `json:"id"`
}

// Trace is what one connection did.
type Trace struct {
	Connection Connection   `json:"connection"`
	Events     []TraceEvent `json:"events"`
	// Decision is what the node decides now about such a connection: it may differ from
	// what the connection got when it came. Nil: nothing is known of it.
	Decision *routing.Explanation `json:"decision,omitempty"`
	// Logs are the lines of the log about the connection that the node remembers.
	Logs []LogEntry `json:"logs,omitempty"`
}

// The events of a connection.
const (
	EventAccepted   = "accepted"
	EventIdentified = "identified" // the client's first bytes, TLS included, are understood
	EventDecided    = "decided"    // it has a destination
	EventConnecting = "connecting" // the first attempt begins
	EventConnected  = "connected"  // an endpoint has taken it
	EventFirstIn    = "firstByteIn"
	EventFirstOut   = "firstByteOut"
	EventClosed     = "closed"
)

// TraceEvent is something that happened to a connection.
type TraceEvent struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
	// After is the time since the connection was accepted, in nanoseconds.
	After time.Duration `json:"after"`
	Text  string        `json:"text,omitempty"` // to where, after how many attempts, why
}

// FlowRequest asks for the way that traffic takes.
type FlowRequest struct {
	Node    string `json:"node,omitempty"` // name or ID; "": all
	Service string `json:"service,omitempty"`
}

// MaxStreams bounds the streams of FlowResult.
const MaxStreams = 20_000

// FlowResult is the traffic of all nodes that answered.
type FlowResult struct {
	At      time.Time `json:"at"`
	Streams []Stream  `json:"streams"`
	// More counts the streams with the fewest connections that are left out.
	More    int      `json:"more,omitempty"`
	Missing []string `json:"missing,omitempty"`
}

// Stream is the traffic that takes one way from a listener to an endpoint.
type Stream struct {
	Listener string `json:"listener"`
	// Route is what chose the backend, such as "MeshTCPRoute/canary"; "": nothing did.
	Route       string `json:"route,omitempty"`
	Destination string `json:"destination"` // the service that the listener names
	Service     string `json:"service"`     // whose endpoints are used
	// Subset has the tags of the backend, as "version=v2"; "": all endpoints.
	Subset      string `json:"subset,omitempty"`
	Endpoint    string `json:"endpoint,omitempty"` // "": not connected yet
	Connections int64  `json:"connections"`        // open now
	// InRate and OutRate are bytes per second from clients and from endpoints, over the
	// last seconds.
	InRate  float64 `json:"inRate"`
	OutRate float64 `json:"outRate"`
}
