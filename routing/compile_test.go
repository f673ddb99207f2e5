package routing

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"penstock/internal/testkit/certs"
	"penstock/routing/resource"
)

// certificate returns a self-signed certificate for these names.
func certificate(names ...string) *resource.Certificate {
	return &resource.Certificate{Cert: certs.Sign(&x509.Certificate{DNSNames: names}).Cert}
}

func key(kind, name string) resource.Key { return resource.Key{Kind: kind, Name: name} }

func put(kind, name string, spec resource.Spec) resource.Change {
	return resource.Put(resource.Object{Key: key(kind, name), Spec: spec})
}

func mustApply(t testing.TB, r *Router, changes ...resource.Change) Applied {
	t.Helper()
	a, err := r.Apply(changes, t0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// dump renders a table without the state that outlives tables.
func dump(t *Table) string {
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for l := range t.Listeners() {
		add("listener %s here=%v service=%q %d sources", l.name, l.runsHere, l.spec.Service, len(l.sources.tags))
		for pattern, x := range l.hosts.All() {
			limited := slices.SortedFunc(slices.Values(x.limited), func(a, b limited) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			add("listener %s %s -> %q %q %v", l.name, pattern, x.service, x.host, limited)
		}
		for pattern, refs := range l.certificates.All() {
			add("listener %s shows %v for %s", l.name, refs, pattern)
		}
	}
	for s := range t.Services() {
		add("service %s %v %v", s.name, s.spec.Balancing.Policy, s.group.Service())
		for i, m := range s.Members() {
			add("service %s %d: %s %v %s weight %d %v", s.name, i, m.Address, m.Addr, m.Unix, m.Weight, m.Tags)
		}
		for i, p := range s.policies {
			add("service %s policy %d %s for %s %v", s.name, i, p.route, refText(&p.source), p.weight)
			for j, r := range p.refs {
				add("service %s policy %s ref %d %s %v weight %d %q", s.name, p.route, j, r.Name, r.Tags, *r.Weight, r.skipped)
			}
			for j, b := range p.live {
				add("service %s policy %s live %d %s %d endpoints, split %v", s.name, p.route, j, b.text(), len(b.pool.Members()), p.split != nil)
				if _, ok := t.Service(b.name); !ok {
					add("service %s policy %s leads to a service that is gone", s.name, p.route)
				}
			}
		}
	}
	for host, every := range t.Hosts() {
		add("host %s every %v", host, every)
	}
	for _, index := range []struct {
		name string
		all  func(func(string, []string) bool)
	}{{"routesTo", t.routesTo.All()}, {"backendOf", t.backendOf.All()}, {"atHost", t.atHost.All()}, {"certificate", t.certificates.All()}} {
		for k, v := range index.all {
			add("%s %s %v", index.name, k, v)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// changes draws changes of few names, so that they interact.
type changes struct {
	certificates []*resource.Certificate
}

func (g changes) draw(t *rapid.T) resource.Change {
	n := rapid.IntRange(0, 3).Draw(t, "n")
	kind := rapid.SampledFrom([]string{"Service", "MeshTCPRoute", "Listener", "Certificate", "Host", "Host"}).Draw(t, "kind")
	name := fmt.Sprintf("%s-%d", strings.ToLower(kind[:1]), n)
	if rapid.IntRange(0, 4).Draw(t, "delete") == 0 {
		return resource.Delete(key(kind, name))
	}
	switch kind {
	case "Service":
		return put(kind, name, g.service(t))
	case "MeshTCPRoute":
		return put(kind, name, g.route(t))
	case "Listener":
		return put(kind, name, g.listener(t))
	case "Host":
		return put(kind, name, g.host(t, n))
	}
	return put(kind, name, rapid.SampledFrom(g.certificates).Draw(t, "certificate"))
}

// host draws a Host of some listener. Its names are its own, or those of the
// listeners' rules with other protocols, so that no two conflict.
func (changes) host(t *rapid.T, n int) *resource.Host {
	h := &resource.Host{Listener: fmt.Sprintf("l-%d", rapid.IntRange(0, 3).Draw(t, "listener")), Service: serviceName(t)}
	mine := rapid.Bool().Draw(t, "mine")
	if !mine {
		h.ALPN = []string{fmt.Sprint("own-", n), fmt.Sprint("other-", n)}
	}
	for i := range rapid.IntRange(1, 12).Draw(t, "names") {
		name := fmt.Sprintf("n%d.example", i)
		if i%3 == 0 {
			name = "*." + name
		}
		if mine {
			name = fmt.Sprintf("h%d-%d.example", n, i)
		}
		h.Names = append(h.Names, name)
	}
	return h
}

func serviceName(t *rapid.T) string {
	return fmt.Sprintf("s-%d", rapid.IntRange(0, 4).Draw(t, "service"))
}

func anyTags(t *rapid.T) map[string]string {
	return map[string]string{"v": rapid.SampledFrom([]string{"1", "2"}).Draw(t, "tag")}
}

func (changes) service(t *rapid.T) *resource.Service {
	s := &resource.Service{Resolve: resource.Duration(rapid.IntRange(1, 3).Draw(t, "resolve")) * 1e9}
	s.Balancing.Policy = rapid.SampledFrom([]string{"", "maglev", "random"}).Draw(t, "policy")
	for range rapid.IntRange(0, 3).Draw(t, "endpoints") {
		address := rapid.SampledFrom([]string{"10.0.0.1:80", "a.example:80", "B.example:80", "unix:/x"}).Draw(t, "address")
		s.Endpoints = append(s.Endpoints, resource.Endpoint{Address: address, Weight: weight(t), Tags: anyTags(t)})
	}
	return s
}

func weight(t *rapid.T) *int {
	return rapid.SampledFrom([]*int{nil, new(0), new(1), new(7)}).Draw(t, "weight")
}

func (changes) route(t *rapid.T) *resource.MeshTCPRoute {
	r := &resource.MeshTCPRoute{}
	if rapid.Bool().Draw(t, "subset") {
		r.TargetRef = &resource.TargetRef{Kind: kindMeshSubset, Tags: anyTags(t)}
	}
	seen := map[string]bool{}
	for range rapid.IntRange(1, 2).Draw(t, "to") {
		to := resource.RouteTo{TargetRef: resource.TargetRef{Kind: kindMeshService, Name: serviceName(t)}, Rules: make([]resource.RouteRule, 1)}
		for range rapid.IntRange(0, 3).Draw(t, "backends") {
			b := resource.BackendRef{Kind: kindMeshService, Name: serviceName(t), Weight: weight(t)}
			if rapid.Bool().Draw(t, "tagged") {
				b.Kind, b.Tags = kindMeshServiceSubset, anyTags(t)
			}
			to.Rules[0].Default.BackendRefs = append(to.Rules[0].Default.BackendRefs, b)
		}
		if !seen[to.TargetRef.Name] {
			r.To = append(r.To, to)
		}
		seen[to.TargetRef.Name] = true
	}
	return r
}

func (changes) listener(t *rapid.T) *resource.Listener {
	l := &resource.Listener{Protocol: "tls", Hosts: anyHosts(t, 12), Service: serviceName(t)}
	if rapid.Bool().Draw(t, "terminate") {
		l.TLS = &resource.ListenerTLS{Mode: "terminate", CertificateRefs: []string{"c-0", "c-1"}[:rapid.IntRange(1, 2).Draw(t, "refs")]}
	}
	if rapid.Bool().Draw(t, "sources") {
		l.Sources = []resource.SourceRule{{From: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Tags: anyTags(t)}}
	}
	return l
}

// anyHosts draws rules that claim no name twice for the same protocol.
func anyHosts(t *rapid.T, names int) []resource.HostRule {
	var rules []resource.HostRule
	seen := map[string]bool{}
	for range rapid.IntRange(0, 6).Draw(t, "rules") {
		r := resource.HostRule{Service: serviceName(t)}
		alpn := rapid.SampledFrom([]string{"", "", "h2", "h3"}).Draw(t, "alpn")
		if alpn != "" {
			r.ALPN = []string{alpn}
		}
		for range rapid.IntRange(0, 4).Draw(t, "names") {
			n := rapid.IntRange(0, names).Draw(t, "name")
			name := fmt.Sprintf("n%d.example", n)
			if n%3 == 0 {
				name = "*." + name
			}
			if !seen[alpn+name] {
				r.Names = append(r.Names, name)
			}
			seen[alpn+name] = true
		}
		rules = append(rules, r)
	}
	return rules
}

// fixedHosts resolves host names to addresses that tests change.
type fixedHosts map[string][]netip.Addr

func (h fixedHosts) Lookup(host string) ([]netip.Addr, bool) {
	addrs, ok := h[host]
	return addrs, ok
}

// A table built in many steps equals one built from the same resources at once.
func TestManySmallChangesEqualOneLarge(t *testing.T) {
	g := changes{[]*resource.Certificate{certificate("a.example", "*.b.example"), certificate("a.example"), certificate()}}
	rapid.Check(t, func(t *rapid.T) {
		hosts := fixedHosts{}
		cfg := Config{NodeTags: map[string]string{"v": "1"}, Hosts: hosts}
		r := NewRouter(cfg)
		state := map[resource.Key]resource.Change{}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			if host := rapid.SampledFrom([]string{"", "", "a.example", "b.example"}).Draw(t, "host"); host != "" {
				hosts[host] = []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(rapid.IntRange(0, 2).Draw(t, "addr"))})}
				r.Resolved([]string{host}, t0)
				continue
			}
			var batch []resource.Change
			for range rapid.IntRange(1, 4).Draw(t, "batch") {
				ch := g.draw(t)
				batch = append(batch, ch)
				state[ch.Key] = ch
			}
			if _, err := r.Apply(batch, t0); err != nil {
				t.Fatal(err)
			}
		}
		all := slices.SortedFunc(maps.Values(state), func(a, b resource.Change) int {
			return strings.Compare(a.String(), b.String())
		})
		whole := NewRouter(cfg)
		if _, err := whole.Apply(all, t0); err != nil {
			t.Fatal(err)
		}
		if got, want := dump(r.Table()), dump(whole.Table()); got != want {
			t.Fatalf("step by step:\n%s\n\nat once:\n%s", got, want)
		}
	})
}

// Applying the difference that DiffHosts returns turns the old rules into the
// new ones.
func TestDiffHostsIsComplete(t *testing.T) {
	flat := func(rules []resource.HostRule) (all []string) {
		for i := range rules {
			for _, name := range rules[i].Names {
				all = append(all, ruleText(resource.HostName{Rule: &rules[i], Name: name}))
			}
		}
		return all
	}
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int{12, 200}).Draw(t, "most")
		old := anyHosts(t, most)
		next := slices.Clone(old)
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			next = anyHosts(t, most)
		case 1:
			slices.Reverse(next)
		case 2:
			for i := range 50 { // more than DiffHosts looks ahead
				next = append(next, resource.HostRule{Names: []string{fmt.Sprintf("x%d.example", i)}, Service: "s"})
			}
			slices.SortFunc(next, func(a, b resource.HostRule) int { return strings.Compare(a.Service, b.Service) })
		}
		gone, come := resource.DiffHosts(old, next)
		left := flat(old)
		for _, x := range gone {
			i := slices.Index(left, ruleText(x))
			if i < 0 {
				t.Fatalf("%s is gone, and never was there", ruleText(x))
			}
			left = slices.Delete(left, i, i+1)
		}
		for _, x := range come {
			left = append(left, ruleText(x))
		}
		want := flat(next)
		slices.Sort(left)
		slices.Sort(want)
		if !slices.Equal(left, want) {
			t.Fatalf("got %v\nwant %v", left, want)
		}
	})
}

