package rollout

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// What counts is what was counted within the window, whatever came before the
// leader began to look, and whether or not a node begins to count anew.
func TestAWindowCountsWhatIsInIt(t *testing.T) {
	var w window
	say := func(second int, node string, connects, failed uint64) Counts {
		at := t0.Add(time.Duration(second) * time.Second)
		w.add(node, at, Counts{Connects: connects, Failed: failed}, 10*time.Second)
		return w.since(at, 10*time.Second)
	}
	for i, x := range []struct {
		second           int
		node             string
		connects, failed uint64
		want             Counts
	}{
		{0, "a", 1000, 900, Counts{}}, // before this leader's time
		{5, "a", 1100, 905, Counts{Connects: 100, Failed: 5}},
		{5, "b", 7, 7, Counts{Connects: 100, Failed: 5}},
		{6, "b", 9, 8, Counts{Connects: 102, Failed: 6}},
		{10, "a", 1100, 905, Counts{Connects: 102, Failed: 6}},
		{15, "a", 1100, 905, Counts{Connects: 2, Failed: 1}}, // what was until 5 is past
		{16, "b", 3, 1, Counts{Connects: 3, Failed: 1}},      // it has begun anew
		{17, "b", 4, 1, Counts{Connects: 4, Failed: 1}},      //
		{40, "a", 1100, 905, Counts{}},                       // b has said nothing for long
		{41, "b", 10, 9, Counts{}},                           // and is known anew
		{42, "b", 12, 9, Counts{Connects: 2}},                //
	} {
		if got := say(x.second, x.node, x.connects, x.failed); got != x.want {
			t.Fatalf("%d: after %+v the window has %+v, want %+v", i, x, got, x.want)
		}
	}
}

// Against an oracle that keeps everything: never less than what was counted in
// the window, never more than in a window that is a little longer; and what is
// kept is bounded.
func TestAWindowIsExactAndBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const length = time.Minute
		var w window
		type said struct {
			at time.Time
			n  uint64
		}
		at, all := t0, []said{{t0, 0}}
		w.add("a", at, Counts{}, length)
		for range rapid.IntRange(1, 400).Draw(t, "answers") {
			at = at.Add(time.Duration(rapid.IntRange(1, 3000).Draw(t, "ms")) * time.Millisecond)
			n := all[len(all)-1].n + rapid.Uint64Range(0, 10).Draw(t, "more")
			all = append(all, said{at, n})
			w.add("a", at, Counts{Connects: n}, length)
			got := w.since(at, length).Connects
			upTo := func(from time.Time) uint64 { // what was said last by then
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
			if kept := len(w.nodes["a"].marks); kept > maxMarks {
				t.Fatalf("%d marks are kept", kept)
			}
		}
	})
}

// The leader that has seen a rollout begin judges it from its first connection
// on.
func TestAWindowBeginsWithItsRollout(t *testing.T) {
	w := &window{whole: true}
	w.add("a", t0, Counts{Connects: 40, Failed: 30}, time.Minute)
	if got := w.since(t0, time.Minute); got != (Counts{Connects: 40, Failed: 30}) {
		t.Errorf("the first answer counts as %+v", got)
	}
	w.add("a", t0.Add(time.Second), Counts{Connects: 41, Failed: 30}, time.Minute)
	w.add("b", t0.Add(time.Second), Counts{Connects: 9, Failed: 9}, time.Minute)
	if got := w.since(t0.Add(time.Second), time.Minute); got != (Counts{Connects: 50, Failed: 39}) {
		t.Errorf("a second later it has %+v", got)
	}
}
