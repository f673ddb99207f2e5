package trace

import (
	"encoding/binary"
	"math/rand/v2"
)

// NewTraceID returns a random ID, by the generator of the thread that runs: there is no
// lock.
func NewTraceID() (id ID) {
	for id == (ID{}) {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
		binary.BigEndian.PutUint64(id[8:], rand.Uint64())
	}
	return id
}

// NewSpanID returns a random ID.
func NewSpanID() (id SpanID) {
	for id == (SpanID{}) {
		binary.BigEndian.PutUint64(id[:], rand.Uint64())
	}
	return id
}

// IDOf derives the ID of a trace from what names a connection on all nodes that it
// passes. So they agree on it, and on whether it is sampled, and none has to remember it
// or tell it to another.
func IDOf(name []byte) (id ID) {
	a, b := digest(0x9E3779B97F4A7C15, name), digest(0xD1B54A32D192ED03, name)
	if a|b == 0 {
		b = 1
	}
	binary.BigEndian.PutUint64(id[:], a)
	binary.BigEndian.PutUint64(id[8:], b)
	return id
}

// SpanOf derives the ID of a span from its trace, the node that makes it, and what it is
// among those of that node.
func SpanOf(trace ID, node string, part uint64) (id SpanID) {
	h := digest(mix(binary.BigEndian.Uint64(trace[:])^part), trace[8:])
	for len(node) > 0 {
		var word [8]byte
		n := copy(word[:], node)
		node = node[n:]
		h = mix(h ^ binary.BigEndian.Uint64(word[:]))
	}
	binary.BigEndian.PutUint64(id[:], max(h, 1))
	return id
}

// digest hashes a few bytes. It need not resist anyone: names of connections are given by
// nodes, not by clients.
func digest(seed uint64, data []byte) uint64 {
	h := mix(seed ^ uint64(len(data)))
	for len(data) > 0 {
		var word [8]byte
		n := copy(word[:], data)
		data = data[n:]
		h = mix(h ^ binary.BigEndian.Uint64(word[:]))
	}
	return h
}

// mix is the finalizer of SplitMix64: each bit of x moves each bit of the result.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
