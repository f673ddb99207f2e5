package endpoint

import "time"

// Change is what happened to an endpoint.
type Change uint8

// The changes that observers are told of.
const (
	// EventEjected: it failed in use, and gets no new connections until Event.Until.
	EventEjected Change = iota
	// EventReturned: its ejection ended.
	EventReturned
	// EventHealthy and EventUnhealthy: active checks changed their verdict.
	EventHealthy
	EventUnhealthy
	// EventPaused: it failed to connect, and is passed over while another
	// endpoint is ready. EventResumed: it took a connection again.
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
	// Until and Times are for EventEjected: the end of the ejection, and how
	// many times its first duration it lasts. Until is for EventPaused too.
	Until time.Time
	Times int
	// Cause is for EventEjected the kind of the last failure, for EventPaused
	// its error, for EventHealthy and EventUnhealthy the check's last error or "".
	Cause string
}

// Failure is how an endpoint failed in use.
type Failure uint8

// The failures that count towards an ejection.
const (
	// ConnectFailed: no connection, or no TLS with the endpoint, found out
	// before the time for it was over.
	ConnectFailed Failure = iota
	// EarlyReset: it took the connection and reset it before its first byte.
	EarlyReset
	// ConnectTimedOut: the time to connect, TLS included, was over.
	ConnectTimedOut
	// NoAnswer: it took a request and gave no answer.
	NoAnswer
)

func (f Failure) String() string {
	return [...]string{"connect failed", "early reset", "connect timed out", "no answer"}[f]
}

// connect tells whether there was no connection: such failures pause.
func (f Failure) connect() bool { return f == ConnectFailed || f == ConnectTimedOut }
