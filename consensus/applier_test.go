package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"
)

// TestEntriesApplyAloneAsTogether applies the same log in parts of random
// size, with groups among its entries, and batch by batch.
func TestEntriesApplyAloneAsTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			Entry:     200,
			Total:     250,
			Internal:  200,
			Revisions: rapid.IntRange(1, 4).Draw(t, "revisions"),
			Past:      rapid.SampledFrom([]int{1, 1500, 1 << 20}).Draw(t, "past"),
		}
		var alone Snapshot
		together := newApplier(Snapshot{}, limits)
		for n := range rapid.IntRange(1, 15).Draw(t, "entries") {
			index := alone.Index() + uint64(rapid.IntRange(1, 3).Draw(t, "gap"))
			var data [][]byte
			for i := range rapid.SampledFrom([]int{1, 1, 2, 5}).Draw(t, "batches") {
				b := drawChange(t, alone)
				for j := range b.Ops { // batches of a group share no keys
					b.Ops[j].Name += fmt.Sprint(i)
				}
				encoded, err := EncodeBatch(b)
				if err != nil {
					t.Fatal(err)
				}
				data = append(data, encoded)
			}
			entry := &raft.Log{Index: index, Type: raft.LogCommand, Data: data[0]}
			if len(data) > 1 {
				entry.Data = encodeGroup(data)
			}
			var want []reply
			for _, d := range data {
				b, err := DecodeBatch(d)
				if err != nil {
					t.Fatal(err)
				}
				var r reply
				alone, r.Result, r.err = alone.apply(index, b, limits)
				want = append(want, r)
			}
			got, err := together.applyEntry(entry)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if got[i].Result != want[i].Result || fmt.Sprint(got[i].err) != fmt.Sprint(want[i].err) {
					t.Fatalf("batch %d of entry %d: %+v, want %+v", i, n, got[i], want[i])
				}
			}
			clear(entry.Data) // snapshots share no memory with entries
			if rapid.IntRange(0, 2).Draw(t, "go on") > 0 {
				continue
			}
			v := together.commit()
			if !bytes.Equal(fileOf(t, v), fileOf(t, alone)) {
				t.Fatalf("after entry %d the contents differ", n)
			}
			for after := range index {
				one, known := v.Changed(after)
				other, too := alone.Changed(after)
				if known != too || !reflect.DeepEqual(one, other) && len(one)+len(other) > 0 {
					t.Fatalf("changed after %d: %v (%v), want %v (%v)", after, one, known, other, too)
				}
			}
			together = newApplier(fromFile(t, fileOf(t, v), limits), limits)
			together.snapshot.log = v.log // not in the file
		}
	})
}

func TestUnknownEntriesHaveNoEffect(t *testing.T) {
	good, err := EncodeBatch(&Batch{Ops: []Op{put("A", "x", "1")}})
	if err != nil {
		t.Fatal(err)
	}
	group := encodeGroup([][]byte{good, good})
	long := make([][]byte, maxGroup+1)
	for i := range long {
		long[i] = good
	}
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"nothing":         {nil, ErrDamaged},
		"cut":             {group[:len(group)-1], ErrDamaged},
		"too long":        {append(bytes.Clone(group), 0), ErrDamaged},
		"empty":           {[]byte{batchFormat, batchGrouped, 0x90}, ErrDamaged},
		"too many":        {encodeGroup(long), ErrDamaged},
		"compressed too":  {append([]byte{batchFormat, batchGrouped | batchCompressed}, group[2:]...), ErrFormat},
		"of a later flag": {append([]byte{batchFormat, batchGrouped | 4}, group[2:]...), ErrFormat},
		"an index twice":  {group, ErrIndex},
	} {
		v, _, err := Snapshot{}.Apply(5, &Batch{Ops: []Op{put("A", "y", "1")}}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		a := newApplier(v, Limits{})
		index := uint64(6)
		if errors.Is(c.want, ErrIndex) {
			index = 5
		}
		if _, err := a.applyEntry(&raft.Log{Index: index, Type: raft.LogCommand, Data: c.data}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if got := content(a.commit()); got != "A/y=1@5" {
			t.Errorf("%s: the content is %s", name, got)
		}
	}
}

func TestOnlySmallPutsAreGrouped(t *testing.T) {
	for name, c := range map[string]struct {
		batch *Batch
		want  bool
	}{
		"a put":              {&Batch{Ops: []Op{put("A", "x", "1")}}, true},
		"a put of a version": {&Batch{Ops: []Op{put("A", "x", "1").at(3)}}, true},
		"a delete":           {&Batch{Ops: []Op{put("A", "x", "1"), del("A", "y")}}, false},
		"an internal entry":  {&Batch{Ops: []Op{put("_node", "x", "1")}}, false},
		"a large one":        {&Batch{Ops: []Op{put("A", "x", strings.Repeat("v", groupBelow))}}, false},
	} {
		data, err := EncodeBatch(c.batch)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.batch.groupable(data); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	var all [][]byte
	for _, b := range []*Batch{{}, {Ops: []Op{put("A", "x", "1")}}, {ID: ID{1}, Ops: []Op{put("A", "y", "2").at(7)}}} {
		data, err := EncodeBatch(b)
		if err != nil {
			f.Fatal(err)
		}
		all = append(all, data)
		f.Add(data)
		f.Add(encodeGroup(all))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		batches, err := decodeEntry(data)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrDamaged) {
				t.Errorf("%v is not a sentinel error", err)
			}
			return
		}
		var again [][]byte
		for _, b := range batches {
			one, err := EncodeBatch(b)
			if err != nil {
				t.Fatal(err)
			}
			if one[1] != 0 {
				return // large batches are not grouped
			}
			again = append(again, one)
		}
		if got, err := decodeEntry(encodeGroup(again)); err != nil || !reflect.DeepEqual(got, batches) {
			t.Errorf("%+v became %+v, %v", batches, got, err)
		}
	})
}

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
		var pending []Pending
		for i := range n {
			b := &Batch{ID: ID{1, byte(i), byte(i >> 8)}, Ops: []Op{put("A", fmt.Sprint(i), "1")}}
			switch i % 20 {
			case 3: // refused: version conflict
				b.Ops[0] = put("A", "once", "2").at(0)
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
				if !errors.Is(err, ErrVersion) {
					t.Errorf("batch %d: %v, want %v", i, err, ErrVersion)
				}
				continue
			case err != nil || r.Repeated || r.Index < last || r.Index == last && i%20 == 5:
				t.Errorf("batch %d after index %d: %+v, %v", i, last, r, err)
			}
			if at, ok := a.Snapshot().Find(ID{1, byte(i), byte(i >> 8)}); !ok || at != r.Index {
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
			var pending []Pending
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
