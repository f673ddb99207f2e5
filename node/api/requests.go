package api

import "time"

// The methods for resources and for the state of the cluster. Each has one
// response, except MethodTop, which streams TopSample.
const (
	MethodApply   = "apply"   // ApplyRequest -> ApplyResult
	MethodDelete  = "delete"  // DeleteRequest -> DeleteResult
	MethodGet     = "get"     // GetRequest -> GetResult
	MethodExplain = "explain" // ExplainRequest -> routing.Explanation
	MethodStatus  = "status"  // StatusRequest -> Status
	MethodTop     = "top"     // TopRequest -> TopSample...
	MethodMembers = "members" // Empty -> Members
	MethodDrain   = "drain"   // DrainRequest -> DrainResult
	MethodVersion = "version" // Empty -> Version
)

// Empty is a message without fields.
type Empty struct{}

// Document is one resource.
type Document struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Data is the whole resource as JSON.
	Data []byte `json:"data"`
}

// ApplyRequest creates or changes resources, all of them or none.
type ApplyRequest struct {
	// Documents are whole resources as JSON, one each.
	Documents [][]byte `json:"documents"`
	// DryRun reports what would change and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// ID is 16 random bytes. A request repeated under the same ID takes effect
	// once.
	ID []byte `json:"id,omitempty"`
	// Prune, if not empty, deletes the resources that have all of these labels and
	// are not among Documents.
	Prune map[string]string `json:"prune,omitempty"`
	Wait  Wait              `json:"wait"`
	// Warnings are the client's own warnings about Documents, such as a setting of
	// the source format that has no counterpart. They come first in
	// ApplyResult.Warnings.
	Warnings []Fault `json:"warnings,omitempty"`
}

// The actions of a Change.
const (
	Created    = "created"
	Configured = "configured"
	Unchanged  = "unchanged"
	Deleted    = "deleted" // by Prune
)

// Change is what apply did, or would do, to one resource.
type Change struct {
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Action string `json:"action"`
	// Before and After are the resource as YAML, with secrets hidden. They are set
	// in a dry run, where they differ.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// ApplyResult lists the changes in the order of the request.
type ApplyResult struct {
	Index    uint64   `json:"index"`
	Changes  []Change `json:"changes"`
	Warnings []Fault  `json:"warnings,omitempty"`
	Reached  Reached  `json:"reached"`
}

// Fault is one error or warning about a resource. The sender of the resource
// maps it to a file and line.
type Fault struct {
	Key     string `json:"key"`  // "Service/apps"
	Path    string `json:"path"` // "spec.endpoints[2].address"
	Message string `json:"message"`
	Value   string `json:"value,omitempty"`
	// Document is the index, from 1, of the document in the input, and Line its
	// line; 0 if unknown.
	Document int `json:"document,omitempty"`
	Line     int `json:"line,omitempty"`
}

// DeleteRequest deletes one resource.
type DeleteRequest struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	ID   []byte `json:"id,omitempty"` // as in ApplyRequest
	// Version, if not 0, is the version that the resource must have.
	Version uint64 `json:"version,omitempty"`
	Wait    Wait   `json:"wait"`
}

// DeleteResult names the deleted resource.
type DeleteResult struct {
	Index uint64 `json:"index"`
	Kind  string `json:"kind"` // the canonical spelling
	Name  string `json:"name"`

	Warnings []Fault `json:"warnings,omitempty"`
	Reached  Reached `json:"reached"`
}

// GetRequest reads all resources of a kind, or one by name. The kind may be in
// any case, singular or plural.
type GetRequest struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	// Stale reads the local state of the node that serves the request, which may
	// be out of date. Without it, the result includes every change that was
	// acknowledged before the request.
	Stale bool `json:"stale,omitempty"`
	// Labels, if not empty, selects the resources that have all of them.
	Labels map[string]string `json:"labels,omitempty"`
}

