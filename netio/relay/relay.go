// Package relay moves bytes between the two sides of a proxied connection:
// events of two streams go in, calls on them come out. It has no I/O, no clock
// and no buffer of its own, so scenario files (testdata) and random events
// (random_test.go) can test all of it.
//
// The rules, for each direction independently:
//
//   - What comes from one side is sent to the other, in order. While the
//     destination still keeps bytes that the kernel did not take, the source
//     is not read: a slow reader costs what one read brought, and its peer is
//     held back by TCP's own window.
//   - An end of stream is passed on behind the last byte; the other direction
//     goes on. When both have ended, both streams are closed.
//   - A failure of either side aborts both: a reset stays a reset and never
//     becomes a clean end.
//
// Embed a Relay by value. Its methods are the events of its streams; the owner
// of the streams passes them on:
//
//	func (c *Conn) Received(p []byte) { c.relay.Received(relay.Client, p) }
package relay

import "penstock/netio/stream"

// Side is one of the two streams.
type Side uint8

// The sides of a relay.
const (
	Client Side = iota
	Upstream
)

// Other returns the opposite side.
func (s Side) Other() Side { return 1 - s }

func (s Side) String() string {
	if s == Client {
		return "client"
	}
	return "upstream"
}

// Outcome says how a relay ended.
type Outcome uint8

// The outcomes.
const (
	// Open means that the relay has not ended.
	Open Outcome = iota
	// ClientFIN and UpstreamFIN: both sides ended in order, this one first.
	ClientFIN
	UpstreamFIN
	// ClientReset and UpstreamReset: that side failed.
	ClientReset
	UpstreamReset
)

var outcomes = [...]string{"", "client_fin", "upstream_fin", "client_reset", "upstream_reset"}

func (o Outcome) String() string { return outcomes[o] }

// Relay joins two streams. The zero value waits for Start.
//
// The flags of both sides are together, which keeps it small: there is one for each
// open connection.
type Relay struct {
	ends [2]end
	// full is true from a Send to a side that left bytes pending until Sent. The other
	// side is not read meanwhile.
	full [2]bool
	// ended is true once a side sent its end of stream.
	ended [2]bool
}

type end struct {
	stream stream.Stream
	// bytes came from this side and went to the other, which may still keep some.
	bytes uint64
}

// Start joins two connected streams, neither of which is read yet. first is
// sent to the upstream before anything else; its last fromClient bytes were
// read from the client before there was an upstream.
func (r *Relay) Start(client, upstream stream.Stream, first []byte, fromClient int) {
	*r = Relay{ends: [2]end{{stream: client, bytes: uint64(fromClient)}, {stream: upstream}}}
	client.PipeTo(upstream)
	upstream.PipeTo(client)
	if len(first) > 0 {
		r.full[Upstream] = upstream.Send(first) > 0
	}
	if !r.full[Upstream] {
		client.SetReading(true)
	}
	upstream.SetReading(true)
}

// Received passes on bytes that came from a side.
func (r *Relay) Received(from Side, p []byte) {
	src, to := &r.ends[from], from.Other()
	src.bytes += uint64(len(p))
	if r.ends[to].stream.Send(p) > 0 && !r.full[to] {
		r.full[to] = true
		src.stream.SetReading(false)
	}
}

// Moved counts bytes that a stream or its owner passed on without Received.
func (r *Relay) Moved(from Side, n int) { r.ends[from].bytes += uint64(n) }

// Sent resumes reading the other side of one that has taken all pending bytes.
// That side was not read meanwhile, so it cannot have ended.
func (r *Relay) Sent(to Side) {
	if r.full[to] {
		r.full[to] = false
		r.ends[to.Other()].stream.SetReading(true)
	}
}

// Ended passes an end of stream on. The second one ends the relay: it closes
// both streams, which sends pending bytes and the last FIN.
func (r *Relay) Ended(from Side) Outcome {
	r.ended[from] = true
	if to := from.Other(); !r.ended[to] {
		r.ends[to].stream.CloseWrite()
		return Open
	}
	r.ends[Client].stream.Close()
	r.ends[Upstream].stream.Close()
	return ClientFIN + Outcome(from.Other())
}

// Failed aborts both sides because one of them failed.
func (r *Relay) Failed(from Side) Outcome {
	r.Abort()
	return ClientReset + Outcome(from)
}

// Stop ends the relay from outside, for a timer or a drain. Both sides get a
// clean end if the caller asks for one and nothing is known to be under way.
// If bytes are pending, or one side has ended and waits for the rest of the
// other's answer, both get a reset: a clean end would make a cut-off stream
// look complete.
func (r *Relay) Stop(clean bool) {
	if !clean || !r.Idle() || r.HalfClosed() {
		r.Abort()
		return
	}
	r.ends[Client].stream.Close()
	r.ends[Upstream].stream.Close()
}

// Abort resets both sides.
func (r *Relay) Abort() {
	r.ends[Client].stream.Abort()
	r.ends[Upstream].stream.Abort()
}

// NoteEnded records that a side has sent its end of stream, for an owner that
// passes bytes on by itself (see netio.Session).
func (r *Relay) NoteEnded(from Side) { r.ended[from] = true }

// Renew records that a side's stream was replaced by another one: what the old one has
// left unsent or ended concerns nobody any more. Bytes continue to count.
func (r *Relay) Renew(side Side) { r.full[side], r.ended[side] = false, false }

// Idle reports whether neither side has bytes pending.
func (r *Relay) Idle() bool { return !r.full[Client] && !r.full[Upstream] }

// Owes reports whether bytes are pending for a side.
func (r *Relay) Owes(to Side) bool { return r.full[to] }

// HasEnded reports whether a side has sent its end of stream.
func (r *Relay) HasEnded(from Side) bool { return r.ended[from] }

// HalfClosed reports whether exactly one side has ended.
func (r *Relay) HalfClosed() bool { return r.ended[Client] != r.ended[Upstream] }

// Bytes returns the number of bytes received from a side.
func (r *Relay) Bytes(from Side) uint64 { return r.ends[from].bytes }
