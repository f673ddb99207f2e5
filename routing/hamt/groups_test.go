package hamt

import (
	"fmt"
	"maps"
	"testing"

	"pgregory.net/rapid"
)

// Every version of Groups remains unchanged, and has no empty group.
func TestGroupVersionsAgreeWithBuiltinMaps(t *testing.T) {
	type place struct{ group, key string }
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			g    Groups[int]
			want map[place]int
		}
		versions := []version{{want: map[place]int{}}}
		for range rapid.IntRange(1, 8).Draw(t, "edits") {
			from := rapid.SampledFrom(versions).Draw(t, "from")
			edit, want := from.g.Edit(), maps.Clone(from.want)
			for range rapid.IntRange(0, 30).Draw(t, "steps") {
				at := place{fmt.Sprint(rapid.IntRange(0, 3).Draw(t, "group")), fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "key"))}
				switch rapid.IntRange(0, 3).Draw(t, "what") {
				case 0:
					_, there := want[at]
					if got := edit.Delete(at.group, at.key); got != there {
						t.Fatalf("Delete(%v) = %v, want %v", at, got, there)
					}
					delete(want, at)
				case 1:
					versions = append(versions, version{edit.Groups(), maps.Clone(want)})
				default:
					v := rapid.Int().Draw(t, "v")
					edit.Set(at.group, at.key, v)
					want[at] = v
				}
				value, there := want[at]
				if got, ok := edit.Get(at.group, at.key); got != value || ok != there {
					t.Fatalf("Get(%v) = %v, %v of an edit", at, got, ok)
				}
			}
			versions = append(versions, version{edit.Groups(), want})
		}
		for _, v := range versions {
			got := map[place]int{}
			for group, m := range v.g.All() {
				if m.Len() == 0 {
					t.Fatalf("group %q is empty", group)
				}
				for key, x := range m.All() {
					got[place{group, key}] = x
					if y, ok := v.g.Get(group, key); !ok || y != x {
						t.Fatalf("Get(%q, %q) = %v, %v", group, key, y, ok)
					}
				}
			}
			if !maps.Equal(got, v.want) || v.g.Len() != len(v.want) {
				t.Fatalf("a version of %d holds %v, want %v", v.g.Len(), got, v.want)
			}
		}
	})
}
