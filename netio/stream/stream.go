// Package stream is the contract between whoever moves bytes and whoever
// decides about them. It speaks of completed work ("these bytes arrived",
// "everything pending is gone") and never of readiness, so that the epoll
// engine of package reactor, the TLS layer of package tlsstream and any later
// engine stand behind the same two interfaces.
//
// A Stream is one socket, or one layer on top of one. Its Owner is told what
// happened to it. Both live on one loop and are touched by that loop alone.
//
// The rules every implementation keeps:
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
	// ErrReset says that the peer aborted the connection, or that a layer
	// above TCP found it cut off (a TLS stream without close_notify).
	ErrReset = errors.New("connection reset by peer")
	// ErrProtocol says that the peer broke the protocol of the layer.
	ErrProtocol = errors.New("protocol violation")
)

// A Stream is one direction pair of bytes to a peer.
type Stream interface {
	// Send takes all of p: what the kernel does not take at once is copied
	// and kept. It returns the number of bytes that are kept, so a caller
	// that sees more than 0 should stop producing until Owner.Sent.
	// After CloseWrite it must not be called.
	Send(p []byte) (pending int)

	// SetReading turns Received and Ended on or off. A stream starts with
	// reading off. While off, nothing is read from the kernel; the peer is
	// held back by TCP's own window.
	SetReading(on bool)

	// PipeTo allows (it does not oblige) the stream to move bytes that
	// arrive straight to dst without showing them: Owner.Moved then takes
	// the place of Received. The stream goes back to Received whenever that
	// is cheaper. It returns false where this stream or dst cannot.
	PipeTo(dst Stream) bool

	// CloseWrite sends the end of the stream (FIN, or close_notify and FIN)
	// once everything pending is sent.
	CloseWrite()

	// Close ends both directions after what is pending has been sent, for
	// as long as the peer takes part; the stream guards that with a
	// deadline of its own. The owner hears nothing more.
	Close()

	// Abort ends both directions at once with a reset. The owner hears
	// nothing more.
	Abort()
}

// An Owner is told of completed work on one stream.
type Owner interface {
	// Connected follows a successful dial or handshake; nothing else comes
	// before it.
	Connected()
	// Received brings bytes in order. p belongs to the loop and is valid
	// during the call only.
	Received(p []byte)
	// Moved tells that n bytes went on to the stream given to PipeTo.
	Moved(n int)
	// Sent tells that nothing is pending any more, after a Send that
	// returned more than 0.
	Sent()
	// Ended tells that the peer sent its end of stream. Sending may go on.
	Ended()
	// Failed tells that the stream is dead: a dial or handshake that did
	// not succeed, a reset, an error.
	Failed(err error)
}
