package endpoint

import (
	"testing"
	"time"
)

// newBench returns a group of ten endpoints with ejection.
func newBench() (*Group, []*Endpoint) {
	g := NewGroup("s", nil)
	all := g.Update(specs(10), t0)
	g.Configure(&Ejection{Failures: 3, Window: 10 * time.Second, Duration: time.Second, MaxShare: 50}, t0)
	return g, all
}

func BenchmarkUsable(b *testing.B) {
	_, all := newBench()
	b.ReportAllocs()
	for b.Loop() {
		if !all[3].Usable(t0) {
			b.Fatal("not usable")
		}
	}
}

func BenchmarkConnected(b *testing.B) {
	g, all := newBench()
	b.ReportAllocs()
	for b.Loop() {
		g.Connected(all[3], t0)
	}
}

func BenchmarkFailed(b *testing.B) {
	g, all := newBench()
	now := t0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(6 * time.Second) // two per window: counted, never ejected
		g.Failed(all[3], ConnectFailed, now)
	}
}

func BenchmarkBudgetConnection(b *testing.B) {
	var budget Budget
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		budget.Connection(now)
	}
}

func BenchmarkBudgetRetry(b *testing.B) {
	var budget Budget
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		budget.Retry(20, 10, now)
	}
}

// The data path does not allocate, except at the first failure of an endpoint.
func TestDataPathAllocatesNothing(t *testing.T) {
	g, all := newBench()
	var budget Budget
	now := t0
	g.Failed(all[0], ConnectFailed, now)
	n := testing.AllocsPerRun(1000, func() {
		now = now.Add(6 * time.Second)
		g.Acquire(all[0], Connection)
		budget.Connection(now)
		budget.Retry(20, 10, now)
		g.Connected(all[0], now)
		g.Failed(all[0], EarlyReset, now)
		g.Sweep(now)
		g.Release(all[0], Connection, true)
	})
	if n != 0 {
		t.Errorf("%v allocations for a connection", n)
	}
}
