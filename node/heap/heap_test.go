package heap

import (
	"context"
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"penstock/internal/testkit"
)

func TestSmallHeapsGrowBetweenCollections(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, 800}, {1 << 20, 800}, {4 << 20, 800}, {5 << 20, 640}, {8 << 20, 400}, {16 << 20, 200},
		{31 << 20, 100}, {32 << 20, 100}, {1 << 40, 100},
	} {
		got := percentFor(c.live)
		if got != c.want {
			t.Errorf("live %d: percent %d, want %d", c.live, got, c.want)
		}
		if grows := c.live * uint64(got) / 100; got > minPercent && grows > minGrowth {
			t.Errorf("live %d: grows by %d", c.live, grows)
		}
	}
}

func TestMemoryIsReturnedWhenCalm(t *testing.T) {
	const mb = 1 << 20
	now := time.Unix(1000, 0)
	p := trimmer{last: usage{allocated: 100 * mb}, next: now, since: 100 * mb}
	for i, s := range []struct {
		name                      string
		live, resident, allocated uint64
		want                      bool
	}{
		{"busy", 4 * mb, 20 * mb, 120 * mb, false},
		{"calm, or held up", 4 * mb, 20 * mb, 120*mb + 1000, false},
		{"calm", 4 * mb, 20 * mb, 120*mb + 1000, true},
		{"too soon", 4 * mb, 20 * mb, 120*mb + 1000, false},
		{"still too soon", 4 * mb, 20 * mb, 120*mb + 1000, false},
		{"later", 4 * mb, 20 * mb, 120*mb + 1000, true},
		{"little to give", 4 * mb, 4*mb + 500<<10, 120*mb + 1000, false},
		{"little for its size", 80 * mb, 90 * mb, 120*mb + 1000, false},
		{"much for its size", 80 * mb, 91 * mb, 120*mb + 1000, true},
		{"busy for long", 300 * mb, 310 * mb, 700 * mb, false},
		{"calm after that, or held up", 300 * mb, 310 * mb, 700 * mb, false},
		{"calm, and what is alive may be less", 300 * mb, 310 * mb, 700 * mb, true},
		{"calm as before", 150 * mb, 160 * mb, 700*mb + 1000, false},
	} {
		now = now.Add(tick)
		if got := p.shouldTrim(usage{s.live, s.resident, s.allocated}, now); got != s.want {
			t.Errorf("%d, %s: %v", i, s.name, got)
		} else if got {
			p.recordTrim(now, 48*time.Millisecond)
		}
		if s.name == "later" || i >= 9 { // as if the pause were over
			p.next = now
		}
	}
}

func TestEachCollectionIsSignalled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	collected := make(chan struct{}, 1)
	signalCollections(ctx, collected)
	for range 3 {
		runtime.GC()
		testkit.Receive(t, "the report of a collection", collected)
	}
}

func TestRuntimeMetricsExist(t *testing.T) {
	runtime.GC()
	if u := read(); u.live == 0 || u.resident < u.live/2 || u.allocated == 0 {
		t.Errorf("metrics of %s: %+v", runtime.Version(), u)
	}
}

// gcPercent returns the current GC percentage.
func gcPercent() int {
	s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	return int(s[0].Value.Uint64())
}

func TestTuneRestoresGCPercent(t *testing.T) {
	t.Setenv("GOGC", "")
	before := gcPercent()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() { defer close(done); Tune(ctx) }()
	testkit.WaitFor(t, "a high percentage while the heap is small", func() bool { return gcPercent() == maxPercent })
	cancel()
	<-done
	if got := gcPercent(); got != before {
		t.Errorf("percent %d afterwards, was %d", got, before)
	}
}

// A large heap gets Go's default percentage, a small one a higher one.
func TestTuneFollowsHeapSize(t *testing.T) {
	t.Setenv("GOGC", "")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); Tune(ctx) }()
	defer func() { cancel(); <-done }()
	wait := func(want int) {
		t.Helper()
		if !testkit.Poll(testkit.Patience, func() bool { return gcPercent() == want }) {
			t.Fatalf("percent %d, want %d, with %+v", gcPercent(), want, read())
		}
	}
	wait(maxPercent)
	large := make([]byte, 4*minGrowth)
	runtime.GC()
	wait(minPercent)
	runtime.KeepAlive(large)
	runtime.GC()
	wait(maxPercent)
}

func TestTuneRespectsGOGC(t *testing.T) {
	t.Setenv("GOGC", "77")
	before := gcPercent()
	Tune(t.Context()) // returns at once
	if got := gcPercent(); got != before {
		t.Errorf("percent %d, was %d", got, before)
	}
}
