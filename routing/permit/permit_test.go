package permit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

func permission(action string, from []resource.TrafficSource, to ...resource.PermissionDestination) *resource.TrafficPermission {
	return (&resource.TrafficPermission{From: from, To: to, Action: action}).WithDefaults()
}

func services(names ...string) resource.PermissionDestination {
	return resource.PermissionDestination{Services: names}
}

func identities(patterns ...string) []resource.TrafficSource {
	return []resource.TrafficSource{{Identities: patterns}}
}

func TestDenyBeatsAllowAndNamedDestinationsAreClosed(t *testing.T) {
	x := new(Index).
		With("web", permission("allow", identities("spiffe://corp/ns/*/web"), services("orders"))).
		With("not-b", permission("deny", identities("spiffe://corp/ns/b/**"), services("orders"))).
		With("watch", permission("shadowDeny", nil, services("orders")))
	for _, c := range []struct {
		q    Query
		why  Why
		rule string
	}{
		{Query{Service: "orders", Identity: "spiffe://corp/ns/a/web"}, ByAllow, "web"},
		{Query{Service: "orders", Identity: "spiffe://corp/ns/b/web"}, ByDeny, "not-b"},
		{Query{Service: "orders", Identity: "spiffe://corp/ns/a/batch"}, NoneAllows, "web"},
		{Query{Service: "orders"}, NoneAllows, "web"},
		{Query{Service: "orders", Identity: "spiffe://corp/ns/a/web", Undecided: true}, ByDeny, "not-b"},
		{Query{Service: "other"}, Open, ""},
	} {
		v := x.Decide(&c.q)
		if v.Why != c.why || v.Rule != c.rule {
			t.Errorf("%+v: %v by %q, want %v by %q", c.q, v.Why, v.Rule, c.why, c.rule)
		}
		if shadow := v.Shadow == "watch"; shadow != (c.q.Service == "orders") {
			t.Errorf("%+v: shadow %q", c.q, v.Shadow)
		}
	}
	if v := x.WithDefault(true).Decide(&Query{Service: "other"}); v.Why != Closed || v.Allowed() {
		t.Errorf("with the default deny: %v", v.Why)
	}
}

// What no permission allows counts as well, over all versions of the index.
func TestDefaultsThatDenyAreCounted(t *testing.T) {
	x := new(Index).WithDefault(true)
	count := func(q Query) {
		v := x.Decide(&q)
		v.Count()
	}
	count(Query{Service: "other"}) // Closed
	x = x.With("web", permission("allow", identities("spiffe://corp/web"), services("orders")))
	count(Query{Service: "orders"}) // NoneAllows
	count(Query{Service: "orders", Identity: "spiffe://corp/web"})
	x = x.With("not-b", permission("deny", nil, services("db")))
	count(Query{Service: "db"}) // ByDeny
	got := map[string]Denial{}
	for name, d := range x.Denials() {
		got[name] = d
	}
	if len(got) != 2 || got[""] != (Denial{ActionDefault, 2}) || got["not-b"] != (Denial{"deny", 1}) {
		t.Errorf("%+v", got)
	}
}

func TestRequestsAreDecidedByMethodAndPath(t *testing.T) {
	to := services("orders")
	to.HTTP = []resource.TrafficRequest{{Methods: []string{"GET"}, Paths: []string{"/a", "/a/*"}}}
	admin := services("orders")
	admin.HTTP = []resource.TrafficRequest{{Paths: []string{"/a/admin", "/a/admin/*"}}}
	noDelete := services("orders")
	noDelete.HTTP = []resource.TrafficRequest{{Methods: []string{"DELETE"}}}
	x := new(Index).With("read", permission("allow", nil, to)).With("admin", permission("deny", nil, admin)).
		With("no-delete", permission("deny", nil, noDelete))
	for _, c := range []struct {
		method, path string
		why          Why
	}{
		{"GET", "/a", ByAllow}, {"GET", "/a/b", ByAllow}, {"GET", "/ab", NoneAllows}, {"POST", "/a", NoneAllows},
		{"GET", "/a/admin", ByDeny}, {"GET", "/a/admin/x", ByDeny}, {"GET", "/a/administer", ByAllow},
		{"GET", "/a//admin", ByDeny}, {"GET", "/a%2Fadmin%2Fx", ByDeny}, {"GET", "/a/admin;v=1", ByDeny},
		{"GET", "/a/admin%3Bv=1", ByDeny}, {"get", "/a", NoneAllows}, {"GET", "/a/delete", ByAllow}, {"DELETE", "/a/b", ByDeny},
		{"Delete", "/a/b", ByDeny},
	} {
		if v := x.Decide(&Query{Service: "orders", Request: true, Method: c.method, Path: c.path}); v.Why != c.why {
			t.Errorf("%s %s: %v, want %v", c.method, c.path, v.Why, c.why)
		}
	}
	if v := x.Decide(&Query{Service: "orders"}); v.Why != ByDeny {
		t.Errorf("a connection whose requests are unknown: %v", v.Why)
	}
	if !x.Requests("orders", "edge") || x.Requests("other", "edge") {
		t.Error("the wrong destinations depend on requests")
	}
}

