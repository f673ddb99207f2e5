package quota

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// On busy nodes, where one message in four is 50 to 200 ms late, shares follow demand that
// moves later: less of the budget is used, never more than it.
func TestLateReportsLeaveLittleOfTheBudgetUnused(t *testing.T) {
	for _, name := range []string{"even", "all on one", "swaps", "steps", "a wave"} {
		for _, nodes := range []int{3, 10} {
			for seed := range uint64(3) {
				w := newWorld(t, seed, nodes)
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
				if least, most := w.windows(d); least < 0.95 || most > 1+1e-9 {
					t.Errorf("%s on %d nodes: used in 10 s: between %.3f and %.3f of the budget, want 0.95 to 1", name, nodes, least, most)
				}
			}
		}
	}
}

// Whatever demand does every five seconds, and however late messages are, a move leaves
// unused what comes in the time of four messages and three turns at most. run checks at each
// step that no more than the budget is used.
func TestAMoveOfDemandCostsAFewMessages(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(2, 12).Draw(rt, "nodes")
		w := newWorld(t, rapid.Uint64().Draw(rt, "seed"), nodes)
		longest := time.Duration(rapid.IntRange(1, 150).Draw(rt, "longest")) * time.Millisecond
		late := rapid.IntRange(1, 4).Draw(rt, "one in so many is late")
		w.delay = func() time.Duration {
			if w.rng.IntN(late) > 0 {
				return time.Millisecond
			}
			return 1 + time.Duration(w.rng.Int64N(int64(longest)))
		}
		w.elect(0)
		w.run(10*time.Second, func(time.Duration, int) float64 { return 0 })
		demands := make([]float64, nodes)
		const move, moves = 5 * time.Second, 4
		for range 1 + moves {
			sum := 0.0
			for i := range demands {
				demands[i] = float64(w.rng.IntN(2) * w.rng.IntN(3) * 500)
				sum += demands[i]
			}
			demands[w.rng.IntN(nodes)] += max(1200-sum, 0)
			w.run(move, func(_ time.Duration, node int) float64 { return demands[node] })
		}
		const atOnce = 3 // moves in 10 s, at the beginning and end too
		least, most := w.windows(moves * move)
		cost := (4*longest + 3*tick + 4*step).Seconds() * atOnce / 10
		if want := 1 - idlePercent/100 - cost; least < want || most > 1+1e-9 {
			rt.Fatalf("used in 10 s: between %.3f and %.3f of the budget, want %.3f to 1", least, most, want)
		}
	})
}
