package consensus

import (
	"bytes"
	"fmt"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

// What is stored is MessagePack, of which only a part is used: nil, numbers,
// texts, bytes and arrays. The shapes of batch.go and snapshot_file.go are
// arrays without names; a change of shape is a change of the format's version.

// packer appends MessagePack to a buffer in memory. The encoder's only errors
// would be the buffer's, which has none.
type packer struct {
	bytes.Buffer
	to *msgpack.Encoder
}

// newPacker returns a packer whose buffer has room for size bytes.
func newPacker(size int) *packer {
	p := &packer{}
	p.Grow(size)
	p.to = msgpack.NewEncoder(&p.Buffer)
	return p
}

func (p *packer) array(n int)   { _ = p.to.EncodeArrayLen(n) }
func (p *packer) uint(n uint64) { _ = p.to.EncodeUint(n) }
func (p *packer) text(s string) { _ = p.to.EncodeString(s) }

// bytes writes nil for nil, so that it stays apart from what is empty.
func (p *packer) bytes(b []byte) { _ = p.to.EncodeBytes(b) }

// maybe writes nil for nil.
func (p *packer) maybe(n *uint64) {
	if n == nil {
		_ = p.to.EncodeNil()
		return
	}
	p.uint(*n)
}

// note writes who, what, and the time as seconds since 1970 and nanoseconds.
func (p *packer) note(n Note) {
	p.array(4)
	p.text(n.Who)
	p.text(n.What)
	_ = p.to.EncodeInt64(n.At.Unix()) // always 9 bytes
	p.uint(uint64(n.At.Nanosecond()))
}

// unpacker reads what a packer wrote, and refuses the rest of MessagePack: the
// decoder would take nil for 0, and a negative number for a large one. After
// the first error, which it keeps, it reads only zero values.
type unpacker struct {
	data []byte // whole
	left bytes.Reader
	from *msgpack.Decoder // of left
	err  error
	// texts that were read, so that equal ones share memory; nil: only what
	// is like the one before does.
	texts map[string]string
}

// maxTexts bounds unpacker.texts.
const maxTexts = 4096

func newUnpacker(data []byte) *unpacker {
	u := &unpacker{}
	u.reset(data)
	u.from = msgpack.NewDecoder(&u.left)
	return u
}

// reset goes on with other data.
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

// end fails unless all was read.
func (u *unpacker) end() {
	if n := u.left.Len(); n > 0 {
		u.fail("%d bytes after its end", n)
	}
}

// next looks at the code that comes next, and fails unless it is one of those
// that are wanted.
func (u *unpacker) next(wanted string, is func(code byte) bool) bool {
	code, err := u.from.PeekCode()
	switch {
	case err != nil:
		u.fail("%s where no bytes are left", wanted)
	case !is(code):
		u.fail("%#x where %s should be", code, wanted)
	}
	return u.err == nil
}

// number keeps a number that was read, or the error of reading it.
func number[T int | int64 | uint64](u *unpacker, n T, err error) T {
	if err != nil {
		u.fail("a number: %v, %d bytes are left", err, u.left.Len())
		return 0
	}
	return n
}

// isNil tells whether nil comes next, and reads it.
func (u *unpacker) isNil() bool {
	code, err := u.from.PeekCode()
	return err == nil && code == msgpcode.Nil && u.from.DecodeNil() == nil
}

func isUint(code byte) bool {
	return code <= msgpcode.PosFixedNumHigh || code >= msgpcode.Uint8 && code <= msgpcode.Uint64
}

func (u *unpacker) uint() uint64 {
	if !u.next("a number", isUint) {
		return 0
	}
	n, err := u.from.DecodeUint64()
	return number(u, n, err)
}

func (u *unpacker) maybe() *uint64 {
	if u.isNil() {
		return nil
	}
	n := u.uint()
	return &n
}

// array reads how many items an array has, of which each takes some bytes.
func (u *unpacker) array(each int) int {
	length, err := u.from.DecodeArrayLen()
	n := number(u, length, err)
	if n < 0 || n > u.left.Len()/each {
		u.fail("an array of %d where %d bytes are left", n, u.left.Len())
		return 0
	}
	return n
}

// tuple reads an array that must have that many items.
func (u *unpacker) tuple(want int) {
	if n := u.array(1); n != want {
		u.fail("an array of %d where %d belong", n, want)
	}
}

// take reads a length and that many bytes, in place.
func (u *unpacker) take() []byte {
	length, err := u.from.DecodeBytesLen()
	n := number(u, length, err)
	if n > u.left.Len() {
		u.fail("%d bytes where %d are left", n, u.left.Len())
		return nil
	}
	at := len(u.data) - u.left.Len()
	u.left.Reset(u.data[at+n:])
	return u.data[at : at+n : at+n]
}

// text reads a text, in place.
func (u *unpacker) text() []byte {
	if !u.next("a text", msgpcode.IsString) {
		return nil
	}
	return u.take()
}

// like is the next text. Its memory is that of the one before, or of another
// that was read, when they are equal.
func (u *unpacker) like(before string) string {
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

// bytes reads bytes, in place, or nil.
func (u *unpacker) bytes() []byte {
	if u.isNil() || !u.next("bytes", msgpcode.IsBin) {
		return nil
	}
	return u.take()
}

// note reads a note; its texts are those of the one before where they are equal.
func (u *unpacker) note(before Note) Note {
	u.tuple(4)
	n := Note{Who: u.like(before.Who), What: u.like(before.What)}
	if len(n.Who) > maxNote || len(n.What) > maxNote {
		u.fail("a note of %d and %d bytes, the limit is %d each", len(n.Who), len(n.What), maxNote)
	}
	u.next("a time", func(code byte) bool { return code == msgpcode.Int64 })
	at, err := u.from.DecodeInt64()
	seconds, nano := number(u, at, err), u.uint()
	if nano >= uint64(time.Second) {
		u.fail("%d nanoseconds", nano)
		return Note{}
	}
	if n.At = time.Unix(seconds, int64(nano)).UTC(); n.At.Unix() != seconds {
		u.fail("%d seconds since 1970", seconds)
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
