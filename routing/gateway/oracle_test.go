package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// labels of the names in random tables; few, so that names collide.
var (
	hostnames = []string{"", "*.com", "*.a.com", "a.com", "b.a.com", "*.b.a.com", "c.b.a.com", "b.com"}
	asked     = []string{"a.com", "b.a.com", "x.a.com", "c.b.a.com", "x.b.a.com", "b.com", "x.com", "com", "x.net", "a.b.c.com"}
)

func drawGateway(t *rapid.T) *Gateway {
	g := &Gateway{GatewayClassName: "x"}
	for i := range rapid.IntRange(1, 4).Draw(t, "listeners") {
		l := Listener{
			Name: fmt.Sprint("l", i), Port: rapid.SampledFrom([]int{1, 2}).Draw(t, "port"), Protocol: "TLS",
			Hostname: rapid.SampledFrom(hostnames).Draw(t, "hostname"), Security: &TLS{Mode: "Passthrough"},
		}
		if rapid.IntRange(0, 9).Draw(t, "is tcp") == 0 {
			l.Protocol, l.Hostname, l.Security = "TCP", "", nil
		}
		if from := rapid.SampledFrom([]string{"All", "All", "All", "Same", ""}).Draw(t, "from"); from != "" {
			l.AllowedRoutes = &AllowedRoutes{Namespaces: &RouteNamespaces{From: from}}
		}
		g.Listeners = append(g.Listeners, l)
	}
	return g
}

func drawTLSRoute(t *rapid.T) *TLSRoute {
	r := &TLSRoute{Rules: []Rule{{BackendRefs: []BackendRef{{Name: "s"}}}}}
	r.Origin.Namespace = rapid.SampledFrom([]string{"", "shop"}).Draw(t, "namespace")
	if rapid.Bool().Draw(t, "has an age") {
		r.Origin.CreationTimestamp = fmt.Sprintf("2026-01-0%dT00:00:00Z", rapid.IntRange(1, 3).Draw(t, "day"))
	}
	p := ParentRef{Name: "edge", Namespace: "default"}
	if rapid.Bool().Draw(t, "has a section") {
		p.SectionName = fmt.Sprint("l", rapid.IntRange(0, 4).Draw(t, "section"))
	}
	if rapid.IntRange(0, 3).Draw(t, "has a port") == 0 {
		p.Port = rapid.IntRange(1, 3).Draw(t, "parent port")
	}
	r.ParentRefs = []ParentRef{p}
	r.Hostnames = rapid.SliceOfNDistinct(rapid.SampledFrom(hostnames[1:]), 0, 3, rapid.ID).Draw(t, "hostnames")
	return r
}

// matchPattern reports whether a pattern matches a name; more is its
// specificity.
func matchPattern(pattern, name string) (more int, ok bool) {
	suffix, wild := strings.CutPrefix(pattern, "*.")
	switch {
	case pattern == "":
		return 0, true
	case wild:
		return 1 + strings.Count(suffix, ".") + 1, strings.HasSuffix(name, "."+suffix)
	}
	return 1000, pattern == name
}

// expected returns the route for a name at a port as the Gateway API specifies
// it: the listener whose hostname fits best; of its routes the one with the name
// that fits best (if both are narrowed to the listener's, the route whose own
// fits best), then the oldest, then the first by namespace and name.
func expected(g *Gateway, routes map[string]*TLSRoute, port int, name string) string {
	var at *Listener
	best := -1
	for i := range g.Listeners {
		l := &g.Listeners[i]
		if l.Port != port {
			continue
		}
		for j := range g.Listeners {
			if m := &g.Listeners[j]; j != i && m.Port == port && (m.Protocol != l.Protocol || m.Hostname == l.Hostname) {
				l = nil
				break
			}
		}
		if l == nil || l.Protocol != "TLS" {
			continue
		}
		if more, ok := matchPattern(l.Hostname, name); ok && more > best {
			at, best = l, more
		}
	}
	if at == nil {
		return ""
	}
	winner, won, wonOwn := "", -1, -1
	for _, key := range order(routes) {
		r := routes[key]
		p := r.ParentRefs[0]
		all := at.AllowedRoutes != nil && at.AllowedRoutes.Namespaces.From == "All"
		if p.SectionName != "" && p.SectionName != at.Name || p.Port != 0 && p.Port != port || r.Origin.Namespace != "" && !all {
			continue
		}
		hosts := r.Hostnames
		if len(hosts) == 0 {
			hosts = []string{""}
		}
		for _, h := range hosts {
			// At the listener the route's name is the narrower of both.
			if own, ok := matchPattern(h, name); ok {
				if both := max(own, best); both > won || both == won && own > wonOwn {
					winner, won, wonOwn = key, both, own
				}
			}
		}
	}
	return winner
}

