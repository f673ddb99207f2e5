package endpoint

import (
	"sync/atomic"
	"time"
)

// BudgetWindow is the time over which a Budget looks back.
const BudgetWindow = budgetSlots * budgetSlot

const (
	budgetSlots = 10
	budgetSlot  = time.Second
)

// Budget bounds a service's retries to a share of its connections. The zero
// value is ready; all loops may use it, without locks.
type Budget struct {
	connections, retries window
}

// Connection counts a connection.
func (b *Budget) Connection(now time.Time) { b.connections.add(slot(now), 1) }

// Retry takes one retry if share percent of the connections of the last
// BudgetWindow (the slot of one second that is under way included), or
// minimum where that is more, are not used up.
func (b *Budget) Retry(share, minimum int, now time.Time) bool {
	at := slot(now)
	b.retries.add(at, 1) // first, so that two loops cannot both take the last one
	allowed := max(b.connections.sum(at)*int64(share)/100, int64(minimum))
	if b.retries.sum(at) <= allowed {
		return true
	}
	b.retries.add(at, -1)
	return false
}

// Counts are the connections and the retries in the window.
func (b *Budget) Counts(now time.Time) (connections, retries int64) {
	at := slot(now)
	return b.connections.sum(at), b.retries.sum(at)
}

func slot(now time.Time) uint32 { return uint32(Stamp(now) / int64(budgetSlot)) }

// window counts events of the last slots. Each slot holds its number in the
// upper half and its count in the lower one, so that both change together.
type window struct{ slots [budgetSlots]atomic.Uint64 }

func (w *window) add(at uint32, n int32) {
	s := &w.slots[at%budgetSlots]
	for {
		old := s.Load()
		number, count := uint32(old>>32), int32(old)
		switch age := int32(at - number); {
		case age > 0 || old == 0: // a slot of an earlier round, or of none
			number, count = at, 0
		case age < 0 && n < 0: // what is given back is gone already
			return
		}
		if s.CompareAndSwap(old, uint64(number)<<32|uint64(uint32(max(count+n, 0)))) {
			return
		}
	}
}

func (w *window) sum(at uint32) int64 {
	var sum int64
	for i := range w.slots {
		v := w.slots[i].Load()
		if age := int32(at - uint32(v>>32)); age < budgetSlots {
			sum += int64(int32(v))
		}
	}
	return sum
}
