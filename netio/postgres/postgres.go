// Package postgres reads what PostgreSQL's clients say before TLS, and writes what
// they are answered (PostgreSQL documentation, "Message Flow: SSL Session
// Encryption" and "Message Formats"). It has no I/O.
//
//	request, err := postgres.Parse(bytes)
//	if request == postgres.SSLRequest { send(postgres.Accepted) } // the ClientHello follows
package postgres

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Request is what a client begins with.
type Request uint8

// The requests.
const (
	// More means that the bytes are the beginning of a request.
	More Request = iota
	// TLS means that there is no request: a TLS record begins (sslnegotiation=direct).
	TLS
	// SSLRequest asks for TLS, GSSENCRequest for encryption by GSSAPI.
	SSLRequest
	GSSENCRequest
	// Startup is a StartupMessage, with a login in the clear, and Cancel a
	// CancelRequest.
	Startup
	Cancel
)

const (
	// Size is the number of bytes that Parse needs at most, and the length of an
	// SSLRequest and a GSSENCRequest.
	Size = 8
	// Accepted is how a server agrees to SSLRequest.
	Accepted = 'S'
	// Refused is how it declines SSLRequest and GSSENCRequest.
	Refused = 'N'

	maxStartup  = 10000 // as in the server
	cancelSize  = 16    // without the longer keys of protocol 3.2
	handshake   = 22    // a TLS record's type
	sslCode     = 80877103
	gssCode     = 80877104
	cancelCode  = 80877102
	oldestMajor = 2
	newestMajor = 3
)

// ErrInvalid means that a client of PostgreSQL would not begin like that.
var ErrInvalid = errors.New("neither TLS nor a request of PostgreSQL")

// Parse returns what the first bytes of a client are. Of a Startup and a Cancel it
// checks the first 8 bytes alone.
func Parse(p []byte) (Request, error) {
	if len(p) == 0 {
		return More, nil
	}
	if p[0] == handshake {
		return TLS, nil
	}
	var head [Size]byte
	n := copy(head[:], p)
	length, code := binary.BigEndian.Uint32(head[:]), binary.BigEndian.Uint32(head[4:])
	switch {
	case length > maxStartup || n >= 4 && length < Size:
		return More, fmt.Errorf("%w: they begin with % x", ErrInvalid, p[:n])
	case n < Size:
		return More, nil
	case code == sslCode && length == Size:
		return SSLRequest, nil
	case code == gssCode && length == Size:
		return GSSENCRequest, nil
	case code == cancelCode && length >= cancelSize:
		return Cancel, nil
	case code>>16 >= oldestMajor && code>>16 <= newestMajor:
		return Startup, nil
	}
	return More, fmt.Errorf("%w: a message of %d bytes with the code %d", ErrInvalid, length, code)
}

// AppendSSLRequest appends an SSLRequest.
func AppendSSLRequest(dst []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(dst, Size), sslCode)
}

// AppendError appends a fatal ErrorResponse with an SQLSTATE.
func AppendError(dst []byte, state, message string) []byte {
	begin := len(dst)
	dst = append(dst, 'E', 0, 0, 0, 0)
	for _, field := range [...]struct {
		kind byte
		text string
	}{{'S', "FATAL"}, {'V', "FATAL"}, {'C', state}, {'M', message}} {
		dst = append(append(append(dst, field.kind), field.text...), 0)
	}
	dst = append(dst, 0)
	binary.BigEndian.PutUint32(dst[begin+1:], uint32(len(dst)-begin-1))
	return dst
}
