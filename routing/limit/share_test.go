package limit

import "testing"

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
