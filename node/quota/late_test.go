package quota

import (
	"testing"
	"time"
)

// On busy nodes, where one message in four is 50 to 200 ms late, shares follow demand that
// moves later: less of the budget is used, never more than it.
func TestLateReportsLeaveLittleOfTheBudgetUnused(t *testing.T) {
	for _, name := range []string{"even", "all on one", "swaps", "steps", "a wave"} {
		for _, nodes := range []int{3, 10} {
			w := newWorld(t, 1, nodes)
			w.delay = func() time.Duration {
				if w.rng.IntN(4) > 0 {
					return time.Duration(1+w.rng.IntN(10)) * time.Millisecond
				}
				return time.Duration(50+w.rng.IntN(150)) * time.Millisecond
			}
			w.elect(0)
			w.run(10*time.Second, func(time.Duration, int) float64 { return 0 })
			demand := loads[name](nodes)
			w.run(5*time.Second, demand)
			const d = 2 * time.Minute
			w.run(d, demand)
			if least, most := w.windows(d); least < 0.93 || most > 1 {
				t.Errorf("%s on %d nodes: used in 10 s: between %.3f and %.3f of the budget, want 0.93 to 1", name, nodes, least, most)
			}
		}
	}
}
