package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// TestAServerFarBehindCatchesUp: no other server has the log entries that a
// server lacks, so it gets a snapshot. Meanwhile the others keep writing and
// taking snapshots, so that further entries it lacks are truncated.
func TestAServerFarBehindCatchesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.TrailingLogs = 1 })
	a := w.cluster(3)
	w.mustCommit(a, put("A", "x", "0"))
	c := w.servers["c"]
	w.waitContent(c, "x=0")
	w.close("c")
	missed := c.Snapshot().Index()
	n := 0
	write := func(leader *Replica) {
		t.Helper()
		for range 20 {
			n++
			w.mustCommit(leader, put("A", "x", fmt.Sprint(n)), put("A", fmt.Sprintf("y%02d", n%50), fmt.Sprint(n)))
		}
		for _, id := range []string{"a", "b"} {
			if r := w.servers[id]; r.Leadership().Applied > 0 {
				_ = r.raft.Snapshot().Error() // there may be nothing new
			}
		}
	}
	for first := uint64(0); first <= missed+1; { // until the leader no longer has the missed entries
		write(w.leader("a", "b"))
		var err error
		if first, err = w.leader("a", "b").logStore.FirstIndex(); err != nil {
			t.Fatal(err)
		}
	}
	c = w.open("c")
	if v := c.Snapshot(); values(v) != "x=0" {
		t.Fatalf("it begins with %q", values(v))
	}
	back := make(chan string, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(back)
		for v := c.Snapshot(); ; {
			next, err := c.Wait(ctx, v.Index())
			switch {
			case err != nil:
				return
			case next.Index() < v.Index() || next.Sequence() < v.Sequence() || next.Len() < v.Len():
				back <- fmt.Sprintf("index %d, sequence %d after %d, %d", next.Index(), next.Sequence(), v.Index(), v.Sequence())
				return
			}
			v = next
		}
	}()
	until(t, "a snapshot to arrive while others write", func() bool {
		write(w.leader("a", "b", "c"))
		all, err := c.snapshots.List()
		return err == nil && len(all) > 0 && c.Snapshot().Index() > missed
	})
	write(w.leader())
	want := values(w.leader().Snapshot())
	w.waitContent(c, want)
	stop()
	if s, ok := <-back; ok {
		t.Errorf("its snapshots went back: %s", s)
	}
	var entry raft.Log
	if err := c.logStore.GetLog(missed+1, &entry); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("the first entry that it lacked: %v, want %v: it got the log", err, raft.ErrLogNotFound)
	}
	// Its log is complete again: it can lead, and alone it serves its content.
	if err := w.leader().Transfer(t.Context(), "c"); err != nil {
		t.Log(err) // it may have lost leadership by itself
	}
	w.persist(batch(put("A", "x", "last")))
	want = values(w.leader().Snapshot())
	w.waitContent(c, want)
	for _, id := range w.ids {
		w.close(id)
	}
	if got := values(w.open("c").Snapshot()); got != want {
		t.Errorf("alone it serves %q, want %q", got, want)
	}
}

// The lost log is what the server's votes were based on.
func TestAServerThatLostItsLogDoesNotStart(t *testing.T) {
	t.Parallel()
	empty := func(path string) error { // an empty log
		s, err := openLog(path, true, nil, nil, nil)
		return errors.Join(err, s.Close())
	}
	for name, lose := range map[string]func(path string) error{
		"gone":        os.Remove,
		"of no bytes": func(path string) error { return os.Truncate(path, 0) },
		"another":     func(path string) error { return errors.Join(os.Remove(path), empty(path)) },
	} {
		for _, snapshot := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, snapshot=%v", name, snapshot), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, nil)
					a := w.cluster(1)
					w.mustCommit(a, put("A", "x", "1"))
					if snapshot {
						w.mustSnapshot(a)
					}
					w.close("a")
					if err := lose(filepath.Join(w.dir, "a", "raft.db")); err != nil {
						t.Fatal(err)
					}
					if snapshot { // the snapshot alone proves that there was a log
						if err := os.Remove(filepath.Join(w.dir, "a", "applied")); err != nil {
							t.Fatal(err)
						}
					}
					for range 2 { // the second attempt finds the files of the first
						if r, err := Open(w.config("a")); !errors.Is(err, ErrNoLog) {
							t.Errorf("it starts: %v, want %v", err, ErrNoLog)
							if err == nil {
								r.Close()
							}
						}
					}
				})
			})
		}
	}
}
