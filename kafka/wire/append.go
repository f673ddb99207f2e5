package wire

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// maxString is the longest string of a message that is not flexible, in bytes.
const maxString = math.MaxInt16

// AppendInt16 appends two bytes.
func AppendInt16(dst []byte, v int16) []byte { return binary.BigEndian.AppendUint16(dst, uint16(v)) }

// AppendInt32 appends four bytes.
func AppendInt32(dst []byte, v int32) []byte { return binary.BigEndian.AppendUint32(dst, uint32(v)) }

// AppendUvarint appends an unsigned varint in minimal form.
func AppendUvarint(dst []byte, u uint32) []byte { return binary.AppendUvarint(dst, uint64(u)) }

// UvarintLen returns how many bytes AppendUvarint appends: 1 to 5.
func UvarintLen(u uint32) int { return (bits.Len32(u|1) + 6) / 7 }

// AppendUvarintSize appends an unsigned varint in exactly size bytes, at least
// UvarintLen and at most 5, padded with continuation bytes. All readers of the
// protocol accept padding.
func AppendUvarintSize(dst []byte, u uint32, size int) []byte {
	for range size - 1 {
		dst = append(dst, byte(u)|0x80)
		u >>= 7
	}
	return append(dst, byte(u))
}

// AppendString appends a string, in compact form if flexible.
func AppendString[S []byte | string](dst []byte, s S, flexible bool) []byte {
	if flexible {
		dst = AppendUvarint(dst, uint32(len(s))+1)
	} else {
		dst = AppendInt16(dst, int16(len(s)))
	}
	return append(dst, s...)
}

// AppendNull appends the null of a string or, if flexible, of any type.
func AppendNull(dst []byte, flexible bool) []byte {
	if flexible {
		return append(dst, 0)
	}
	return append(dst, 0xff, 0xff)
}

// AppendArray appends the length of an array; -1 is null.
func AppendArray(dst []byte, n int, flexible bool) []byte {
	if flexible {
		return AppendUvarint(dst, uint32(n+1))
	}
	return AppendInt32(dst, int32(n))
}

// AppendTag appends one tagged field. The caller appends the count of tags.
func AppendTag(dst []byte, id uint32, value []byte) []byte {
	dst = AppendUvarint(dst, id)
	dst = AppendUvarint(dst, uint32(len(value)))
	return append(dst, value...)
}
