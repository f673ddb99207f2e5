package replica

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"penstock/consensus/store"
)

// TestWaitingBatchesShareOneEntry proposes faster than the servers
// commit. Each batch is applied or refused separately.
func TestWaitingBatchesShareOneEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		a := w.cluster(3)
		w.mustCommit(a, put("A", "once", "1"))
		before := a.Leadership().Last
		const n = 400
		var pending []store.Pending
		for i := range n {
			b := &store.Batch{ID: store.ID{1, byte(i), byte(i >> 8)}, Ops: []store.Op{put("A", fmt.Sprint(i), "1")}}
			switch i % 20 {
			case 3: // refused: version conflict
				b.Ops[0] = at(0, put("A", "once", "2"))
			case 4, 5: // the same key: not in the same entry
				b.Ops[0] = put("A", "again", fmt.Sprint(i))
			}
			p, err := a.Propose(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, p)
		}
		last := uint64(0)
		for i, p := range pending {
			r, err := p.Wait(t.Context())
			switch {
			case i%20 == 3:
				if !errors.Is(err, store.ErrVersion) {
					t.Errorf("batch %d: %v, want %v", i, err, store.ErrVersion)
				}
				continue
			case err != nil || r.Repeated || r.Index < last || r.Index == last && i%20 == 5:
				t.Errorf("batch %d after index %d: %+v, %v", i, last, r, err)
			}
			if at, ok := a.Snapshot().Find(store.ID{1, byte(i), byte(i >> 8)}); !ok || at != r.Index {
				t.Errorf("batch %d is remembered at %d, want %d", i, at, r.Index)
			}
			last = r.Index
		}
		if entries := a.Leadership().Last - before; entries > n/2 {
			t.Errorf("%d batches took %d entries of the log", n, entries)
		}
		until(t, "all servers to have it", func() bool {
			for _, r := range w.servers {
				if !bytes.Equal(fileOf(t, r.Snapshot()), fileOf(t, a.Snapshot())) {
					return false
				}
			}
			return true
		})
	})
}

// A server without support for groups would stop at one.
func TestBatchesAreNotGroupedForOlderServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := w.cluster(1)
		w.mustCommit(a, put("A", "x", "1"))
		const n = 200
		entries := func() uint64 {
			t.Helper()
			before := a.Leadership().Last
			var pending []store.Pending
			for i := range n {
				p, err := a.Propose(t.Context(), batch(put("A", fmt.Sprint(i), "1")))
				if err != nil {
					t.Fatal(err)
				}
				pending = append(pending, p)
			}
			for _, p := range pending {
				if _, err := p.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			return a.Leadership().Last - before
		}
		a.SetGroupsDisabled(true)
		if got := entries(); got != n {
			t.Errorf("%d batches took %d entries of the log", n, got)
		}
		a.SetGroupsDisabled(false)
		if got := entries(); got > n/2 {
			t.Errorf("%d batches took %d entries of the log when all know groups", n, got)
		}
	})
}
