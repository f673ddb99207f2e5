package rpc

import (
	"context"
	"errors"

	"penstock/node/api"
)

// Errors of clients.
var (
	// ErrUnreachable wraps every error of a client that could not communicate with
	// a node.
	ErrUnreachable = errors.New("cannot reach the node")
	// ErrLost is added to ErrUnreachable after the request was sent, when it may
	// have had an effect.
	ErrLost = errors.New("connection lost before the response")
	// ErrForeign is added to ErrUnreachable if the node is not of the cluster that
	// the caller trusts.
	ErrForeign = errors.New("not trusted")
	// ErrWantsTLS is added to ErrUnreachable if the node requires TLS and the
	// caller used none.
	ErrWantsTLS = errors.New("the node requires TLS")
	// ErrWantsPlain is added to ErrUnreachable if the caller used TLS and the node
	// has none.
	ErrWantsPlain = errors.New("the node does not use TLS")
)

// asError converts a handler's error into the error to send.
func asError(err error) *api.Error {
	var e *api.Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.DeadlineExceeded):
		return api.Errorf(api.Deadline, "not completed in time")
	case errors.Is(err, ErrUnreachable):
		return api.Errorf(api.Unavailable, "%v", err)
	default:
		return api.Errorf(api.Internal, "%v", err)
	}
}
