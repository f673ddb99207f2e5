package permit

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

func everyOne(string) bool { return true }

// sorted iterates over permissions by name.
func sorted(all map[string]*resource.TrafficPermission) iter.Seq2[string, *resource.TrafficPermission] {
	return func(yield func(string, *resource.TrafficPermission) bool) {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if !yield(name, all[name]) {
				return
			}
		}
	}
}

func TestCoveredEntriesAreFound(t *testing.T) {
	read := services("orders")
	read.HTTP = []resource.TrafficRequest{{Methods: []string{"GET"}, Paths: []string{"/a/b", "/a/c/*"}}}
	below := services("orders")
	below.HTTP = []resource.TrafficRequest{{Paths: []string{"/a/*"}}}
	topics := func(operations []string, names ...string) resource.PermissionDestination {
		return resource.PermissionDestination{
			VirtualClusters: []string{"shop"}, Kafka: []resource.KafkaRequests{{Operations: operations, Topics: names}},
		}
	}
	user := []resource.TrafficSource{{Principals: []string{"User:a"}}}
	web := identities("spiffe://corp/ns/a/web")
	for _, c := range []struct {
		what    string
		covered bool
		a, b    *resource.TrafficPermission
	}{
		{"an allow by a deny of more clients", true, permission("deny", identities("spiffe://corp/ns/**"), services("orders", "cart")), permission("allow", web, services("orders"))},
		{"an allow by a deny of everything", true, permission("deny", nil), permission("allow", web, services("orders"))},
		{"an allow by a wider allow", true, permission("allow", identities("spiffe://corp/ns/*/web"), services("orders")), permission("allow", web, services("orders"))},
		{"a pattern of any length by a pattern of one segment", false, permission("deny", identities("spiffe://corp/*"), services("orders")), permission("deny", identities("spiffe://corp/**"), services("orders"))},
		{"a pattern within a segment", true, permission("deny", identities("spiffe://corp/a*"), services("orders")), permission("deny", identities("spiffe://corp/a*b"), services("orders"))},
		{"a deny by an allow", false, permission("allow", nil), permission("deny", web, services("orders"))},
		{"another service", false, permission("deny", nil, services("cart")), permission("allow", web, services("orders"))},
		{"one service of two", false, permission("deny", nil, services("orders")), permission("allow", web, services("orders", "cart"))},
		{"any service by one", false, permission("deny", nil, services("orders")), permission("allow", web)},
		{"fewer listeners", false, permission("deny", nil, resource.PermissionDestination{Listeners: []string{"edge"}}), permission("allow", web)},
		{"some requests by those below a path", true, permission("deny", nil, below), permission("allow", web, read)},
		{"requests below a path by some", false, permission("deny", nil, read), permission("allow", web, below)},
		{"requests by a connection's", true, permission("deny", nil, services("orders")), permission("deny", nil, read)},
		{"a connection by requests", false, permission("deny", nil, read), permission("deny", nil, services("orders"))},
		{"a deny that closes by one that drains", false, permission("deny", nil), &resource.TrafficPermission{Action: "deny", From: web, OnChange: "close"}},
		{"a topic by a prefix", true, permission("allow", user, topics(nil, "a*")), permission("allow", user, topics([]string{"consume"}, "ab", "ac*"))},
		{"a prefix by a topic", false, permission("allow", user, topics(nil, "a")), permission("allow", user, topics(nil, "a*"))},
		{"an allow to consume, which allows to describe, by a deny to consume", false, permission("deny", nil, topics([]string{"consume"}, "a")), permission("allow", user, topics([]string{"consume"}, "a"))},
		{"an allow to describe by one to consume", true, permission("allow", user, topics([]string{"consume"}, "a")), permission("allow", user, topics([]string{"describe"}, "a"))},
		{"Kafka's requests by connections", false, permission("deny", nil), permission("allow", user, topics(nil))},
	} {
		for _, n := range []int{0, coverScan} { // pairs, so that both ways to find them are taken
			all := map[string]*resource.TrafficPermission{"a-1": c.b, "z-1": c.a}
			for i := range n / 100 {
				all[fmt.Sprintf("m-%d", i)] = permission("shadowDeny", identities(fmt.Sprintf("spiffe://other/n%d", i)), services("other"))
			}
			found := FindCovered(sorted(all), everyOne)
			if !c.covered {
				if slices.ContainsFunc(found, func(f Covered) bool { return f.Entry.Permission == "a-1" }) {
					t.Errorf("%s of %d: %+v", c.what, len(all), found)
				}
				continue
			}
			if len(found) != 1 || found[0].Entry.Permission != "a-1" || found[0].By.Permission != "z-1" || found[0].Denied != (c.a.Action != c.b.Action) {
				t.Errorf("%s of %d: %+v", c.what, len(all), found)
			}
		}
	}
}

