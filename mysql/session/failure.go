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
	// FailureRefused: the new server refused the login, or the states.
	FailureRefused Failure = "refused"
	// FailurePassword: ErrNoPassword.
	FailurePassword Failure = "no_password"
	// FailureHeld: the session has what the new server cannot have.
	FailureHeld Failure = "held"
	// FailureTarget: everything else, such as a new server that cannot be reached.
	FailureTarget Failure = "server"
)

// Failures lists them.
var Failures = []Failure{FailureStates, FailureTimeout, FailureRefused, FailurePassword, FailureHeld, FailureTarget}

// errMoveRefused is in the chain of errors with which the new server refuses a session.
var errMoveRefused = errors.New("the new server refused the session")

// refusal is such an error with a text of its own.
type refusal string

// Error implements error.
func (r refusal) Error() string { return string(r) }

// Is implements errors.Is.
func (r refusal) Is(target error) bool { return target == errMoveRefused }

// FailureOf classifies the error of Host.Moved.
func FailureOf(err error) Failure {
	switch {
	case errors.Is(err, errNoStates):
		return FailureStates
	case errors.Is(err, errMoveTimeout):
		return FailureTimeout
	case errors.Is(err, errMoveRefused):
		return FailureRefused
	case errors.Is(err, ErrNoPassword):
		return FailurePassword
	case errors.Is(err, ErrHolds), errors.Is(err, ErrInTransaction):
		return FailureHeld
	}
	return FailureTarget
}
