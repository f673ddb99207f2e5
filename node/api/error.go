package api

import "fmt"

// Code classifies an Error.
type Code string

// The codes of errors.
const (
	// Invalid: the request is wrong. Faults has every fault.
	Invalid Code = "invalid"
	// NotFound: the requested object does not exist.
	NotFound Code = "not_found"
	// Refused: the request is valid but not allowed now, such as deleting a
	// resource in use.
	Refused Code = "refused"
	// TooLarge: a limit of the protocol or the store is exceeded.
	TooLarge Code = "too_large"
	// Unknown: the node does not have the method, because its build is older.
	Unknown Code = "unknown_method"
	// Busy: this node, or one that it needs, is overloaded. The same request may
	// succeed later.
	Busy Code = "busy"
	// Deadline: the caller's deadline has passed.
	Deadline Code = "deadline"
	// Internal: a bug in the node.
	Internal Code = "internal"
	// Forbidden: the caller's role is too low.
	Forbidden Code = "forbidden"
	// Unauthenticated: the request has no token, or one that the node rejects.
	Unauthenticated Code = "unauthenticated"
	// NotLeader: the request was forwarded to a node that is not, or no longer,
	// the leader. It had no effect; the forwarding node may try the next leader.
	NotLeader Code = "not_leader"
	// NoLeader: no leader is reachable, so the cluster cannot decide. The request
	// had no effect.
	NoLeader Code = "no_leader"
	// UnknownOutcome: the change may or may not have been made. It is safe to send
	// the same request again under the same ID.
	UnknownOutcome Code = "unknown_outcome"
	// Unavailable: a required node is unreachable or not ready. The request had no
	// effect; the same request may succeed later.
	Unavailable Code = "unavailable"
)

// Error is an error response of a node. Message and each of Details are one
// line of text for people.
type Error struct {
	Code    Code     `json:"code"`
	Message string   `json:"message"`
	Details []string `json:"details,omitempty"`
	Faults  []Fault  `json:"faults,omitempty"` // the errors in resources
}

func (e *Error) Error() string { return e.Message }

// Errorf returns an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
