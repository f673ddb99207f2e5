package consensus

import (
	"fmt"
	"testing"
	"time"
)

func TestHeartbeatsWaitUnlessSomebodyIsInAHurry(t *testing.T) {
	t.Parallel()
	p := newPace(time.Hour, time.Hour)
	if want := 24 * time.Minute; p.gap != want {
		t.Fatalf("the gap is %v, want %v", p.gap, want)
	}
	went := make(chan struct{})
	go func() {
		p.wait()
		close(went)
	}()
	select {
	case <-went:
		t.Fatal("a heartbeat did not wait")
	case <-time.After(20 * time.Millisecond):
	}
	p.hurry() // of those that wait, and that come next
	<-went
	p.wait()

	p = newPace(time.Hour, time.Hour)
	p.end()
	p.wait()
	if gap := newPace(time.Second, 100*time.Millisecond).gap; gap != 0 {
		t.Errorf("a short lease leaves a gap of %v", gap)
	}
}

func TestReadsDoNotWaitForHeartbeats(t *testing.T) {
	t.Parallel()
	// Heartbeats go out after one and a half to two seconds by themselves, and nothing
	// else does.
	w := newWorld(t, func(c *Config) {
		c.Heartbeat, c.Election, c.Lease, c.CommitInterval = 3*time.Second, 3*time.Second, 3*time.Second, time.Hour
	})
	a := w.cluster(3)
	w.mustCommit(a, put("A", "x", "1"))
	began := time.Now()
	const reads = 5
	for i := range reads {
		if _, err := a.ReadIndex(t.Context()); err != nil {
			t.Fatal(fmt.Errorf("read %d: %w", i, err))
		}
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("%d reads took %v: they waited for heartbeats", reads, took)
	}
}
