package session

import "errors"

// Failure is why a move failed, for counting.
type Failure string

// The failures.
const (
	// FailureStates: the present server has no session states, or does not give those of
	// this session.
	FailureStates Failure = "no_states"
	// FailureTimeout: the move took longer than Settings.MoveTimeout.
	FailureTimeout Failure = "timeout"
	// FailureRefused: the new server refused the login with the token, or the states.
	FailureRefused Failure = "refused"
	// FailureTarget: everything else, such as a new server that cannot be reached.
	FailureTarget Failure = "server"
)

// Failures lists them.
var Failures = []Failure{FailureStates, FailureTimeout, FailureRefused, FailureTarget}

// errMoveRefused is in the chain of errors with which the new server refuses a session.
var errMoveRefused = errors.New("the new server refused the session")

// FailureOf classifies the error of Host.Moved.
func FailureOf(err error) Failure {
	switch {
	case errors.Is(err, errNoStates):
		return FailureStates
	case errors.Is(err, errMoveTimeout):
		return FailureTimeout
	case errors.Is(err, errMoveRefused):
		return FailureRefused
	}
	return FailureTarget
}
