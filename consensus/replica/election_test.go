package replica

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const (
	// electionBound is the time in which the remaining voters must elect a ready
	// leader, in all but one of a thousand losses of a leader.
	electionBound = 5 * time.Second
	// electionRuns and electionRunsLong are how often the leader is cut off; the
	// second with PENSTOCK_LONG=1, under load.
	electionRuns, electionRunsLong = 20, 1000
)

// election is the duration of an election and the terms it took.
type election struct {
	took  time.Duration
	terms uint64 // number of terms passed
}

// TestRemainingVotersElectWithinBound repeatedly cuts off the leader of three
// voters until the other two have elected a leader. The timeouts are a node's
// defaults. The short form, in virtual time, only checks that a leader is
// elected each time; the long form, with processes that keep all processors
// busy, checks the bound.
func TestRemainingVotersElectWithinBound(t *testing.T) {
	t.Parallel()
	if os.Getenv("PENSTOCK_LONG") == "" {
		synctest.Test(t, func(t *testing.T) { loseLeaders(t, electionRuns, 2) })
		return
	}
	loadProcessors(t, 2*runtime.NumCPU())
	loseLeaders(t, electionRunsLong, 4)
}

func loseLeaders(t *testing.T, runs, worlds int) {
	t.Helper()
	var mu sync.Mutex
	var all []election
	var tasks sync.WaitGroup
	for range worlds {
		tasks.Go(func() {
			w := newWorld(t, func(c *Config) {
				c.Heartbeat, c.Election = 700*time.Millisecond, 700*time.Millisecond
				c.NoSync = os.Getenv("PENSTOCK_LONG") == ""
			})
			w.cluster(3)
			for range runs / worlds {
				e := w.loseLeader()
				mu.Lock()
				all = append(all, e)
				mu.Unlock()
				if e.took > electionBound {
					t.Logf("an election took %v and %d terms", e.took, e.terms)
				}
			}
		})
	}
	tasks.Wait()
	slices.SortFunc(all, func(a, b election) int { return int(a.took - b.took) })
	at := func(share float64) time.Duration { return all[min(len(all)-1, int(share*float64(len(all))))].took }
	byTerms := map[uint64]int{}
	for _, e := range all {
		byTerms[e.terms]++
	}
	t.Logf("%d elections: p50 %v, p99 %v, p99.9 %v, max %v; by terms %v", len(all), at(.5), at(.99), at(.999), all[len(all)-1].took, byTerms)
	if len(all) >= electionRunsLong && at(.999) > electionBound {
		t.Errorf("99.9%% of the elections take up to %v, want at most %v", at(.999), electionBound)
	}
}

// loseLeader cuts off the leader until the others have elected one, then
// reconnects it and waits until all three agree.
func (w *world) loseLeader() election {
	w.t.Helper()
	old := w.leader()
	term := old.Leadership().Term
	var others []string
	for id := range w.servers {
		if id != old.cfg.ID {
			others = append(others, id)
		}
	}
	begun := time.Now()
	w.network.isolate(old.cfg.ID, true, others...)
	next := w.leader(others...)
	e := election{time.Since(begun), next.Leadership().Term - term}
	w.network.isolate(old.cfg.ID, false, others...)
	until(w.t, "all three to follow one leader", func() bool {
		leads := w.leader().Leadership()
		for _, r := range w.servers {
			if s := r.Leadership(); s.Leader != leads.Leader || s.Term != leads.Term || s.Applied < leads.Applied {
				return false
			}
		}
		return true
	})
	if e.took > electionBound {
		lines := bytes.Split(w.journal.all(), []byte("\n"))
		w.t.Logf("it took %v; the last log lines:\n%s", e.took, bytes.Join(lines[max(0, len(lines)-150):], []byte("\n")))
	}
	return e
}

// busyChild is the environment variable that makes a test process keep a
// processor busy until its stdin ends.
const busyChild = "CONSENSUS_TEST_BUSY"

// loadProcessors runs processes that compete for the processors until the test
// ends.
func loadProcessors(t *testing.T, processes int) {
	t.Helper()
	for range processes {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), busyChild+"=1")
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			in.Close()
			_ = cmd.Wait()
		})
	}
}

func spinUntilInputEnds() {
	var over atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		over.Store(true)
	}()
	for !over.Load() {
	}
}
