package validate_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// decode decodes a text that must be valid.
func decode(t testing.TB, text string) []resource.Object {
	t.Helper()
	objects, faults := codec.Decode("test.yaml", []byte(text), resource.RoutingKinds())
	if len(faults) > 0 {
		t.Fatalf("unexpected faults:\n%v", faults)
	}
	return objects
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func key(kind, name string) resource.Key { return resource.Key{Kind: kind, Name: name} }

func put(kind, name string, spec resource.Spec) resource.Change {
	return resource.Put(resource.Object{Key: key(kind, name), Spec: spec})
}

func mustWith(t testing.TB, s *validate.Set, changes ...resource.Change) *validate.Set {
	t.Helper()
	next, faults, _ := s.With(changes)
	if len(faults) > 0 {
		t.Fatalf("unexpected faults:\n%v", faults)
	}
	return next
}

func puts(objects []resource.Object) []resource.Change {
	changes := make([]resource.Change, len(objects))
	for i, o := range objects {
		changes[i] = resource.Put(o)
	}
	return changes
}

// wantFaults fails unless there is one fault for each of the texts, which
// contains it.
func wantFaults(t testing.TB, faults []resource.Fault, texts ...string) {
	t.Helper()
	if len(faults) != len(texts) {
		t.Fatalf("%d faults instead of %d:\n%v", len(faults), len(texts), resource.Faults(faults))
	}
	for i, text := range texts {
		if !strings.Contains(faults[i].Error(), text) {
			t.Errorf("fault %q does not say %q", faults[i].Error(), text)
		}
	}
}

const shop = `
kind: Listener
name: edge
spec: {address: ":9000", service: apps}
---
kind: Service
name: apps
spec: {}
---
kind: MeshTCPRoute
name: canary
spec: {to: [{targetRef: {kind: MeshService, name: apps}, rules: [{}]}]}
`

func TestDeleteOfAnObjectInUseNamesItsUsers(t *testing.T) {
	s := mustWith(t, new(validate.Set), puts(decode(t, shop))...)
	apps := key("Service", "apps")
	_, faults, warnings := s.With([]resource.Change{resource.Delete(apps)})
	wantFaults(t, faults, "Service/apps: is in use by Listener/edge (spec.service)")
	wantFaults(t, warnings, "MeshTCPRoute/canary spec.to[0].targetRef.name: there will be no such Service (apps)")
	if users := s.Users(apps); len(users) != 2 || users[0].Key != key("Listener", "edge") || users[1].Kind != "MeshTCPRoute" {
		t.Errorf("users: %v", users)
	}

	// It can be deleted together with its users; the route's warning stays.
	_, faults, warnings = s.With([]resource.Change{resource.Delete(apps), resource.Delete(key("Listener", "edge"))})
	wantFaults(t, faults)
	wantFaults(t, warnings, "canary")
	if _, _, warnings = s.With([]resource.Change{resource.Delete(key("Service", "unknown"))}); len(warnings) > 0 {
		t.Errorf("deleting nothing: %v", warnings)
	}
}

func TestManyUsersAreCounted(t *testing.T) {
	objects := decode(t, "kind: Service\nname: apps\nspec: {}")
	for i := range 8 {
		objects = append(objects, resource.Object{
			Key: key("Listener", fmt.Sprint("l", i)), Spec: &resource.Listener{Address: fmt.Sprint(":", 9000+i), Service: "apps"},
		})
	}
	s := mustWith(t, new(validate.Set), puts(objects)...)
	_, faults, _ := s.With([]resource.Change{resource.Delete(key("Service", "apps"))})
	wantFaults(t, faults, "Listener/l4 (spec.service), 3 more")
}

func TestNextLeavesTheSetUnchanged(t *testing.T) {
	old := mustWith(t, new(validate.Set), puts(decode(t, shop))...)
	edge := decode(t, "kind: Listener\nname: edge\nspec: {address: ':9001'}")[0]
	next := mustWith(t, old, resource.Put(edge), resource.Delete(key("Service", "apps")))
	if _, ok := old.Get(key("Service", "apps")); !ok || old.Len() != 3 || len(old.Users(key("Service", "apps"))) != 2 {
		t.Error("the old set changed")
	}
	if _, ok := next.Get(key("Service", "apps")); ok || next.Len() != 2 || len(next.Users(key("Service", "apps"))) != 1 {
		t.Error("the next set did not")
	}
	var names []string
	for o := range next.All("") {
		names = append(names, o.String())
	}
	if !slices.Equal(names, []string{"Listener/edge", "MeshTCPRoute/canary"}) {
		t.Errorf("all: %v", names)
	}
	for o := range next.All("Listener") {
		if o.Kind != "Listener" {
			t.Errorf("among the listeners: %v", o.Key)
		}
	}
}

func TestDuplicateObjectsNameBothPlaces(t *testing.T) {
	a := decode(t, "\nkind: Service\nname: a\nspec: {}")[0]
	b := a
	b.File, b.Line = "other.yaml", 7
	faults, _ := validate.Objects([]resource.Object{a, b})
	wantFaults(t, faults, "other.yaml:7: Service/a: duplicate, first at test.yaml:2")
}

func TestListenerAddressesMustNotOverlap(t *testing.T) {
	for _, c := range []struct {
		a, b string
		meet bool
	}{
		{":80", ":80", true},
		{":80", ":81", false},
		{":80", "0.0.0.0:80", true},
		{":80", "[::]:80", true},
		{":80", "127.0.0.1:80", false},
		{"127.0.0.1:80", "0.0.0.0:80", true},
		{"127.0.0.1:80", "[::]:80", true},
		{"[::1]:80", "0.0.0.0:80", false},
		{"[::1]:80", "[0:0::1]:80", true},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"0.0.0.0:80", "[::]:80", true},
		{"a.example:80", "0.0.0.0:80", true},
		{"a.example:80", "b.example:80", false},
		{"[::1]:80", "[::]:80", true},
		{"a.example:80", "[::]:80", true},
		{"[::ffff:127.0.0.1]:80", "127.0.0.1:80", true},
		{":0", ":0", false},
		{"unix:/a", "unix:/a", true},
		{"unix:/a", "unix:/b", false},
	} {
		for _, pair := range [][2]string{{c.a, c.b}, {c.b, c.a}} {
			listener := func(name, address string) resource.Change {
				return put("Listener", name, &resource.Listener{Address: address})
			}
			s := mustWith(t, new(validate.Set), listener("one", pair[0]))
			_, faults, _ := s.With([]resource.Change{listener("two", pair[1])})
			if (len(faults) > 0) != c.meet {
				t.Errorf("%s beside %s: %v", pair[1], pair[0], faults)
			}
			// Once the first has moved, the other may be added.
			s = mustWith(t, s, listener("one", ":1"))
			mustWith(t, s, listener("two", pair[1]))
		}
	}
}

