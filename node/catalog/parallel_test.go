package catalog

import (
	"bytes"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

func TestInParallelCoversEachIndexOnce(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	for _, n := range []int{0, 1, 2*minPerCore - 1, 2 * minPerCore, 10*minPerCore + 7} {
		done := make([]atomic.Int32, n)
		inParallel(n, func(from, to int) {
			for i := from; i < to; i++ {
				done[i].Add(1)
			}
		})
		for i := range done {
			if got := done[i].Load(); got != 1 {
				t.Errorf("%d of %d was done %d times", i, n, got)
			}
		}
	}
}

// TestManyResourcesAreDecodedInParallel restores enough resources to decode
// them on all cores, on this and another node. Faults keep the order of the
// resources.
func TestManyResourcesAreDecodedInParallel(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	c, memory := newOnMemory(t)
	other := New(Config{Store: memory, Kinds: c.cfg.Kinds})
	startFollow(t, other, func(*validate.Set, []resource.Change) {})
	var entries []store.Entry
	for i := range 5 * minPerCore {
		o := service(t, i, 80)
		entries = append(entries, store.Entry{Key: store.Key(o.Key), Value: codec.EncodeWithSecrets(o)})
	}
	wrong := slices.Clone(entries)
	var want []string
	for i := 100; i < len(wrong); i += 3 * minPerCore / 2 {
		wrong[i].Value = []byte("{")
		want = append(want, wrong[i].Kind+"/"+wrong[i].Name)
	}
	_, err := c.Replace(t.Context(), Replacement{Entries: wrong})
	if code(err) != api.Invalid {
		t.Fatal(err)
	}
	var got []string
	for _, f := range err.(*api.Error).Faults {
		got = append(got, f.Key)
	}
	if !slices.Equal(got, want) {
		t.Errorf("faults of %v, want %v", got, want)
	}
	r, err := c.Replace(t.Context(), Replacement{Entries: entries})
	if err != nil || r.Resources != len(entries) {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := other.Await(t.Context(), r.Index); err != nil {
		t.Fatal(err)
	}
	checkAgrees(t, c, memory)
	checkAgrees(t, other, memory)
	// The stored values are those of the snapshot.
	for _, e := range entries {
		if now, _ := memory.Snapshot().Get(e.Key); !bytes.Equal(now.Value, e.Value) {
			t.Fatalf("%v is stored as %s", e.Key, now.Value)
		}
	}
}
