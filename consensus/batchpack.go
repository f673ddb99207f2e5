package consensus

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"
)

// What is stored is MessagePack, of which these functions write and read the
// part that is needed: nil, integers, texts, bytes and arrays. The shapes of
// batch.go and viewfile.go are arrays without names; a change of shape is a
// change of the format's version.

func packNil(dst []byte) []byte { return append(dst, 0xc0) }

func packArray(dst []byte, n int) []byte {
	switch {
	case n < 16:
		return append(dst, 0x90|byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(dst, 0xdd), uint32(n))
}

func packUint(dst []byte, n uint64) []byte {
	switch {
	case n < 0x80:
		return append(dst, byte(n))
	case n <= math.MaxUint8:
		return append(dst, 0xcc, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(dst, 0xcd), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(dst, 0xce), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, 0xcf), n)
}

// packMaybe writes nil for nil.
func packMaybe(dst []byte, n *uint64) []byte {
	if n == nil {
		return packNil(dst)
	}
	return packUint(dst, *n)
}

func packString(dst []byte, s string) []byte {
	switch n := len(s); {
	case n < 32:
		dst = append(dst, 0xa0|byte(n))
	case n <= math.MaxUint8:
		dst = append(dst, 0xd9, byte(n))
	case n <= math.MaxUint16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xda), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xdb), uint32(n))
	}
	return append(dst, s...)
}

// packBytes writes nil for nil, so that it stays apart from what is empty.
func packBytes(dst []byte, b []byte) []byte {
	if b == nil {
		return packNil(dst)
	}
	switch n := len(b); {
	case n <= math.MaxUint8:
		dst = append(dst, 0xc4, byte(n))
	case n <= math.MaxUint16:
		dst = binary.BigEndian.AppendUint16(append(dst, 0xc5), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint32(append(dst, 0xc6), uint32(n))
	}
	return append(dst, b...)
}

// packNote writes who, what, and the time as seconds since 1970 and nanoseconds.
func packNote(dst []byte, n Note) []byte {
	dst = packArray(dst, 4)
	dst = packString(dst, n.Who)
	dst = packString(dst, n.What)
	dst = binary.BigEndian.AppendUint64(append(dst, 0xd3), uint64(n.At.Unix()))
	return packUint(dst, uint64(n.At.Nanosecond()))
}

// unpacker reads what was packed. After the first error, which it keeps, it
// reads only zero values.
type unpacker struct {
	b   []byte // what is left
	err error
	// texts that were read, so that equal ones share memory; nil: only what
	// is like the one before does.
	texts map[string]string
}

// maxTexts bounds unpacker.texts.
const maxTexts = 4096

func (u *unpacker) fail(format string, args ...any) {
	if u.err == nil {
		u.err = fmt.Errorf("%w: "+format, append([]any{ErrDamaged}, args...)...)
	}
	u.b = nil
}

// take returns the next n bytes, in place.
func (u *unpacker) take(n uint64) []byte {
	if n > uint64(len(u.b)) {
		u.fail("%d bytes where %d are left", n, len(u.b))
		return nil
	}
	b := u.b[:n:n]
	u.b = u.b[n:]
	return b
}

// code reads the byte that says what follows.
func (u *unpacker) code() byte {
	if b := u.take(1); len(b) == 1 {
		return b[0]
	}
	return 0xc1 // which nothing is written as
}

// number reads a big-endian number of so many bytes.
func (u *unpacker) number(bytes uint64) uint64 {
	var n uint64
	for _, b := range u.take(bytes) {
		n = n<<8 | uint64(b)
	}
	return n
}

// isNil tells whether nil comes next, and reads it.
func (u *unpacker) isNil() bool {
	if len(u.b) == 0 || u.b[0] != 0xc0 {
		return false
	}
	u.b = u.b[1:]
	return true
}

func (u *unpacker) uint() uint64 {
	switch c := u.code(); {
	case c < 0x80:
		return uint64(c)
	case c >= 0xcc && c <= 0xcf:
		return u.number(1 << (c - 0xcc))
	default:
		u.fail("%#x where a number should be", c)
		return 0
	}
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
	var n uint64
	switch c := u.code(); {
	case c&0xf0 == 0x90:
		n = uint64(c & 0x0f)
	case c == 0xdc || c == 0xdd:
		n = u.number(2 << (c - 0xdc))
	default:
		u.fail("%#x where an array should be", c)
	}
	if n > uint64(len(u.b)/each) {
		u.fail("an array of %d where %d bytes are left", n, len(u.b))
		return 0
	}
	return int(n)
}

// tuple reads an array that must have that many items.
func (u *unpacker) tuple(want int) {
	if n := u.array(1); n != want {
		u.fail("an array of %d where %d belong", n, want)
	}
}

// text reads a text, in place.
func (u *unpacker) text() []byte {
	switch c := u.code(); {
	case c&0xe0 == 0xa0:
		return u.take(uint64(c & 0x1f))
	case c >= 0xd9 && c <= 0xdb:
		return u.take(u.number(1 << (c - 0xd9)))
	default:
		u.fail("%#x where a text should be", c)
		return nil
	}
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
	switch c := u.code(); {
	case c == 0xc0:
		return nil
	case c >= 0xc4 && c <= 0xc6:
		return u.take(u.number(1 << (c - 0xc4)))
	default:
		u.fail("%#x where bytes should be", c)
		return nil
	}
}

// note reads a note; its texts are those of the one before where they are equal.
func (u *unpacker) note(before Note) Note {
	u.tuple(4)
	n := Note{Who: u.like(before.Who), What: u.like(before.What)}
	if len(n.Who) > maxNote || len(n.What) > maxNote {
		u.fail("a note of %d and %d bytes, the limit is %d each", len(n.Who), len(n.What), maxNote)
	}
	if c := u.code(); c != 0xd3 {
		u.fail("%#x where a time should be", c)
	}
	seconds, nano := int64(u.number(8)), u.uint()
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
