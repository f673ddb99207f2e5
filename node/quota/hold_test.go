package quota

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"penstock/routing/limit"
)

// An answer that would change nothing is held, and what it would have given is not: as soon
// as another gives its share back, the node that waits has it, at once.
func TestAnAnswerThatIsHeldComesWhenAnotherGivesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := newOffice(t, 2)
		ids := []string{"a", "b"}
		leader := NewLeader(o.leader.LeaderConfig)
		leader.Members = func() []string { return ids }
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go leader.Run(ctx)
		<-time.After(10 * time.Second)
		o.apply(limit.Connections, limit.Rate{N: 100, Per: time.Second, Burst: 2})
		seq, contact := uint64(0), [2]time.Duration{}
		ask := func(node int, want, keep float64) *Answer {
			seq++
			r := &Report{Run: 1, Seq: seq, Term: 7, Contact: contact[node], Members: 2}
			if want > 0 {
				r.Keys = []LimitDemand{{Limit: "api", Keys: []string{"k"}, Want: []float64{want}, Keep: []float64{keep}}}
			}
			ans, err := leader.Report(ctx, ids[node], r)
			if err != nil {
				t.Error(err)
				return new(Answer)
			}
			contact[node] = ans.At
			return ans
		}
		for range 2 {
			ask(0, 0, 0)
			ask(1, 0, 0)
		}
		all := ask(0, 300, 0.1).Shares[0]
		if all < 95 {
			t.Fatalf("the only busy node was given %v of 100", all)
		}
		began := time.Now()
		got := ask(1, 300, 0.1).Shares[0]
		if got > 1 {
			t.Fatalf("b was given %v while a holds everything", got)
		}
		if count := leader.alloc.budgets[Key{"api", 0, "k"}].find(leader.alloc.nodes["b"]).count; count < got || got <= 0.1 {
			t.Errorf("b is counted with %v, though it was given %v at last", count, got)
		}
		if held := time.Since(began); held < HoldTime || held > HoldTime+10*time.Millisecond {
			t.Errorf("b's answer was held for %v, want %v", held, HoldTime)
		}
		answered := make(chan float64)
		go func() { answered <- ask(1, 300, 0.1).Shares[0] }()
		<-time.After(50 * time.Millisecond)
		began = time.Now()
		ask(0, 0, 0)
		if got := <-answered; got < 95 {
			t.Errorf("b was given %v after a had given everything back", got)
		}
		if took := time.Since(began); took > 5*time.Millisecond {
			t.Errorf("it was told so after %v", took)
		}
	})
}

func TestAnAnswerThatIsHeldKeepsNothingFromOthers(t *testing.T) {
	c := newCell(t)
	budget := func(string, uint8) (Budget, bool) { return Budget{100, 100}, true }
	ids := []string{"a", "b", "c"}
	c.report("b", 0, 0)
	c.report("c", 0, 0)
	c.report("a", 200, 0)
	c.seq++
	r := &Report{Run: 1, Seq: c.seq, Term: 1, Contact: c.now - time.Second, Members: 3, Keys: []LimitDemand{
		{Limit: "api", Keys: []string{"tenant"}, Want: []float64{200}, Keep: []float64{0.05}},
	}}
	ans, hold, ok := c.a.Report(c.now, "b", r, ids, budget)
	if !ok || !hold || ans.Shares[0] <= 0.05 {
		t.Fatalf("%+v, hold %v, %v: want a little more than what b keeps, held", ans, hold, ok)
	}
	c.a.Hold("b", r)
	if count := c.a.budgets[Key{"api", 0, "tenant"}].find(c.a.nodes["b"]).count; count != 0.05 {
		t.Errorf("b is counted with %v, though it has 0.05", count)
	}
	c.report("b", 0, 0)
	if _, _, ok := c.a.Retry(c.now, "b", r, ids, budget); ok {
		t.Error("a report that another has overtaken was answered")
	}
}

// A node whose clients leave while its report is under way says so at once; but it leaves
// more and more time for an answer, so that on a slow network one comes in time.
func TestNewsOvertakeAReportThatIsUnderWay(t *testing.T) {
	h := NewHolder(1, time.Hour, 3)
	b := Budget{1000, 100}
	now := time.Hour + time.Second
	demand := func(want float64) []Demand { return []Demand{{simKey, b, want}} }
	first := h.Ask(now, 3, demand(900))
	h.Accept(now, first, &Answer{Term: 1, At: 1, Shares: []float64{900}})
	h.Ask(now, 3, demand(900))
	for i, want := range []float64{800, 700, 600} {
		wait := tick << i
		if h.Due(now+wait-1, demand(want)) {
			t.Errorf("report %d is overtaken before %v", i, wait)
		}
		now += wait + perKey
		if h.Due(now, demand(want+95)) {
			t.Errorf("report %d is overtaken although demand is the same", i)
		}
		if !h.Due(now, demand(want)) {
			t.Errorf("report %d is not overtaken though a ninth of the demand has gone", i)
		}
		h.Ask(now, 3, demand(want))
	}
}

// A node that is no member, as one that was just removed, is given nothing and upsets nobody.
func TestWhoIsNoMemberIsGivenNothing(t *testing.T) {
	c := newCell(t)
	c.report("b", 0, 0)
	c.report("c", 0, 0)
	c.report("a", 0, 0)
	if got := c.report("stranger", 200, 0); got != 0 {
		t.Errorf("it was given %v", got)
	}
	if got := c.report("a", 200, 0); got < 98 {
		t.Errorf("afterwards a was given %v of 100", got)
	}
}

// Others may have what was reserved for a node until it had proven its contact.
func TestContactThatIsProvenMovesWhatOthersMayHave(t *testing.T) {
	c := newCell(t)
	c.report("a", 0, 0)
	if !c.a.Moved() {
		t.Error("a node's first contact moved nothing")
	}
	c.report("a", 0, 0)
	if c.a.Moved() {
		t.Error("a report that says nothing new moved something")
	}
}