// order sorts routes by precedence.
func order(routes map[string]*TLSRoute) []string {
	var keys []string
	for key := range routes {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b string) int {
		rank := func(key string) string {
			r := routes[key]
			age := r.Origin.CreationTimestamp
			if age == "" {
				age = "9999"
			}
			return age + " " + r.Origin.namespace() + " " + key
		}
		return strings.Compare(rank(a), rank(b))
	})
	return keys
}

// routeFor returns the route that a compiled listener selects for a name.
func routeFor(t *rapid.T, l *resource.Listener, name string) string {
	e := hostname.Matcher[string]{}.Edit()
	for _, rule := range l.Hosts {
		for _, n := range rule.Names {
			if _, twice := e.Get(n); twice {
				t.Fatalf("%s stands twice", n)
			}
			e.Set(n, rule.Service)
		}
	}
	m := e.Matcher()
	if x, ok := m.Match(name); ok {
		return strings.TrimPrefix(x.Value, "TLSRoute/")
	}
	return strings.TrimPrefix(l.Service, "TLSRoute/")
}

// The model agrees with the rules of the Gateway API after any changes.
func TestListenersMatchTheOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := new(Model)
		var g *Gateway
		routes := map[string]*TLSRoute{}
		made := map[string]*resource.Listener{}
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			var ch resource.Change
			key := resource.Key{Kind: KindTLSRoute, Name: rapid.SampledFrom([]string{"r1", "r2", "r3", "r4"}).Draw(t, "route")}
			switch rapid.IntRange(0, 5).Draw(t, "change") {
			case 0:
				g = drawGateway(t)
				ch = resource.Put(resource.Object{Key: resource.Key{Kind: KindGateway, Name: "edge"}, Spec: g})
			case 1:
				delete(routes, key.Name)
				ch = resource.Delete(key)
			default:
				r := drawTLSRoute(t)
				routes[key.Name] = r
				ch = resource.Put(resource.Object{Key: key, Spec: r})
			}
			next, changed := model.With([]resource.Change{ch})
			model = next
			for name, l := range changed.Listeners {
				if l == nil {
					delete(made, name)
				} else {
					made[name] = l
				}
			}
		}
		if g == nil {
			if len(made) > 0 {
				t.Fatalf("listeners without a Gateway: %v", made)
			}
			return
		}
		for port := 1; port <= 2; port++ {
			l := made[fmt.Sprintf("edge/%d", port)]
			for _, name := range asked {
				want, got := expected(g, routes, port, name), ""
				if l != nil && l.Protocol == "tls" {
					got = routeFor(t, l, name)
				}
				if got != want {
					t.Fatalf("port %d, %s: %q, want %q\n%+v\n%+v", port, name, got, want, g, routes)
				}
			}
		}
	})
}

// A reference into another namespace requires a grant that names both ends.
func TestGrantsNameBothEnds(t *testing.T) {
	grant := func(change func(*ReferenceGrant)) grants {
		g := &ReferenceGrant{
			Origin: Origin{Namespace: "shop"},
			From:   []GrantFrom{{Group: Group, Kind: KindTLSRoute, Namespace: "default"}},
			To:     []GrantTo{{Kind: kindService}},
		}
		change(g)
		return grants{g}
	}
	for what, c := range map[string]struct {
		list grants
		want bool
	}{
		"both":                {grant(func(*ReferenceGrant) {}), true},
		"its name":            {grant(func(g *ReferenceGrant) { g.To[0].Name = "apps" }), true},
		"another name":        {grant(func(g *ReferenceGrant) { g.To[0].Name = "other" }), false},
		"another kind":        {grant(func(g *ReferenceGrant) { g.To[0].Kind = kindSecret }), false},
		"another user":        {grant(func(g *ReferenceGrant) { g.From[0].Kind = KindTCPRoute }), false},
		"another group":       {grant(func(g *ReferenceGrant) { g.From[0].Group = "" }), false},
		"a user of elsewhere": {grant(func(g *ReferenceGrant) { g.From[0].Namespace = "blog" }), false},
		"elsewhere":           {grant(func(g *ReferenceGrant) { g.Origin.Namespace = "blog" }), false},
		"none":                {nil, false},
	} {
		if got := c.list.permits(KindTLSRoute, "default", kindService, "shop", "apps"); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}
