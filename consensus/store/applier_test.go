package store

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

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
		together := NewApplier(Snapshot{}, limits)
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
			entry := data[0]
			if len(data) > 1 {
				entry = EncodeGroup(data)
			}
			var want []Reply
			for _, d := range data {
				b, err := DecodeBatch(d)
				if err != nil {
					t.Fatal(err)
				}
				var r Reply
				alone, r.Result, r.Err = alone.apply(index, b, limits)
				want = append(want, r)
			}
			got, err := together.Apply(index, entry)
			if err != nil {
				t.Fatal(err)
			}
			for i := range want {
				if got[i].Result != want[i].Result || fmt.Sprint(got[i].Err) != fmt.Sprint(want[i].Err) {
					t.Fatalf("batch %d of entry %d: %+v, want %+v", i, n, got[i], want[i])
				}
			}
			clear(entry) // snapshots share no memory with entries
			if rapid.IntRange(0, 2).Draw(t, "go on") > 0 {
				continue
			}
			v := together.Snapshot()
			if !sameBlocks(blocksOf(t, v), blocksOf(t, alone)) {
				t.Fatalf("after entry %d the contents differ", n)
			}
			for after := range index {
				one, known := v.Changed(after)
				other, too := alone.Changed(after)
				if known != too || !reflect.DeepEqual(one, other) && len(one)+len(other) > 0 {
					t.Fatalf("changed after %d: %v (%v), want %v (%v)", after, one, known, other, too)
				}
			}
			together = NewApplier(fromBlocks(t, blocksOf(t, v), limits), limits)
			together.snapshot.log = v.log // not in the blocks
		}
	})
}

func TestUnknownEntriesHaveNoEffect(t *testing.T) {
	good, err := EncodeBatch(&Batch{Ops: []Op{put("A", "x", "1")}})
	if err != nil {
		t.Fatal(err)
	}
	group := EncodeGroup([][]byte{good, good})
	long := make([][]byte, MaxGroup+1)
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
		"too many":        {EncodeGroup(long), ErrDamaged},
		"compressed too":  {append([]byte{batchFormat, batchGrouped | batchCompressed}, group[2:]...), ErrFormat},
		"of a later flag": {append([]byte{batchFormat, batchGrouped | 4}, group[2:]...), ErrFormat},
		"an index twice":  {group, ErrIndex},
	} {
		v, _, err := Snapshot{}.Apply(5, &Batch{Ops: []Op{put("A", "y", "1")}}, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		a := NewApplier(v, Limits{})
		index := uint64(6)
		if errors.Is(c.want, ErrIndex) {
			index = 5
		}
		if _, err := a.Apply(index, c.data); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if got := content(a.Snapshot()); got != "A/y=1@5" {
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
		if got := c.batch.Groupable(data); got != c.want {
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
		f.Add(EncodeGroup(all))
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
		if got, err := decodeEntry(EncodeGroup(again)); err != nil || !reflect.DeepEqual(got, batches) {
			t.Errorf("%+v became %+v, %v", batches, got, err)
		}
	})
}
