package provider

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestDirectoryAgreesWithAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Directory
		model := map[Ref]map[string]Found{}
		refs := []Ref{{"a", Query{"web", ""}}, {"a", Query{"web", "http"}}, {"b", Query{"web", ""}}}
		for step := range rapid.IntRange(1, 20).Draw(t, "steps") {
			ref := rapid.SampledFrom(refs).Draw(t, "ref")
			u := Update{Ref: ref}
			of := model[ref]
			if of == nil {
				of = map[string]Found{}
				model[ref] = of
			}
			for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, 9), 0, 6, rapid.ID).Draw(t, "addresses") {
				address := fmt.Sprintf("10.0.0.%d:80", n)
				if rapid.Bool().Draw(t, "gone") {
					u.Gone = append(u.Gone, address)
					delete(of, address)
					continue
				}
				f := NewFound(Endpoint{Address: address, Weight: step}, time.Unix(int64(step), 0))
				u.Put = append(u.Put, f)
				of[address] = f
			}
			d.Apply([]Update{u})
			for ref, of := range model {
				var want []string
				for _, k := range slices.Sorted(maps.Keys(of)) {
					want = append(want, fmt.Sprint(of[k]))
				}
				var got []string
				for _, f := range d.Lookup(ref) {
					got = append(got, fmt.Sprint(f))
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%v: %v, want %v", ref, got, want)
				}
			}
		}
		for ref, list := range d.All() {
			if len(list) == 0 || len(list) != len(model[ref]) {
				t.Errorf("All has %d endpoints of %v", len(list), ref)
			}
		}
	})
}

func TestFoundParsesIPAddresses(t *testing.T) {
	for address, want := range map[string]string{
		"10.0.0.1:80": "10.0.0.1:80", "[2001:db8::1]:80": "[2001:db8::1]:80", "db.example.com:80": "invalid AddrPort",
	} {
		if got := NewFound(Endpoint{Address: address}, time.Time{}).Addr.String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

func BenchmarkDirectoryOneOfTenThousandChanges(b *testing.B) {
	var d Directory
	ref := Ref{"a", Query{Service: "web"}}
	var all Update
	all.Ref = ref
	for _, e := range numbered(10_000) {
		all.Put = append(all.Put, NewFound(e, time.Time{}))
	}
	d.Apply([]Update{all})
	for i := 0; b.Loop(); i++ {
		f := all.Put[5000]
		f.Weight = i
		d.Apply([]Update{{Ref: ref, Put: []Found{f}}})
	}
}
