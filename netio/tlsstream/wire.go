package tlsstream

import (
	"crypto/tls"
	"net"
	"time"
)

// wire is the net.Conn that crypto/tls reads from and writes to. During the
// handshake it belongs to whoever runs the coroutine, afterwards to the loop.
type wire struct {
	s *Stream
	// view is what may be read. It holds whole records, except for input
	// that crypto/tls will refuse by its first bytes.
	view []byte
	// left is how much of the record at view is still to be read. Reads end
	// with a record, so that no byte of the next one is taken early.
	left int

	// During the handshake: yield waits for more, out is what was written.
	yield func(struct{}) bool
	out   []byte
	// alert is the record that came last, where that is one in the clear.
	alert   tls.AlertError
	alerted bool

	// After the handshake: gather collects writes in the loop's buffer
	// instead of sending each. pending is what the last send of the owner's
	// bytes returned, answers the same for what crypto/tls sent by itself.
	gather, sending  bool
	pending, answers int
}

// Read implements net.Conn.
func (w *wire) Read(p []byte) (int, error) {
	for len(w.view) == 0 {
		if w.yield == nil {
			return 0, errAgain
		}
		if !w.yield(struct{}{}) {
			return 0, net.ErrClosed
		}
	}
	if w.left == 0 {
		w.left = len(w.view)
		if w.yield != nil {
			w.alert, w.alerted = plainAlert(w.view)
		}
		if size := recordSize(w.view); size != 0 {
			w.left = size
		}
	}
	n := copy(p, w.view[:min(w.left, len(w.view))])
	w.view = w.view[n:]
	w.left -= n
	return n, nil
}

// Write implements net.Conn. It takes everything, because crypto/tls does not
// recover from a write that took a part.
func (w *wire) Write(p []byte) (int, error) {
	switch {
	case w.yield != nil:
		w.out = append(w.out, p...)
	case w.gather:
		w.s.local.out = append(w.s.local.out, p...)
	case w.sending:
		w.pending = w.s.under.Send(p)
	default:
		w.answers = w.s.under.Send(p)
	}
	return len(p), nil
}

// Close implements net.Conn; the stream decides when the under stream ends.
func (w *wire) Close() error { return nil }

// Deadlines are the caller's timers.

func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }

// The addresses are not known here. As a key of the client's session cache an
// empty one turns the cache off, which is right where no server name is set.

func (w *wire) LocalAddr() net.Addr  { return noAddr{} }
func (w *wire) RemoteAddr() net.Addr { return noAddr{} }

type noAddr struct{}

func (noAddr) Network() string { return "tls" }
func (noAddr) String() string  { return "" }

// errAgain is what a read returns when nothing is there yet. The record layer
// takes a temporary error as a pause rather than as the end.
var errAgain net.Error = again{}

type again struct{}

func (again) Error() string   { return "no input yet" }
func (again) Timeout() bool   { return true }
func (again) Temporary() bool { return true }

// Sizes of records, RFC 8446 section 5 and RFC 5246 section 6.2.
const (
	headerSize      = 5
	maxPlaintext    = 1 << 14
	maxCiphertext13 = maxPlaintext + 256
	maxCiphertext   = maxPlaintext + 2048
)

// recordSize is the size of the record that b begins with, 0 when that cannot
// be told yet or will never be: not a record at all, or one too long.
func recordSize(b []byte) int {
	if len(b) < headerSize || b[0] < 20 || b[0] > 23 {
		return 0
	}
	n := int(b[3])<<8 | int(b[4])
	if n > maxCiphertext {
		return 0
	}
	return headerSize + n
}

// readable is how much of b, from its beginning, crypto/tls can be given in a
// handshake without waiting for the rest of a record. What cannot be a record
// is given as it is, so that it is refused at once.
func readable(b []byte) (n int) {
	for len(b)-n >= headerSize {
		size := recordSize(b[n:])
		if size == 0 {
			return len(b)
		}
		if size > len(b)-n {
			break
		}
		n += size
	}
	return n
}
