package limit

import (
	"testing"
	"time"
)

// The parts of a burst add up to it, however many nodes share it; each node has one unit
// at least.
func TestPartsOfABurstAddUpToIt(t *testing.T) {
	for of := 1; of <= 50; of++ {
		for _, whole := range []int64{1, 2, 5, 17, 50, 51, 1 << 40} {
			sum := int64(0)
			for i := range of {
				part := Place{i, of}.burst(whole)
				if part < 1 || part > whole/int64(of)+1 {
					t.Errorf("node %d of %d has %d of a burst of %d", i, of, part, whole)
				}
				sum += part
			}
			if sum != max(whole, int64(of)) {
				t.Errorf("%d nodes have %d of a burst of %d together", of, sum, whole)
			}
		}
	}
	if got := (Place{}).burst(7); got != 7 {
		t.Errorf("a node that knows of no others has %d of 7", got)
	}
}

// Before its first lease a node judges who may wait by an equal share, not by the little that
// it has: so many wait as the queue has room for.
func TestWhoComesBeforeTheFirstLeaseIsQueued(t *testing.T) {
	const queue = 20
	for _, of := range []int{1, 3, 10} {
		c := Config{MaxKeys: 10, Divided: true, Place: Place{Of: of}, MaxWait: time.Second, MaxQueue: queue}
		c.Rates[Connections] = Rate{N: 1000, Per: time.Second, Burst: int64(of)}
		b := New("l", c, 0).Bucket(Key{Text: "k"}, 0)
		now, waiting := 0, 0
		for range 3 * queue {
			switch wait, ok := b.Take(Connections, 1, 0); {
			case ok && wait > 0:
				waiting++
			case ok:
				now++
			}
		}
		if now != 1 || waiting != queue {
			t.Errorf("one of %d nodes admits %d at once and %d later, want 1 and %d", of, now, waiting, queue)
		}
	}
}

// What waits longer than it would at an equal share is refused.
func TestTheQueueBeforeTheFirstLeaseIsBoundedInTime(t *testing.T) {
	c := Config{MaxKeys: 10, Divided: true, Place: Place{Of: 2}, MaxWait: time.Second}
	c.Rates[Requests] = Rate{N: 100, Per: time.Second, Burst: 2}
	b := New("l", c, 0).Bucket(Key{Text: "k"}, 0)
	admitted := 0
	for range 1000 {
		if _, ok := b.Take(Requests, 1, 0); ok {
			admitted++
		}
	}
	if admitted < 50 || admitted > 51 {
		t.Errorf("%d may wait for a second, want those of a second at an equal share of 50", admitted-1)
	}
}
