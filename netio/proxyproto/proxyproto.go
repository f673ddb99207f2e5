// Package proxyproto reads and writes the header of the PROXY protocol,
// versions 1 and 2 (the HAProxy specification, "The PROXY protocol",
// 2020/03/05 revision). It takes bytes and returns values; it does no I/O. The
// caller decides whether to expect a header: nothing here guesses.
//
// Parse is given all that has come so far and is asked again when more is
// there:
//
//	h, n, err := proxyproto.Parse(buf)
//	switch {
//	case err == proxyproto.ErrMore: // ask again once len(buf) >= n
//	case err != nil:                // close: no header can come of this
//	default:                        // h is whole; it took buf[:n]
//	}
//
// A header changes who a client is taken for, so Parse refuses whatever two
// receivers could read in two ways: a second space, a leading zero, a TLV that
// comes twice. Where the specification leaves it to the receiver:
//
//   - PROXY with the family UNSPEC, or AF_UNIX, is accepted; the addresses of
//     the socket stand. UNSPEC has no address block: TLVs follow at once.
//   - Datagram protocols are refused: they cannot have come over TCP.
//   - LOCAL and UNKNOWN are accepted, and all that follows in them is skipped.
//   - An IPv4 address that is written as IPv6 (::ffff:192.0.2.1) is taken for
//     the IPv4 address, so that rules about networks see through it.
package proxyproto

import (
	"errors"
	"net/netip"
)

// The bounds on a header, in bytes.
const (
	// MaxV1 is the longest line that the specification allows, with CRLF.
	MaxV1 = 107
	// MaxV2 bounds a header of version 2, its first 16 bytes included. The
	// format allows 64 KiB; all addresses and registered TLVs together need
	// far less than this, and it is read before a peer is known.
	MaxV2 = 4 << 10
	// MaxUniqueID bounds PP2_TYPE_UNIQUE_ID (section 2.2.5).
	MaxUniqueID = 128
)

// What Parse returns, all but ErrMore wrapped with what was wrong and where.
var (
	// ErrMore is not a fault: the bytes are the beginning of a header.
	ErrMore = errors.New("more of the PROXY header is needed")
	// ErrNoHeader means that the bytes do not begin a PROXY header.
	ErrNoHeader = errors.New("no PROXY header")
	// ErrMalformed means that the header violates the specification.
	ErrMalformed = errors.New("malformed PROXY header")
	// ErrTooLong means that the header is longer than MaxV1 or MaxV2.
	ErrTooLong = errors.New("PROXY header too long")
	// ErrUnsupported means that the version, command, family or protocol is
	// not supported.
	ErrUnsupported = errors.New("unsupported PROXY header")
)

// Version of a header to write.
type Version uint8

// The versions; None writes nothing.
const (
	None Version = iota
	V1
	V2
)

// Header is what a PROXY header says. Nothing in it refers to the bytes it
// was read from.
type Header struct {
	// Local is true for LOCAL (v2) and UNKNOWN (v1): the connection is the
	// sender's own, the addresses of the socket stand.
	Local bool
	// Source and Destination are the addresses of the original connection;
	// both are zero where Local is true or the family is not IP.
	Source, Destination netip.AddrPort
	// Authority is the server name (PP2_TYPE_AUTHORITY), if any: UTF-8, and
	// otherwise as sent.
	Authority string
	// ALPN is the negotiated or single offered protocol (PP2_TYPE_ALPN).
	ALPN string
	// UniqueID is PP2_TYPE_UNIQUE_ID, at most MaxUniqueID bytes.
	UniqueID []byte
	// SSL describes TLS towards the client (PP2_TYPE_SSL); nil without TLS.
	SSL *SSL
	// Mesh is what a node of the mesh says about the client; nil from Parse.
	Mesh *Mesh
	// Custom are TLVs of types that the specification leaves to applications,
	// MinCustom to MaxCustom. Append writes them in version 2; Parse skips them.
	Custom []TLV
}

// The types of Header.Custom (PP2_TYPE_MIN_CUSTOM and PP2_TYPE_MAX_CUSTOM).
const (
	MinCustom = 0xE0
	MaxCustom = 0xEF
)

// TLV is a type and its value. An empty value is not written.
type TLV struct {
	Type  byte
	Value string
}

// SSL is the content of PP2_TYPE_SSL.
type SSL struct {
	// Version is the protocol's name, such as "TLSv1.3"; never empty.
	Version string
	// Cipher is the cipher suite's standard name.
	Cipher string
	// CommonName is the subject CN of a client certificate, if one was given.
	CommonName string
	// Verified is true when a client certificate was given and verified.
	Verified bool
	// ClientCert is true when the client gave a certificate, on this
	// connection or in the session that it resumes.
	ClientCert bool
	// Resumed is true when the certificate came on an earlier connection of
	// the session. It says nothing without ClientCert.
	Resumed bool
}

// Parse reads a header of either version from the first bytes of a
// connection.
//
// With a nil error the header is whole and n is the number of bytes that it
// took. With ErrMore, n is the length that b must have before the answer can
// change. Any other error is final; it is given at the first byte that shows
// it, or, for addresses and TLVs of version 2, once the header is whole.
func Parse(b []byte) (h Header, n int, err error) {
	if len(b) > 0 && b[0] == signature[0] {
		return parseV2(b, MaxV2)
	}
	return parseV1(b)
}

// Append appends h to dst in that version; None appends nothing.
//
// Where one address is IPv4 and the other IPv6, both are written as IPv6, the
// first as ::ffff:a.b.c.d. With h.Local, and without two valid addresses (a
// client on a unix socket), it is UNKNOWN in version 1 and LOCAL in version 2,
// and nothing more: PROXY with the family UNSPEC would be the truth, but many
// receivers refuse it, HAProxy among them, which itself writes LOCAL there.
// Version 1 has room for addresses only. In version 2 a TLV that breaks a rule
// of Parse, or that would make the header longer than MaxV2, is left out, so
// that what is written can be read.
func Append(dst []byte, v Version, h Header) []byte {
	switch v {
	case V1:
		return appendV1(dst, h)
	case V2:
		return appendV2(dst, h)
	}
	return dst
}