// A removed or replaced permission leaves nothing behind.
func TestIndexForgetsRemovedPermissions(t *testing.T) {
	p := permission("allow", []resource.TrafficSource{{Tags: map[string]string{"zone": "a"}}, {Services: []string{"web"}}},
		services("a", "b"), services("a"), resource.PermissionDestination{Listeners: []string{"edge"}})
	x := new(Index).With("p", p).With("p", p).With("p", nil)
	if x.Len() != 0 || x.services.Len() != 0 || x.clusters.Len() != 0 || x.all != nil {
		t.Errorf("something is left: %+v", x)
	}
}

// A permission with rules decides as one permission for each of them does, counts each
// action by itself, and leaves nothing behind.
func TestRulesDecideAsPermissionsDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		one := permission("", nil, drawPermission(t).To...)
		apart, together := new(Index), new(Index).With("other", drawPermission(t))
		apart = apart.With("other", permissionOf(together))
		for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
			p := drawPermission(t)
			one.Rules = append(one.Rules, resource.PermissionRule{Action: p.Action, From: p.From})
			p.To = one.To
			apart = apart.With(fmt.Sprintf("rules-%d", i), p)
		}
		together = together.With("rules", drawPermission(t)).With("rules", one)
		for range 16 {
			q := drawQuery(t)
			a, b := apart.Decide(&q), together.Decide(&q)
			name := func(s string) string { s, _, _ = strings.Cut(s, "-"); return s }
			if a.Why != b.Why || name(a.Rule) != b.Rule || name(a.Shadow) != b.Shadow {
				t.Fatalf("%+v: %+v, apart %+v", q, b, a)
			}
			b.Count()
		}
		seen := map[string]bool{}
		for name, d := range together.Denials() {
			if key := name + " " + d.Action; seen[key] {
				t.Errorf("%s is counted twice", key)
			} else {
				seen[key] = true
			}
		}
		if x := together.With("rules", nil).With("other", nil); x.Len() != 0 || x.services.Len() != 0 || x.clusters.Len() != 0 || x.all != nil || x.shadows != 0 {
			t.Errorf("something is left: %+v", x)
		}
	})
}

// permissionOf returns the only permission of an index.
func permissionOf(x *Index) *resource.TrafficPermission {
	for _, rules := range x.rules.All() {
		return rules[0].spec
	}
	return nil
}

// draw draws permissions and questions from few values, so that they often meet.
func drawPermission(t *rapid.T) *resource.TrafficPermission {
	some := func(label string, of ...string) []string {
		return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 0, 2, rapid.ID[string]).Draw(t, label)
	}
	p := permission(rapid.SampledFrom([]string{"allow", "deny", "shadowDeny"}).Draw(t, "action"), nil)
	for range rapid.IntRange(0, 2).Draw(t, "from") {
		s := resource.TrafficSource{
			Identities: some("identities", "spiffe://d/a", "spiffe://d/a/b", "spiffe://d/*/b", "spiffe://*/a", "spiffe://d/**", "spiffe://d/a*"),
			Services:   some("services", "web", "batch"),
		}
		for _, n := range some("networks", "10.0.0.0/8", "10.1.0.0/16", "::/0", "0.0.0.0/0") {
			s.Networks = append(s.Networks, netip.MustParsePrefix(n))
		}
		for _, tag := range some("tags", "zone", "team") {
			if s.Tags == nil {
				s.Tags = map[string]string{}
			}
			s.Tags[tag] = "x"
		}
		p.From = append(p.From, s)
	}
	for range rapid.IntRange(0, 2).Draw(t, "to") {
		to := resource.PermissionDestination{Services: some("to", "s", "t"), Listeners: some("listeners", "l", "m")}
		if len(to.Services) == 0 {
			to.VirtualClusters = some("clusters", "k")
		}
		if rapid.Bool().Draw(t, "http") {
			to.HTTP = []resource.TrafficRequest{{Methods: some("methods", "GET", "PUT"), Paths: some("paths", "/a", "/a/*")}}
		}
		p.To = append(p.To, to)
	}
	return p
}

