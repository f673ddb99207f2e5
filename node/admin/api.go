package admin

import "time"

// The methods. All but MethodTop, a stream of TopSample, have one answer.
const (
	MethodApply   = "apply"   // ApplyRequest -> ApplyResult
	MethodDelete  = "delete"  // DeleteRequest -> DeleteResult
	MethodGet     = "get"     // GetRequest -> GetResult
	MethodExplain = "explain" // ExplainRequest -> routing.Explanation
	MethodStatus  = "status"  // Empty -> Status
	MethodTop     = "top"     // TopRequest -> TopSample...
	MethodMembers = "members" // Empty -> Members
	MethodDrain   = "drain"   // DrainRequest -> DrainResult
	MethodVersion = "version" // Empty -> Version
)

// Empty has nothing to say.
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
	// DryRun tells what would change and changes nothing.
	DryRun bool `json:"dryRun,omitempty"`
	// ID is 16 random bytes: a request that comes again under the same ID acts once.
	ID []byte `json:"id,omitempty"`
	// Prune, when not empty, deletes the resources that have all of these
	// labels and are not among Documents.
	Prune map[string]string `json:"prune,omitempty"`
	Wait  Wait              `json:"wait"`
	// Warnings are what is known of Documents already, such as that the format
	// that they came in says something that has no counterpart. They go before
	// those of the answer.
	Warnings []Fault `json:"warnings,omitempty"`
}

// What apply does to a resource.
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
	// Before and After are the resource as YAML, secrets hidden; of a dry
	// run, and where they differ.
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

// Fault is one thing that is wrong with a resource. The sender of the
// resource knows its file and line.
type Fault struct {
	Key     string `json:"key"`  // "Service/apps"
	Path    string `json:"path"` // "spec.endpoints[2].address"
	Message string `json:"message"`
	Value   string `json:"value,omitempty"`
	// Document counts the documents of what was sent, from 1, and Line its
	// lines; 0: not known.
	Document int `json:"document,omitempty"`
	Line     int `json:"line,omitempty"`
}

// DeleteRequest deletes one resource.
type DeleteRequest struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	ID   []byte `json:"id,omitempty"` // ApplyRequest.ID's
	// Version, when not 0, is the one that the resource must have.
	Version uint64 `json:"version,omitempty"`
	Wait    Wait   `json:"wait"`
}

// DeleteResult says what was deleted.
type DeleteResult struct {
	Index uint64 `json:"index"`
	Kind  string `json:"kind"` // as the node spells it
	Name  string `json:"name"`

	Reached Reached `json:"reached"`
}

// GetRequest asks for the resources of a kind, in any case, singular or
// plural, or for one of them by name.
type GetRequest struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
	// Stale takes what the node asked has, which may be old, where otherwise
	// the answer has every change that was answered before the question.
	Stale bool `json:"stale,omitempty"`
	// Labels, when not empty, are what the resources must have.
	Labels map[string]string `json:"labels,omitempty"`
}

// GetResult lists resources by name, secrets hidden.
type GetResult struct {
	Index     uint64     `json:"index"`
	Kind      string     `json:"kind"`
	Documents []Document `json:"documents"`
}

// ExplainRequest describes a connection.
type ExplainRequest struct {
	Node     string `json:"node,omitempty"` // name or ID; "": the one asked
	Listener string `json:"listener"`
	// SNI is the server name; nil: the hello has none.
	SNI    *string           `json:"sni,omitempty"`
	ALPN   []string          `json:"alpn,omitempty"`
	Client string            `json:"client,omitempty"` // IP address
	Tags   map[string]string `json:"tags,omitempty"`
	// Request is one of the connection's that is asked about; nil: none is.
	Request *HTTPRequest `json:"request,omitempty"`
}

