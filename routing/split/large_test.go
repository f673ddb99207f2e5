//go:build !race

package split

import (
	"slices"
	"testing"
)

// Tests of large inputs run without the race detector: they are
// single-threaded, and the detector slows them down tenfold. `make test` runs
// them in a second step.

func TestLargeWeightsAreExact(t *testing.T) {
	weights := []int{1_000_000, 999_983, 1, 0, 524_288, 3, 77_777, 1_000_000, 12, 1, 250_001, 9, 65_537, 31, 2, 127}
	s := New(weights, 0)
	counts := make([]int, len(weights))
	for range sum(weights) {
		counts[s.Next()]++
	}
	if !slices.Equal(counts, weights) {
		t.Errorf("got  %v\nwant %v", counts, weights)
	}
}
