package quota

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"penstock/routing/limit"
)

// moves is clients of nodes that attempt one and a half times a budget of 200 a second: all
// on one node, which changes every ten seconds, then half of it where it steps to.
func moves(at time.Duration, node, nodes int) float64 {
	const all = 300
	if at < 20*time.Second {
		return only(int(at/(10*time.Second))%nodes == node, all)
	}
	return all/2/float64(nodes) + only(int(at/(5*time.Second))%nodes == node, all/2)
}

// With Drivers, meters and buckets too, while one message in four is late, as between busy
// nodes.
func TestDriversUseTheBudgetWhereverClientsAre(t *testing.T) {
	for _, nodes := range []int{3, 10} {
		synctest.Test(t, func(t *testing.T) {
			const rate, turn = 200, 5 * time.Millisecond
			rng := rand.New(rand.NewPCG(1, 2))
			late := func() time.Duration {
				if rng.IntN(4) > 0 {
					return time.Duration(1+rng.IntN(10)) * time.Millisecond
				}
				return time.Duration(50+rng.IntN(50)) * time.Millisecond
			}
			o := newOffice(t, nodes)
			o.late.Store(&late)
			o.apply(limit.Connections, limit.Rate{N: rate, Per: time.Second, Burst: 100})
			var used []int // in each turn
			due := make([]float64, nodes)
			for at := time.Duration(0); at < 45*time.Second; at += turn {
				got := 0
				for i := range nodes {
					if due[i] += moves(at, i, nodes) * turn.Seconds(); due[i] >= 1 {
						got += o.take(i, int(due[i]))
						due[i] -= math.Floor(due[i])
					}
				}
				used = append(used, got)
				<-time.After(turn)
			}
			least, most := windowsOf(used[5*time.Second/turn:], int(10*time.Second/turn), rate*10)
			t.Logf("%d nodes: %.3f to %.3f", nodes, least, most)
			if least < 0.95 || most > 1.05 {
				t.Errorf("%d nodes: used in 10 s: between %.3f and %.3f of the budget, want 0.95 to 1.05", nodes, least, most)
			}
		})
	}
}

// windowsOf returns the least and the largest sum of width turns, relative to whole.
func windowsOf(used []int, width int, whole float64) (least, most float64) {
	sum := 0
	least = math.Inf(1)
	for i, got := range used {
		if sum += got; i >= width {
			sum -= used[i-width]
		}
		if i >= width-1 {
			least, most = min(least, float64(sum)/whole), max(most, float64(sum)/whole)
		}
	}
	return least, most
}
