package session

import (
	"sync"

	"penstock/kafka/wire"
)

// Buffers for frames that are collected come in a few sizes and are used again
// by whichever session needs one next: an idle session holds none.
var bufferSizes = [...]int{1 << 10, 8 << 10, 64 << 10, 256 << 10}

var buffers [len(bufferSizes)]sync.Pool

// unchargedBuffer is the size up to which a buffer is not charged to the node's
// budget.
const unchargedBuffer = 8 << 10

// unchargedHeader is the same for the beginning of a frame whose header is not
// complete. Client ids may be long.
const unchargedHeader = 1 << 10

type buffer struct{ b []byte }

// newBuffer returns an empty buffer with room for n bytes.
func newBuffer(n int) *buffer {
	for i, size := range bufferSizes {
		if n <= size {
			if b, ok := buffers[i].Get().(*buffer); ok {
				b.b = b.b[:0]
				return b
			}
			return &buffer{make([]byte, 0, size)}
		}
	}
	return &buffer{make([]byte, 0, n)}
}

// bufferSize is the capacity of newBuffer(n).
func bufferSize(n int) int {
	for _, size := range bufferSizes {
		if n <= size {
			return size
		}
	}
	return n
}

// release puts the buffer back into its pool. Nothing may hold a part of it.
func (b *buffer) release() {
	for i, size := range bufferSizes {
		if cap(b.b) == size {
			buffers[i].Put(b)
			return
		}
	}
}

// scratchSize is how many edited bytes a walk collects before it sends them.
const scratchSize = 64 << 10

var walkers = sync.Pool{New: func() any { return new(wire.Walker) }}