func TestListenersOfDifferentNodesMayShareAnAddress(t *testing.T) {
	listener := func(name, tag, value string) resource.Object {
		return resource.Object{Key: key("Listener", name), Spec: &resource.Listener{Address: ":80", Nodes: map[string]string{tag: value}}}
	}
	faults, _ := validate.Objects([]resource.Object{listener("a", "zone", "a"), listener("b", "zone", "b")})
	wantFaults(t, faults)
	faults, _ = validate.Objects([]resource.Object{listener("a", "zone", "a"), listener("b", "rack", "b")})
	wantFaults(t, faults, "Listener/a spec.address: overlaps", "Listener/b spec.address: overlaps")
}

func TestCertificateChangeWarnsOfUncoveredListenerNames(t *testing.T) {
	pem := string(readFile(t, "../codec/testdata/good/certificate.yaml"))
	s := mustWith(t, new(validate.Set), puts(decode(t, pem+`---
kind: Service
name: s
spec: {}
---
kind: Listener
name: edge
spec:
  address: ":1"
  protocol: tls
  tls: {mode: terminate, certificateRefs: [a]}
  hosts: [{names: [a.example.com, "*.a.example.com", X.a.example.com], service: s}]
`))...)
	other := resource.Object{Key: key("Certificate", "a"), Spec: &resource.Certificate{
		Cert: string(readFile(t, "../codec/testdata/pem/b.crt")), Key: resource.Secret(readFile(t, "../codec/testdata/pem/b.key")),
	}}
	_, faults, warnings := s.With([]resource.Change{resource.Put(other)})
	wantFaults(t, faults)
	wantFaults(t, warnings, "names[0]: no certificate of the listener is valid for this name (a.example.com)", "names[1]", "names[2]")
}

