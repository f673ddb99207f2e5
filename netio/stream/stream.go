// Package stream is the contract between code that moves bytes and code that
// decides about them. It reports completed work ("these bytes arrived", "all
// pending bytes are sent"), never readiness. So the epoll loop of package
// reactor, the TLS layer of package tlsstream and any later engine implement
// the same two interfaces.
//
// A Stream is one socket, or one layer on top of one. It reports to its Owner.
// Both live on one loop, and only that loop touches them.
//
// Every implementation keeps these rules:
//
//   - No method of a Stream calls its Owner before it returns. What a call
//     brings about is told later, from the loop.
//   - After Failed, or after the owner called Close or Abort, the owner hears
//     nothing more from that stream.
//   - Ended comes at most once, after the last Received or Moved.
//   - A reset is Failed, never Ended: a cut-off stream must not look complete.
package stream

import "errors"

// Errors that Owner.Failed brings, possibly wrapped; anything else is the
// system's own error (ECONNREFUSED, ETIMEDOUT, ...).
var (
	// ErrReset means that the peer aborted the connection, or that a layer
	// above TCP found it truncated (a TLS stream without close_notify).
	ErrReset = errors.New("connection reset by peer")
	// ErrProtocol means that the peer violated the protocol of the layer.
	ErrProtocol = errors.New("protocol violation")
	// ErrPanic means that a callback of the owner panicked.
	ErrPanic = errors.New("panic in a callback")
)

// A Stream is one direction pair of bytes to a peer.
type Stream interface {
	// Send takes all of p: it copies and keeps what the kernel does not take
	// at once. It returns the number of bytes that it keeps; if that is more
	// than 0, the caller should stop producing until Owner.Sent. Send must not
	// be called after CloseWrite.
	Send(p []byte) (pending int)

	// SetReading turns Received and Ended on or off. A stream starts with
	// reading off. While it is off, nothing is read from the kernel, and TCP's
	// window holds the peer back.
	SetReading(on bool)

	// PipeTo allows, but does not oblige, the stream to move arriving bytes
	// straight to dst: Owner.Moved then replaces Received. The stream returns
	// to Received whenever that is cheaper. PipeTo returns false if this
	// stream or dst cannot do it.
	PipeTo(dst Stream) bool

	// CloseWrite sends the end of the stream (FIN, or close_notify and FIN)
	// once everything pending is sent.
	CloseWrite()

	// Close ends both directions after pending bytes are sent. The stream has
	// a deadline of its own for a peer that does not take them. The owner gets
	// no more events.
	Close()

	// Abort ends both directions at once with a reset. The owner gets no more
	// events.
	Abort()
}

// An Owner receives the events of one stream.
type Owner interface {
	// Connected reports a successful dial or handshake. It is the first event.
	Connected()
	// Received brings bytes in order. p belongs to the loop and is valid
	// during the call only.
	Received(p []byte)
	// Moved reports that n bytes went on to the stream given to PipeTo.
	Moved(n int)
	// Sent reports that nothing is pending any more, after a Send that
	// returned more than 0.
	Sent()
	// Ended reports that the peer sent its end of stream. Sending may
	// continue.
	Ended()
	// Failed reports that the stream is dead: a dial or handshake failed, or
	// there was a reset or another error.
	Failed(err error)
}
