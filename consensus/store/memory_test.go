package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func put(kind, name, value string) Op {
	return Op{Key: Key{kind, name}, Value: []byte(value)}
}

func del(kind, name string) Op { return Op{Key: Key{kind, name}} }

func (o Op) at(version uint64) Op { o.IfVersion = &version; return o }

func mustCommit(t *testing.T, m *Memory, ops ...Op) uint64 {
	t.Helper()
	result, err := m.Commit(t.Context(), &Batch{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	return result.Index
}

// content formats a snapshot as "Kind/name=value@version" words.
func content(v Snapshot) string {
	var words []string
	for e := range v.All() {
		words = append(words, fmt.Sprintf("%s/%s=%s@%d", e.Kind, e.Name, e.Value, e.Version))
	}
	return strings.Join(words, " ")
}

func TestBatchIsAllOrNothing(t *testing.T) {
	m := NewMemory(Limits{Entry: 64, Total: 100})
	mustCommit(t, m, put("A", "x", "1"), put("B", "y", "2"))
	before := content(m.Snapshot())
	for name, ops := range map[string][]Op{
		"version":      {put("A", "z", "3"), put("A", "x", "9").at(7)},
		"must not be":  {put("A", "z", "3"), put("A", "x", "9").at(0)},
		"entry bound":  {put("A", "z", "3"), put("A", "x", strings.Repeat("v", 64))},
		"total bound":  {put("A", "z", strings.Repeat("v", 50)), put("A", "w", strings.Repeat("v", 50))},
		"empty kind":   {put("A", "z", "3"), put("", "x", "9")},
		"zero in name": {put("A", "z", "3"), put("A", "x\x00y", "9")},
		"long name":    {put("A", "z", "3"), del("A", strings.Repeat("n", 513))},
	} {
		if _, err := m.Commit(t.Context(), &Batch{Ops: ops}); err == nil {
			t.Errorf("%s: committed", name)
		} else if !errors.Is(err, ErrVersion) && !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v is not a sentinel error", name, err)
		}
		if got := content(m.Snapshot()); got != before {
			t.Errorf("%s: left %q, want %q", name, got, before)
		}
	}
	if i := mustCommit(t, m, del("A", "x")); i != 2 {
		t.Errorf("refused batches took indexes: next is %d, want 2", i)
	}
}

func TestBatchAppliesOperationsInOrder(t *testing.T) {
	m := NewMemory(Limits{})
	mustCommit(t, m, put("A", "x", "1"), put("A", "x", "2"), put("A", "y", "1"), del("A", "y"), del("A", "never"))
	if got, want := content(m.Snapshot()), "A/x=2@1"; got != want {
		t.Errorf("content %q, want %q", got, want)
	}
}

func TestVersionsFollowTheirEntry(t *testing.T) {
	m := NewMemory(Limits{})
	mustCommit(t, m, put("A", "x", "1").at(0), put("A", "y", "1"))
	mustCommit(t, m, put("A", "y", "2").at(1))
	mustCommit(t, m, del("A", "x").at(1))
	mustCommit(t, m, put("A", "x", "3").at(0))
	if got, want := content(m.Snapshot()), "A/x=3@4 A/y=2@2"; got != want {
		t.Errorf("content %q, want %q", got, want)
	}
}

func TestSnapshotsAreImmutable(t *testing.T) {
	m := NewMemory(Limits{})
	var views []Snapshot
	var want []string
	for i := range 50 {
		mustCommit(t, m, put("A", fmt.Sprint(i%7), fmt.Sprint(i)), del("A", fmt.Sprint((i+3)%7)))
		views = append(views, m.Snapshot())
		want = append(want, content(m.Snapshot()))
	}
	for i, v := range views {
		if got := content(v); got != want[i] {
			t.Errorf("snapshot %d became %q, was %q", i, got, want[i])
		}
	}
}

func TestZeroSnapshotIsEmpty(t *testing.T) {
	var v Snapshot
	if _, ok := v.Get(Key{"A", "x"}); ok || v.Len() != 0 || v.Index() != 0 || content(v) != "" {
		t.Errorf("it holds %q", content(v))
	}
}

func TestSnapshotsListChangedKeys(t *testing.T) {
	m := NewMemory(Limits{})
	var views []Snapshot
	for i := range 3 * maxLog {
		mustCommit(t, m, put("A", fmt.Sprint(i), ""), del("A", fmt.Sprint(i-1)))
		views = append(views, m.Snapshot())
	}
	for i := 0; i < len(views); i += 29 {
		v, oldest := views[i], uint64(0)
		for after := range v.Index() + 2 {
			keys, known := v.Changed(after)
			if !known {
				oldest = after + 1
				continue
			}
			var want []Key
			for i := after; i < v.Index(); i++ {
				want = append(want, Key{"A", fmt.Sprint(i)}, Key{"A", fmt.Sprint(int(i) - 1)})
			}
			if !slices.Equal(keys, want) {
				t.Fatalf("snapshot %d after %d: %v, want %v", v.Index(), after, keys, want)
			}
		}
		if back := v.Index() - oldest; back < min(maxLog/2, v.Index()) {
			t.Fatalf("snapshot %d reaches back to %d only", v.Index(), oldest)
		}
	}
}

func TestKindListsOnlyItsOwnEntries(t *testing.T) {
	m := NewMemory(Limits{})
	mustCommit(t, m, put("Route", "b", ""), put("RouteX", "a", ""), put("Route", "a", ""))
	var names []string
	for e := range m.Snapshot().Kind("Route") {
		names = append(names, e.Kind+"/"+e.Name)
	}
	if want := []string{"Route/a", "Route/b"}; !slices.Equal(names, want) {
		t.Errorf("kind Route holds %v, want %v", names, want)
	}
}

func TestWaitCoalescesAndEndsWithItsContext(t *testing.T) {
	m := NewMemory(Limits{})
	mustCommit(t, m, put("A", "x", "1"))
	mustCommit(t, m, put("A", "x", "2"))
	if v, err := m.Wait(t.Context(), 0); err != nil || v.Index() != 2 {
		t.Fatalf("Wait(0) = index %d, %v; want 2", v.Index(), err)
	}
	got := make(chan Snapshot)
	go func() {
		v, _ := m.Wait(context.Background(), 2)
		got <- v
	}()
	mustCommit(t, m, put("A", "x", "3"))
	if v := <-got; v.Index() != 3 {
		t.Errorf("Wait(2) = index %d, want 3", v.Index())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Wait(ctx, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait with a cancelled context: %v", err)
	}
	if _, err := m.Commit(ctx, &Batch{Ops: []Op{put("A", "x", "4")}}); !errors.Is(err, context.Canceled) {
		t.Errorf("Commit with a cancelled context: %v", err)
	}
}

// TestStoreMatchesMap compares the store with a plain map under random batches.
func TestStoreMatchesMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, model := NewMemory(Limits{}), map[Key]string{}
		for range rapid.IntRange(1, 20).Draw(t, "batches") {
			var ops []Op
			for range rapid.IntRange(0, 5).Draw(t, "ops") {
				k := Key{rapid.SampledFrom([]string{"A", "AB"}).Draw(t, "kind"), rapid.SampledFrom([]string{"a", "b", "bc"}).Draw(t, "name")}
				if rapid.Bool().Draw(t, "delete") {
					ops = append(ops, Op{Key: k})
					delete(model, k)
				} else {
					v := rapid.StringN(0, 4, 8).Draw(t, "value")
					ops = append(ops, Op{Key: k, Value: []byte(v)})
					model[k] = v
				}
			}
			if _, err := m.Commit(context.Background(), &Batch{Ops: ops}); err != nil {
				t.Fatal(err)
			}
		}
		v, size := m.Snapshot(), 0
		for k, want := range model {
			e, ok := v.Get(k)
			if !ok || !bytes.Equal(e.Value, []byte(want)) {
				t.Fatalf("%v = %q, %v; want %q", k, e.Value, ok, want)
			}
			size += len(k.Kind) + len(k.Name) + len(want)
		}
		if v.Len() != len(model) || v.Bytes() != size {
			t.Fatalf("store has %d entries, %d bytes; the map %d, %d", v.Len(), v.Bytes(), len(model), size)
		}
	})
}

func TestConcurrentCommitsAreAllApplied(t *testing.T) {
	m := NewMemory(Limits{})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 100 {
				if _, err := m.Commit(context.Background(), &Batch{Ops: []Op{put("A", fmt.Sprint(w, "-", i), "")}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if v := m.Snapshot(); v.Index() != 800 || v.Len() != 800 {
		t.Errorf("index %d, %d entries; want 800 each", v.Index(), v.Len())
	}
}

func BenchmarkCommitOneOf100000(b *testing.B) {
	m := NewMemory(Limits{})
	ops := make([]Op, 100_000)
	for i := range ops {
		ops[i] = put("Name", fmt.Sprint(i), "value")
	}
	if _, err := m.Commit(b.Context(), &Batch{Ops: ops}); err != nil {
		b.Fatal(err)
	}
	for i := 0; b.Loop(); i++ {
		if _, err := m.Commit(b.Context(), &Batch{Ops: ops[i%len(ops):][:1]}); err != nil {
			b.Fatal(err)
		}
	}
}