// GetResult lists resources by name, with secrets hidden.
type GetResult struct {
	Index     uint64     `json:"index"`
	Kind      string     `json:"kind"`
	Documents []Document `json:"documents"`
}

// ExplainRequest describes a connection whose routing is to be explained.
type ExplainRequest struct {
	Node     string `json:"node,omitempty"` // name or ID; "": the node that serves the request
	Listener string `json:"listener"`
	// SNI is the server name; nil: the ClientHello has none.
	SNI    *string           `json:"sni,omitempty"`
	ALPN   []string          `json:"alpn,omitempty"`
	User   string            `json:"user,omitempty"`   // as which a mysql client logs in
	Client string            `json:"client,omitempty"` // IP address
	Tags   map[string]string `json:"tags,omitempty"`
	// Request is a request on the connection; nil: only the connection is
	// explained.
	Request *HTTPRequest `json:"request,omitempty"`
	// Kafka is a request to Kafka on the connection; nil: none.
	Kafka *KafkaRequest `json:"kafka,omitempty"`
}

// KafkaRequest describes a request to Kafka: one operation on one resource.
type KafkaRequest struct {
	Principal string `json:"principal,omitempty"` // "User:alice"; "": not known
	ClientID  string `json:"clientID,omitempty"`
	Operation string `json:"operation,omitempty"` // as in a TrafficPermission; "": describe
	// At most one of these; none: the cluster.
	Topic           string `json:"topic,omitempty"`
	Group           string `json:"group,omitempty"`
	TransactionalID string `json:"transactionalID,omitempty"`
}

