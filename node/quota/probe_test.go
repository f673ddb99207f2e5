package quota

import (
	"fmt"
	"testing"
	"time"
)

func TestProbe(t *testing.T) {
	for _, mode := range []string{"quarter", "all17-66"} {
		for _, name := range []string{"even", "all on one", "swaps", "steps", "a wave", "bursts beside a steady node"} {
			for _, nodes := range []int{3, 10} {
				worst, asks := 2.0, 0.0
				most := 0.0
				for seed := range uint64(8) {
					w := newWorld(t, seed, nodes)
					w.delay = func() time.Duration {
						if mode != "quarter" {
							return time.Duration(17+w.rng.IntN(50)) * time.Millisecond
						}
						if w.rng.IntN(4) > 0 {
							return time.Duration(1+w.rng.IntN(10)) * time.Millisecond
						}
						return time.Duration(50+w.rng.IntN(150)) * time.Millisecond
					}
					w.elect(0)
					w.run(10*time.Second, func(time.Duration, int) float64 { return 0 })
					demand := loads[name](nodes)
					w.run(5*time.Second, demand)
					b := w.nodes[nodes-1].holder.seq
					w.run(2*time.Minute, demand)
					asks = float64(w.nodes[nodes-1].holder.seq-b) / 120
					l, m := w.windows(2 * time.Minute)
					worst, most = min(worst, l), max(most, m)
				}
				fmt.Printf("%-9s %-28s %2d least %.4f most %.4f asks/s %.1f\n", mode, name, nodes, worst, most, asks)
			}
		}
	}
}
