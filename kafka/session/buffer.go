package session

import (
	"sync"

	"penstock/kafka/wire"
)

// Buffers for frames that are collected come in a few sizes and are used again
// by whichever session needs one next: an idle session holds none.
var bufferSizes = [...]int{1 << 10, 8 << 10, 64 << 10, 256 << 10}

var buffers [len(bufferSizes)]sync.Pool

// freeBuffer is up to which size a buffer is not charged to the node's budget.
const freeBuffer = 8 << 10

// freeHeader is the same for the beginning of a frame that is not looked at yet.
// Client ids may be long.
const freeHeader = 1 << 10

type buffer struct{ b []byte }

// newBuffer gives an empty one with room for n bytes.
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

// give gives it back. Nothing may hold a part of it.
func (b *buffer) give() {
	for i, size := range bufferSizes {
		if cap(b.b) == size {
			buffers[i].Put(b)
			return
		}
	}
}

// scratchSize is for what a walk puts together at once.
const scratchSize = 64 << 10

var walkers = sync.Pool{New: func() any { return new(wire.Walker) }}
