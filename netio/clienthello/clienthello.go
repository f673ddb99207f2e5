// Package clienthello parses the first message of a TLS client: the server
// name and the protocols that it offers. It takes bytes and returns values; it
// does no I/O and keeps no state.
//
// Parse is given all that has come so far and is asked again when more is
// there:
//
//	h, n, err := clienthello.Parse(buf)
//	switch {
//	case err == clienthello.ErrMore: // ask again once len(buf) >= n
//	case err != nil:                 // close: no hello can come of this
//	default:                         // h is whole; it took buf[:n]
//	}
//
// It is strict about all that a decision could rest on, as two readers of one
// hello must never see two names in it: whatever is doubled, empty, left over
// or longer than it says is refused. It is indifferent to the content of all
// else, GREASE (RFC 8701) and unknown extensions included.
//
// Only the first hello of a connection is read. After a HelloRetryRequest a
// client sends a second one, which must name the same server (RFC 8446,
// 4.1.2); that one passes in the relayed stream and is the TLS endpoint's to
// compare. With Encrypted Client Hello the name is that of the outer hello:
// it says which front the client wants, and proves nothing.
package clienthello

import "errors"

// MaxSize bounds a ClientHello with its record headers, in bytes: a hello
// that is longer is refused before more of it is read.
const MaxSize = 16 << 10

// What Parse returns, all but ErrMore wrapped with what was wrong and where.
var (
	// ErrMore is not a fault: the bytes are the beginning of a hello.
	ErrMore = errors.New("more of the client hello is needed")
	// ErrNotTLS means that the peer does not speak TLS (SSLv2 is not TLS).
	ErrNotTLS = errors.New("not tls")
	// ErrMalformed means that it speaks TLS, but sent no valid ClientHello.
	ErrMalformed = errors.New("malformed client hello")
	// ErrTooLong means that the hello is, or claims to be, longer than
	// MaxSize.
	ErrTooLong = errors.New("client hello too long")
)

// Hello is what matters of a ClientHello. Nothing in it refers to the bytes
// it was read from.
type Hello struct {
	// ServerName is the host_name of the server_name extension (RFC 6066)
	// exactly as sent; it is for the router to accept or refuse it.
	ServerName string
	// HasServerName tells an absent name from a present one.
	HasServerName bool
	// ALPN lists the protocols offered (RFC 7301), in the client's order.
	ALPN []string
	// ECH is true when the hello has an encrypted_client_hello extension
	// (RFC 9849), real or GREASE: ServerName may be a front's.
	ECH bool
}

// Parse reads a ClientHello from the first bytes of a connection.
//
// With a nil error the hello is whole and n is the number of bytes that it
// took, record headers included. With ErrMore, n is the length that b must
// have before the answer can change: a caller that waits for it asks once for
// each record instead of once for each byte. Any other error is final; it is
// given at the first byte that shows it, or, for what stands inside the
// message, once the message is whole.
func Parse(b []byte) (h Hello, n int, err error) {
	msg, n, err := assemble(b)
	if err != nil {
		return Hello{}, n, err
	}
	h, err = parseMessage(msg)
	if err != nil {
		return Hello{}, 0, err
	}
	return h, n, nil
}
