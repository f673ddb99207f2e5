package quota

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever fails, the sum of what all nodes may use never exceeds the budget: run
// checks it at every step.
func TestNoFaultLetsNodesUseMoreThanTheBudget(t *testing.T) {
	faults := map[string]func(w *world, at time.Duration){
		"the leader changes": func(w *world, at time.Duration) {
			if at%(4*time.Second) == 0 {
				w.elect(w.rng.IntN(len(w.nodes)))
			}
		},
		"the leader stalls and comes back": func(w *world, at time.Duration) {
			if at%(9*time.Second) == 0 {
				w.nodes[w.leader].until = w.now + time.Duration(w.rng.Int64N(int64(5*time.Second)))
			}
			if at%(9*time.Second) == 3*time.Second {
				w.elect((w.leader + 1) % len(w.nodes))
			}
		},
		"a node stalls": func(w *world, at time.Duration) {
			if at%(5*time.Second) == 0 {
				w.nodes[w.rng.IntN(len(w.nodes))].until = w.now + time.Duration(w.rng.Int64N(int64(9*time.Second)))
			}
		},
		"messages are lost and late": func(w *world, at time.Duration) {
			w.loss = 0.3
			w.delay = func() time.Duration {
				return time.Duration(1+w.rng.IntN(5)*w.rng.IntN(5)*w.rng.IntN(200)) * time.Millisecond
			}
		},
		"a node is cut off": func(w *world, at time.Duration) {
			off := int(at/(20*time.Second)) % len(w.nodes)
			w.cut = func(a, b int) bool { return at%(20*time.Second) > 10*time.Second && a != b && (a == off || b == off) }
		},
		"the leader is cut off": func(w *world, at time.Duration) {
			if at%(20*time.Second) == 0 {
				off := w.leader
				from := w.now
				w.cut = func(a, b int) bool { return w.now < from+12*time.Second && a != b && (a == off || b == off) }
				w.after(time.Duration(w.rng.Int64N(int64(4*time.Second))), func() { w.elect((off + 1) % len(w.nodes)) })
			}
		},
		"there is no leader": func(w *world, at time.Duration) {
			if at == 20*time.Second {
				w.cut = func(int, int) bool { return true }
			}
		},
		"a node restarts": func(w *world, at time.Duration) {
			if at%(3*time.Second) == 0 {
				n := w.nodes[w.rng.IntN(len(w.nodes))]
				n.holder, n.asking = NewHolder(w.rng.Uint64()|1, n.clock(w.now), len(w.nodes)), nil
			}
		},
	}
	for name, fault := range faults {
		for _, nodes := range []int{3, 10} {
			for seed := range uint64(4) {
				t.Run(fmt.Sprintf("%s %d %d", name, nodes, seed), func(t *testing.T) {
					w := newWorld(t, seed, nodes)
					w.elect(0)
					demand := loads["swaps"](nodes)
					w.run(time.Minute, func(at time.Duration, node int) float64 {
						if node == 0 {
							fault(w, at)
						}
						return demand(at, node)
					})
				})
			}
		}
	}
}

