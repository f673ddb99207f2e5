package endpoint

import "time"

// Change is the kind of an Event.
type Change uint8

// The changes that observers receive.
const (
	// EventEjected: it failed in use and gets no new connections until
	// Event.Until.
	EventEjected Change = iota
	// EventReturned: its ejection ended.
	EventReturned
	// EventHealthy and EventUnhealthy: the result of active checks changed.
	EventHealthy
	EventUnhealthy
	// EventPaused: it failed to connect, and is skipped while another endpoint is
	// ready. EventResumed: it took a connection again.
	EventPaused
	EventResumed
)

func (c Change) String() string {
	return [...]string{"ejected", "returned", "healthy", "unhealthy", "paused", "resumed"}[c]
}

// Event is one change of one endpoint, for logs and metrics.
type Event struct {
	Service  string
	Endpoint *Endpoint
	Change   Change
	At       time.Time
	// Until is the end of an ejection or pause. Times is the length of an ejection
	// in multiples of Ejection.Duration.
	Until time.Time
	Times int
	// Cause is the kind of the last failure for EventEjected, the error for
	// EventPaused, and the last error of the check, or "", for EventHealthy and
	// EventUnhealthy.
	Cause string
}

// Failure is the kind of a failure in use.
type Failure uint8

// The failures that count towards an ejection.
const (
	// ConnectFailed: the connect, or the TLS handshake with the endpoint, failed
	// before its timeout.
	ConnectFailed Failure = iota
	// EarlyReset: it took the connection and reset it before its first byte.
	EarlyReset
	// ConnectTimedOut: the connect, including TLS, timed out.
	ConnectTimedOut
	// NoAnswer: it took a request and did not respond.
	NoAnswer
)

func (f Failure) String() string {
	return [...]string{"connect failed", "early reset", "connect timed out", "no answer"}[f]
}

// connect reports whether the connect itself failed: such failures pause.
func (f Failure) connect() bool { return f == ConnectFailed || f == ConnectTimedOut }
