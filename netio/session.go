package netio

import (
	"penstock/netio/relay"
	"penstock/netio/stream"
)

// A Session is a Plan that takes the relay's place: it sees what both sides
// say, and decides what is said to the other. It belongs to one connection and
// is called on its loop alone, after Plan.Connected.
//
// It is told the events of both streams as a relay.Relay is, by the same
// rules: p is valid during the call only, Sent follows a Send that left bytes
// pending, and nothing comes from a side that failed. Bytes that came before
// there was an endpoint are told by Received, like all others.
//
// A session ends its connection by Conn.End; after that, and after Failed, it
// is told nothing more but Handler.Closed.
type Session interface {
	Plan
	// Start hands over the streams. Neither is read yet: SetReading is the
	// session's to call. first, a PROXY header or nothing, has been sent.
	Start(c *Conn, client, upstream stream.Stream)
	// Received brings bytes of a side.
	Received(from relay.Side, p []byte)
	// Moved tells that n bytes of a side went to the other by themselves, as
	// the session has allowed by PipeTo and MayMove.
	Moved(from relay.Side, n int)
	// Sent tells that a side has taken all that was pending for it.
	Sent(to relay.Side)
	// Ended tells that a side has sent its end of stream.
	Ended(from relay.Side)
	// Failed tells that a side is dead. The connection ends after it with
	// ClientReset or UpstreamReset; the other side is aborted by netio.
	Failed(from relay.Side, err error)
	// Quiet tells that a clean end would cost neither side anything now:
	// nothing is under way. Drains and maximum ages wait for such a moment.
	Quiet() bool
}