// All faults at once, in an order that chance picks.
func TestAnyMixOfFaultsKeepsTheSumWithinTheBudget(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		nodes := rapid.IntRange(1, 6).Draw(rt, "nodes")
		w := newWorld(t, rapid.Uint64().Draw(rt, "seed"), nodes)
		w.budget.Floor = rapid.SampledFrom([]float64{0, 0.5, 10, 100}).Draw(rt, "floor")
		w.elect(0)
		for range rapid.IntRange(1, 8).Draw(rt, "phases") {
			node := rapid.IntRange(0, nodes-1).Draw(rt, "node")
			switch rapid.SampledFrom([]string{"elect", "stall", "cut", "heal", "restart", "loss", "late"}).Draw(rt, "fault") {
			case "elect":
				w.elect(node)
			case "stall":
				w.nodes[node].until = w.now + time.Duration(rapid.IntRange(1, 10_000).Draw(rt, "ms"))*time.Millisecond
			case "cut":
				w.cut = func(a, b int) bool { return a != b && (a == node || b == node) }
			case "heal":
				w.cut, w.loss = func(int, int) bool { return false }, 0
			case "restart":
				n := w.nodes[node]
				n.holder, n.asking = NewHolder(w.rng.Uint64()|1, n.clock(w.now), len(w.nodes)), nil
			case "loss":
				w.loss = 0.5
			case "late":
				longest := rapid.IntRange(1, 3000).Draw(rt, "longest")
				w.delay = func() time.Duration { return time.Duration(1+w.rng.IntN(longest)) * time.Millisecond }
			}
			busy := rapid.IntRange(-1, nodes-1).Draw(rt, "busy")
			w.run(time.Duration(rapid.IntRange(100, 9000).Draw(rt, "length"))*time.Millisecond, func(_ time.Duration, node int) float64 {
				if busy < 0 {
					return 600
				}
				return only(node == busy, 5000)
			})
		}
	})
}

func TestANodeThatIsCutOffSpendsItsLeaseThenItsFloor(t *testing.T) {
	w := newWorld(t, 1, 3)
	w.budget.Floor = 50
	w.elect(0)
	busy := loads["all on one"](3)
	w.run(15*time.Second, busy)
	rate := func() float64 { return w.nodes[1].holder.Rate(w.nodes[1].clock(w.now), simKey, w.budget) }
	if rate() < 900 {
		t.Fatalf("with all demand the node has %v of 1000", rate())
	}
	w.cut = func(a, b int) bool { return a != b && (a == 1 || b == 1) }
	w.run(LeaseTime/2, busy)
	if rate() < 900 {
		t.Errorf("%v after the cut the node has %v: it should spend its lease", LeaseTime/2, rate())
	}
	w.run(3*LeaseTime, busy)
	if want := 1000.0 / 3 / 2; rate() != want || !w.nodes[1].holder.OnFloor(w.nodes[1].clock(w.now)) {
		t.Errorf("after its lease the node has %v, want its floor %v", rate(), want)
	}
	w.run(10*time.Second, func(_ time.Duration, node int) float64 { return only(node == 2, 3000) })
	if got := w.nodes[2].holder.Rate(w.nodes[2].clock(w.now), simKey, w.budget); got < 800 || got > 1000-1000.0/6 {
		t.Errorf("beside a node that was cut off another has %v, want all but its floor", got)
	}
	w.cut = func(int, int) bool { return false }
	w.run(10*time.Second, busy)
	if rate() < 900 {
		t.Errorf("after the cut the node has %v of 1000", rate())
	}
}

func TestANewLeaderTakesOverWithinALease(t *testing.T) {
	w := newWorld(t, 1, 3)
	w.elect(0)
	busy := loads["all on one"](3)
	w.run(15*time.Second, busy)
	w.elect(2)
	w.run(LeaseTime+Interval, busy)
	if got := w.nodes[1].holder.Rate(w.nodes[1].clock(w.now), simKey, w.budget); got < 900 {
		t.Errorf("%v after the leader changed the only busy node has %v of 1000", LeaseTime+Interval, got)
	}
}

// Demand that begins on an idle node is served from what the leader holds back.
func TestDemandThatBeginsIsServedAtOnceWhileThereIsRoom(t *testing.T) {
	w := newWorld(t, 1, 3)
	w.elect(0)
	w.run(10*time.Second, func(_ time.Duration, node int) float64 { return only(node == 0, 200) })
	w.run(4*tick, func(_ time.Duration, node int) float64 { return only(node == 0, 200) + only(node == 1, 300) })
	if got := w.nodes[1].holder.Rate(w.nodes[1].clock(w.now), simKey, w.budget); got < 300 {
		t.Errorf("after %v the node may use %v, want 300", 4*tick, got)
	}
}
