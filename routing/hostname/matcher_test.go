package hostname

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// oracle implements the rules of precedence with a scan: of all patterns that
// match the name an exact one wins, then the longest.
func oracle(patterns map[string]int, name string) (winner string, ok bool) {
	for pattern := range patterns {
		suffix, wild := strings.CutPrefix(pattern, "*.")
		covers := pattern == name
		if wild {
			rest, below := strings.CutSuffix(name, "."+suffix)
			covers = below && rest != ""
		}
		if !covers {
			continue
		}
		labels := strings.Count(pattern, ".")
		if !wild {
			labels = 1000
		}
		best := strings.Count(winner, ".")
		if winner != "" && !strings.HasPrefix(winner, "*.") {
			best = 1000
		}
		if !ok || labels > best {
			winner, ok = pattern, true
		}
	}
	return winner, ok
}

// anyName draws from few labels, so that names overlap.
func anyName(maxLabels int) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		labels := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "aa", "com"}), 1, maxLabels).Draw(t, "labels")
		return strings.Join(labels, ".")
	})
}

func anyPattern() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		name := anyName(4).Draw(t, "name")
		if rapid.Bool().Draw(t, "wildcard") {
			return "*." + name
		}
		return name
	})
}

// Rule 4 of integration/rules_test.go: exact, then the wildcard with the most
// labels, then shorter wildcards, then none, in every version of a changing
// matcher.
func TestMatchingAgreesWithTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			m    Matcher[int]
			want map[string]int
		}
		var versions []version
		var m Matcher[int]
		want := map[string]int{}
		for range rapid.IntRange(1, 4).Draw(t, "versions") {
			edit := m.Edit()
			want = maps.Clone(want)
			for range rapid.IntRange(1, 12).Draw(t, "steps") {
				pattern := anyPattern().Draw(t, "pattern")
				if rapid.IntRange(0, 2).Draw(t, "delete") == 0 {
					edit.Delete(pattern)
					delete(want, pattern)
				} else {
					v := rapid.Int().Draw(t, "value")
					edit.Set(pattern, v)
					want[pattern] = v
				}
			}
			m = edit.Matcher()
			versions = append(versions, version{m, want})
		}
		names := rapid.SliceOfN(anyName(6), 1, 20).Draw(t, "names")
		for _, v := range versions {
			if got := maps.Collect(v.m.All()); !maps.Equal(got, v.want) || v.m.Len() != len(v.want) {
				t.Fatalf("holds %v, want %v", got, v.want)
			}
			for _, name := range names {
				winner, ok := oracle(v.want, name)
				got, found := v.m.Match(name)
				if found != ok || ok && (got.Pattern() != winner || got.Value != v.want[winner]) {
					t.Fatalf("%q among %v: got %q %v, want %q %v", name, v.want, got.Pattern(), found, winner, ok)
				}
			}
		}
	})
}

// Rule 4 of integration/rules_test.go, by example.
func TestPrecedence(t *testing.T) {
	edit := Matcher[string]{}.Edit()
	for _, p := range []string{"*.com", "*.example.com", "*.a.example.com", "b.a.example.com", "example.org"} {
		edit.Set(p, p)
	}
	m := edit.Matcher()
	for name, want := range map[string]string{
		"b.a.example.com":               "b.a.example.com", // exact
		"c.a.example.com":               "*.a.example.com", // most labels
		"d.c.a.example.com":             "*.a.example.com", // a wildcard spans more than one label
		"x.b.a.example.com":             "*.a.example.com", // an exact name matches no subdomain
		"a.example.com":                 "*.example.com",   // never the apex
		"xa.example.com":                "*.example.com",   // whole labels only
		"example.com":                   "*.com",
		"com":                           "", // never the apex
		"example.org":                   "example.org",
		"www.example.org":               "",
		"example":                       "",
		strings.Repeat("a.", 126) + "a": "",
	} {
		got, ok := m.Match(name)
		if ok != (want != "") || got.Value != want {
			t.Errorf("%q: got %q, want %q", name, got.Value, want)
		}
	}
}

func TestMatchingAllocatesNothing(t *testing.T) {
	m := matcher(1000)
	if n := testing.AllocsPerRun(100, func() {
		m.Match("broker-5.tenant-5.kafka.example.com")
		m.Match("x.apps-5.example.com")
		m.Match("a.b.c.d.e.f.none.example")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// Match agrees with the oracle on any valid name, and accepts any bytes.
func FuzzMatch(f *testing.F) {
	f.Add("*.example.com,a.example.com,*.com", "b.a.example.com")
	f.Add("a..b,*.,*..", "..")
	f.Fuzz(func(t *testing.T, list, name string) {
		edit := Matcher[int]{}.Edit()
		patterns := map[string]int{}
		for i, s := range strings.Split(list, ",") {
			if p, err := ParsePattern(s); err == nil && len(patterns) < 50 {
				edit.Set(p, i)
				patterns[p] = i
			}
		}
		m := edit.Matcher()
		m.Match(name) // must not panic
		name, ok := CheckSNI(name)
		if !ok {
			return
		}
		got, found := m.Match(name)
		winner, want := oracle(patterns, name)
		if found != want || want && (got.Pattern() != winner || got.Value != patterns[winner]) {
			t.Fatalf("%q among %v: got %q %v, want %q %v", name, patterns, got.Pattern(), found, winner, want)
		}
	})
}

// matcher returns n patterns, one in ten of them a wildcard.
func matcher(n int) Matcher[int] {
	edit := Matcher[int]{}.Edit()
	for i := range n {
		if i%10 == 0 {
			edit.Set(fmt.Sprintf("*.apps-%d.example.com", i), i)
		} else {
			edit.Set(fmt.Sprintf("broker-%d.tenant-%d.kafka.example.com", i, i), i)
		}
	}
	return edit.Matcher()
}

func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 10_000, 100_000} {
		m := matcher(n)
		for _, kind := range []struct {
			name, format string
			offset       int
		}{
			{"exact", "broker-%d.tenant-%[1]d.kafka.example.com", 1},
			{"wildcard", "www.apps-%d.example.com", 0},
			{"none", "a.b.c-%d.example.org", 0},
		} {
			names := make([]string, 4096)
			for i := range names {
				names[i] = fmt.Sprintf(kind.format, i*7919%n/10*10+kind.offset)
			}
			b.Run(fmt.Sprintf("%s/%d", kind.name, n), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					name, _ := CheckSNI(names[i&4095])
					m.Match(name)
					i++
				}
			})
		}
	}
}
