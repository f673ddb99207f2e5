package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// Limits of members' data.
const (
	maxID      = 128       // bytes of a node's ID
	maxMeta    = 512       // bytes of its encoded meta data: memberlist panics beyond
	maxFacts   = 4 << 10   // bytes of its facts
	maxState   = 1 << 20   // bytes of the facts in one push/pull
	maxAge     = 1 << 40   // milliseconds of uptime in a claim
	maxVersion = 1<<62 - 1 // of a record's version, so that a newer one is possible
)

// The first byte of messages and meta data. A member ignores messages with an
// unknown one.
const (
	formatMeta         = 1 // meta data
	formatRecords      = 1 // a message of records
	formatClaimRequest = 2 // a request for a claim, with the sender's claim
	formatClaim        = 3 // the response, a claim
)

// errMalformed: a member's bytes cannot be decoded.
var errMalformed = errors.New("malformed")

// record is a node's replicated data besides its meta data.
type record struct {
	ID       string
	Instance string // of the process that sent it
	Version  uint64 // increased by the node itself; the larger one is newer
	Left     bool   // the node leaves
	Facts    []byte
}

// claim describes a process that uses an ID, to detect a second one that uses
// the same.
type claim struct {
	ID   string
	Addr string        // gossip ip:port
	Age  time.Duration // since Open
	Meta Meta
}

func appendBytes[T string | []byte](dst []byte, b T) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
}

func appendMeta(dst []byte, m Meta) []byte {
	dst = append(dst, formatMeta)
	for _, s := range []string{m.Name, m.Cluster, m.HTTP, m.Version, m.Zone, m.Instance} {
		dst = appendBytes(dst, s)
	}
	return dst
}

// encodeMeta encodes valid meta data.
func encodeMeta(m Meta) ([]byte, error) {
	b := appendMeta(nil, m)
	if len(b) > maxMeta {
		return nil, fmt.Errorf("%w: meta data of %d bytes, the limit is %d", ErrTooLarge, len(b), maxMeta)
	}
	if _, err := decodeMeta(b); err != nil {
		return nil, fmt.Errorf("%w: meta data: %w", ErrConfig, err)
	}
	return b, nil
}

// decodeMeta decodes meta data. It ignores further fields, which a newer
// version may add.
func decodeMeta(b []byte) (m Meta, err error) {
	if len(b) > maxMeta {
		return Meta{}, fmt.Errorf("%w: %d bytes, the limit is %d", errMalformed, len(b), maxMeta)
	}
	r := reader{rest: b}
	if v := r.byte(); v != formatMeta {
		return Meta{}, fmt.Errorf("%w: format %d, this build supports %d", errMalformed, v, formatMeta)
	}
	for _, field := range []*string{&m.Name, &m.Cluster, &m.HTTP, &m.Version, &m.Zone, &m.Instance} {
		*field = r.text(maxMeta)
	}
	if r.err != nil {
		return Meta{}, r.err
	}
	return m, nil
}

func appendRecord(dst []byte, r record) []byte {
	dst = appendBytes(dst, r.ID)
	dst = appendBytes(dst, r.Instance)
	dst = binary.AppendUvarint(dst, r.Version)
	flags := byte(0)
	if r.Left {
		flags = 1
	}
	return appendBytes(append(dst, flags), r.Facts)
}

// encodeRecords encodes a message of records.
func encodeRecords(records ...record) []byte {
	b := []byte{formatRecords}
	for _, r := range records {
		b = appendRecord(b, r)
	}
	return b
}

// decodeRecords decodes the records of a message up to the first malformed one,
// and calls use for each. Facts share b's memory.
func decodeRecords(b []byte, use func(record)) error {
	r := reader{rest: b}
	if v := r.byte(); v != formatRecords {
		return fmt.Errorf("%w: format %d", errMalformed, v)
	}
	for len(r.rest) > 0 {
		rec := record{ID: r.text(maxID), Instance: r.text(maxMeta), Version: r.uvarint(maxVersion)}
		rec.Left = r.byte()&1 != 0
		rec.Facts = r.bytes(maxFacts)
		if r.err != nil {
			return r.err
		}
		use(rec)
	}
	return nil
}

func encodeClaim(format byte, c claim) []byte {
	b := appendBytes(appendBytes([]byte{format}, c.ID), c.Addr)
	b = binary.AppendUvarint(b, uint64(max(0, c.Age.Milliseconds())))
	return appendBytes(b, appendMeta(nil, c.Meta))
}

func decodeClaim(b []byte) (c claim, err error) {
	r := reader{rest: b}
	r.byte() // the format
	c.ID, c.Addr = r.text(maxID), r.text(maxID)
	c.Age = time.Duration(r.uvarint(maxAge)) * time.Millisecond
	meta := r.bytes(maxMeta)
	if r.err != nil {
		return claim{}, r.err
	}
	c.Meta, err = decodeMeta(meta)
	return c, err
}

// reader decodes values from bytes; its first error is sticky.
type reader struct {
	rest []byte
	err  error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
	}
	r.rest = nil
}

func (r *reader) byte() byte {
	if len(r.rest) == 0 {
		r.fail("truncated")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > limit {
		r.fail("a number is truncated or above %d", limit)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes(limit int) []byte {
	n := r.uvarint(uint64(limit))
	if n > uint64(len(r.rest)) {
		r.fail("%d bytes announced, %d left", n, len(r.rest))
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// text reads a displayable string: valid UTF-8 without control characters.
func (r *reader) text(limit int) string {
	b := r.bytes(limit)
	if !utf8.Valid(b) {
		r.fail("not UTF-8: %.40q", b)
		return ""
	}
	for _, c := range string(b) {
		if !unicode.IsPrint(c) {
			r.fail("control characters: %.40q", b)
			return ""
		}
	}
	return string(b)
}
