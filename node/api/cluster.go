package api

import "time"

// The methods for cluster operations. If only another node or the leader can
// act on a request, the node that receives it forwards it.
const (
	MethodAuth     = "auth"           // AuthRequest -> Principal; first on its connection
	MethodWatch    = "watch"          // WatchRequest -> WatchItem...
	MethodHistory  = "history"        // HistoryRequest -> HistoryResult
	MethodRollback = "rollback"       // RollbackRequest -> ApplyResult
	MethodLeave    = "leave"          // LeaveRequest -> LeaveResult
	MethodLeaving  = "leave.state"    // LeavingRequest -> Leaving
	MethodRemove   = "remove"         // RemoveRequest -> Empty
	MethodTokenNew = "token.create"   // TokenCreateRequest -> TokenCreated
	MethodTokens   = "token.list"     // Empty -> Tokens
	MethodRevoke   = "token.revoke"   // TokenRevokeRequest -> Empty
	MethodSave     = "snapshot.save"  // SaveRequest -> Chunk...
	MethodRestore  = "snapshot.write" // UploadRequest -> RestoreResult
	MethodRotate   = "rotate"         // RotateRequest -> Empty: issues a new CA or gossip key
)

// The methods between nodes.
const (
	MethodJoin     = "join"     // bootstrap.JoinRequest: from a node without a certificate
	MethodForm     = "form"     // bootstrap.FormRequest: between --expect nodes before bootstrap
	MethodCharter  = "charter"  // bootstrap.CharterRequest: the founding members of a new cluster, and its secrets
	MethodAnnounce = "announce" // directory.Announcement: a node's addresses, sent when they change
	MethodRead     = "read"     // Empty -> ReadResult: the leader's index, for linearizable reads
	MethodAwait    = "await"    // AwaitRequest -> AwaitResult: waits until this node has applied an index
	MethodReport   = "report"   // StatusRequest -> Report: this node's part of status and members
	MethodRenew    = "renew"    // cluster.RenewRequest: renews a node's certificate
	MethodTransfer = "transfer" // TransferRequest -> Empty: transfers leadership to another node

	// providers.Announcements -> providers.AnnouncementsResult: the endpoints that
	// proxies have announced to a node, for the leader
	MethodEndpointsAnnounced = "endpoints.announced"
	// AwaitRequest -> AwaitResult: waits until this node answers the challenges of
	// certificate authorities that are stored at an index
	MethodChallenges = "acme.challenges"
)

// Role is a caller's level of access. A role includes all lower ones.
type Role string

// The roles, in ascending order. RoleJoin and RoleIssuer are outside that order:
// they may only join, and only issue workload certificates.
const (
	RoleNone     Role = ""
	RoleJoin     Role = "join"
	RoleIssuer   Role = "issuer"   // issue, list and revoke workload certificates of its token's path
	RoleReader   Role = "reader"   // get, explain, simulate, status, members, top, sessions, watch, history
	RoleOperator Role = "operator" // drain, transfer, rollouts, moves of sessions
	RoleAdmin    Role = "admin"    // every method for users
	RoleNode     Role = "node"     // another node of the cluster, authenticated by its certificate
)

// Principal is an authenticated caller.
type Principal struct {
	Name    string `json:"name"` // of the token or node, or "local" at the node's own socket
	Role    Role   `json:"role"`
	Node    string `json:"node,omitempty"`    // the node's ID, if it is a node
	TokenID string `json:"tokenID,omitempty"` // the token's ID, not its secret
	// Via is the ID of the node that forwarded the request for Name.
	Via string `json:"via,omitempty"`
	// From is the caller's own address, if a node forwarded the request.
	From string `json:"from,omitempty"`
}

// AuthRequest authenticates a connection by a token.
type AuthRequest struct {
	Token string `json:"token"`
}

// WaitAll is the zero value of Wait.Nodes: wait for all nodes that are up.
const WaitAll = 0

// Wait says how many nodes must apply a change before the response is sent.
type Wait struct {
	Nodes int           `json:"nodes,omitempty"` // 0: WaitAll; -1: only the node that serves the request
	For   time.Duration `json:"for,omitempty"`   // 0: 10s
}

// Reached counts the nodes that apply a change. The late ones follow when they
// can.
type Reached struct {
	Nodes int    `json:"nodes"`
	Late  []Late `json:"late,omitempty"`
}

// Late is a node that has not applied a change yet.
type Late struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// WatchRequest subscribes to the resources of a kind, or to one of them: their
// current state and every later change.
type WatchRequest struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
}

// WatchItem has the changes since the previous item. The first item has all
// current resources.
type WatchItem struct {
	Index   uint64     `json:"index"`
	Put     []Document `json:"put,omitempty"`
	Deleted []Document `json:"deleted,omitempty"` // without Data
}

// HistoryRequest reads the revisions of one resource.
type HistoryRequest struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Stale bool   `json:"stale,omitempty"` // as in GetRequest
}

// HistoryResult lists revisions, the newest first.
type HistoryResult struct {
	Kind      string     `json:"kind"`
	Name      string     `json:"name"`
	Revisions []Revision `json:"revisions"`
}

