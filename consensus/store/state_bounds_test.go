package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestTheLast10000BatchesAreRemembered(t *testing.T) {
	id := func(n int) (id ID) {
		binary.BigEndian.PutUint64(id[8:], uint64(n)) // IDs need not be random
		return id
	}
	const all = 2*maxSeen + maxSeen/2
	var v Snapshot
	for n := 1; n <= all; n++ {
		v = mustApply(t, v, uint64(2*n), &Batch{ID: id(n)})
		if n == maxSeen+3 {
			v = fromBlocks(t, blocksOf(t, v), Limits{})
		}
	}
	for _, v := range []Snapshot{v, fromBlocks(t, blocksOf(t, v), Limits{})} {
		for n := 1; n <= all; n++ {
			index, ok := v.seen.find(id(n))
			if want := n > all-maxSeen; ok != want || want && index != uint64(2*n) {
				t.Fatalf("batch %d of %d: remembered %v, of index %d", n, all, ok, index)
			}
		}
	}
	again, result, err := v.Apply(60_000, &Batch{ID: id(all), Ops: []Op{put("A", "x", "1")}, IfSequence: ref(77)}, Limits{})
	if want := (Result{Index: 2 * all, Repeated: true}); err != nil || result != want || again.Index() != 60_000 || again.Len() != 0 {
		t.Errorf("the last batch again: %+v, %v, index %d, %d entries", result, err, again.Index(), again.Len())
	}
	if forgotten, result, err := v.Apply(
		60_000, &Batch{ID: id(all - maxSeen), Ops: []Op{put("A", "x", "1")}}, Limits{},
	); err != nil || result.Repeated || forgotten.Len() != 1 {
		t.Errorf("a forgotten batch: %+v, %v", result, err)
	}
}

// A refused batch had no effect, so a retry may succeed.
func TestRefusedBatchIsEvaluatedAgain(t *testing.T) {
	b := &Batch{ID: ID{1}, Ops: []Op{put("A", "x", "2").at(3)}}
	v, _, err := Snapshot{}.Apply(2, b, Limits{})
	if !errors.Is(err, ErrVersion) || v.Index() != 2 || v.Len() != 0 {
		t.Fatalf("%v, index %d", err, v.Index())
	}
	v = mustApply(t, v, 3, &Batch{Ops: []Op{put("A", "x", "1")}})
	if v, result, err := v.Apply(4, b, Limits{}); err != nil || result != (Result{Index: 4}) || content(v) != "A/x=2@4" {
		t.Errorf("%+v, %v: %s", result, err, content(v))
	}
}

func TestIndexesMustIncrease(t *testing.T) {
	v := mustApply(t, Snapshot{}, 5, &Batch{Ops: []Op{put("A", "x", "1")}})
	for _, index := range []uint64{0, 4, 5} {
		if next, _, err := v.Apply(index, &Batch{}, Limits{}); !errors.Is(err, ErrIndex) || next.Index() != 5 {
			t.Errorf("index %d after 5: %v, the snapshot is at %d", index, err, next.Index())
		}
		if next := v.Skip(index); next.Index() != 5 {
			t.Errorf("skipping to %d went to %d", index, next.Index())
		}
	}
}