// HTTPRequest describes a request of HTTP.
type HTTPRequest struct {
	Method string `json:"method,omitempty"` // "": GET
	// Path is as a client sends it, with a query where there is one; "": /.
	Path string `json:"path,omitempty"`
	// Host is what is asked for; "": the server name, else localhost.
	Host    string            `json:"host,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Status is one screen about the cluster.
type Status struct {
	Leader string `json:"leader"` // name; "": none
	// Alone says why the node asked decides nothing now, such as that it has
	// no leader; "": all is well.
	Alone     string           `json:"alone,omitempty"`
	Nodes     []NodeStatus     `json:"nodes"`
	Listeners []ListenerStatus `json:"listeners"`
	Services  []ServiceStatus  `json:"services"`
	// VirtualClusters are as the node asked has them; none: left out.
	VirtualClusters []VirtualClusterStatus `json:"virtualClusters,omitempty"`
	// Rollouts are those that are not done, as the node asked knows them.
	Rollouts []Rollout `json:"rollouts,omitempty"`
	// NotAccepted says what of the Gateway API's objects does not act, in words.
	NotAccepted []string `json:"notAccepted,omitempty"`
	// Warnings say what any node is about to run out of, in words.
	Warnings []string `json:"warnings,omitempty"`
}

// NodeStatus is how one node is doing.
type NodeStatus struct {
	Name         string `json:"name"`
	ID           string `json:"id"`
	Role         string `json:"role"`  // leader, voter, non-voter
	State        string `json:"state"` // starting, serving, draining, drained, stopping; unreachable
	AppliedIndex uint64 `json:"appliedIndex"`
	Lag          uint64 `json:"lag"` // changes that it does not act on yet
	Resources    int    `json:"resources"`
	Connections  int64  `json:"connections"`
	Address      string `json:"address"` // of the admin port
	HTTP         string `json:"http"`
	Uptime       string `json:"uptime"`
	Version      string `json:"version"`
}

// ListenerStatus is how a listener is doing on a node.
type ListenerStatus struct {
	Node        string `json:"node,omitempty"`
	Name        string `json:"name"`
	Address     string `json:"address"` // the one bound
	State       string `json:"state"`   // listening, failed
	Connections int64  `json:"connections"`
	Total       uint64 `json:"total"`
	Error       string `json:"error,omitempty"`
}

// ServiceStatus is how a service's endpoints are doing, seen from the node.
type ServiceStatus struct {
	Name        string           `json:"name"`
	State       string           `json:"state"` // "2/3 usable"
	Connections int64            `json:"connections"`
	Endpoints   []EndpointStatus `json:"endpoints"`
}

// EndpointStatus is how one endpoint is doing, seen from the node.
type EndpointStatus struct {
	Address     string `json:"address"`
	Resolved    string `json:"resolved,omitempty"`
	Health      string `json:"health"` // unchecked, healthy, unhealthy, ejected, paused or unresolved
	Connections int64  `json:"connections"`
	// Used tells whether new connections go there: also where Health says
	// otherwise, if no other endpoint is usable.
	Used bool `json:"used"`
	// Reason says why connections do not go there, or that its host name is
	// not looked up any more. Error is the last failure, at ErrorAt.
	Reason  string     `json:"reason,omitempty"`
	Error   string     `json:"error,omitempty"`
	ErrorAt *time.Time `json:"errorAt,omitempty"`
}

// VirtualClusterStatus is how one virtual cluster is doing on the node asked.
type VirtualClusterStatus struct {
	Name            string                `json:"name"`
	PhysicalCluster string                `json:"physicalCluster"`
	Filters         []string              `json:"filters"` // types, in the order of requests
	Error           string                `json:"error,omitempty"`
	Brokers         []VirtualBrokerStatus `json:"brokers"`
	// Connections are those of the node asked, to any broker; Brokers count
	// those for which an address is known.
	Connections int64 `json:"connections"`
}

// VirtualBrokerStatus is how one virtual broker is doing.
type VirtualBrokerStatus struct {
	Name        string `json:"name"`
	Endpoint    string `json:"endpoint"` // host:port that clients are told
	Address     string `json:"address"`  // of the physical broker; "": not known
	Connections int64  `json:"connections"`
	Error       string `json:"error,omitempty"` // why it is down
}

// TopRequest asks for samples of what is going on.
type TopRequest struct {
	// Cluster asks for all nodes, in place of the one asked; Node for a
	// certain one, by name or ID.
	Cluster bool   `json:"cluster,omitempty"`
	Node    string `json:"node,omitempty"`

	Interval time.Duration `json:"interval"` // at least 100ms
	Count    int           `json:"count"`    // samples; 0: until cancelled
	// Connections is how many connections to list, the latest ones; at most 1000.
	Connections int `json:"connections,omitempty"`
}

// TopSample is what went on in one interval.
type TopSample struct {
	Node string `json:"node"` // "": the sample is of Nodes together
	// Nodes are those of the cluster, where all were asked for.
	Nodes       []NodeSample  `json:"nodes,omitempty"`
	At          time.Time     `json:"at"`
	Interval    time.Duration `json:"interval"`
	Connections int64         `json:"connections"` // open now
	Flows       []Flow        `json:"flows"`
	Latest      []Connection  `json:"latest,omitempty"`
	// VirtualClusters are those with requests since the node's start.
	VirtualClusters []ClusterRate `json:"virtualClusters,omitempty"`
}

// NodeSample is one node's part in a sample of the cluster. Rates are per
// second.
type NodeSample struct {
	Name        string  `json:"name"`
	Connections int64   `json:"connections"` // open now
	NewRate     float64 `json:"newRate"`
	InRate      float64 `json:"inRate"`          // bytes from clients
	OutRate     float64 `json:"outRate"`         // bytes from endpoints
	Error       string  `json:"error,omitempty"` // why it is not in the sums
}

// ClusterRate is what went on in one virtual cluster, per second.
type ClusterRate struct {
	Name      string  `json:"name"`
	Requests  float64 `json:"requests"`
	Errors    float64 `json:"errors"`    // responses with an error code
	Throttled float64 `json:"throttled"` // responses that slow the client down
}

// Connection is one open connection.
type Connection struct {
	ID       uint64        `json:"id"`
	Node     string        `json:"node,omitempty"` // in samples of the cluster
	Listener string        `json:"listener"`
	Client   string        `json:"client"`
	SNI      string        `json:"sni,omitempty"`
	Service  string        `json:"service,omitempty"`
	Endpoint string        `json:"endpoint,omitempty"`
	Phase    string        `json:"phase"`
	BytesIn  uint64        `json:"bytesIn"`
	BytesOut uint64        `json:"bytesOut"`
	Age      time.Duration `json:"age"`
	Idle     time.Duration `json:"idle"`
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

// DrainRequest takes a node out of service; the process stays.
type DrainRequest struct {
	Node string `json:"node,omitempty"` // name or ID; "": the one asked
	// Undo puts it back into service; connections that were closed stay closed.
	Undo bool `json:"undo,omitempty"`
	// Over is the window in which connections are closed; nil: the node's own setting.
	Over *time.Duration `json:"over,omitempty"`
}

// DrainResult says what the drain begins with.
type DrainResult struct {
	Node        string        `json:"node"`
	Connections int64         `json:"connections"`
	Over        time.Duration `json:"over"`
}

// Version is the node's build.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
}