// Two equal entries are reported once, and what has not changed is not reported.
func TestOfTwoEqualPermissionsTheSecondIsCovered(t *testing.T) {
	p := permission("deny", identities("spiffe://corp/a"), services("x"))
	all := map[string]*resource.TrafficPermission{"a": p, "b": p, "c": permission("allow", nil, services("y"))}
	found := FindCovered(sorted(all), func(name string) bool { return name == "a" })
	if len(found) != 1 || found[0].Entry != (Entry{"b", -1, 0, 0}) || found[0].By != (Entry{"a", -1, 0, 0}) {
		t.Errorf("%+v", found)
	}
	if found := FindCovered(sorted(all), func(name string) bool { return name == "c" }); len(found) > 0 {
		t.Errorf("what had not changed: %+v", found)
	}
}

// Entries of rules are named by their rule.
func TestRulesOfOnePermissionMayCoverEachOther(t *testing.T) {
	p := permission("", nil, services("x"))
	p.Rules = []resource.PermissionRule{{Action: "deny", From: identities("spiffe://corp/**")}, {Action: "allow", From: identities("spiffe://corp/a")}}
	found := FindCovered(sorted(map[string]*resource.TrafficPermission{"r": p}), everyOne)
	want := Covered{Entry: Entry{"r", 1, 0, 0}, By: Entry{"r", 0, 0, 0}, Denied: true, Action: "deny"}
	if len(found) != 1 || found[0] != want {
		t.Errorf("%+v, want %+v", found, want)
	}
}

// single returns permissions that say together what p says, one for each pair of its
// entries.
func single(p *resource.TrafficPermission) (list []*resource.TrafficPermission) {
	from, to := p.From, p.To
	if len(from) == 0 {
		from = []resource.TrafficSource{{}}
	}
	if len(to) == 0 {
		to = []resource.PermissionDestination{{}}
	}
	for _, f := range from {
		for _, d := range to {
			one := *p
			one.From, one.To = []resource.TrafficSource{f}, []resource.PermissionDestination{d}
			list = append(list, &one)
		}
	}
	return list
}

// Without a covered entry, the same clients may connect; and an allow that is denied
// never allows.
func TestCoveredEntriesDecideNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := map[string]*resource.TrafficPermission{}
		for i := range rapid.IntRange(2, 6).Draw(t, "permissions") {
			p := drawPermission(t)
			p.OnChange = rapid.SampledFrom([]string{"drain", "close"}).Draw(t, "onChange")
			for j, one := range single(p) {
				all[fmt.Sprintf("%d-%d", i, j)] = one
			}
		}
		x := new(Index)
		for name, p := range all {
			x = x.With(name, p)
		}
		found := FindCovered(sorted(all), everyOne)
		for range 16 {
			q := drawQuery(t)
			v := x.Decide(&q)
			for _, c := range found {
				name := c.Entry.Permission
				if c.Denied {
					if v.Why == ByAllow && v.Rule == name {
						t.Fatalf("%+v allows %+v", c, q)
					}
					continue
				}
				w := x.With(name, nil).Decide(&q)
				if w.Allowed() != v.Allowed() {
					t.Fatalf("without %+v: %v by %q instead of %v by %q for %+v", c, w.Why, w.Rule, v.Why, v.Rule, q)
				}
			}
		}
	})
}

// Both ways to find covered entries find the same.
func TestCoveredEntriesAreTheSameByScanAndByIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scan, index := &coverSearch{steps: coverSteps}, &coverSearch{steps: coverSteps}
		for i := range rapid.IntRange(2, 8).Draw(t, "permissions") {
			p := drawPermission(t)
			scan.add(fmt.Sprint(i), p, true, -1)
			index.add(fmt.Sprint(i), p, true, -1)
		}
		for _, s := range []*coverSearch{scan, index} {
			s.by = slices.Repeat([]int{-1}, len(s.entries))
		}
		scan.scan()
		index.lookup()
		if !slices.Equal(scan.by, index.by) {
			t.Fatalf("by scan %v, by index %v", scan.by, index.by)
		}
	})
}

// A search ends after a bounded number of steps, whatever the permissions are.
func TestSearchForCoveredEntriesIsBounded(t *testing.T) {
	s := &coverSearch{steps: coverSteps}
	for i := range 3000 { // in one bucket of the index
		to := services("orders")
		to.HTTP = []resource.TrafficRequest{{Paths: []string{fmt.Sprintf("/%d", i)}}}
		s.add(fmt.Sprint(i), permission("allow", nil, to), true, -1)
	}
	s.by = slices.Repeat([]int{-1}, len(s.entries))
	s.lookup()
	if s.steps > 0 {
		t.Errorf("%d steps are left: the test does not reach the bound", s.steps)
	}
}

func BenchmarkCovered(b *testing.B) {
	x := many(10_000)
	all := func(yield func(string, *resource.TrafficPermission) bool) {
		for name, rules := range x.rules.All() {
			if !yield(name, rules[0].spec) {
				return
			}
		}
	}
	for _, c := range []struct {
		name    string
		changed func(string) bool
	}{{"all", everyOne}, {"one", func(name string) bool { return name == "p-5003" }}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				FindCovered(all, c.changed)
			}
		})
	}
}