// User and internal entries have separate limits.
func TestUserEntriesLeaveRoomForInternalOnes(t *testing.T) {
	l := Limits{Total: 10, Internal: 20}
	v, _, err := Snapshot{}.Apply(1, &Batch{Ops: []Op{put("A", "x", "12345678")}}, l)
	if err != nil {
		t.Fatal(err)
	}
	if v, _, err = v.Apply(2, &Batch{Ops: []Op{put("_n", "x", "12345678901234567")}}, l); err != nil {
		t.Errorf("a user entry over the limit: %v", err)
	}
	for _, kind := range []string{"A", "_n"} {
		if _, _, err := v.Apply(3, &Batch{Ops: []Op{put(kind, "y", "")}}, l); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// Internal entries have no history, however often they change.
func TestInternalEntriesEvictNoHistory(t *testing.T) {
	v := mustApply(t, Snapshot{}, 1, &Batch{Ops: []Op{put("A", "x", "1")}})
	v = mustApply(t, v, 2, &Batch{Ops: []Op{put("A", "x", "2")}})
	before := v.past.bytes
	for i := range 20 {
		v = mustApply(t, v, uint64(3+i), &Batch{Ops: []Op{put("_node", "n", fmt.Sprint(i)), put("_node", "m", ""), del("_node", "m")}})
	}
	if h := v.History(Key{"_node", "n"}); len(h) != 1 || string(h[0].Value) != "19" {
		t.Errorf("history of a record: %+v", h)
	}
	if h := v.History(Key{"A", "x"}); len(h) != 2 || v.past.bytes != before {
		t.Errorf("history of a resource: %+v, %d bytes", h, v.past.bytes)
	}
}

func TestNotesAreTruncated(t *testing.T) {
	at := time.Now() // has a monotonic reading and the local zone
	long := Note{Who: strings.Repeat("é", maxNote), What: "x" + strings.Repeat("é", maxNote), At: at}
	v := mustApply(t, Snapshot{}, 1, &Batch{Note: long, Ops: []Op{put("A", "x", "1")}})
	e, _ := v.Get(Key{"A", "x"})
	if want := (Note{strings.Repeat("é", maxNote/2), "x" + strings.Repeat("é", maxNote/2-1), at.UTC().Round(0)}); e.Note != want {
		t.Errorf("%q, want %q", e.Note, want)
	}
}

// Values and keys arrive in documents and log entries, which must not be kept
// alive by a revision.
func TestSnapshotsRetainNoInputMemory(t *testing.T) {
	const size = 1 << 20
	var v Snapshot
	for i := range 64 {
		document := []byte(strings.Repeat("x", size) + "value")
		v = mustApply(t, v, uint64(i+1), &Batch{
			Note: Note{Who: string(document)[size:]},
			Ops:  []Op{{Key: Key{"Service", fmt.Sprint(i % 8)}, Value: document[size:]}},
		})
	}
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	if mem.HeapAlloc > 24*size {
		t.Errorf("%d MiB are in use after 64 documents of 1 MiB", mem.HeapAlloc>>20)
	}
	runtime.KeepAlive(v)
}

// A batch applied to a snapshot affects neither it nor its other successors.
func TestSnapshotMayHaveSeveralSuccessors(t *testing.T) {
	v := sampleSnapshot(t)
	var next []Snapshot
	for i := range 3 {
		next = append(next, mustApply(t, v, 20, &Batch{ID: ID{9, byte(i)}, Ops: []Op{put("A", "x", fmt.Sprint("n", i))}}))
	}
	for i, n := range next {
		keys, known := n.Changed(12)
		h := n.History(Key{"A", "x"})
		_, other := n.seen.find(ID{9, byte(i + 1)})
		if !known || len(keys) != 1 || len(h) != 4 || string(h[0].Value) != fmt.Sprint("n", i) || other {
			t.Errorf("branch %d: changed %v, history %+v", i, keys, h)
		}
	}
	if err := sameSnapshot(v, sampleSnapshot(t)); err != nil {
		t.Error(err)
	}
}

func TestASmallBatchAllocatesLittle(t *testing.T) {
	v := largeSnapshot(t, 10)
	b := &Batch{ID: ID{7}, Ops: []Op{put("Name", "www-77.example.org", "new")}}
	if n := testing.AllocsPerRun(100, func() { mustApply(t, v, 1000, b) }); n > 150 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkApplyOneOf100000(b *testing.B) {
	v := largeSnapshot(b, 100)
	batch := &Batch{Ops: []Op{{Value: make([]byte, 300)}}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		binary.BigEndian.PutUint64(batch.ID[:], uint64(i+1)*0x9e3779b97f4a7c15)
		batch.Ops[0].Key = Key{"Name", fmt.Sprintf("www-%d.example.org", i%100_000)}
		v = mustApply(b, v, v.Index()+1, batch)
	}
}
