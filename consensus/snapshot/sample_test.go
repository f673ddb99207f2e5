package snapshot

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/consensus/store"
)

// sampleSnapshot returns a small snapshot that uses every feature.
func sampleSnapshot(t testing.TB) store.Snapshot {
	t.Helper()
	note := store.Note{Who: "ada", What: "apply", At: time.Date(2026, 11, 21, 19, 0, 0, 1, time.UTC)}
	var v store.Snapshot
	for i, b := range []store.Batch{
		{ID: store.ID{1}, Note: note, Ops: []store.Op{put("A", "x", "1"), put("A", "y", "1"), put("A", "z", "1")}},
		{ID: store.ID{2}, IfSequence: new(uint64), Ops: []store.Op{put("A", "x", "2"), del("A", "y"), put("_node", "n", "1")}},
		{Note: note, Ops: []store.Op{put("A", "x", ""), put("A", "y", "3"), put("_node", "n", "2")}},
		{ID: store.ID{3}, Ops: []store.Op{del("A", "z"), put("B", strings.Repeat("n", 512), "v")}},
	} {
		v = mustApply(t, v, []uint64{3, 5, 6, 9}[i], &b)
	}
	return v.Skip(12)
}

// largeSnapshot returns a snapshot of n thousand entries of 300 bytes.
func largeSnapshot(t testing.TB, n int) store.Snapshot {
	t.Helper()
	var v store.Snapshot
	for i := range n {
		ops := make([]store.Op, 1000)
		for j := range ops {
			ops[j] = put("Name", fmt.Sprintf("www-%d.example.org", i*1000+j), fmt.Sprintf("%0300d", i*j))
		}
		v = mustApply(t, v, uint64(i+1), &store.Batch{ID: store.ID{byte(i), 1}, Ops: ops})
	}
	return v
}

func mustApply(t testing.TB, v store.Snapshot, index uint64, b *store.Batch) store.Snapshot {
	t.Helper()
	next, _, err := v.Apply(index, b, store.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func put(kind, name, value string) store.Op {
	return store.Op{Key: store.Key{Kind: kind, Name: name}, Value: []byte(value)}
}

func del(kind, name string) store.Op { return store.Op{Key: store.Key{Kind: kind, Name: name}} }

// contentOf returns the whole content of a snapshot, in blocks.
func contentOf(t testing.TB, v store.Snapshot) []byte {
	t.Helper()
	var content [][]byte
	if err := v.WriteBlocks(func(block []byte) error {
		content = append(content, bytes.Clone(block))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return slices.Concat(content...)
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
