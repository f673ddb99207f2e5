package rpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The errors of the protocol. Each of them ends the connection.
var (
	ErrPreamble   = errors.New("not a Penstock admin connection")
	ErrVersion    = errors.New("no common protocol version")
	ErrFrameSize  = errors.New("frame too large")
	ErrFrame      = errors.New("malformed frame")
	ErrOverBudget = errors.New("too many bytes in flight")
)

// The protocol versions that this build supports.
const (
	minVersion = 1
	maxVersion = 1
)

// preambleSize is the size, in bytes, of the preamble that each side sends
// first. Its first byte is unique to this protocol, so that others can share
// the port.
const preambleSize = 8

var magic = [4]byte{'A', 'P', 'S', 'K'}

// helloType is the first byte of a TLS connection. A node without TLS responds
// to it with a preamble of version 0, so that the caller can tell what it
// reached. alertType is the first byte of a TLS server's response to a plain
// preamble.
const (
	helloType = 0x16
	alertType = 0x15
)

// clientPreamble returns the client's preamble, which offers versions lo to hi.
func clientPreamble(lo, hi byte) []byte {
	return append(magic[:], lo, hi, 0, 0)
}

// serverPreamble returns the server's preamble with the chosen version; 0:
// none.
func serverPreamble(version byte) []byte {
	return append(magic[:], version, minVersion, maxVersion, 0)
}

// negotiate parses a client's preamble and returns the highest version that
// both sides support.
func negotiate(p [preambleSize]byte) (byte, error) {
	if [4]byte(p[:4]) != magic {
		return 0, ErrPreamble
	}
	lo, hi := max(p[4], minVersion), min(p[5], maxVersion)
	if lo > hi {
		return 0, fmt.Errorf("%w: this node supports %d to %d, the client %d to %d",
			ErrVersion, minVersion, maxVersion, p[4], p[5])
	}
	return hi, nil
}

// checkServerPreamble checks a server's preamble.
func checkServerPreamble(p [preambleSize]byte) error {
	if [4]byte(p[:4]) != magic {
		return ErrPreamble
	}
	if v := p[4]; v < minVersion || v > maxVersion {
		return fmt.Errorf("%w: this client supports %d to %d, the node %d to %d",
			ErrVersion, minVersion, maxVersion, p[5], p[6])
	}
	return nil
}

// frameType is the type of a frame, which determines its body.
type frameType uint8

const (
	frameRequest frameType = iota + 1 // envelope
	frameCancel                       // empty: cancels the request
	frameItem                         // one item of a stream
	frameResult                       // the result, the last frame of its request
	frameError                        // an Error, the last frame of its request
)

// frame is the unit of transmission: a 4-byte length that excludes itself, the
// type, an 8-byte request ID (all big endian), and a msgpack body.
type frame struct {
	kind frameType
	id   uint64
	body []byte
}

const (
	frameHeader = 4 + 9
	// readStep is the size, in bytes, of the first buffer for a frame, whatever
	// length it announces.
	readStep = 64 << 10
)

// frameLimits bounds the content of a frame.
type frameLimits struct {
	bytes    int
	elements int
	// charge reserves n bytes of memory before they are allocated, and reports
	// whether it could; nil: unlimited.
	charge func(n int) bool
}

// readFrame reads one frame. Its memory grows with the bytes received, not with
// the announced length. It checks that the body is one well-formed value of
// bounded depth and number of elements.
func readFrame(r io.Reader, l frameLimits) (frame, error) {
	var h [frameHeader]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return frame{}, err
	}
	size := int64(binary.BigEndian.Uint32(h[:])) - 9
	f := frame{kind: frameType(h[4]), id: binary.BigEndian.Uint64(h[5:])}
	if size < 0 || f.kind < frameRequest || f.kind > frameError {
		return frame{}, fmt.Errorf("%w: length %d, type %d", ErrFrame, size+9, f.kind)
	}
	if size > int64(l.bytes) {
		return frame{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrFrameSize, size, l.bytes)
	}
	for rest := int(size); rest > 0; {
		step := min(rest, max(readStep, len(f.body))) // doubling, so that the cost of copying is linear
		if l.charge != nil && !l.charge(step) {
			return frame{}, ErrOverBudget
		}
		start := len(f.body)
		f.body = append(f.body, make([]byte, step)...)
		if _, err := io.ReadFull(r, f.body[start:]); err != nil {
			return frame{}, unexpectedEOF(err)
		}
		rest -= step
	}
	if f.kind == frameCancel {
		return f, nil
	}
	elements, err := checkValue(f.body, l.elements)
	if err != nil {
		return frame{}, err
	}
	if l.charge != nil && !l.charge(elements*elementCost) {
		return frame{}, ErrOverBudget
	}
	return f, nil
}

// unexpectedEOF converts EOF inside a frame into io.ErrUnexpectedEOF.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// appendFrame appends an encoded frame to dst.
func appendFrame(dst []byte, f frame) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(f.body)+9))
	dst = append(dst, byte(f.kind))
	dst = binary.BigEndian.AppendUint64(dst, f.id)
	return append(dst, f.body...)
}
