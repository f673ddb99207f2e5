package endpoint

import (
	"sync/atomic"
	"time"
)

// BudgetWindow is the period that a Budget covers.
const BudgetWindow = budgetSlots * budgetSlot

const (
	budgetSlots = 10
	budgetSlot  = time.Second
)

// Budget limits a service's retries to a share of its connections. The zero
// value is ready to use. It is safe for concurrent use, without locks.
type Budget struct {
	connections, retries window
}

// Connection counts a connection.
func (b *Budget) Connection(now time.Time) { b.connections.add(slot(now), 1) }

// Retry takes one retry and returns true if the retries of the last
// BudgetWindow (including the current slot of one second) are below share
// percent of its connections, or below minimum if that is more.
func (b *Budget) Retry(share, minimum int, now time.Time) bool {
	at := slot(now)
	b.retries.add(at, 1) // before the check, so that two loops cannot both take the last one
	allowed := max(b.connections.sum(at)*int64(share)/100, int64(minimum))
	if b.retries.sum(at) <= allowed {
		return true
	}
	b.retries.add(at, -1)
	return false
}

// Counts returns the connections and the retries in the window.
func (b *Budget) Counts(now time.Time) (connections, retries int64) {
	at := slot(now)
	return b.connections.sum(at), b.retries.sum(at)
}

func slot(now time.Time) uint32 { return uint32(Stamp(now) / int64(budgetSlot)) }

// window counts events in the last slots. Each slot has its number in the upper
// half and its count in the lower half, so that both change atomically.
type window struct{ slots [budgetSlots]atomic.Uint64 }

func (w *window) add(at uint32, n int32) {
	s := &w.slots[at%budgetSlots]
	for {
		old := s.Load()
		number, count := uint32(old>>32), int32(old)
		switch age := int32(at - number); {
		case age > 0 || old == 0: // an expired or unused slot
			number, count = at, 0
		case age < 0 && n < 0: // the count to reduce has expired
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
