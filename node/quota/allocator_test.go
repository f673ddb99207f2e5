package quota

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"
)

// cell is a cluster of a, b and c whose leader has led for long.
type cell struct {
	t   *testing.T
	a   *Allocator
	now time.Duration
	seq uint64
}

func newCell(t *testing.T) *cell {
	return &cell{t: t, a: NewAllocator(1, time.Second), now: time.Hour}
}

// report sends a report of a node that has contact. It returns what the node is given.
func (c *cell) report(id string, want, keep float64) float64 {
	c.t.Helper()
	c.seq++
	shares, ok := c.send(id, c.seq, want, keep)
	if !ok {
		c.t.Fatalf("the report of %s had no answer", id)
	}
	return shares
}

func (c *cell) send(id string, seq uint64, want, keep float64) (float64, bool) {
	r := &Report{Run: 1, Seq: seq, Term: 1, Contact: c.now - time.Second, Members: 3}
	if want != 0 || keep != 0 {
		r.Keys = []LimitDemand{{Limit: "api", Keys: []string{"tenant"}, Want: []float64{want}, Keep: []float64{keep}}}
	}
	ans, _, ok := c.a.Report(c.now, id, r, []string{"a", "b", "c"}, func(string, uint8) (Budget, bool) { return Budget{100, 100}, true })
	if len(ans.Shares) == 0 {
		return 0, ok
	}
	return ans.Shares[0], ok
}

func TestALoweredShareCountsUntilItsHolderConfirmsIt(t *testing.T) {
	c := newCell(t)
	c.report("b", 0, 0)
	c.report("c", 0, 0)
	if got := c.report("a", 200, 0); got < 99 {
		t.Fatalf("the only busy node was given %v of 100", got)
	}
	if got := c.report("b", 200, 1.0/3); got > 1 {
		t.Errorf("b was given %v while a holds everything", got)
	}
	lower := c.report("a", 200, 99) // the answer with the lower share may be lost
	if lower > 51 {
		t.Fatalf("a was given %v beside b, want half", lower)
	}
	if got := c.report("b", 200, 1.0/3); got > 1 {
		t.Errorf("b was given %v before a confirmed the lower share", got)
	}
	c.report("a", 200, lower)
	if got := c.report("b", 200, 1.0/3); got < 49 {
		t.Errorf("b was given %v after a confirmed the lower share, want half", got)
	}
}

func TestAReportThatWasOvertakenChangesNothing(t *testing.T) {
	c := newCell(t)
	c.report("b", 0, 0)
	c.report("c", 0, 0)
	c.seq = 10
	c.report("a", 200, 0)
	if _, ok := c.send("a", 5, 0, 0); ok {
		t.Error("a report older than the last had an answer")
	}
	if got := c.report("b", 200, 0); got > 1 {
		t.Errorf("b was given %v after an old report of a that held nothing", got)
	}
}

func TestANodeThatGivesABudgetBackLeavesItToOthers(t *testing.T) {
	c := newCell(t)
	c.report("b", 0, 0)
	c.report("c", 0, 0)
	c.report("a", 200, 0)
	c.report("a", 0, 0)
	if got := c.report("b", 200, 0); got < 98 {
		t.Errorf("b was given %v of 100", got)
	}
}

func TestRatesThatAreNoneCountAsNothing(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), -1} {
		c := newCell(t)
		c.report("b", 0, 0)
		c.report("c", 0, 0)
		c.send("a", 100, v, v)
		if got := c.report("b", 200, 0); !(got > 49) {
			t.Errorf("after %v of another, b was given %v of 100", v, got)
		}
	}
}

func TestBudgetsAreDividedByDemand(t *testing.T) {
	for _, c := range []struct {
		wants []float64
		free  float64
		want  []float64 // parts
	}{
		{[]float64{0, 0}, 100, []float64{25, 25}},
		{[]float64{40, 0}, 100, []float64{62.5, 12.5}},
		{[]float64{45, 45}, 100, []float64{50, 50}},
		{[]float64{80, 80}, 100, []float64{50, 50}},
		{[]float64{10, 500}, 100, []float64{10, 90}},
		{[]float64{10, 45, 500}, 100, []float64{10, 45, 45}},
		{[]float64{10}, -5, []float64{0}},
	} {
		for i, want := range c.want {
			if got := divide(slices.Clone(c.wants), c.wants[i], c.free); math.Abs(got-want) > 1e-9 {
				t.Errorf("of %v with %v wanted, %v gets %v, want %v", c.free, c.wants, c.wants[i], got, want)
			}
		}
	}
}

func TestTheLeaderForgetsBudgetsWithoutDemand(t *testing.T) {
	c := newCell(t)
	for i := range 100 {
		c.report(fmt.Sprint(i%3), 1, 0)
	}
	for range 3 {
		c.now += floorAfter
		for _, id := range []string{"0", "1", "2"} {
			c.report(id, 0, 0)
		}
	}
	if n := len(c.a.budgets); n != 0 {
		t.Errorf("the leader remembers %d budgets", n)
	}
}

// One report of one of ten nodes, each with demand for 10,000 keys.
func BenchmarkReport(b *testing.B) {
	for _, keys := range []int{100, 10_000} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			a := NewAllocator(1, time.Second)
			l := LimitDemand{Limit: "per-tenant"}
			for i := range keys {
				l.Keys, l.Want, l.Keep = append(l.Keys, fmt.Sprintf("tenant-%d", i)), append(l.Want, 300), append(l.Keep, 90)
			}
			ids := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
			now, seq := time.Hour, uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				seq++
				now += Interval / 10
				r := &Report{Run: 1, Seq: seq, Term: 1, Contact: now - time.Second, Members: 10, Keys: []LimitDemand{l}}
				a.Report(now, ids[seq%10], r, ids, func(string, uint8) (Budget, bool) { return Budget{1000, 100}, true })
			}
		})
	}
}
