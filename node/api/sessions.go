package api

import (
	"fmt"
	"strings"
	"time"
)

// The methods for sessions of MySQL clients.
const (
	// MethodSessions lists the sessions of all nodes: SessionsRequest -> Sessions.
	MethodSessions = "sessions"
	// MethodSessionsMove orders sessions to move, for operators: MoveSessionsRequest ->
	// MovedSessions.
	MethodSessionsMove = "sessions.move"
	// The other ones are between nodes, about the sessions of the node that answers:
	// SessionsRequest -> Sessions, MoveSessionsRequest -> SessionsOrder, and SessionsOrder
	// -> MovedSessions.
	MethodSessionsHere    = "sessions.here"
	MethodSessionsOrder   = "sessions.order"
	MethodSessionsOutcome = "sessions.outcome"
)

// SessionFilter selects sessions; a field with its zero value selects all.
type SessionFilter struct {
	Node     string `json:"node,omitempty"` // name or ID
	Service  string `json:"service,omitempty"`
	Listener string `json:"listener,omitempty"`
	User     string `json:"user,omitempty"`     // as which the client logged in
	Endpoint string `json:"endpoint,omitempty"` // the server's address: as configured, or resolved
	ID       uint64 `json:"id,omitempty"`       // of the connection, on its node
}

// MaxSessions bounds SessionsRequest.Limit.
const MaxSessions = 10_000

// SessionsRequest asks for sessions.
type SessionsRequest struct {
	SessionFilter
	// Stuck selects those that are to move and have not.
	Stuck bool `json:"stuck,omitempty"`
	// Limit is how many are listed at most, 1 to MaxSessions.
	Limit int `json:"limit"`
}

// Sessions lists sessions: those that are to move first, the longest wanted before the
// others.
type Sessions struct {
	Sessions []Session `json:"sessions"`
	// Total counts all that were selected, on the nodes that answered.
	Total int `json:"total"`
	// Missing are the nodes that did not answer, and why.
	Missing []string `json:"missing,omitempty"`
}

// Session is one session of a MySQL client.
type Session struct {
	Node     string `json:"node"`
	ID       uint64 `json:"id"`
	Client   string `json:"client,omitempty"` // IP address and port
	User     string `json:"user"`
	Listener string `json:"listener"`
	Service  string `json:"service"`
	Endpoint string `json:"endpoint"`
	// Age is the time since the connection was accepted, in nanoseconds.
	Age time.Duration `json:"age"`
	// State is idle, busy, transaction, cursor (or long data), replication, held or moving.
	State string `json:"state"`
	// Cause is why it is to move: left, unhealthy, drained, ordered or balance; "": it is
	// not. Since is when that began, and Why why it has not moved yet.
	Cause string     `json:"cause,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Why   string     `json:"why,omitempty"`
	Moves int        `json:"moves"` // so far
	// Failure is why the last move failed, at FailedAt; "": it succeeded, or there was none.
	Failure  string     `json:"failure,omitempty"`
	FailedAt *time.Time `json:"failedAt,omitempty"`
}

// MoveSessionsRequest orders sessions to move. At least one of Service, Listener, User,
// Endpoint, ID, Node and Count must be set, or All.
type MoveSessionsRequest struct {
	SessionFilter
	// To is the address of the server to which they move; "": balancing chooses another
	// than the present one.
	To string `json:"to,omitempty"`
	// Count bounds how many are asked; 0: all.
	Count int  `json:"count,omitempty"`
	All   bool `json:"all,omitempty"`
	// Wait is how long to wait for them to move, in nanoseconds.
	Wait time.Duration `json:"wait,omitempty"`
}

// Summary implements rpc's summarizer, for the audit log.
func (r *MoveSessionsRequest) Summary() string {
	parts := selection(r.ID, [][2]string{
		{"node", r.Node}, {"service", r.Service}, {"listener", r.Listener}, {"user", r.User}, {"from", r.Endpoint}, {"to", r.To},
	})
	if r.Count != 0 {
		parts = append(parts, fmt.Sprintf("count %d", r.Count))
	}
	if len(parts) == 0 {
		return "all sessions"
	}
	return strings.Join(parts, ", ")
}

// selection describes what a filter selects, for the audit log: the values that are set,
// cut, and the ID.
func selection(id uint64, values [][2]string) (parts []string) {
	for _, v := range values {
		if v[1] != "" {
			parts = append(parts, fmt.Sprintf("%s %.128q", v[0], v[1]))
		}
	}
	if id != 0 {
		parts = append(parts, fmt.Sprintf("id %d", id))
	}
	return parts
}

// SessionsOrder is an order that a node has taken.
type SessionsOrder struct {
	ID    uint64        `json:"id"`
	Asked int           `json:"asked"`
	Wait  time.Duration `json:"wait,omitempty"` // with MethodSessionsOutcome
}

// MovedSessions says what has become of an order.
type MovedSessions struct {
	// Asked is the sum of the others: sessions that moved, that stayed where they are, that
	// have ended, and that will move when they can.
	Asked  int `json:"asked"`
	Moved  int `json:"moved"`
	Stayed int `json:"stayed"`
	Closed int `json:"closed"`
	Open   int `json:"open"`
	// Why counts the reasons of those that stayed, and of those that are still to move.
	Why []MoveReason `json:"why,omitempty"`
	// Missing are the nodes that did not answer, and why.
	Missing []string `json:"missing,omitempty"`
}

// MoveReason is why sessions have not moved.
type MoveReason struct {
	Reason string `json:"reason"`
	Count  int    `json:"count"`
}
