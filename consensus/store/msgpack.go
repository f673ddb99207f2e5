package store

import (
	"bytes"
	"fmt"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// The stored format is a subset of MessagePack: nil, numbers, strings, bytes
// and arrays. The structures of batch.go and records.go are arrays
// without field names; a changed structure needs a new format version.

// packer appends MessagePack to a buffer in memory. Encoder errors are ignored:
// they could only come from the buffer, which has none.
type packer struct {
	bytes.Buffer
	encoder *msgpack.Encoder
}

// newPacker returns a packer with capacity for size bytes.
func newPacker(size int) *packer {
	p := &packer{}
	p.Grow(size)
	p.encoder = msgpack.NewEncoder(&p.Buffer)
	return p
}

func (p *packer) array(n int)   { _ = p.encoder.EncodeArrayLen(n) }
func (p *packer) uint(n uint64) { _ = p.encoder.EncodeUint(n) }
func (p *packer) text(s string) { _ = p.encoder.EncodeString(s) }

// bytes encodes nil as nil, to distinguish it from an empty slice.
func (p *packer) bytes(b []byte) { _ = p.encoder.EncodeBytes(b) }

// optionalUint encodes a nil pointer as nil.
func (p *packer) optionalUint(n *uint64) {
	if n == nil {
		_ = p.encoder.EncodeNil()
		return
	}
	p.uint(*n)
}

// note encodes who, what, and the time as seconds since 1970 and nanoseconds.
func (p *packer) note(n Note) {
	p.array(4)
	p.text(n.Who)
	p.text(n.What)
	_ = p.encoder.EncodeInt64(n.At.Unix()) // always 9 bytes
	p.uint(uint64(n.At.Nanosecond()))
}

// unpacker decodes the output of packer and rejects all other MessagePack: the
// decoder would take nil for 0, and a negative number for a large one. The
// first error is sticky; after it, all reads return zero values.
type unpacker struct {
	data    []byte // the whole input
	left    bytes.Reader
	decoder *msgpack.Decoder // reads left
	err     error
	// texts interns the strings read, to share memory; if nil, a string shares
	// memory only with its predecessor.
	texts map[string]string
}

// maxTexts bounds unpacker.texts.
const maxTexts = 4096

func newUnpacker(data []byte) *unpacker {
	u := &unpacker{}
	u.reset(data)
	u.decoder = msgpack.NewDecoder(&u.left)
	return u
}

// reset continues with other data.
func (u *unpacker) reset(data []byte) {
	u.data = data
	u.left.Reset(data)
}

func (u *unpacker) fail(format string, args ...any) {
	if u.err == nil {
		u.err = fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
	}
	u.reset(nil)
}

// expectEnd fails if bytes are left.
func (u *unpacker) expectEnd() {
	if n := u.left.Len(); n > 0 {
		u.fail("%d bytes after its end", n)
	}
}

// expect peeks at the next code, and fails if it is not a wanted one.
func (u *unpacker) expect(wanted string, is func(code byte) bool) bool {
	code, err := u.decoder.PeekCode()
	switch {
	case err != nil:
		u.fail("no bytes left for %s", wanted)
	case !is(code):
		u.fail("code %#x, expected %s", code, wanted)
	}
	return u.err == nil
}

// number returns n, or fails and returns 0 if err is not nil.
func number[T int | int64 | uint64](u *unpacker, n T, err error) T {
	if err != nil {
		u.fail("cannot read a number: %v, %d bytes left", err, u.left.Len())
		return 0
	}
	return n
}

// isNil reports whether nil comes next, and consumes it.
func (u *unpacker) isNil() bool {
	code, err := u.decoder.PeekCode()
	return err == nil && code == msgpcode.Nil && u.decoder.DecodeNil() == nil
}

func isUint(code byte) bool {
	return code <= msgpcode.PosFixedNumHigh || code >= msgpcode.Uint8 && code <= msgpcode.Uint64
}

func (u *unpacker) uint() uint64 {
	if !u.expect("a number", isUint) {
		return 0
	}
	n, err := u.decoder.DecodeUint64()
	return number(u, n, err)
}

func (u *unpacker) optionalUint() *uint64 {
	if u.isNil() {
		return nil
	}
	n := u.uint()
	return &n
}

// array reads an array's length, of items that take at least itemSize bytes.
func (u *unpacker) array(itemSize int) int {
	length, err := u.decoder.DecodeArrayLen()
	n := number(u, length, err)
	if n < 0 || n > u.left.Len()/itemSize {
		u.fail("an array of %d items, %d bytes left", n, u.left.Len())
		return 0
	}
	return n
}

// tuple reads the length of an array that must have want items.
func (u *unpacker) tuple(want int) {
	if n := u.array(1); n != want {
		u.fail("an array of %d items, expected %d", n, want)
	}
}

// take reads a length and returns that many bytes, in place.
func (u *unpacker) take() []byte {
	length, err := u.decoder.DecodeBytesLen()
	n := number(u, length, err)
	if n > u.left.Len() {
		u.fail("%d bytes announced, %d left", n, u.left.Len())
		return nil
	}
	at := len(u.data) - u.left.Len()
	u.left.Reset(u.data[at+n:])
	return u.data[at : at+n : at+n]
}

// text returns the next string, in place.
func (u *unpacker) text() []byte {
	if !u.expect("a string", msgpcode.IsString) {
		return nil
	}
	return u.take()
}

// internedText returns the next string. It shares memory with before, or with
// an interned string, if equal.
func (u *unpacker) internedText(before string) string {
	t := u.text()
	if string(t) == before {
		return before
	}
	if known, ok := u.texts[string(t)]; ok {
		return known
	}
	s := string(t)
	if u.texts != nil && len(u.texts) < maxTexts {
		u.texts[s] = s
	}
	return s
}

// bytes returns the next bytes, in place, or nil.
func (u *unpacker) bytes() []byte {
	if u.isNil() || !u.expect("bytes", msgpcode.IsBin) {
		return nil
	}
	return u.take()
}

// note reads a note, whose strings share memory with before's if equal.
func (u *unpacker) note(before Note) Note {
	u.tuple(4)
	n := Note{Who: u.internedText(before.Who), What: u.internedText(before.What)}
	if len(n.Who) > maxNote || len(n.What) > maxNote {
		u.fail("a note of %d and %d bytes, the limit is %d each", len(n.Who), len(n.What), maxNote)
	}
	u.expect("a time", func(code byte) bool { return code == msgpcode.Int64 })
	at, err := u.decoder.DecodeInt64()
	seconds, nano := number(u, at, err), u.uint()
	if nano >= uint64(time.Second) {
		u.fail("a time with %d nanoseconds", nano)
		return Note{}
	}
	if n.At = time.Unix(seconds, int64(nano)).UTC(); n.At.Unix() != seconds {
		u.fail("a time out of range: %d seconds since 1970", seconds)
	}
	return n
}

// id reads 16 bytes.
func (u *unpacker) id() (id ID) {
	if b := u.bytes(); len(b) == len(id) {
		copy(id[:], b)
	} else {
		u.fail("an ID of %d bytes, not %d", len(b), len(id))
	}
	return id
}
