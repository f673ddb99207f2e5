package logs

import (
	"encoding/binary"
	"slices"
	"time"
)

const (
	// minSegment is the least size of a segment: the largest line fits.
	minSegment = 32 << 10
	// segments is the number of segments in a large ring.
	segments = 16
	// remembered bounds the dropped segments of which the size is known.
	remembered = 64
)

// ring keeps lines in segments. It drops the oldest segment as a whole. A segment is only
// ever appended to, so that a reader needs no lock for what it has seen.
type ring struct {
	size      int // of a segment, in bytes
	most      int // segments
	segments  []segment
	dropped   []segment // the last ones, without their data
	forgotten uint64    // lines
}

// segment has lines, each as its number less that of the first, its length and its payload.
type segment struct {
	data        []byte
	first, last uint64    // numbers of lines
	latest      time.Time // of a line
	lines       int
}

func newRing(bytes int) ring {
	size := max(bytes/segments, minSegment)
	return ring{size: size, most: max(bytes/size, 2)}
}

// add appends a line. It has at most maxLine bytes.
func (r *ring) add(number uint64, at time.Time, payload []byte) {
	need := len(payload) + 2*binary.MaxVarintLen64
	if n := len(r.segments); n == 0 || len(r.segments[n-1].data)+need > r.size {
		if n >= r.most {
			r.dropOldest()
		}
		r.segments = append(r.segments, segment{data: make([]byte, 0, r.size), first: number})
	}
	s := &r.segments[len(r.segments)-1]
	s.data = binary.AppendUvarint(s.data, number-s.first)
	s.data = binary.AppendUvarint(s.data, uint64(len(payload)))
	s.data = append(s.data, payload...)
	s.last = number
	s.lines++
	if at.After(s.latest) {
		s.latest = at
	}
}

func (r *ring) dropOldest() {
	s := r.segments[0]
	r.forgotten += uint64(s.lines) //nolint:gosec // not negative
	s.data = nil
	if len(r.dropped) >= remembered {
		r.dropped = slices.Delete(r.dropped, 0, 1)
	}
	r.dropped = append(r.dropped, s)
	r.segments = slices.Delete(r.segments, 0, 1)
}

// lost returns how many lines after a position were dropped. If only some of a segment's
// are after it, the first ones of those may be counted that are not.
func (r *ring) lost(after uint64) (n uint64) {
	for _, s := range r.dropped {
		if s.last > after {
			n += min(uint64(s.lines), s.last-after) //nolint:gosec // not negative
		}
	}
	return n
}

func (r *ring) stats() RingStats {
	s := RingStats{Forgotten: r.forgotten}
	for i := range r.segments {
		s.Bytes += cap(r.segments[i].data)
		s.Lines += r.segments[i].lines
	}
	return s
}

// each calls do with each line after a position, in order.
func (s *segment) each(after uint64, do func(number uint64, payload []byte)) {
	for data := s.data; len(data) > 0; {
		delta, n := binary.Uvarint(data)
		size, m := binary.Uvarint(data[n:])
		data = data[n+m:]
		if number := s.first + delta; number > after {
			do(number, data[:size])
		}
		data = data[size:]
	}
}