func drawQuery(t *rapid.T) Query {
	one := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	q := Query{
		Listener: one("listener", "l", "m", "n"), Identity: one("identity", "", "spiffe://d/a", "spiffe://d/a/b", "spiffe://e/a", "spiffe://d/ab"),
		Undecided: rapid.IntRange(0, 5).Draw(t, "undecided") == 0, ClientService: one("service", "", "web", "batch"),
	}
	if q.Service = one("destination", "s", "t", ""); q.Service == "" {
		q.Cluster = "k"
	}
	if c := one("client", "", "10.1.2.3", "10.2.3.4", "192.0.2.1", "2001:db8::1", "::ffff:10.1.2.3"); c != "" {
		q.Client = netip.MustParseAddr(c)
	}
	if zone := one("zone", "", "x", "y"); zone != "" {
		q.Layers[rapid.IntRange(0, 3).Draw(t, "layer")] = map[string]string{"zone": zone, "team": "x"}
	}
	if q.Request = rapid.Bool().Draw(t, "request"); q.Request {
		q.Method, q.Path = one("method", "GET", "PUT", "put"), one("path", "/a", "/a/b", "/c", "//a", "/a%2Fb")
	}
	return q
}

// oracle decides by looking at every permission.
func oracle(all map[string]*resource.TrafficPermission, q *Query) (why Why, rule, shadow string) {
	best := map[string]string{}
	keep := func(key, name string) {
		if old, ok := best[key]; !ok || name < old {
			best[key] = name
		}
	}
	for name, p := range all {
		tos := p.To
		if len(tos) == 0 {
			tos = []resource.PermissionDestination{{}}
		}
		for _, to := range tos {
			limited := len(to.Services)+len(to.VirtualClusters) > 0
			if limited && !slices.Contains(to.Services, q.Service) && !slices.Contains(to.VirtualClusters, q.Cluster) ||
				len(to.Listeners) > 0 && !slices.Contains(to.Listeners, q.Listener) {
				continue
			}
			if p.Action == "allow" {
				keep("names", name)
			}
			froms := p.From
			if len(froms) == 0 {
				froms = []resource.TrafficSource{{}}
			}
			for i := range froms {
				if naiveFrom(&froms[i], q, p.Action) && naiveHTTP(to.HTTP, q, p.Action) {
					keep(p.Action, name)
				}
			}
		}
	}
	shadow = best["shadowDeny"]
	for _, c := range []struct {
		key string
		why Why
	}{{"deny", ByDeny}, {"allow", ByAllow}, {"names", NoneAllows}} {
		if name, ok := best[c.key]; ok {
			return c.why, name, shadow
		}
	}
	return Open, "", shadow
}

func naiveFrom(s *resource.TrafficSource, q *Query, action string) bool {
	unknown := q.Undecided && len(s.Identities)+len(s.Services)+len(s.Tags) > 0
	if unknown && action == "allow" {
		return false
	}
	if len(s.Identities) > 0 && !unknown &&
		!slices.ContainsFunc(s.Identities, func(p string) bool { return resource.MatchSPIFFE(p, q.Identity) }) {
		return false
	}
	if len(s.Services) > 0 && !unknown && !slices.Contains(s.Services, q.ClientService) {
		return false
	}
	inside := func(p netip.Prefix) bool { return p.Contains(q.Client.Unmap()) }
	if len(s.Networks) > 0 && !slices.ContainsFunc(s.Networks, inside) {
		return false
	}
	for k, v := range s.Tags {
		if unknown {
			break
		}
		have := ""
		for _, layer := range q.Layers {
			if x, ok := layer[k]; ok {
				have = x
				break
			}
		}
		if have != v {
			return false
		}
	}
	return true
}

