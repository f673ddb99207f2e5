package gossip

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of what a member may say.
const (
	maxID    = 128       // bytes of a node's ID
	maxMeta  = 512       // bytes of its encoded meta data: memberlist panics beyond
	maxFacts = 4 << 10   // bytes of its facts
	maxState = 1 << 20   // bytes of the facts that one push/pull carries
	maxAge   = 1 << 40   // milliseconds that a process may claim to run
	maxTick  = 1<<62 - 1 // of a record's version, so that it can be surpassed
)

// The first byte of what members tell each other. A member that does not know
// one ignores the message.
const (
	formatMeta    = 1 // of meta data
	formatRecords = 1 // records, to the end
	formatWho     = 2 // who are you? A claim of the asker's own
	formatIAm     = 3 // the claim of whoever was asked
)

// errMalformed says that a member's bytes cannot be understood.
var errMalformed = errors.New("malformed")

// record is what a node says of itself beside its meta data.
type record struct {
	ID       string
	Instance string // of the process that says it
	Version  uint64 // the larger one is newer; the node itself sees to that
	Left     bool   // it says goodbye
	Facts    []byte
}

// claim is what a process that answers to an ID says of itself, to find out
// whether two of them answer to the same.
type claim struct {
	ID   string
	Addr string        // gossip ip:port
	Age  time.Duration // since it was opened
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

// encodeMeta encodes meta data that others would accept.
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

// decodeMeta reads meta data. What follows the fields that it knows is of a
// newer version and ignored.
func decodeMeta(b []byte) (m Meta, err error) {
	if len(b) > maxMeta {
		return Meta{}, fmt.Errorf("%w: %d bytes, the limit is %d", errMalformed, len(b), maxMeta)
	}
	r := reader{rest: b}
	if v := r.byte(); v != formatMeta {
		return Meta{}, fmt.Errorf("%w: format %d, this build knows %d", errMalformed, v, formatMeta)
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

// encodeRecords makes a message of records.
func encodeRecords(records ...record) []byte {
	b := []byte{formatRecords}
	for _, r := range records {
		b = appendRecord(b, r)
	}
	return b
}

// decodeRecords reads the records of a message up to the first one that is
// malformed, and hands each to use. Facts are part of b.
func decodeRecords(b []byte, use func(record)) error {
	r := reader{rest: b}
	if v := r.byte(); v != formatRecords {
		return fmt.Errorf("%w: format %d", errMalformed, v)
	}
	for len(r.rest) > 0 {
		rec := record{ID: r.text(maxID), Instance: r.text(maxMeta), Version: r.uvarint(maxTick)}
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

// reader takes values off bytes; the first fault stays.
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
		r.fail("cut short")
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > limit {
		r.fail("a number is cut short or above %d", limit)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) bytes(limit int) []byte {
	n := r.uvarint(uint64(limit))
	if n > uint64(len(r.rest)) {
		r.fail("%d bytes are announced, %d are there", n, len(r.rest))
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

// text is what may be shown to people: valid UTF-8 without control characters.
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