func TestExpiredCertificatesAreNotAdmitted(t *testing.T) {
	o := decode(t, string(readFile(t, "../codec/testdata/good/certificate.yaml")))
	leaf, err := o[0].Spec.(*resource.Certificate).Leaf()
	if err != nil {
		t.Fatal(err)
	}
	wantFaults(t, validate.Admit(o, leaf.NotAfter))
	want := "Certificate/a spec.cert: expired at " + leaf.NotAfter.UTC().Format(time.RFC3339)
	wantFaults(t, validate.Admit(o, leaf.NotAfter.Add(time.Second)), want)
	wantFaults(t, validate.Admit(decode(t, "kind: Service\nname: a\nspec: {tls: {ca: x.pem}}"), time.Now()), "spec.tls.ca: was not read")
}

// After each of many changes a Set reports the same about its contents as a new
// Set of all its objects.
func TestIncrementalSetMatchesFreshSet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, model := new(validate.Set), map[resource.Key]resource.Object{}
		name := rapid.SampledFrom([]string{"a", "b", "c"})
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			var changes []resource.Change
			seen := map[resource.Key]bool{}
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				kind := rapid.SampledFrom([]string{"Listener", "Service", "MeshTCPRoute", "Host"}).Draw(t, "kind")
				o := resource.Object{Key: key(kind, name.Draw(t, "name"))}
				switch o.Kind {
				case "Listener":
					o.Spec = &resource.Listener{
						Protocol: rapid.SampledFrom([]string{"tls", "tls", ""}).Draw(t, "protocol"),
						Hosts:    anyHosts(t),
						Address: rapid.SampledFrom([]string{
							":80", "0.0.0.0:80", "127.0.0.1:80", ":81", "unix:/a",
						}).Draw(t, "address"),
						Service: name.Draw(t, "service"),
					}
				case "Service":
					o.Spec = &resource.Service{Discovery: anyDiscovery(t)}
				case "Host":
					o.Spec = anyHost(t, name.Draw(t, "listener"))
				case "MeshTCPRoute":
					to := resource.TargetRef{Kind: "MeshService", Name: name.Draw(t, "to")}
					o.Spec = &resource.MeshTCPRoute{To: []resource.RouteTo{{TargetRef: to}}}
				}
				if seen[o.Key] {
					continue
				}
				seen[o.Key] = true
				if rapid.Bool().Draw(t, "delete") {
					changes = append(changes, resource.Delete(o.Key))
					delete(model, o.Key)
				} else {
					changes = append(changes, resource.Put(o))
					model[o.Key] = o
				}
			}
			s, _, _ = s.With(changes)
			checkAgainst(t, s, model)
		}
	})
}

// anyDiscovery draws a discovery whose identities others may claim too.
func anyDiscovery(t *rapid.T) *resource.Discovery {
	if !rapid.Bool().Draw(t, "discovery") {
		return nil
	}
	ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "spiffe://x/y"}), 0, 2, rapid.ID)
	return &resource.Discovery{Identities: ids.Draw(t, "identities")}
}

// anyHost draws a Host whose names others may claim too.
func anyHost(t *rapid.T, listener string) *resource.Host {
	h := &resource.Host{Listener: listener, Service: "a"}
	h.ALPN = rapid.SampledFrom([][]string{nil, {"h2"}, {"h2", "h3"}}).Draw(t, "alpn")
	for _, name := range []string{"a.example", "B.example", "*.c.example"} {
		if rapid.Bool().Draw(t, name) {
			h.Names = append(h.Names, name)
		}
	}
	return h
}

