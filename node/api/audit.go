package api

import "time"

// The methods of the audit log.
const (
	// MethodAudit streams the audit log of the cluster, for admins: AuditRequest ->
	// AuditItem...
	MethodAudit = "audit"
	// MethodAuditKept is what one node keeps to itself, for nodes: AuditKeptRequest
	// -> AuditKept.
	MethodAuditKept = "audit.kept"
	// MethodAuditRecord has the leader record what other nodes did, for nodes:
	// AuditActs -> Empty.
	MethodAuditRecord = "audit.record"
)

// The acts at the dashboard, which have no method.
const (
	ActLogin  = "ui.login"
	ActLogout = "ui.logout"
)

// The outcomes of an AuditEntry.
const (
	AuditDone    = "done"
	AuditRefused = "refused" // the act, with the reason in Error
	AuditUnknown = "unknown" // the act was sent, and its answer lost
	AuditDenied  = "denied"  // by a TrafficPermission, named in Rule
)

// AuditEntry is one line of the audit log: an administrative act, or traffic that
// a permission denied. It has no secret.
type AuditEntry struct {
	// At is when it happened, by the clock of Node: for a line with a Count above 1
	// the last time, and First the first.
	At    time.Time `json:"at"`
	First time.Time `json:"first,omitzero"`
	Count uint64    `json:"count"`
	Node  string    `json:"node"` // name of the node that did, refused or denied it
	// Who is the name of the token or the node, or the identity of the client that
	// was denied; "": unknown.
	Who   string `json:"who"`
	Role  string `json:"role,omitempty"`  // of an act
	Token string `json:"token,omitempty"` // ID of the token: names are not unique over time
	From  string `json:"from"`            // address; "" for the sources of a line that sums up several
	Via   string `json:"via,omitempty"`   // ID of the node that forwarded the act
	// Act is the admin method ("apply", "token.create"), or connect, request or
	// kafka for traffic.
	Act  string `json:"act"`
	What string `json:"what"` // on what: a summary of at most 512 bytes
	// Request is the method and the path, without its query, of the last HTTP request
	// that the line counts, in at most 256 bytes; "": it counts none.
	Request string `json:"request,omitempty"`
	Rule    string `json:"rule,omitempty"` // the permission that denies it, or that names the destination
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
}

// AuditRequest selects entries.
type AuditRequest struct {
	Since  time.Time `json:"since,omitzero"` // entries of that time and later; zero: all
	Node   string    `json:"node,omitempty"` // only this node's, by name or ID; "": of all
	Follow bool      `json:"follow,omitempty"`
}

// AuditItem is a part of the answer: entries in order of time. Each part but the
// last of the existing entries has More; with AuditRequest.Follow others follow, in
// which a line may be repeated with a higher Count.
type AuditItem struct {
	Entries []AuditEntry `json:"entries"`
	More    bool         `json:"more,omitempty"`
	// Missing says which nodes did not answer and why, by name: what they refused and
	// denied is not included.
	Missing []string `json:"missing,omitempty"`
}

// AuditKeptRequest asks for the lines that have changed after a position.
type AuditKeptRequest struct {
	After uint64 `json:"after"` // AuditKept.Position of the answer before; 0: all
}

// AuditKept is what a node has refused and denied.
type AuditKept struct {
	Entries  []AuditEntry `json:"entries"`
	Position uint64       `json:"position"`
}

// AuditActs are acts of a node that changed nothing in the store, such as a drain.
type AuditActs struct {
	ID      []byte       `json:"id"` // 16 random bytes: repeated under it, they are recorded once
	Entries []AuditEntry `json:"entries"`
}