func naiveHTTP(list []resource.TrafficRequest, q *Query, action string) bool {
	if list == nil {
		return true
	}
	if !q.Request {
		return action != "allow"
	}
	paths := []string{q.Path}
	if action != "allow" {
		paths = append(paths, strings.ReplaceAll(strings.ReplaceAll(q.Path, "%2F", "/"), "//", "/"))
	}
	return slices.ContainsFunc(list, func(r resource.TrafficRequest) bool {
		return (len(r.Methods) == 0 || slices.Contains(r.Methods, q.Method) ||
			action != "allow" && slices.Contains(r.Methods, strings.ToUpper(q.Method))) &&
			(len(r.Paths) == 0 || slices.ContainsFunc(paths, func(path string) bool {
				return slices.Contains(r.Paths, path) || slices.Contains(r.Paths, "/a/*") && strings.HasPrefix(path, "/a/")
			}))
	})
}

func TestIndexAgreesWithLookingAtEveryPermission(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, all := new(Index), map[string]*resource.TrafficPermission{}
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "name")
			if rapid.IntRange(0, 3).Draw(t, "delete") == 0 {
				delete(all, name)
				x = x.With(name, nil)
				continue
			}
			all[name] = drawPermission(t)
			x = x.With(name, all[name])
		}
		for range 8 {
			q := drawQuery(t)
			v := x.Decide(&q)
			if why, rule, shadow := oracle(all, &q); v.Why != why || v.Rule != rule || v.Shadow != shadow {
				t.Fatalf("%+v: %v by %q, shadow %q; want %v by %q, shadow %q", q, v.Why, v.Rule, v.Shadow, why, rule, shadow)
			}
		}
	})
}

// many returns an index of n permissions, in every shape.
func many(n int) *Index {
	x := new(Index)
	for i := range n {
		from := resource.TrafficSource{}
		switch i % 5 {
		case 0:
			from.Identities = []string{fmt.Sprintf("spiffe://corp/ns/n%d/web", i)}
		case 1:
			from.Identities = []string{fmt.Sprintf("spiffe://corp/ns/n%d/**", i)}
		case 2:
			from.Services = []string{fmt.Sprintf("service-%d", i)}
		case 3:
			from.Networks = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 0}), 24)}
		case 4:
			from.Tags = map[string]string{"team": fmt.Sprintf("t%d", i)}
		}
		action := "allow"
		if i%7 == 0 {
			action = "deny"
		}
		x = x.With(fmt.Sprintf("p-%d", i), permission(action, []resource.TrafficSource{from}, services("orders")))
	}
	return x
}

func question() Query {
	q := Query{
		Service: "orders", Listener: "edge", Identity: "spiffe://corp/ns/n6/web", ClientService: "web",
		Client: netip.MustParseAddr("192.0.2.1"),
	}
	q.Layers[0] = map[string]string{"team": "none", "spiffe": q.Identity}
	return q
}

func TestDecidingAllocatesNothing(t *testing.T) {
	x, q := many(1000), question()
	if v := x.Decide(&q); v.Why != ByAllow || v.Rule != "p-6" {
		t.Fatalf("%v by %q", v.Why, v.Rule)
	}
	if n := testing.AllocsPerRun(100, func() { x.Decide(&q) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPermission(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		x, q := many(n), question()
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.Decide(&q)
			}
		})
	}
}

func BenchmarkChangeOneOf10000(b *testing.B) {
	x := many(10_000)
	p := permission("deny", identities("spiffe://corp/ns/other/**"), services("orders"))
	b.ReportAllocs()
	for b.Loop() {
		x.With("p-5003", p)
	}
}

// Of a client that has proven several identities nobody knows which service it is, nor
// its tags: what denies by these denies it, and what allows by them does not allow it.
func TestUndecidedClientsHaveNoServiceAndNoTags(t *testing.T) {
	for name, from := range map[string]resource.TrafficSource{
		"services": {Services: []string{"web"}}, "tags": {Tags: map[string]string{"team": "x"}},
		"tags in a network": {Tags: map[string]string{"team": "x"}, Networks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	} {
		q := Query{Service: "orders", Undecided: true, Client: netip.MustParseAddr("10.1.2.3")}
		deny := new(Index).With("p", permission("deny", []resource.TrafficSource{from}, services("orders")))
		if v := deny.Decide(&q); v.Why != ByDeny {
			t.Errorf("a deny by %s: %v", name, v.Why)
		}
		q.ClientService, q.Layers[2] = "web", map[string]string{"team": "x"} // of the listener
		allow := new(Index).With("p", permission("allow", []resource.TrafficSource{from}, services("orders")))
		if v := allow.Decide(&q); v.Why != NoneAllows {
			t.Errorf("an allow by %s: %v", name, v.Why)
		}
	}
}