func ruleText(x resource.HostName) string {
	return fmt.Sprint(x.Name, " ", x.Rule.Service, " ", x.Rule.ALPN)
}

func TestOneChangeAmongManyIsFound(t *testing.T) {
	old := manyRules(1000)
	for _, edit := range []func([]resource.HostRule) []resource.HostRule{
		func(r []resource.HostRule) []resource.HostRule { return append(r, rule("new.example", "s")) },
		func(r []resource.HostRule) []resource.HostRule {
			return slices.Insert(r, 500, rule("new.example", "s"))
		},
		func(r []resource.HostRule) []resource.HostRule { return slices.Delete(r, 0, 1) },
		func(r []resource.HostRule) []resource.HostRule { r[999].Service = "other"; return r },
		func(r []resource.HostRule) []resource.HostRule { r[0], r[1] = r[1], r[0]; return r },
	} {
		gone, come := resource.DiffHosts(old, edit(manyRules(1000)))
		if len(gone)+len(come) == 0 || len(gone)+len(come) > 2 {
			t.Errorf("one edit: %d gone, %d come", len(gone), len(come))
		}
	}
}

func rule(name, service string) resource.HostRule {
	return resource.HostRule{Names: []string{name}, Service: service}
}

// manyRules returns n rules of one name each, as if just decoded.
func manyRules(n int) []resource.HostRule {
	rules := make([]resource.HostRule, n)
	for i := range rules {
		rules[i] = rule(fmt.Sprintf("tenant-%d.apps.example.com", i), fmt.Sprintf("service-%d", i%100))
	}
	return rules
}

