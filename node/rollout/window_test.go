package rollout

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestWindowCountsOnlyItsSpan: only counts within the window matter, whatever
// precedes the leader's term, and even if a node restarts.
func TestWindowCountsOnlyItsSpan(t *testing.T) {
	var w window
	say := func(second int, node string, connects, failed uint64) Counts {
		at := t0.Add(time.Duration(second) * time.Second)
		w.add(node, at, NodeObservation{Counts: Counts{Connects: connects, Failed: failed}}, 10*time.Second)
		return w.total(at, 10*time.Second)
	}
	for i, x := range []struct {
		second           int
		node             string
		connects, failed uint64
		want             Counts
	}{
		{0, "a", 1000, 900, Counts{}}, // before this leader
		{5, "a", 1100, 905, Counts{Connects: 100, Failed: 5}},
		{5, "b", 7, 7, Counts{Connects: 100, Failed: 5}},
		{6, "b", 9, 8, Counts{Connects: 102, Failed: 6}},
		{10, "a", 1100, 905, Counts{Connects: 102, Failed: 6}},
		{15, "a", 1100, 905, Counts{Connects: 2, Failed: 1}}, // counts up to 5s are out of the window
		{16, "b", 3, 1, Counts{Connects: 3, Failed: 1}},      // b has restarted
		{17, "b", 4, 1, Counts{Connects: 4, Failed: 1}},
		{40, "a", 1100, 905, Counts{}}, // b has not responded for long
		{41, "b", 10, 9, Counts{}},     // and starts over
		{42, "b", 12, 9, Counts{Connects: 2}},
	} {
		if got := say(x.second, x.node, x.connects, x.failed); got != x.want {
			t.Fatalf("%d: after %+v the window has %+v, want %+v", i, x, got, x.want)
		}
	}
}

// TestWindowIsExactAndBounded compares with an oracle that keeps everything:
// at least the counts within the window, at most those of a slightly longer
// window, and a bounded number of samples.
func TestWindowIsExactAndBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const length = time.Minute
		var w window
		type said struct {
			at time.Time
			n  uint64
		}
		at, all := t0, []said{{t0, 0}}
		w.add("a", at, NodeObservation{}, length)
		for range rapid.IntRange(1, 400).Draw(t, "answers") {
			at = at.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			n := all[len(all)-1].n + rapid.Uint64Range(0, 10).Draw(t, "more")
			all = append(all, said{at, n})
			w.add("a", at, NodeObservation{Counts: Counts{Connects: n}}, length)
			got := w.total(at, length).Connects
			upTo := func(from time.Time) uint64 { // the last count by then
				var last uint64
				for _, s := range all {
					if !s.at.After(from) {
						last = s.n
					}
				}
				return last
			}
			least, most := n-upTo(at.Add(-length)), n-upTo(at.Add(-length-5*time.Second))
			if got < least || got > most {
				t.Fatalf("%v after the start: %d in the window, want %d to %d", at.Sub(t0), got, least, most)
			}
			if kept := len(w.nodes["a"].samples); kept > maxSamples {
				t.Fatalf("%d samples are kept", kept)
			}
		}
	})
}

// TestWindowStartsWithItsRollout: a leader that has started a rollout counts
// from its first connection, even on nodes that apply it a little later.
func TestWindowStartsWithItsRollout(t *testing.T) {
	w := &window{storedAt: t0}
	for i, x := range []struct {
		after    time.Duration
		node     string
		counting time.Duration
		said     Counts
		want     Counts // in the window after it
	}{
		{time.Second, "a", 2 * time.Second, Counts{40, 30, 0}, Counts{40, 30, 0}},
		{2 * time.Second, "a", 3 * time.Second, Counts{41, 30, 0}, Counts{41, 30, 0}},
		{2 * time.Second, "b", time.Second, Counts{9, 9, 0}, Counts{50, 39, 0}},
		{10 * time.Second, "behind", time.Hour, Counts{1000, 900, 0}, Counts{50, 39, 0}}, // of an earlier rollout
		{11 * time.Second, "behind", time.Hour, Counts{1003, 901, 0}, Counts{53, 40, 0}},
		{50 * time.Second, "slow", 50 * time.Second, Counts{5, 1, 0}, Counts{58, 41, 0}},
		{62 * time.Second, "late", 62 * time.Second, Counts{5000, 4000, 0}, Counts{17, 11, 0}}, // partly out of the window
		{62 * time.Second, "begun anew", time.Second, Counts{2, 1, 0}, Counts{19, 12, 0}},
	} {
		at := t0.Add(x.after)
		w.add(x.node, at, NodeObservation{Counts: x.said, Counting: x.counting}, time.Minute)
		if got := w.total(at, time.Minute); got != x.want {
			t.Errorf("%d: %s reports %+v, and the window has %+v, want %+v", i, x.node, x.said, got, x.want)
		}
	}
}

// TestLateReportsAreNotCountedAsCurrent: if a node first responds an hour after
// the start, its counts cover an hour, and only the last minute may be judged.
func TestLateReportsAreNotCountedAsCurrent(t *testing.T) {
	r := longSteps()
	x := newFixture(r, nil)
	x.setCounts(0, 0)
	x.Round(t.Context())
	x.ask = func(context.Context) []Report {
		late := NodeObservation{Counts: Counts{Connects: 5000, Failed: 4000}, Counting: time.Hour, Endpoints: 1}
		return []Report{{ID: "2", Node: "late", ByRoute: map[string]NodeObservation{"canary": late}}}
	}
	for range 3 {
		x.Round(t.Context())
	}
	if got := x.phases(); got != "running" {
		t.Errorf("it is %s", got)
	}
	x.ask = func(context.Context) []Report {
		fresh := NodeObservation{Counts: Counts{Connects: 50, Failed: 40}, Counting: time.Second, Endpoints: 1}
		return []Report{{ID: "3", Node: "quick", ByRoute: map[string]NodeObservation{"canary": fresh}}}
	}
	x.Round(t.Context())
	if got := x.phases(); got != "running aborted" {
		t.Errorf("with the failures since its start it is %s", got)
	}
}
