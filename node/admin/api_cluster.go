package admin

import "time"

// The methods of clusters. Where a method concerns another node than the one
// asked, or only the leader can do it, the node asked passes it on.
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
	MethodRotate   = "rotate"         // RotateRequest -> Empty: a new CA or gossip key
)

// The methods between nodes.
const (
	MethodJoin     = "join"     // cluster.JoinRequest: of a node that has no certificate yet
	MethodForm     = "form"     // cluster.FormRequest: between nodes of --expect before there is a cluster
	MethodCharter  = "charter"  // cluster.CharterRequest: which nodes begin that cluster, with its secrets
	MethodAnnounce = "announce" // cluster.Announcement: where a node is, whenever that changed
	MethodRead     = "read"     // Empty -> ReadResult: the index that a current read must see; of the leader
	MethodAwait    = "await"    // AwaitRequest -> AwaitResult: when this node acts on an index
	MethodReport   = "report"   // Empty -> Report: what this node says of itself in status and members
	MethodRenew    = "renew"    // cluster.RenewRequest: the next certificate of a node
	MethodTransfer = "transfer" // TransferRequest -> Empty: hand the lead to another node
)

// Role is what a caller may do. Each role may do what the lower ones may.
type Role string

// The roles, from the least. RoleJoin is beside them: it may only join.
const (
	RoleNone     Role = ""
	RoleJoin     Role = "join"
	RoleReader   Role = "reader"   // get, explain, simulate, status, members, top, watch, history
	RoleOperator Role = "operator" // drain, transfer, rollouts
	RoleAdmin    Role = "admin"    // everything users do
	RoleNode     Role = "node"     // another node of the cluster, shown by its certificate
)

// Principal is who asks.
type Principal struct {
	Name    string `json:"name"` // of the token, the node, or "local" at the node's own socket
	Role    Role   `json:"role"`
	Node    string `json:"node,omitempty"`    // the ID, of a node
	TokenID string `json:"tokenID,omitempty"` // of a token; not its secret
	// Via is the ID of the node that passed the request on for Name.
	Via string `json:"via,omitempty"`
	// From is the address of Name, where a node passed its request on.
	From string `json:"from,omitempty"`
}

// AuthRequest shows a token.
type AuthRequest struct {
	Token string `json:"token"`
}

// WaitAll waits for all nodes that are up; the zero Wait is that too.
const WaitAll = 0

// Wait says how many nodes must act on a change before its answer comes.
type Wait struct {
	Nodes int           `json:"nodes,omitempty"` // WaitAll, -1: for none but the one asked
	For   time.Duration `json:"for,omitempty"`   // 0: 10s
}

// Reached tells which nodes act on a change. Late ones will, when they can.
type Reached struct {
	Nodes int    `json:"nodes"`
	Late  []Late `json:"late,omitempty"`
}

// Late is a node that does not act on a change yet.
type Late struct {
	Node string `json:"node"`
	Why  string `json:"why"`
}

// WatchRequest asks for the resources of a kind, or one of them, and each
// change from then on.
type WatchRequest struct {
	Kind string `json:"kind"`
	Name string `json:"name,omitempty"`
}

// WatchItem is what changed at once. The first has all that there is.
type WatchItem struct {
	Index   uint64     `json:"index"`
	Put     []Document `json:"put,omitempty"`
	Deleted []Document `json:"deleted,omitempty"` // without Data
}

// HistoryRequest asks for what became of one resource.
type HistoryRequest struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Stale bool   `json:"stale,omitempty"` // GetRequest.Stale's
}

// HistoryResult lists revisions, the newest first.
type HistoryResult struct {
	Kind      string     `json:"kind"`
	Name      string     `json:"name"`
	Revisions []Revision `json:"revisions"`
}

// Revision is a resource after one change, secrets hidden.
type Revision struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	Who     string    `json:"who"`
	What    string    `json:"what"`
	Deleted bool      `json:"deleted,omitempty"`
	YAML    string    `json:"yaml,omitempty"`
}

// RollbackRequest gives a resource the content that it had at a version.
type RollbackRequest struct {
	ID      []byte `json:"id,omitempty"`
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Version uint64 `json:"version"` // 0: the one before the last change
	Wait    Wait   `json:"wait"`
}

// LeaveRequest asks a node to drain, leave the cluster and end.
type LeaveRequest struct {
	Node string         `json:"node,omitempty"`
	Over *time.Duration `json:"over,omitempty"`
}

