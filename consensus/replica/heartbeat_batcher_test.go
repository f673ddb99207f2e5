package replica

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

func TestHeartbeatsWaitUnlessReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newHeartbeatBatcher(2 * time.Hour)
		p.wait("b") // the first heartbeat does not wait
		p.recordSent("b", p.began)
		went := make(chan struct{})
		go func() {
			p.wait("b")
			close(went)
		}()
		select {
		case <-went:
			t.Fatal("a heartbeat did not wait")
		case <-time.After(20 * time.Millisecond):
		}
		p.release() // releases waiting and later heartbeats
		<-went
		p.wait("b")

		p = newHeartbeatBatcher(2 * time.Hour)
		p.recordSent("b", p.began)
		p.stop()
		p.wait("b")
	})
}

func TestHeartbeatsAreSentTogether(t *testing.T) {
	t.Parallel()
	p := newHeartbeatBatcher(20 * time.Second)
	at := func(seconds float64) time.Time { return p.began.Add(time.Duration(seconds * float64(time.Second))) }
	for _, c := range []struct {
		last, now, goes float64
		why             string
	}{
		{10, 12, 20, "in time"},
		{10, 19.9, 20, "in time, just so"},
		{10, 20, 20, "when it is time"},
		{10.05, 12, 20, "the one before was late"},
		{13, 15, 20, "the one before was in a hurry"},
		{10, 20.5, 20.5, "too late for it: the next would be too late"},
		{10, 31, 31, "far too late"},
		{-1e6, 7, 7, "the first"},
	} {
		if got := at(c.now).Add(p.due(at(c.last), at(c.now))); got.Sub(at(c.goes)).Abs() > time.Microsecond {
			t.Errorf("%s: after one at %v, a heartbeat of %v goes at %v, want %v", c.why, c.last, c.now, got.Sub(p.began), c.goes)
		}
	}
	if wait := newHeartbeatBatcher(0).due(time.Time{}, time.Now()); wait != 0 {
		t.Errorf("without a lease a heartbeat waits %v", wait)
	}
	for i := range 100 {
		p.recordSent(raft.ServerID(fmt.Sprint(i)), at(0))
	}
	p.recordSent("new", at(3600))
	if len(p.last) != 1 {
		t.Errorf("%d servers that are no followers are remembered", len(p.last)-1)
	}
}

func TestReadsDoNotWaitForHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Heartbeats go out after 1.5 to 2 s by themselves, and nothing else is sent.
		w := newWorld(t, func(c *Config) {
			c.Heartbeat, c.Election, c.Lease, c.CommitInterval = 3*time.Second, 3*time.Second, 3*time.Second, time.Hour
		})
		a := w.cluster(3)
		w.mustCommit(a, put("A", "x", "1"))
		began := time.Now()
		const reads = 10 // would take at least 13 s with the batcher's delay
		for i := range reads {
			if _, err := a.ReadIndex(t.Context()); err != nil {
				t.Fatal(fmt.Errorf("read %d: %w", i, err))
			}
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%d reads took %v: they waited for heartbeats", reads, took)
		}
	})
}

// A single server has no other leader to wait for.
func TestSingleServerElectsItselfAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = time.Hour // the wait without release
		w := newWorld(t, func(c *Config) { c.Heartbeat, c.Election, c.Lease = slow, slow, 0 })
		w.cluster(1)
		w.close("a")
		w.open("a")
		w.leader("a")
	})
}
