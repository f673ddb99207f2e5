package admin

import (
	"context"
	"errors"
	"fmt"
)

// Code says what kind of refusal an Error is.
type Code string

// The codes.
const (
	// Invalid: what was sent is wrong; Faults has every fault.
	Invalid Code = "invalid"
	// NotFound: what was asked for does not exist.
	NotFound Code = "not_found"
	// Refused: understood, and not done, such as deleting what is in use.
	Refused Code = "refused"
	// TooLarge: over a bound of the protocol or the store.
	TooLarge Code = "too_large"
	// Unknown: the node does not know the method: it is older.
	Unknown Code = "unknown_method"
	// Busy: too much to do at once, here or at nodes that are needed; the same
	// request may succeed later.
	Busy Code = "busy"
	// Deadline: the time that the caller gave is over.
	Deadline Code = "deadline"
	// Internal: a fault in the node.
	Internal Code = "internal"
	// Forbidden: the caller's role is not enough.
	Forbidden Code = "forbidden"
	// Unauthenticated: the node does not know who asks: no token, or one that
	// it does not take.
	Unauthenticated Code = "unauthenticated"
	// NotLeader: the request was passed on to a node that does not lead (any
	// more). It did not act; whoever passed it on may try the next leader.
	NotLeader Code = "not_leader"
	// NoLeader: the cluster cannot decide now: no leader is in reach. Nothing
	// was done.
	NoLeader Code = "no_leader"
	// UnknownOutcome: the change may have been made or not. The same request
	// under the same ID is safe to send again.
	UnknownOutcome Code = "unknown_outcome"
	// Unavailable: a node that is needed cannot be reached, or is not ready.
	// Nothing was done; the same request may succeed later.
	Unavailable Code = "unavailable"
)

// Error is a node's refusal. Its text is for people and is one line; each of
// the details is one more.
type Error struct {
	Code    Code     `json:"code"`
	Message string   `json:"message"`
	Details []string `json:"details,omitempty"`
	Faults  []Fault  `json:"faults,omitempty"` // what is wrong with which resource
}

func (e *Error) Error() string { return e.Message }

// Errorf makes an Error.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Errors of clients.
var (
	// ErrUnreachable wraps every error of a client that could not talk to a node.
	ErrUnreachable = errors.New("cannot reach the node")
	// ErrLost is wrapped beside it where a request had been sent: it may have
	// acted.
	ErrLost = errors.New("connection lost before the answer")
	// ErrForeign is wrapped beside it where the node is not of the cluster
	// that the caller trusts.
	ErrForeign = errors.New("not trusted")
	// ErrWantsTLS is wrapped beside it where a plain caller met a node that
	// speaks TLS.
	ErrWantsTLS = errors.New("the node speaks TLS")
	// ErrWantsPlain is wrapped beside it where a caller with TLS met a node
	// that speaks none.
	ErrWantsPlain = errors.New("the node speaks no TLS")
)

// asError gives what is sent for a handler's error.
func asError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(Deadline, "not done in the time given")
	case errors.Is(err, ErrUnreachable):
		return Errorf(Unavailable, "%v", err)
	default:
		return Errorf(Internal, "%v", err)
	}
}
