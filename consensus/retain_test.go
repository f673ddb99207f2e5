package consensus

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestLogKeepsNoDocuments: a key is often cut out of the document that it came
// with, and must not keep that alive for as long as the log remembers it.
func TestLogKeepsNoDocuments(t *testing.T) {
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

// TestLogIsBoundedByItsKeys: batches of many keys are remembered for a shorter time.
func TestLogIsBoundedByItsKeys(t *testing.T) {
	m := NewMemory(Limits{})
	ops := make([]Op, maxLogKeys/4)
	for i := range ops {
		ops[i] = Op{Key: Key{"Host", fmt.Sprint(i)}, Value: []byte("v")}
	}
	for range 12 {
		if _, err := m.Commit(t.Context(), &Batch{Ops: ops}); err != nil {
			t.Fatal(err)
		}
	}
	v := m.View()
	keys := 0
	for _, part := range []*loggedBatch{v.log.newer, v.log.older} {
		for b := part; b != nil; b = b.prev {
			keys += len(b.keys)
		}
	}
	if keys > maxLogKeys {
		t.Errorf("the log has %d keys, the bound is %d", keys, maxLogKeys)
	}
	if changed, known := v.Changed(v.Index() - 1); !known || len(changed) != len(ops) {
		t.Errorf("the last batch: %d keys, known %v", len(changed), known)
	}
	if _, known := v.Changed(1); known {
		t.Error("the log reaches back to the first batch")
	}
	// One batch over the bound is remembered all the same: it is what a follower needs next.
	more := make([]Op, maxLogKeys+1)
	for i := range more {
		more[i] = Op{Key: Key{"Host", fmt.Sprint(i)}, Value: []byte("w")}
	}
	result, err := m.Commit(t.Context(), &Batch{Ops: more})
	if err != nil {
		t.Fatal(err)
	}
	if changed, known := m.View().Changed(result.Index - 1); !known || len(changed) != len(more) {
		t.Errorf("a large batch: %d keys, known %v", len(changed), known)
	}
}
