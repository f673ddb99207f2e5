package wire

import (
	"encoding/binary"
	"fmt"
)

// Reader reads a message field by field. After its first error it returns zero
// values. Returned bytes are views of the message.
type Reader struct {
	// Flexible selects the compact encodings of strings, bytes and arrays, and
	// tags at the end of structures.
	Flexible bool

	b   []byte
	at  int
	err error
}

// NewReader returns a reader of b.
func NewReader(b []byte, flexible bool) Reader { return Reader{Flexible: flexible, b: b} }

// Err returns the first error.
func (r *Reader) Err() error { return r.err }

// At returns the offset of the next field.
func (r *Reader) At() int { return r.at }

// Rest returns the unread bytes.
func (r *Reader) Rest() []byte { return r.b[r.at:] }

// Fail sets the error, unless there is one already.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err, r.at = err, len(r.b)
	}
}

// Span reads n bytes.
func (r *Reader) Span(n int) []byte {
	if n < 0 || n > len(r.b)-r.at {
		r.Fail(fmt.Errorf("%w: needs %d bytes at offset %d, %d left", ErrMalformed, n, r.at, len(r.b)-r.at))
		return nil
	}
	p := r.b[r.at : r.at+n : r.at+n]
	r.at += n
	return p
}

// Bool reads one byte: false is 0.
func (r *Reader) Bool() bool { return r.Int8() != 0 }

// Int8 reads one byte.
func (r *Reader) Int8() int8 {
	if p := r.Span(1); p != nil {
		return int8(p[0])
	}
	return 0
}

// Int16 reads two bytes.
func (r *Reader) Int16() int16 {
	if p := r.Span(2); p != nil {
		return int16(binary.BigEndian.Uint16(p))
	}
	return 0
}

// Int32 reads four bytes.
func (r *Reader) Int32() int32 {
	if p := r.Span(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

// Int64 reads eight bytes.
func (r *Reader) Int64() int64 {
	if p := r.Span(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

// Uvarint reads an unsigned varint of at most five bytes, minimal or not.
func (r *Reader) Uvarint() uint32 {
	u, n, err := uvarint(r.b[r.at:])
	if err == nil && n == 0 {
		err = fmt.Errorf("%w: unterminated varint at offset %d", ErrMalformed, r.at)
	}
	if err != nil {
		r.Fail(err)
		return 0
	}
	r.at += n
	return u
}

// String reads a string. null reports a null string.
func (r *Reader) String() (s []byte, null bool) {
	var n int
	if r.Flexible {
		n = int(r.Uvarint()) - 1
	} else {
		n = int(r.Int16())
	}
	return r.sized(n)
}

// Bytes reads bytes or records. null reports null.
func (r *Reader) Bytes() (b []byte, null bool) {
	var n int
	if r.Flexible {
		n = int(r.Uvarint()) - 1
	} else {
		n = int(r.Int32())
	}
	return r.sized(n)
}

func (r *Reader) sized(n int) ([]byte, bool) {
	if r.err != nil || n == -1 {
		return nil, true
	}
	return r.Span(n), false
}

// Array reads the length of an array; -1 is null. It never exceeds the number of
// bytes left.
func (r *Reader) Array() int {
	var n int
	if r.Flexible {
		n = int(r.Uvarint()) - 1
	} else {
		n = int(r.Int32())
	}
	if r.err != nil {
		return 0
	}
	if n < -1 || n > len(r.b)-r.at {
		r.Fail(fmt.Errorf("%w: array of %d at offset %d, %d bytes left", ErrMalformed, n, r.at, len(r.b)-r.at))
		return 0
	}
	return n
}

// Tags skips the tags of a structure and returns them, including their count;
// nil if the message is not flexible.
func (r *Reader) Tags() []byte {
	if !r.Flexible {
		return nil
	}
	from := r.at
	for n := r.Uvarint(); n > 0 && r.err == nil; n-- {
		r.Uvarint()
		r.Span(int(r.Uvarint()))
	}
	if r.err != nil {
		return nil
	}
	return r.b[from:r.at:r.at]
}

// uvarint reads an unsigned varint of 32 bits. n is 0 if p is too short.
func uvarint(p []byte) (u uint32, n int, err error) {
	for i := 0; i < len(p) && i < 5; i++ {
		c := p[i]
		if i == 4 && c > 0x0f {
			return 0, 0, fmt.Errorf("%w: varint of more than 32 bits", ErrMalformed)
		}
		u |= uint32(c&0x7f) << (7 * i)
		if c < 0x80 {
			return u, i + 1, nil
		}
	}
	return 0, 0, nil
}
