//go:build !race

package balance

import "testing"

// Tests of large inputs run without the race detector: they are
// single-threaded, and the detector slows them down tenfold. `make test` runs
// them in a second step.

func TestLargeWeightsTakeTurns(t *testing.T) {
	p := New(Config{}, group(1_000_000, 1), nil)
	if got := picks(p, 1_000_001, t0); got[1] != 1 {
		t.Errorf("got %v", got)
	}
}