// Revision is a resource after one change, with secrets hidden.
type Revision struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	Who     string    `json:"who"`
	What    string    `json:"what"`
	Deleted bool      `json:"deleted,omitempty"`
	YAML    string    `json:"yaml,omitempty"`
}

// RollbackRequest restores a resource's content of an earlier version.
type RollbackRequest struct {
	ID      []byte `json:"id,omitempty"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version uint64 `json:"version"` // 0: the one before the last change
	Wait    Wait   `json:"wait"`
}

// LeaveRequest makes a node drain, leave the cluster and exit.
type LeaveRequest struct {
	Node string         `json:"node,omitempty"`
	Over *time.Duration `json:"over,omitempty"`
}

// LeaveResult is the state at the start of an attempt to leave.
type LeaveResult struct {
	Node        string `json:"node"`
	Connections int64  `json:"connections"`
	// ID names the attempt in LeavingRequest; "": the node runs an older build.
	ID string `json:"id,omitempty"`
}

// LeavingRequest reads the progress of an attempt to leave.
type LeavingRequest struct {
	Node string `json:"node,omitempty"` // name or ID; "": the node that serves the request
	ID   string `json:"id"`             // LeaveResult.ID
}

// The states of an attempt to leave. After LeaveFailed the node serves again,
// and Leaving.Why says why it did not leave.
const (
	LeaveDraining = "draining"
	LeaveLeaving  = "leaving" // drained; the other nodes are removing it
	LeaveLeft     = "left"    // the process is about to exit
	LeaveFailed   = "failed"
	LeaveUnknown  = "unknown" // no such attempt: the node has restarted since
)

// Leaving is the progress of an attempt to leave.
type Leaving struct {
	State       string `json:"state"`
	Connections int64  `json:"connections"`
	Why         *Error `json:"why,omitempty"`
}

// RemoveRequest removes from the cluster a node that will not come back.
type RemoveRequest struct {
	Node string `json:"node"` // name or ID
	// Force removes it even if it is up, or if the remaining voters may have no
	// quorum.
	Force bool `json:"force,omitempty"`
}

// TokenCreateRequest creates a token.
type TokenCreateRequest struct {
	Name string        `json:"name"`
	Role Role          `json:"role"`
	TTL  time.Duration `json:"ttl"`
	// Path is the pattern of SPIFFE paths for which a token of role issuer may
	// issue; "" for other roles.
	Path string `json:"path,omitempty"`
}

// TokenCreated is the only message that contains the token's secret.
type TokenCreated struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

// Tokens lists tokens, without their secrets.
type Tokens []Token

// Token describes a token.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Created time.Time `json:"created"`
	By      string    `json:"by"`
	Expires time.Time `json:"expires"`
	State   string    `json:"state"` // valid, expired, revoked
	// Path is the pattern of SPIFFE paths for which a token of role issuer may issue.
	Path string `json:"path,omitempty"`
}

// TokenRevokeRequest revokes a token, by ID or name.
type TokenRevokeRequest struct {
	Token string `json:"token"`
}

// SaveRequest saves a snapshot of all resources.
type SaveRequest struct {
	// Stale saves the local state of the node that serves the request, which is
	// the only one available after a majority of the voters is lost.
	Stale bool `json:"stale,omitempty"`
}

// Chunk is the next part of a file.
type Chunk struct {
	Data []byte `json:"data"`
}

// UploadRequest uploads a snapshot in parts, in order. The last part restores
// it.
type UploadRequest struct {
	Upload []byte `json:"upload"` // 16 random bytes chosen by the sender
	Offset int64  `json:"offset"`
	Data   []byte `json:"data"` // at most 4 MiB
	Last   bool   `json:"last,omitempty"`
}

// RestoreResult is the outcome of a restore, sent after the last part.
type RestoreResult struct {
	Index     uint64  `json:"index"`
	Resources int     `json:"resources"`
	Deleted   int     `json:"deleted"` // resources missing from the snapshot
	Reached   Reached `json:"reached"`
}

// RotateRequest replaces a secret of the cluster.
type RotateRequest struct {
	What string `json:"what"` // "ca" or "gossip"
}

// ReadResult is the index that a linearizable read must wait for.
type ReadResult struct {
	Index uint64 `json:"index"`
}

// AwaitRequest waits until a node has applied an index.
type AwaitRequest struct {
	Index uint64 `json:"index"`
	// Listeners names the listeners whose socket errors AwaitResult reports.
	Listeners []string `json:"listeners,omitempty"`
}

// AwaitResult confirms that the node has applied the index.
type AwaitResult struct {
	Index    uint64  `json:"index"`
	Warnings []Fault `json:"warnings,omitempty"`
}

// TransferRequest transfers leadership.
type TransferRequest struct {
	To string `json:"to,omitempty"` // name or ID; "": the best candidate
}

// Report is a node's part of Status and Members.
type Report struct {
	Node      NodeStatus       `json:"node"`
	Listeners []ListenerStatus `json:"listeners"`
	Services  []ServiceStatus  `json:"services"`

	VirtualClusters []VirtualClusterStatus `json:"virtualClusters,omitempty"`

	Warnings []string `json:"warnings,omitempty"` // this node's part of Status.Warnings

	Providers []ProviderStatus `json:"providers,omitempty"` // that this node runs

	Proxies *ProxiesStatus `json:"proxies,omitempty"` // nil: none is connected
}