func anyHosts(t *rapid.T) []resource.HostRule {
	if !rapid.Bool().Draw(t, "hosts") {
		return nil
	}
	return []resource.HostRule{*anyHost(t, "").Rule()}
}

func checkAgainst(t *rapid.T, s *validate.Set, model map[resource.Key]resource.Object) {
	var objects []resource.Object
	for o := range s.All("") {
		if m, ok := model[o.Key]; !ok || !resource.Equal(o, m) {
			t.Fatalf("%v is not what was put", o.Key)
		}
		objects = append(objects, o)
	}
	if len(objects) != len(model) || s.Len() != len(model) {
		t.Fatalf("%d objects, %d in all, want %d", len(objects), s.Len(), len(model))
	}
	for _, n := range []string{"a", "b", "c"} {
		for _, k := range []resource.Key{{Kind: "Service", Name: n}, {Kind: "Listener", Name: n}} {
			if got, want := s.Users(k), usersAmong(objects, k); !slices.Equal(got, want) {
				t.Fatalf("users of %v: %v, want %v", k, got, want)
			}
		}
		if got, want := s.NameClaims(n), claimsOf(objects, n); !slices.Equal(got, want) {
			t.Fatalf("names of listener %s: %v, want %v", n, got, want)
		}
	}
	fresh, _, _ := new(validate.Set).With(puts(objects))
	if got, want := s.IndexSizes(), fresh.IndexSizes(); !maps.Equal(got, want) {
		t.Fatalf("entries that nothing stands for: %v, want %v", got, want)
	}
	// An object that is put again gets the same faults as among all at once.
	all, _ := validate.Objects(objects)
	_, again, _ := s.With(puts(objects))
	if all.Error() != again.Error() {
		t.Fatalf("told by and by:\n%v\nat once:\n%v", again, all)
	}
}

// claimsOf returns the expected result of NameClaims.
func claimsOf(objects []resource.Object, listener string) (all []string) {
	add := func(owner resource.Key, r *resource.HostRule) {
		for _, name := range r.Names {
			all = append(all, fmt.Sprint(strings.ToLower(name), r.ALPN, owner))
		}
	}
	for _, o := range objects {
		switch spec := o.Spec.(type) {
		case *resource.Listener:
			for i := range spec.Hosts {
				if o.Name == listener {
					add(o.Key, &spec.Hosts[i])
				}
			}
		case *resource.Host:
			if spec.Listener == listener {
				add(o.Key, spec.Rule())
			}
		}
	}
	slices.Sort(all)
	return all
}

// usersAmong lists the references of objects to k.
func usersAmong(objects []resource.Object, k resource.Key) []resource.Ref {
	var out []resource.Ref
	for _, o := range objects {
		for _, r := range o.Spec.Refs() {
			if r.Key == k {
				out = append(out, resource.Ref{Key: o.Key, Path: r.Path, Optional: r.Optional})
			}
		}
	}
	return out
}

func BenchmarkSetOf100000(b *testing.B) {
	var objects []resource.Object
	for i := range 50_000 {
		name := fmt.Sprint("o", i)
		objects = append(objects,
			resource.Object{Key: key("Service", name), Spec: &resource.Service{Endpoints: []resource.Endpoint{{Address: "10.0.0.1:1"}}}},
			resource.Object{Key: key("Listener", name), Spec: &resource.Listener{
				Address: fmt.Sprintf("10.1.%d.%d:9443", i>>8, i&255), Service: name,
			}})
	}
	b.Run("validate", func(b *testing.B) {
		for b.Loop() {
			if faults, _ := validate.Objects(objects); len(faults) > 0 {
				b.Fatal(faults)
			}
		}
	})
	set := mustWith(b, new(validate.Set), puts(objects)...)
	b.Run("change one", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			mustWith(b, set, resource.Put(objects[12345]))
		}
	})
}