// LeaveResult says what the leaving begins with.
type LeaveResult struct {
	Node        string `json:"node"`
	Connections int64  `json:"connections"`
	// ID names the attempt in LeavingRequest; "": of a node of an older build.
	ID string `json:"id,omitempty"`
}

// LeavingRequest asks a node what came of an attempt to leave.
type LeavingRequest struct {
	Node string `json:"node,omitempty"` // name or ID; "": the one asked
	ID   string `json:"id"`             // LeaveResult.ID
}

// How far an attempt to leave is. After LeaveFailed the node serves again, and
// Leaving.Why says why it did not leave.
const (
	LeaveDraining = "draining"
	LeaveLeaving  = "leaving" // drained; the others agree to go on without it
	LeaveLeft     = "left"    // the process is about to end
	LeaveFailed   = "failed"
	LeaveUnknown  = "unknown" // no such attempt: the node was started anew since
)

// Leaving is how far an attempt to leave is.
type Leaving struct {
	State       string `json:"state"`
	Connections int64  `json:"connections"`
	Why         *Error `json:"why,omitempty"`
}

// RemoveRequest takes a node that will not come back out of the cluster.
type RemoveRequest struct {
	Node string `json:"node"` // name or ID
	// Force removes it although it is up, or although the voters that remain
	// may be too few to decide.
	Force bool `json:"force,omitempty"`
}

// TokenCreateRequest asks for a token.
type TokenCreateRequest struct {
	Name string        `json:"name"`
	Role Role          `json:"role"`
	TTL  time.Duration `json:"ttl"`
}

// TokenCreated is the one time that the secret is told.
type TokenCreated struct {
	ID    string `json:"id"`
	Token string `json:"token"`
}

// Tokens lists tokens, without their secrets.
type Tokens []Token

// Token is what is known of a token.
type Token struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Role    Role      `json:"role"`
	Created time.Time `json:"created"`
	By      string    `json:"by"`
	Expires time.Time `json:"expires"`
	State   string    `json:"state"` // valid, expired, revoked
}

// TokenRevokeRequest ends a token, by ID or name.
type TokenRevokeRequest struct {
	Token string `json:"token"`
}

// SaveRequest asks for a snapshot of all resources.
type SaveRequest struct {
	// Stale takes what the node asked has: all that there is to be had where
	// a majority of the voters is lost.
	Stale bool `json:"stale,omitempty"`
}

// Chunk is a part of a file, in order.
type Chunk struct {
	Data []byte `json:"data"`
}

// UploadRequest sends a snapshot in parts, in order; the last one acts.
type UploadRequest struct {
	Upload []byte `json:"upload"` // 16 random bytes that the sender chose
	Offset int64  `json:"offset"`
	Data   []byte `json:"data"` // at most 4 MiB
	Last   bool   `json:"last,omitempty"`
}

// RestoreResult says what the restore led to, after the last part.
type RestoreResult struct {
	Index     uint64  `json:"index"`
	Resources int     `json:"resources"`
	Deleted   int     `json:"deleted"` // resources that the snapshot does not have
	Reached   Reached `json:"reached"`
}

// RotateRequest replaces a secret of the cluster.
type RotateRequest struct {
	What string `json:"what"` // "ca" or "gossip"
}

// ReadResult is where a current read stands.
type ReadResult struct {
	Index uint64 `json:"index"`
}

// AwaitRequest waits for a node to act on an index.
type AwaitRequest struct {
	Index uint64 `json:"index"`
	// Listeners are those whose sockets the caller wants to hear about.
	Listeners []string `json:"listeners,omitempty"`
}

// AwaitResult says that the node acts on it.
type AwaitResult struct {
	Index    uint64  `json:"index"`
	Warnings []Fault `json:"warnings,omitempty"`
}

// TransferRequest hands the lead over.
type TransferRequest struct {
	To string `json:"to,omitempty"` // name or ID; "": whoever is best
}

// Report is what a node says of itself.
type Report struct {
	Node      NodeStatus       `json:"node"`
	Listeners []ListenerStatus `json:"listeners"`
	Services  []ServiceStatus  `json:"services"`

	VirtualClusters []VirtualClusterStatus `json:"virtualClusters,omitempty"`

	Warnings []string `json:"warnings,omitempty"` // Status.Warnings, of this node
}