// An invalid resource is left out as a whole: a listener must not send a bad
// name of a rule to its default service.
func TestResourcesThatDoNotCompileAreLeftOut(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "s", &resource.Service{Endpoints: []resource.Endpoint{{Address: "10.0.0.1:1"}}}),
		put("Listener", "l", &resource.Listener{Protocol: "tls", Service: "s"}))
	for name, ch := range map[string]resource.Change{
		"name": put("Listener", "l", &resource.Listener{Protocol: "tls", Service: "s", Hosts: []resource.HostRule{rule("127.1", "s")}}),
		"twice": put("Listener", "l", &resource.Listener{
			Protocol: "tls", Service: "s", Hosts: []resource.HostRule{rule("a.b", "s"), rule("A.b", "x")},
		}),
		"endpoint":    put("Service", "s", &resource.Service{Endpoints: []resource.Endpoint{{Address: "nowhere"}}}),
		"port":        put("Service", "s", &resource.Service{Endpoints: []resource.Endpoint{{Address: "a:b"}}}),
		"certificate": put("Certificate", "c", &resource.Certificate{Cert: "none"}),
		"kind":        put("Listener", "l", &resource.Service{}),
	} {
		a, err := r.Apply([]resource.Change{ch}, t0)
		if err == nil || !strings.Contains(err.Error(), ch.String()+" is left out") {
			t.Errorf("%s: %v", name, err)
		}
		if _, ok := a.Table.Listener(ch.Name); ok && ch.Kind == "Listener" {
			t.Errorf("%s: the listener is still there", name)
		}
		if _, ok := a.Table.Service(ch.Name); ok && ch.Kind == "Service" {
			t.Errorf("%s: the service is still there", name)
		}
	}
	mustApply(t, r, put("Listener", "l", &resource.Listener{Protocol: "tls", Hosts: []resource.HostRule{rule("a.b", "s")}}))
	if l, ok := r.Table().Listener("l"); !ok || l.Names() != 1 {
		t.Error("the listener does not come back")
	}
}

