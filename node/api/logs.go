package api

import "time"

// The methods of the log: what nodes wrote, and the lines about connections.
const (
	MethodLogs     = "logs"      // LogsRequest -> LogsItem...: of all nodes
	MethodLogsHere = "logs.here" // LogsHereRequest -> LogsHere: of this node alone, to nodes
)

// LogFilter selects lines; a field with its zero value selects all.
type LogFilter struct {
	Service    string `json:"service,omitempty"`
	Listener   string `json:"listener,omitempty"`
	Reason     string `json:"reason,omitempty"`     // for which a connection ended
	Level      string `json:"level,omitempty"`      // at least: debug, info, warn or error
	Connection uint64 `json:"connection,omitempty"` // its ID
	Text       string `json:"text,omitempty"`       // that the message or a value contains, in any case
	// Access selects only lines about connections and requests, Own only the others.
	Access bool `json:"access,omitempty"`
	Own    bool `json:"own,omitempty"`
}

// MaxLogs bounds LogsRequest.Limit.
const MaxLogs = 10_000

// LogsRequest asks for lines.
type LogsRequest struct {
	LogFilter
	Node   string    `json:"node,omitempty"` // name or ID; "": all
	Since  time.Time `json:"since,omitzero"`
	Limit  int       `json:"limit"` // the last ones, 1 to MaxLogs
	Follow bool      `json:"follow,omitempty"`
}

// LogsItem is a part of the answer, in order of time. Each part but the last of the
// existing lines has More; with LogsRequest.Follow others follow.
type LogsItem struct {
	Entries []LogEntry `json:"entries"`
	More    bool       `json:"more,omitempty"`
	// Missing says which nodes did not answer and why, by name.
	Missing []string `json:"missing,omitempty"`
	// Lost counts lines that nodes forgot before they were read.
	Lost uint64 `json:"lost,omitempty"`
}

// LogEntry is one line. It has no secret.
type LogEntry struct {
	At      time.Time `json:"at"` // by the clock of Node
	Node    string    `json:"node"`
	Level   string    `json:"level"` // debug, info, warn or error
	Message string    `json:"message"`
	Attrs   []LogAttr `json:"attrs,omitempty"` // in their order
}

// LogAttr is one value of a line. Peers may have chosen its text.
type LogAttr struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// LogsHereRequest asks a node for its lines after a position.
type LogsHereRequest struct {
	LogFilter
	Since time.Time `json:"since,omitzero"`
	After uint64    `json:"after"` // LogsHere.Position of the answer before; 0: all
	Limit int       `json:"limit"` // the last ones
}

// LogsHere is the answer of one node.
type LogsHere struct {
	Entries  []LogEntry `json:"entries"`
	Position uint64     `json:"position"`
	Lost     uint64     `json:"lost,omitempty"`
	// At is when the node answered, by its clock: later lines have later times.
	At time.Time `json:"at"`
}
