package rpc

import (
	"encoding/binary"
	"fmt"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

const (
	// maxDepth bounds nesting: the decoder recurses, and a stack overflow would
	// end the process.
	maxDepth = 32
	// elementCost is roughly how many bytes decoding may allocate per element: the
	// decoder allocates a slice of the announced length.
	elementCost = 64
)

// checkValue checks that b is exactly one msgpack value, nested at most
// maxDepth deep and with at most maxElements elements, and returns their
// number. It neither recurses nor allocates.
func checkValue(b []byte, maxElements int) (elements int, err error) {
	var open [maxDepth]int // values still expected at each level
	depth, pos := 0, 0
	open[0] = 1
	for {
		for open[depth] == 0 {
			if depth == 0 {
				if pos != len(b) {
					return 0, fmt.Errorf("%w: %d bytes after the value", ErrFrame, len(b)-pos)
				}
				return elements, nil
			}
			depth--
		}
		open[depth]--
		if elements++; elements > maxElements {
			return 0, fmt.Errorf("%w: more than %d elements", ErrFrameSize, maxElements)
		}
		size, inner, ok := measure(b[pos:])
		if !ok || size > len(b)-pos {
			return 0, fmt.Errorf("%w: truncated or unknown value at byte %d", ErrFrame, pos)
		}
		pos += size
		if inner == 0 {
			continue
		}
		if inner > len(b)-pos { // each takes at least one byte
			return 0, fmt.Errorf("%w: %d elements announced at byte %d, %d bytes left", ErrFrame, inner, pos, len(b)-pos)
		}
		if depth++; depth == maxDepth {
			return 0, fmt.Errorf("%w: nested deeper than %d", ErrFrame, maxDepth)
		}
		open[depth] = inner
	}
}

// measure parses the head of a value. size is its length in bytes without
// nested elements, inner the number of elements that follow (two per map
// entry).
func measure(b []byte) (size, inner int, ok bool) {
	if len(b) == 0 {
		return 0, 0, false
	}
	c := b[0]
	switch {
	case msgpcode.IsFixedNum(c):
		return 1, 0, true
	case msgpcode.IsFixedMap(c):
		return 1, 2 * int(c&msgpcode.FixedMapMask), true
	case msgpcode.IsFixedArray(c):
		return 1, int(c & msgpcode.FixedArrayMask), true
	case msgpcode.IsFixedString(c):
		return 1 + int(c&msgpcode.FixedStrMask), 0, true
	}
	switch c {
	case msgpcode.Nil, msgpcode.False, msgpcode.True:
		return 1, 0, true
	case msgpcode.Uint8, msgpcode.Int8:
		return 2, 0, true
	case msgpcode.Uint16, msgpcode.Int16:
		return 3, 0, true
	case msgpcode.Uint32, msgpcode.Int32, msgpcode.Float:
		return 5, 0, true
	case msgpcode.Uint64, msgpcode.Int64, msgpcode.Double:
		return 9, 0, true
	case msgpcode.Bin8, msgpcode.Str8:
		return sized(b, 1, 1)
	case msgpcode.Bin16, msgpcode.Str16:
		return sized(b, 2, 1)
	case msgpcode.Bin32, msgpcode.Str32:
		return sized(b, 4, 1)
	case msgpcode.Array16:
		return counted(b, 2, 1)
	case msgpcode.Array32:
		return counted(b, 4, 1)
	case msgpcode.Map16:
		return counted(b, 2, 2)
	case msgpcode.Map32:
		return counted(b, 4, 2)
	case msgpcode.FixExt1, msgpcode.FixExt2, msgpcode.FixExt4, msgpcode.FixExt8, msgpcode.FixExt16:
		return 2 + 1<<(c-msgpcode.FixExt1), 0, true
	case msgpcode.Ext8:
		return sized(b, 1, 2)
	case msgpcode.Ext16:
		return sized(b, 2, 2)
	case msgpcode.Ext32:
		return sized(b, 4, 2)
	}
	return 0, 0, false
}

// sized measures a value whose length is encoded in width bytes after its code;
// head counts the other bytes of its head (the code, the type of an ext).
func sized(b []byte, width, head int) (size, inner int, ok bool) {
	n, ok := length(b, width)
	return head + width + n, 0, ok
}

// counted measures a container whose count is encoded in width bytes after its
// code; each unit of it stands for per elements.
func counted(b []byte, width, per int) (size, inner int, ok bool) {
	n, ok := length(b, width)
	return 1 + width, n * per, ok
}

func length(b []byte, width int) (int, bool) {
	if len(b) < 1+width {
		return 0, false
	}
	switch width {
	case 1:
		return int(b[1]), true
	case 2:
		return int(binary.BigEndian.Uint16(b[1:])), true
	default:
		return int(binary.BigEndian.Uint32(b[1:])), true
	}
}
