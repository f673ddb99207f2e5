package store

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// fataler is implemented by testing.TB and rapid.T.
type fataler interface {
	Helper()
	Fatal(args ...any)
}

func blocksOf(t fataler, v Snapshot) (blocks [][]byte) {
	t.Helper()
	if err := v.WriteBlocks(func(block []byte) error {
		blocks = append(blocks, bytes.Clone(block))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return blocks
}

func fromBlocks(t fataler, blocks [][]byte, l Limits) Snapshot {
	t.Helper()
	b := NewBuilder(l)
	for _, block := range blocks {
		block = bytes.Clone(block)
		if err := b.Add(block); err != nil {
			t.Fatal(err)
		}
		clear(block) // snapshots share no memory with blocks
	}
	v, err := b.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func sameBlocks(a, b [][]byte) bool { return slices.EqualFunc(a, b, bytes.Equal) }

// mustApply returns the snapshot after the batch.
func mustApply(t testing.TB, v Snapshot, index uint64, b *Batch) Snapshot {
	t.Helper()
	next, _, err := v.Apply(index, b, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// sampleSnapshot returns a small snapshot that uses every feature.
func sampleSnapshot(t testing.TB) Snapshot {
	note := Note{Who: "ada", What: "apply", At: time.Date(2026, 11, 21, 19, 0, 0, 1, time.UTC)}
	v := mustApply(t, Snapshot{}, 3, &Batch{ID: ID{1}, Note: note, Ops: []Op{put("A", "x", "1"), put("A", "y", "1"), put("A", "z", "1")}})
	v = mustApply(t, v, 5, &Batch{ID: ID{2}, IfSequence: ref(0), Ops: []Op{put("A", "x", "2"), del("A", "y"), put("_node", "n", "1")}})
	v = mustApply(t, v, 6, &Batch{Note: note, Ops: []Op{put("A", "x", ""), put("A", "y", "3"), put("_node", "n", "2")}})
	return mustApply(t, v, 9, &Batch{ID: ID{3}, Ops: []Op{del("A", "z"), put("B", strings.Repeat("n", 512), "v")}}).Skip(12)
}

func TestBlocksRoundTrip(t *testing.T) {
	large := Snapshot{}
	for i := range 12 {
		var ops []Op
		for j := range 1000 {
			ops = append(ops, put("Name", fmt.Sprint(i*700+j), strings.Repeat(fmt.Sprint(i, j), 40)))
		}
		large = mustApply(t, large, uint64(10*i+10), &Batch{ID: ID{byte(i), 1}, Ops: ops})
	}
	random := make([]byte, 3*BlockSize)
	rand.NewChaCha8([32]byte{}).Read(random)
	large = mustApply(t, large, 1000, &Batch{Ops: []Op{{Key: Key{"Name", "large"}, Value: random}}})
	for name, v := range map[string]Snapshot{"nothing": {}, "everything": sampleSnapshot(t), "large": large} {
		blocks := blocksOf(t, v)
		got := fromBlocks(t, blocks, Limits{})
		if err := sameSnapshot(got, v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if again := blocksOf(t, got); !sameBlocks(again, blocks) {
			t.Errorf("%s: writing the read snapshot gives different blocks", name)
		}
		if _, known := got.Changed(v.Index() - 1); known && v.Index() > 0 {
			t.Errorf("%s: what changed before the blocks is known", name)
		}
		if keys, known := got.Changed(v.Index()); len(keys) > 0 || !known {
			t.Errorf("%s: after its index %v changed, known %v", name, keys, known)
		}
		next := mustApply(t, got, v.Index()+4, &Batch{Ops: []Op{put("C", "new", "1")}})
		if keys, known := next.Changed(v.Index()); !known || !slices.Equal(keys, []Key{{"C", "new"}}) {
			t.Errorf("%s: after the next batch %v changed, known %v", name, keys, known)
		}
	}
}

// sameSnapshot compares the whole content of two snapshots.
func sameSnapshot(got, want Snapshot) error {
	if got.index != want.index || got.sequence != want.sequence || got.bytes != want.bytes ||
		got.internal != want.internal || got.Len() != want.Len() {
		return fmt.Errorf("index %d, sequence %d, %d+%d bytes, %d entries; want %d, %d, %d+%d, %d",
			got.index, got.sequence, got.bytes, got.internal, got.Len(), want.index, want.sequence, want.bytes, want.internal, want.Len())
	}
	for e := range want.All() {
		if g, ok := got.Get(e.Key); !ok || !reflect.DeepEqual(g, e) {
			return fmt.Errorf("%v is %+v, want %+v", e.Key, g, e)
		}
	}
	if got.past.bytes != want.past.bytes {
		return fmt.Errorf("%d bytes of revisions, want %d", got.past.bytes, want.past.bytes)
	}
	for _, of := range [][2]Snapshot{{want, got}, {got, want}} {
		for path, revisions := range of[0].past.all() {
			if g := of[1].past.lookup(path); !reflect.DeepEqual(g, revisions) {
				return fmt.Errorf("revisions of %q: %+v here, %+v there", path, revisions, g)
			}
		}
	}
	if g, w := keysOf(got.past), keysOf(want.past); !slices.Equal(g, w) {
		return fmt.Errorf("the order of revisions is %q, want %q", g, w)
	}
	if g, w := got.seen.inOrder(), want.seen.inOrder(); !slices.Equal(g, w) || got.seen.count != want.seen.count {
		return fmt.Errorf("%d IDs of %d, want %d of %d", len(g), got.seen.count, len(w), want.seen.count)
	}
	return nil
}

// keysOf lists the keys of the order tree.
func keysOf(p past) (keys []string) {
	if p.order == nil {
		return nil
	}
	it := p.order.Root().Iterator()
	for k, _, ok := it.Next(); ok; k, _, ok = it.Next() {
		keys = append(keys, string(k))
	}
	return keys
}

// largeSnapshot returns a snapshot of n thousand entries of 300 bytes.
func largeSnapshot(b testing.TB, n int) Snapshot {
	var v Snapshot
	for i := range n {
		ops := make([]Op, 1000)
		for j := range ops {
			ops[j] = put("Name", fmt.Sprintf("www-%d.example.org", i*1000+j), fmt.Sprintf("%0300d", i*j))
		}
		v = mustApply(b, v, uint64(i+1), &Batch{ID: ID{byte(i), 1}, Ops: ops})
	}
	return v
}

func FuzzBuilder(f *testing.F) {
	for _, v := range []Snapshot{{}, sampleSnapshot(f)} {
		f.Add(blocksOf(f, v)[0])
	}
	limits := Limits{Entry: 1 << 16, Total: 1 << 20, Internal: 1 << 20, Past: 1 << 20}
	f.Fuzz(func(t *testing.T, block []byte) {
		b := NewBuilder(limits)
		err := b.Add(block)
		var v Snapshot
		if err == nil {
			v, err = b.Snapshot()
		}
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrTooLarge) {
				t.Errorf("%v is not a sentinel error", err)
			}
			return
		}
		again := fromBlocks(t, blocksOf(t, v), limits)
		if err := sameSnapshot(again, v); err != nil {
			t.Error(err)
		}
		if _, _, err := v.Apply(
			v.Index()+1, &Batch{Ops: []Op{put("A", "x", "9"), del("A", "z")}}, limits,
		); v.Index()+1 > 0 && err != nil && !errors.Is(err, ErrTooLarge) {
			t.Error(err)
		}
	})
}
