package telemetry

import (
	"encoding/binary"
	"iter"
	"math"
	"slices"
)

// ring holds the values of one series over a window of slots. Only changes are stored,
// so a value that stays costs nothing:
//
//	buf = { uvarint(slots since the last entry << 1 | raw) value }...
//
// where a value is the zigzag varint of its difference from the one before, or, if raw
// is set because one of the two is no integer, the eight bytes of a float64.
type ring struct {
	base, last float64 // the values before the first entry and after the last one
	from       uint32  // the slot of the first value
	origin, at uint32  // the slots from which the first entry counts, and of the last one
	buf        []byte
}

// maxInteger is the magnitude up to which all integers are float64 values.
const maxInteger = 1 << 53

func isInteger(v float64) bool { return v == math.Trunc(v) && math.Abs(v) <= maxInteger/2 }

// start makes v the value from slot on.
func (r *ring) start(slot uint32, v float64) {
	*r = ring{base: v, last: v, from: slot, origin: slot, at: slot, buf: r.buf[:0]}
}

// set makes v the value from slot on, which is not before the last one.
func (r *ring) set(slot uint32, v float64) {
	if math.Float64bits(v) == math.Float64bits(r.last) {
		return
	}
	gap := uint64(slot-r.at) << 1
	if isInteger(v) && isInteger(r.last) {
		r.buf = binary.AppendUvarint(r.buf, gap)
		r.buf = binary.AppendVarint(r.buf, int64(v)-int64(r.last))
	} else {
		r.buf = binary.AppendUvarint(r.buf, gap|1)
		r.buf = binary.BigEndian.AppendUint64(r.buf, math.Float64bits(v))
	}
	r.at, r.last = slot, v
}

// next returns the entry at the beginning of buf, its slot and value, given those of the
// entry before, and its size.
func next(buf []byte, at uint32, v float64) (uint32, float64, int) {
	gap, n := binary.Uvarint(buf)
	at += uint32(gap >> 1)
	if gap&1 != 0 {
		return at, math.Float64frombits(binary.BigEndian.Uint64(buf[n:])), n + 8
	}
	d, m := binary.Varint(buf[n:])
	return at, v + float64(d), n + m
}

// trim forgets the values before slot.
func (r *ring) trim(slot uint32) {
	if slot <= r.from {
		return
	}
	at, v, used := r.origin, r.base, 0
	for used < len(r.buf) {
		nextAt, nextV, n := next(r.buf[used:], at, v)
		if nextAt > slot {
			break
		}
		at, v, used = nextAt, nextV, used+n
	}
	r.from, r.origin, r.base = slot, at, v
	switch {
	case used == 0:
	case used == len(r.buf):
		r.buf = nil
	default:
		r.buf = slices.Clone(r.buf[used:])
	}
}

// values yields the value in each slot from first up to and including last, and false
// where there is none yet.
func (r *ring) values(first, last uint32) iter.Seq2[float64, bool] {
	return func(yield func(float64, bool) bool) {
		at, v, buf := r.origin, r.base, r.buf
		nextAt, nextV, n := at, v, 0
		if len(buf) > 0 {
			nextAt, nextV, n = next(buf, at, v)
		}
		for slot := first; slot <= last; slot++ {
			for n > 0 && nextAt <= slot {
				at, v, buf = nextAt, nextV, buf[n:]
				if n = 0; len(buf) > 0 {
					nextAt, nextV, n = next(buf, at, v)
				}
			}
			if !yield(v, slot >= r.from) {
				return
			}
		}
	}
}

// size is the memory that the entries take.
func (r *ring) size() int { return cap(r.buf) }