// HTTPRequest describes an HTTP request.
type HTTPRequest struct {
	Method string `json:"method,omitempty"` // "": GET
	// Path is the request target with its query, if any; "": /.
	Path string `json:"path,omitempty"`
	// Host is the Host header; "": the server name, else localhost.
	Host    string            `json:"host,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// StatusRequest asks for the status.
type StatusRequest struct {
	// Brief leaves out the endpoints of services: MethodEndpoints has those of one.
	Brief bool `json:"brief,omitempty"`
}

// Status is an overview of the cluster.
type Status struct {
	Leader string `json:"leader"` // name; "": none
	// Alone says why the node cannot make changes now, such as the lack of a
	// leader; "": it can.
	Alone     string           `json:"alone,omitempty"`
	Nodes     []NodeStatus     `json:"nodes"`
	Listeners []ListenerStatus `json:"listeners"`
	Services  []ServiceStatus  `json:"services"`
	// VirtualClusters is the view of the node that serves the request.
	VirtualClusters []VirtualClusterStatus `json:"virtualClusters,omitempty"`
	// Rollouts are the unfinished rollouts, as this node sees them.
	Rollouts []Rollout `json:"rollouts,omitempty"`
	// NotAccepted describes the parts of Gateway API objects that have no effect.
	NotAccepted []string `json:"notAccepted,omitempty"`
	// Warnings describe what a node is about to run out of, such as ports, and the
	// certificates that an authority does not issue.
	Warnings []string `json:"warnings,omitempty"`
	// Providers are the endpoint providers, each on the node that runs it.
	Providers []ProviderStatus `json:"providers,omitempty"`
	// Proxies is the state of the nodes' discovery servers that have clients.
	Proxies []ProxiesStatus `json:"proxies,omitempty"`
}

// NodeStatus is the state of one node.
type NodeStatus struct {
	Name         string `json:"name"`
	ID           string `json:"id"`
	Role         string `json:"role"`  // leader, voter, non-voter
	State        string `json:"state"` // starting, serving, draining, drained, stopping; unreachable
	AppliedIndex uint64 `json:"appliedIndex"`
	Lag          uint64 `json:"lag"` // changes that it has not applied yet
	Resources    int    `json:"resources"`
	Connections  int64  `json:"connections"`
	Address      string `json:"address"` // of the cluster port
	HTTP         string `json:"http"`
	Uptime       string `json:"uptime"`
	Version      string `json:"version"`
}

// ListenerStatus is the state of a listener on one node.
type ListenerStatus struct {
	Node        string `json:"node,omitempty"`
	Name        string `json:"name"`
	Address     string `json:"address"` // the bound address
	State       string `json:"state"`   // listening, failed
	Connections int64  `json:"connections"`
	Total       uint64 `json:"total"`
	Error       string `json:"error,omitempty"`
}

// ServiceStatus is the state of a service's endpoints as one node sees it.
type ServiceStatus struct {
	Name        string           `json:"name"`
	State       string           `json:"state"` // "2/3 usable"
	Connections int64            `json:"connections"`
	Waiting     int              `json:"waiting,omitempty"` // in the queue of its circuit breaker
	Endpoints   []EndpointStatus `json:"endpoints"`
}

// EndpointStatus is the state of an endpoint as one node sees it.
type EndpointStatus struct {
	Address     string `json:"address"`
	Resolved    string `json:"resolved,omitempty"`
	Health      string `json:"health"` // unchecked, healthy, unhealthy, ejected, paused or unresolved
	Connections int64  `json:"connections"`
	// Used reports whether the endpoint receives new connections, which it may do
	// whatever Health says if no other endpoint is usable.
	Used bool `json:"used"`
	// Load says how busy the server is, and what that makes of its weight; "": its load
	// does not count.
	Load string `json:"load,omitempty"`
	// Reason says why the endpoint receives no connections, or that its host name
	// is no longer resolved. Error is the last failure, at ErrorAt.
	Reason  string     `json:"reason,omitempty"`
	Error   string     `json:"error,omitempty"`
	ErrorAt *time.Time `json:"errorAt,omitempty"`
}

// VirtualClusterStatus is the state of a virtual cluster on the node that
// serves the request.
type VirtualClusterStatus struct {
	Name            string                `json:"name"`
	PhysicalCluster string                `json:"physicalCluster"`
	Filters         []string              `json:"filters"` // types, in request order
	Error           string                `json:"error,omitempty"`
	Brokers         []VirtualBrokerStatus `json:"brokers"`
	// Connections counts this node's connections to any broker. Brokers count
	// those to brokers with a known address.
	Connections int64 `json:"connections"`
}

// VirtualBrokerStatus is the state of one virtual broker.
type VirtualBrokerStatus struct {
	Name        string `json:"name"`
	Endpoint    string `json:"endpoint"` // the advertised host:port
	Address     string `json:"address"`  // of the physical broker; "": unknown
	Connections int64  `json:"connections"`
	Error       string `json:"error,omitempty"` // why it is down
}

// TopRequest subscribes to traffic samples.
type TopRequest struct {
	// Cluster samples all nodes, Node a certain one by name or ID. Without either,
	// the node that serves the request samples itself.
	Cluster bool   `json:"cluster,omitempty"`
	Node    string `json:"node,omitempty"`

	Interval time.Duration `json:"interval"` // at least 100ms
	Count    int           `json:"count"`    // samples; 0: until cancelled
	// Connections is the number of connections to list, newest first; at most
	// 1000.
	Connections int `json:"connections,omitempty"`
}

// TopSample is the traffic of one interval.
type TopSample struct {
	Node string `json:"node"` // "": the sample sums up Nodes
	// Nodes are the cluster's nodes, if Cluster was set.
	Nodes       []NodeSample  `json:"nodes,omitempty"`
	At          time.Time     `json:"at"`
	Interval    time.Duration `json:"interval"`
	Connections int64         `json:"connections"` // open now
	Flows       []Flow        `json:"flows"`
	Latest      []Connection  `json:"latest,omitempty"`
	// VirtualClusters are those that had requests since the node started.
	VirtualClusters []ClusterRate `json:"virtualClusters,omitempty"`
}

// NodeSample is one node's part of a cluster sample. Rates are per second.
type NodeSample struct {
	Name        string  `json:"name"`
	Connections int64   `json:"connections"` // open now
	NewRate     float64 `json:"newRate"`
	InRate      float64 `json:"inRate"`          // bytes from clients
	OutRate     float64 `json:"outRate"`         // bytes from endpoints
	Error       string  `json:"error,omitempty"` // why the sums exclude it
}

// ClusterRate is the traffic of a virtual cluster. Rates are per second.
type ClusterRate struct {
	Name      string  `json:"name"`
	Requests  float64 `json:"requests"`
	Errors    float64 `json:"errors"`    // responses with an error code
	Throttled float64 `json:"throttled"` // responses that slow the client down
}

// Connection is one connection.
type Connection struct {
	ID       uint64 `json:"id"`
	Node     string `json:"node,omitempty"`
	Listener string `json:"listener"`
	Client   string `json:"client"`
	SNI      string `json:"sni,omitempty"`
	TLS      string `json:"tls,omitempty"`      // version with the client, such as "1.3"
	Identity string `json:"identity,omitempty"` // of the client's verified certificate
	User     string `json:"user,omitempty"`     // of a MySQL client, or the principal of a Kafka client
	ClientID string `json:"clientID,omitempty"` // of a Kafka client
	// Destination is the service that the listener names, Service the one whose endpoints
	// are used. Route is what chose it, such as MeshTCPRoute/canary, and Subset the tags of
	// the backend, as version=v2; "": nothing did, and all endpoints.
	Destination string        `json:"destination,omitempty"`
	Service     string        `json:"service,omitempty"`
	Route       string        `json:"route,omitempty"`
	Subset      string        `json:"subset,omitempty"`
	Endpoint    string        `json:"endpoint,omitempty"`
	Attempts    int           `json:"attempts,omitempty"` // to connect to an endpoint
	Phase       string        `json:"phase"`
	BytesIn     uint64        `json:"bytesIn"`
	BytesOut    uint64        `json:"bytesOut"`
	Age         time.Duration `json:"age"` // of an ended one: how long it lasted
	Idle        time.Duration `json:"idle"`
	// Reason is why it ended, at Ended, and Error the error behind it; "": it is open.
	Reason string    `json:"reason,omitempty"`
	Error  string    `json:"error,omitempty"`
	Ended  time.Time `json:"ended,omitzero"`
}

// Flow is the traffic from one listener to one service. Rates are per second.
type Flow struct {
	Listener    string  `json:"listener"`
	Service     string  `json:"service"`
	Connections int64   `json:"connections"` // open now
	NewRate     float64 `json:"newRate"`
	InRate      float64 `json:"inRate"`  // bytes from clients
	OutRate     float64 `json:"outRate"` // bytes from endpoints
	Total       uint64  `json:"total"`
	BytesIn     uint64  `json:"bytesIn"`
	BytesOut    uint64  `json:"bytesOut"`
}

// Members lists the nodes.
type Members []Member

// Member is one node.
type Member struct {
	Name        string `json:"name"`
	ID          string `json:"id"`
	Role        string `json:"role"`
	State       string `json:"state"`
	Address     string `json:"address"`
	Version     string `json:"version"`
	Connections int64  `json:"connections"`
}

// DrainRequest takes a node out of service; the process keeps running.
type DrainRequest struct {
	Node string `json:"node,omitempty"` // name or ID; "": the node that serves the request
	// Undo returns it to service; closed connections stay closed.
	Undo bool `json:"undo,omitempty"`
	// Over is the window over which connections are closed; nil: the node's
	// setting.
	Over *time.Duration `json:"over,omitempty"`
}

// DrainResult is the state at the start of a drain.
type DrainResult struct {
	Node        string        `json:"node"`
	Connections int64         `json:"connections"`
	Over        time.Duration `json:"over"`
}

// Version identifies a node's build.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}
