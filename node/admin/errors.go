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
	// Busy: too many requests at once; the same request may succeed later.
	Busy Code = "busy"
	// Deadline: the time that the caller gave is over.
	Deadline Code = "deadline"
	// Internal: a fault in the node.
	Internal Code = "internal"
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

// ErrUnreachable wraps every error of a client that could not talk to a node.
var ErrUnreachable = errors.New("cannot reach the node")

// asError gives what is sent for a handler's error.
func asError(err error) *Error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return Errorf(Deadline, "not done in the time given")
	default:
		return Errorf(Internal, "%v", err)
	}
}
