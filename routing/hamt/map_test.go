package hamt

import (
	"fmt"
	"maps"
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

// Every version of a map remains unchanged, whatever happens to later ones.
func TestVersionsAgreeWithBuiltinMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			m    Map[int]
			want map[string]int
		}
		versions := []version{{want: map[string]int{}}}
		key := rapid.Custom(func(t *rapid.T) string { return fmt.Sprint(rapid.IntRange(0, 200).Draw(t, "key")) })
		for range rapid.IntRange(1, 10).Draw(t, "edits") {
			from := rapid.SampledFrom(versions).Draw(t, "from")
			edit, want := from.m.Edit(), maps.Clone(from.want)
			for range rapid.IntRange(0, 60).Draw(t, "steps") {
				k := key.Draw(t, "k")
				if rapid.Bool().Draw(t, "delete") {
					_, there := want[k]
					if got := edit.Delete(k); got != there {
						t.Fatalf("Delete(%q) = %v, want %v", k, got, there)
					}
					delete(want, k)
				} else {
					v := rapid.Int().Draw(t, "v")
					edit.Set(k, v)
					want[k] = v
				}
				if rapid.IntRange(0, 9).Draw(t, "keep") == 0 {
					versions = append(versions, version{edit.Map(), maps.Clone(want)})
				}
			}
			versions = append(versions, version{edit.Map(), want})
		}
		for range 10 {
			a, b := rapid.SampledFrom(versions).Draw(t, "a"), rapid.SampledFrom(versions).Draw(t, "b")
			want := map[string]int{}
			for i := range 201 {
				k := fmt.Sprint(i)
				x, inA := a.want[k]
				if y, inB := b.want[k]; inA != inB || x != y {
					want[k] = 1
				}
			}
			got := map[string]int{}
			for k := range a.m.Changed(b.m, func(x, y int) bool { return x == y }) {
				got[k]++
			}
			if !maps.Equal(got, want) {
				t.Fatalf("changed are %v, want %v", got, want)
			}
		}
		for _, v := range versions {
			if got := maps.Collect(v.m.All()); !maps.Equal(got, v.want) || v.m.Len() != len(v.want) {
				t.Fatalf("a version of %d holds %v, want %v", v.m.Len(), got, v.want)
			}
			for i := range 201 {
				k := fmt.Sprint(i)
				got, ok := v.m.Get(k)
				want, there := v.want[k]
				if ok != there || got != want {
					t.Fatalf("Get(%q) = %v, %v; want %v, %v", k, got, ok, want, there)
				}
			}
		}
	})
}

// Keys with equal hashes, or hashes that differ only in the last bits, are kept
// distinct.
func TestCollidingHashesAreDistinguished(t *testing.T) {
	hashes := []uint64{0, 1 << 63, 1 << 60, 1 << 58, 1}
	var m Map[int]
	edit := m.Edit()
	for i := range 15 {
		edit.set(entry[int]{hashes[i%5], fmt.Sprint(i), i})
		edit.set(entry[int]{hashes[i%5], fmt.Sprint(i), i}) // replaces it
	}
	full := edit.Map()
	for i := range 15 {
		if e := full.root.find(hashes[i%5], fmt.Sprint(i)); e == nil || e.value != i {
			t.Errorf("key %d is not found in the full map", i)
		}
	}
	for i := range 15 {
		if !edit.delete(hashes[i%5], fmt.Sprint(i)) {
			t.Fatalf("key %d is not there to be deleted", i)
		}
		for j := range 15 {
			if i == 14 {
				break
			}
			if found := edit.m.root.find(hashes[j%5], fmt.Sprint(j)) != nil; found != (j > i) {
				t.Errorf("after deleting up to %d: key %d found: %v", i, j, found)
			}
		}
	}
	if empty := edit.Map(); empty.Len() != 0 || empty.root != nil || full.Len() != 15 {
		t.Errorf("%d and %d keys, want 0 and 15", empty.Len(), full.Len())
	}
}

func TestGetAllocatesNothing(t *testing.T) {
	m := numbered(1000)
	if n := testing.AllocsPerRun(100, func() { m.Get("name-500.example.com"); m.Get("none") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestChangeOfLargeMapTakesLittleMemory(t *testing.T) {
	m := numbered(100_000)
	versions := make([]Map[int], 10)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range versions {
		edit := m.Edit()
		edit.Set(fmt.Sprintf("new-%d.example.com", i), i)
		m = edit.Map()
		versions[i] = m
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 200<<10 {
		t.Errorf("ten versions took %d KB, want at most 200", grown>>10)
	}
	runtime.KeepAlive(versions)
}

func numbered(n int) Map[int] {
	var m Map[int]
	edit := m.Edit()
	for i := range n {
		edit.Set(fmt.Sprintf("name-%d.example.com", i), i)
	}
	return edit.Map()
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{10, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := numbered(n)
			keys := make([]string, 1024)
			for i := range keys {
				keys[i] = fmt.Sprintf("name-%d.example.com", i*7919%n)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, ok := m.Get(keys[i&1023]); !ok {
					b.Fatal("not found")
				}
				i++
			}
		})
	}
}

func BenchmarkSetOneOf100000(b *testing.B) {
	m := numbered(100_000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		edit := m.Edit()
		edit.Set("name-77.example.com", i)
		edit.Map()
		i++
	}
}

func BenchmarkBuild100000(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		numbered(100_000)
	}
}
