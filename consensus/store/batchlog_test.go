package store

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// A key is often a substring of a document and must not keep that alive while
// the log has the key.
func TestBatchLogRetainsNoInputMemory(t *testing.T) {
	const size = 1 << 20
	m := NewMemory(Limits{})
	for range 2 * maxLog / 4 {
		document := strings.Repeat("x", size) + "apps"
		if _, err := m.Commit(t.Context(), &Batch{Ops: []Op{{Key: Key{"Service", document[size:]}, Value: []byte("v")}}}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	if mem.HeapAlloc > 16*size {
		t.Errorf("%d MiB are in use after %d documents of 1 MiB", mem.HeapAlloc>>20, maxLog/2)
	}
	runtime.KeepAlive(m)
}

// Batches with many keys are kept for a shorter time.
func TestBatchLogBoundsKeys(t *testing.T) {
	keys := make([]Key, maxLogKeys/4)
	for i := range keys {
		keys[i] = Key{"Host", fmt.Sprint(i)}
	}
	var l batchLog
	for index := range uint64(12) {
		l = l.with(index+1, keys)
	}
	total := 0
	for _, part := range []*loggedBatch{l.newer, l.older} {
		for b := part; b != nil; b = b.prev {
			total += len(b.keys)
		}
	}
	if total > maxLogKeys {
		t.Errorf("the log has %d keys, the bound is %d", total, maxLogKeys)
	}
	if changed, known := l.after(11); !known || len(changed) != len(keys) {
		t.Errorf("the last batch: %d keys, known %v", len(changed), known)
	}
	if _, known := l.after(1); known {
		t.Error("the log reaches back to the first batch")
	}
	// A single batch over the limit is kept: a follower needs it next.
	more := make([]Key, maxLogKeys+1)
	if changed, known := l.with(20, more).after(12); !known || len(changed) != len(more) {
		t.Errorf("a large batch: %d keys, known %v", len(changed), known)
	}
}
