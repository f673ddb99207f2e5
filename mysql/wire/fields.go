package wire

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Int reads a length-encoded integer of 1 to 9 bytes. ok is false if p is too
// short or begins with NULL (0xfb) or 0xff.
func Int(p []byte) (v uint64, n int, ok bool) {
	if len(p) == 0 {
		return 0, 0, false
	}
	switch first := p[0]; {
	case first < headerNull:
		return uint64(first), 1, true
	case first == 0xfc && len(p) >= 3:
		return uint64(binary.LittleEndian.Uint16(p[1:])), 3, true
	case first == 0xfd && len(p) >= 4:
		return uint64(p[1]) | uint64(p[2])<<8 | uint64(p[3])<<16, 4, true
	case first == 0xfe && len(p) >= 9:
		return binary.LittleEndian.Uint64(p[1:]), 9, true
	}
	return 0, 0, false
}

// AppendInt appends a length-encoded integer in the shortest form.
func AppendInt(dst []byte, v uint64) []byte {
	switch {
	case v < headerNull:
		return append(dst, byte(v))
	case v < 1<<16:
		return append(dst, 0xfc, byte(v), byte(v>>8))
	case v < 1<<24:
		return append(dst, 0xfd, byte(v), byte(v>>8), byte(v>>16))
	}
	return binary.LittleEndian.AppendUint64(append(dst, 0xfe), v)
}

// String reads a length-encoded string. s is a view of p; n counts the bytes of
// its length and of itself. ok is false if p is too short or begins with NULL.
func String(p []byte) (s []byte, n int, ok bool) {
	size, n, ok := Int(p)
	if !ok || size > uint64(len(p)-n) {
		return nil, 0, false
	}
	end := n + int(size)
	return p[n:end:end], end, true
}

// AppendString appends a length-encoded string.
func AppendString[S []byte | string](dst []byte, s S) []byte {
	return append(AppendInt(dst, uint64(len(s))), s...)
}

// appendNUL appends s up to its first NUL, and a NUL.
func appendNUL[S []byte | string](dst []byte, s S) []byte {
	for i := range len(s) {
		if s[i] == 0 {
			s = s[:i]
			break
		}
	}
	return append(append(dst, s...), 0)
}

// fields reads the payload of one kind of packet, field by field. After its first
// error it returns zero values. Slices that it returns are views of the payload.
type fields struct {
	packet string // for errors
	b      []byte // what is left
	err    error
}

// fail sets the error, unless there is one already.
func (f *fields) fail(field, what string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s: %s %s", ErrMalformed, f.packet, field, what)
		f.b = nil
	}
}

// done returns the first error, or one for bytes that are left.
func (f *fields) done() error {
	if f.err == nil && len(f.b) > 0 {
		f.fail("the end", fmt.Sprintf("is followed by %d bytes", len(f.b)))
	}
	return f.err
}

// span reads n bytes.
func (f *fields) span(n int, field string) []byte {
	if f.err == nil && n > len(f.b) {
		f.fail(field, fmt.Sprintf("needs %d bytes, %d are left", n, len(f.b)))
	}
	if f.err != nil {
		return nil
	}
	p := f.b[:n:n]
	f.b = f.b[n:]
	return p
}

func (f *fields) uint8(field string) byte {
	if p := f.span(1, field); p != nil {
		return p[0]
	}
	return 0
}

func (f *fields) uint16(field string) uint16 {
	if p := f.span(2, field); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

func (f *fields) uint32(field string) uint32 {
	if p := f.span(4, field); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

// int reads a length-encoded integer.
func (f *fields) int(field string) uint64 {
	v, n, ok := Int(f.b)
	if !ok {
		f.fail(field, "is not a length-encoded integer")
		return 0
	}
	f.b = f.b[n:]
	return v
}

// string reads a length-encoded string.
func (f *fields) string(field string) []byte {
	s, n, ok := String(f.b)
	if !ok {
		f.fail(field, "is not a length-encoded string, or longer than the packet")
		return nil
	}
	f.b = f.b[n:]
	return s
}

// nul reads a string that a NUL ends.
func (f *fields) nul(field string) []byte {
	i := bytes.IndexByte(f.b, 0)
	if i < 0 {
		f.fail(field, "has no NUL at its end")
		return nil
	}
	s := f.b[:i:i]
	f.b = f.b[i+1:]
	return s
}

// rest reads all that is left.
func (f *fields) rest() []byte {
	p := f.b
	f.b = nil
	return p
}
