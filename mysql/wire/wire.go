// Package wire reads and writes MySQL's client/server protocol as bytes: packet
// headers, the packets of the connection phase, the ends of answers, the
// compressed protocol, and TiDB's session-state statements. It does no I/O and
// checks every length before using it.
//
// Functions named Parse take the payload of one packet, without its header. They
// neither keep nor modify it: byte slices in results are copies. Functions named
// Append append a payload to dst and return it. An error says which field is
// wrong, never what it holds, since it may be a secret.
//
//	length, seq := wire.ParseHeader(p)          // p has HeaderSize bytes at least
//	greeting, err := wire.ParseGreeting(p[wire.HeaderSize:][:length])
//	...
//	out = wire.AppendPacket(out, seq+1, wire.AppendLogin(nil, &login))
//
// Protocol 4.1 is mandatory; MySQL has had it since 2003. Servers: MySQL 5.x, 8.x
// and 9.x, MariaDB, TiDB.
//
// The protocol:
// https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html and
// https://mariadb.com/kb/en/clientserver-protocol/.
package wire

import "errors"

// Sizes, in bytes.
const (
	// HeaderSize is the size of a packet's header: three bytes of length, one of
	// sequence.
	HeaderSize = 4
	// MaxPayload is the longest payload of one packet. A payload of at least this
	// length continues in the next packet, which may be empty.
	MaxPayload = 1<<24 - 1
)

// Errors of packets; each is wrapped with the field.
var (
	// ErrMalformed means that a packet does not have the protocol's layout.
	ErrMalformed = errors.New("malformed packet")
	// ErrTooOld means that the peer does not speak protocol 4.1.
	ErrTooOld = errors.New("protocol 4.1 is required (MySQL 4.1 or later)")
)

// First bytes of a server's payloads.
const (
	headerOK         = 0x00
	headerEOF        = 0xfe // also AuthSwitch, and OK at the end of rows where DeprecateEOF
	headerError      = 0xff
	headerNull       = 0xfb // a value of a text row
	protocolVersion  = 10   // of a greeting
	saltSize         = 20   // without the NUL that ends it
	saltFirst        = 8    // bytes of the salt in the first part of a greeting
	sslRequestSize   = 32
	loginFixed       = 32 // bytes of a login before the user name
	stateSize        = 5  // of an SQL state
	maxEOF           = 9  // an EOF's payload is shorter, a row that begins with 0xfe is not
	maxShortAuth     = 255
	extensionsOffset = 28 // of MariaDB's capabilities in a login
)

// ParseHeader returns the length of a packet's payload, and its sequence number.
// p has at least HeaderSize bytes.
func ParseHeader(p []byte) (length int, seq byte) {
	_ = p[3]
	return int(p[0]) | int(p[1])<<8 | int(p[2])<<16, p[3]
}

// AppendHeader appends the header of a packet of length bytes, at most MaxPayload.
func AppendHeader(dst []byte, length int, seq byte) []byte {
	return append(dst, byte(length), byte(length>>8), byte(length>>16), seq)
}

// AppendPacket appends payload with its header. A payload of MaxPayload bytes or
// more becomes several packets, with consecutive sequence numbers from seq on.
func AppendPacket(dst []byte, seq byte, payload []byte) []byte {
	for {
		n := min(len(payload), MaxPayload)
		dst = append(AppendHeader(dst, n, seq), payload[:n]...)
		if n < MaxPayload {
			return dst
		}
		payload, seq = payload[n:], seq+1
	}
}