// Rules 2 and 3 of integration/rules_test.go: certificates are selected like
// services, and never by default.
func TestCertificatesAreSelectedLikeServices(t *testing.T) {
	r := NewRouter(Config{})
	listener := &resource.Listener{
		Protocol: "tls", TLS: &resource.ListenerTLS{Mode: "terminate", CertificateRefs: []string{"one", "two", "three"}},
	}
	mustApply(t, r, put("Listener", "l", listener),
		put("Certificate", "one", certificate("a.example", "*.example", "10.0.0.1")),
		put("Certificate", "two", certificate("*.apps.example", "a.example")))
	shown := func(name string, has bool) string {
		l, _ := r.Table().Listener("l")
		refs, reason := l.Certificates(name, has)
		return fmt.Sprint(refs, reason)
	}
	for name, want := range map[string]string{
		"a.example": "[one two]", "A.Example": "[one two]", "b.example": "[one]", "x.apps.example": "[two]",
		"example": "[]no_certificate", "10.0.0.1": "[]bad_sni", "a.example.": "[]bad_sni", "": "[]bad_sni",
	} {
		if got := shown(name, true); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
	if got := shown("", false); got != "[]no_sni" {
		t.Errorf("no name: %s", got)
	}
	a := mustApply(t, r, put("Certificate", "three", certificate("example")), resource.Delete(key("Certificate", "one")))
	if got := shown("example", true) + shown("b.example", true) + shown("a.example", true); got != "[three][]no_certificate[two]" {
		t.Errorf("after a change: %s", got)
	}
	if !slices.Equal(a.Listeners, []string{"l"}) {
		t.Errorf("listeners changed: %v", a.Listeners)
	}
	open := *listener
	open.NoServerName, open.Service = "service", "s"
	mustApply(t, r, put("Listener", "l", &open))
	if got := shown("", false) + shown("a.example", true); got != "[one][two]" {
		t.Errorf("with noServerName: service: %s", got)
	}
	open.TLS = nil
	mustApply(t, r, put("Listener", "l", &open))
	if got := shown("", false) + shown("a.example", true); got != "[]no_certificate[]no_certificate" {
		t.Errorf("without certificates: %s", got)
	}
}
