package api

import "penstock/routing"

// The methods about the effect of policies.
const (
	MethodEffective = "effective" // EffectiveRequest -> EffectiveResult
	MethodSimulate  = "simulate"  // SimulateRequest -> SimulateResult
)

// EffectiveRequest lists the policies in effect for each source. A long list is
// paginated: EffectiveResult.More is the cursor of the next page.
type EffectiveRequest struct {
	// Destination is a service; "": every service that a policy targets.
	Destination string `json:"destination,omitempty"`
	// All includes the services that no policy targets.
	All bool `json:"all,omitempty"`
	// After is EffectiveResult.More of the previous page.
	After routing.EffectiveCursor `json:"after,omitzero"`
	// Limit bounds the sources and policies of the page; 0 and values above
	// MaxEffective mean MaxEffective.
	Limit int  `json:"limit,omitempty"`
	Stale bool `json:"stale,omitempty"` // as in GetRequest
}

// MaxEffective bounds the sources and policies in one response.
const MaxEffective = 10_000

// EffectiveResult lists the policies in effect on a node, by destination.
type EffectiveResult struct {
	Node         string              `json:"node"`
	Destinations []routing.Effective `json:"destinations"`
	// More is the cursor of the next page; nil: this is the last.
	More *routing.EffectiveCursor `json:"more,omitempty"`
}

// SimulateRequest predicts the effect of a change on traffic, without making
// it.
type SimulateRequest struct {
	Node string `json:"node,omitempty"` // name or ID; "": the node that serves the request
	// Documents and Prune are as in ApplyRequest.
	Documents [][]byte          `json:"documents"`
	Prune     map[string]string `json:"prune,omitempty"`
	Stale     bool              `json:"stale,omitempty"` // as in GetRequest
	// Connections is the number of simulated connections of each kind, at most
	// routing.MaxPlayed; 0: none, the result has only Words.
	Connections int `json:"connections,omitempty"`
	// Connection is the connection to simulate; nil: connections to Destination.
	Connection *ExplainRequest `json:"connection,omitempty"`
	// Destination is a service; "": every destination whose traffic the change may
	// move.
	Destination string `json:"destination,omitempty"`
	// Tags are the source of connections to a destination; nil: one simulation for
	// each source that policies distinguish.
	Tags map[string]string `json:"tags,omitempty"`
	// Request is the request on each connection; nil: connections are simulated,
	// and for destinations requests for each of their rules.
	Request *HTTPRequest `json:"request,omitempty"`
}

// SimulateResult is the predicted effect of the change on one node.
type SimulateResult struct {
	Node string `json:"node"`
	// Words has a sentence for each change. Established connections are counted on
	// all nodes that responded.
	Words []string `json:"words"`
	// Counted names those nodes; nil: there is one, or no Words.
	Counted *Counted `json:"counted,omitempty"`
	// Warnings are those that applying the change would give.
	Warnings []Fault `json:"warnings,omitempty"`
	// Simulation is the result of the simulation; nil: there was none.
	Simulation *routing.Simulation `json:"simulation,omitempty"`
}

// MethodRevoked takes a RevokedRequest to the node that is asked, and returns Revoked.
const MethodRevoked = "permissions.revoked"

// RevokedRequest asks a node how many of its established connections a change would
// close, because they are denied then.
type RevokedRequest struct {
	// Documents are the resources that the change puts and that permissions depend on.
	Documents [][]byte `json:"documents"`
	// Deleted are the names of those that it deletes, by kind.
	Deleted map[string][]string `json:"deleted,omitempty"`
}

// Revoked is the answer.
type Revoked struct {
	Connections int64 `json:"connections"`
}

// Counted says which nodes' connections were counted.
type Counted struct {
	Nodes   int      `json:"nodes"`             // that responded, including the serving node
	Of      int      `json:"of"`                // members of the cluster
	Missing []string `json:"missing,omitempty"` // names of those that did not respond in time
}

// MethodPermissions tells what TrafficPermissions have denied on one node:
// PermissionsRequest -> Permissions.
const MethodPermissions = "permissions.use"

// PermissionsRequest asks a node.
type PermissionsRequest struct {
	Node string `json:"node,omitempty"` // name or ID; "": the node that serves the request
}

// Permissions is what permissions have denied on a node since it started.
type Permissions struct {
	Node string `json:"node"`
	// Permissions are those that have denied something, by name; without a name: none
	// allows it.
	Permissions []PermissionUse `json:"permissions"`
	// Kafka has the operations on virtual clusters.
	Kafka []KafkaPermissionUse `json:"kafka,omitempty"`
}

// PermissionUse counts connections and requests.
type PermissionUse struct {
	Permission string `json:"permission"`
	Action     string `json:"action"` // deny, shadowDeny: would deny
	Denied     uint64 `json:"denied"`
}

// KafkaPermissionUse counts operations of one API.
type KafkaPermissionUse struct {
	VirtualCluster string `json:"virtualCluster"`
	API            string `json:"api"`
	Permission     string `json:"permission"` // "": none allows it
	Shadow         bool   `json:"shadow,omitempty"`
	Denied         uint64 `json:"denied"`
}
