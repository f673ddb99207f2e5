package catalog

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/formats"
	"penstock/routing/gateway"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

const (
	canaryOf = "apiVersion: kuma.io/v1alpha1\nkind: MeshTCPRoute\nmetadata: {name: canary, namespace: NS, labels: {kuma.io/mesh: default}}\n" +
		"spec: {to: [{targetRef: {kind: MeshService, name: web}, rules: [{default: {backendRefs: [{kind: MeshService, name: NS}]}}]}]}\n"
	canaryUniversal = "type: MeshTCPRoute\nmesh: default\nname: canary\n" +
		"spec: {to: [{targetRef: {kind: MeshService, name: web}, rules: [{default: {backendRefs: [{kind: MeshService, name: v}]}}]}]}\n"
	canaryOwn = "kind: MeshTCPRoute\nname: canary\n" +
		"spec: {to: [{targetRef: {kind: MeshService, name: web}, rules: [{default: {backendRefs: [{kind: MeshService, name: own}]}}]}]}\n"
	canarySplit = "apiVersion: split.smi-spec.io/v1alpha2\nkind: TrafficSplit\nmetadata: {name: canary, namespace: NS}\n" +
		"spec: {service: web, backends: [{service: v, weight: 1}]}\n"
	appsOf = "apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: TCPRoute\nmetadata: {name: apps, namespace: NS}\n" +
		"spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: a}]}]}\n"
)

// newForeignFixture returns a catalog that accepts the kinds of foreign
// formats.
func newForeignFixture(t *testing.T) *fixture {
	return newFixtureOf(t, store.NewMemory(store.Limits{}), slices.Concat(resource.RoutingKinds(), gateway.Kinds()))
}

// applyForeign applies a document of any format, from new.yaml. It returns the
// action for its only object, and the warnings.
func (f *fixture) applyForeign(t *testing.T, text string) (action string, warnings []string, err error) {
	t.Helper()
	objects, faults := codec.DecodeForeign("new.yaml", []byte(text), f.cfg.Kinds, formats.All())
	if len(faults) > 0 || len(objects) != 1 {
		t.Fatal(len(objects), faults)
	}
	r, err := f.Apply(t.Context(), Change{Objects: objects})
	if err != nil {
		return "", nil, err
	}
	for _, w := range r.Warnings {
		warnings = append(warnings, strings.TrimSpace(w.Key+" "+w.Path)+": "+w.Message)
	}
	return r.Changes[0].Action, warnings, nil
}

// TestObjectsOfOtherFormatsDoNotReplaceEachOther: a different object of the
// same name, by namespace or format, is refused with its place, and the first
// one stays.
func TestObjectsOfOtherFormatsDoNotReplaceEachOther(t *testing.T) {
	in := func(text, namespace string) string { return strings.ReplaceAll(text, "NS", namespace) }
	for _, c := range []struct{ name, first, second, want string }{
		{"two namespaces in Kuma", in(canaryOf, "team-a"), in(canaryOf, "team-b"),
			`MeshTCPRoute/canary labels["k8s.kuma.io/namespace"]: MeshTCPRoute canary of namespace team-a already exists, ` +
				`and a name cannot be used in two namespaces here; delete the existing one first, or rename this one (team-b)`},
		{"two namespaces in SMI", in(canarySplit, "team-a"), in(canarySplit, "team-b"),
			`MeshTCPRoute/canary labels.penstock/namespace: MeshTCPRoute canary of namespace team-a already exists, ` +
				`and a name cannot be used in two namespaces here; delete the existing one first, or rename this one (team-b)`},
		{"Kuma and SMI", in(canaryOf, "team-a"), in(canarySplit, "team-a"),
			`MeshTCPRoute/canary : is in SMI's format, the existing resource in Kuma's Kubernetes format: ` +
				`two formats cannot define one resource; delete the existing one first, or rename this one ()`},
		{"Kuma and SMI of two namespaces", in(canarySplit, "team-a"), in(canaryOf, "team-b"),
			`MeshTCPRoute/canary labels["k8s.kuma.io/namespace"]: MeshTCPRoute canary of namespace team-a already exists, ` +
				`and a name cannot be used in two namespaces here; delete the existing one first, or rename this one (team-b)`},
		{"a namespace and the default", in(canaryOf, "team-a"), strings.Replace(in(canarySplit, ""), ", namespace: ", "", 1),
			`MeshTCPRoute/canary : MeshTCPRoute canary of namespace team-a already exists, ` +
				`and a name cannot be used in two namespaces here; delete the existing one first, or rename this one (default)`},
		{"a dot in a name of the Gateway API", in(appsOf, "shop"), strings.Replace(in(appsOf, "default"), "apps", "shop.apps", 1),
			`TCPRoute/shop.apps spec.origin.namespace: TCPRoute apps of namespace shop already exists, ` +
				`and a name cannot be used in two namespaces here; delete the existing one first, or rename this one (default)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newForeignFixture(t)
			for _, want := range []string{api.Created, api.Unchanged} {
				if got, warnings, err := f.applyForeign(t, c.first); err != nil || got != want || slices.ContainsFunc(warnings, isOrigin) {
					t.Fatalf("%s %q %v, want %s", got, warnings, err, want)
				}
			}
			_, _, err := f.applyForeign(t, c.second)
			var refusal *api.Error
			if !errors.As(err, &refusal) || refusal.Code != api.Invalid || len(refusal.Faults) != 1 {
				t.Fatalf("the second: %v", err)
			}
			if x := refusal.Faults[0]; x.Key+" "+x.Path+": "+x.Message+" ("+x.Value+")" != c.want {
				t.Errorf("got  %s %s: %s (%s)\nwant %s", x.Key, x.Path, x.Message, x.Value, c.want)
			}
			if got, _, err := f.applyForeign(t, c.first); err != nil || got != api.Unchanged {
				t.Errorf("the first is %s, %v", got, err)
			}
			objects, _ := codec.DecodeForeign("", []byte(c.first), f.cfg.Kinds, formats.All())
			if _, err := f.Delete(t.Context(), Target{Kind: objects[0].Kind, Name: objects[0].Name}); err != nil {
				t.Fatal(err)
			}
			if got, _, err := f.applyForeign(t, c.second); err != nil || got != api.Created {
				t.Errorf("the second after the first was deleted: %s, %v", got, err)
			}
		})
	}
}

func isOrigin(warning string) bool { return strings.Contains(warning, "replaces a resource") }

// TestFormatMigrationWarns: a migration to a format without
// namespaces, such as the output of get --as kuma, or back, gives one warning,
// and requires no delete.
func TestFormatMigrationWarns(t *testing.T) {
	f := newForeignFixture(t)
	for i, c := range []struct{ text, want string }{
		{canaryUniversal, ""},
		{canaryOwn, "MeshTCPRoute/canary: is in Penstock's own format and replaces a resource in Kuma's universal format"},
		{canaryOwn, ""},
		{
			strings.ReplaceAll(canarySplit, "NS", "shop"),
			"MeshTCPRoute/canary: is in SMI's format and replaces a resource in Penstock's own format",
		},
		{strings.ReplaceAll(canarySplit, "NS", "shop"), ""},
		{canaryUniversal, "MeshTCPRoute/canary: is in Kuma's universal format and replaces a resource in SMI's format"},
	} {
		_, warnings, err := f.applyForeign(t, c.text)
		if err != nil {
			t.Fatal(err)
		}
		if told := slices.DeleteFunc(warnings, func(w string) bool { return !isOrigin(w) }); strings.Join(told, "\n") != c.want {
			t.Errorf("%d: %q, want %q", i, told, c.want)
		}
	}
}

// TestDefaultNamespaceMayBeOmitted: an object with the default namespace
// and one without a namespace are the same.
func TestDefaultNamespaceMayBeOmitted(t *testing.T) {
	f := newForeignFixture(t)
	given := strings.ReplaceAll(appsOf, "NS", "default")
	for i, text := range []string{given, strings.Replace(given, ", namespace: default", "", 1), given} {
		if got, _, err := f.applyForeign(t, text); err != nil {
			t.Errorf("%d: %s, %v", i, got, err)
		}
	}
}

// created returns the stored creation timestamp of a route.
func (f *fixture) created(t *testing.T, name string) time.Time {
	t.Helper()
	set, _ := f.InForce()
	o, ok := set.Get(resource.Key{Kind: "TCPRoute", Name: name})
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	at, err := time.Parse(time.RFC3339, gateway.OriginOf(o.Spec).CreationTimestamp)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func routeCalled(name, more string) string {
	return "apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: TCPRoute\nmetadata: {name: " + name + more + "}\n" +
		"spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: a}]}]}\n"
}

// TestRouteKeepsItsCreationTimestamp: a route without a timestamp keeps that of
// its creation through all changes; an explicit timestamp replaces it.
func TestRouteKeepsItsCreationTimestamp(t *testing.T) {
	f := newForeignFixture(t)
	begun := time.Now()
	mustGive := func(text, want string) {
		t.Helper()
		if got, _, err := f.applyForeign(t, text); err != nil || got != want {
			t.Fatalf("%s, %v; want %s", got, err, want)
		}
	}
	mustGive(routeCalled("b", ""), api.Created)
	first := f.created(t, "b")
	if first.Before(begun.Truncate(time.Microsecond)) || first.After(time.Now()) {
		t.Errorf("created at %v, between %v and now", first, begun)
	}
	mustGive(routeCalled("b", ""), api.Unchanged)
	set, _ := f.InForce()
	o, _ := set.Get(resource.Key{Kind: "TCPRoute", Name: "b"})
	text, err := formats.Encode("gateway", o)
	if err != nil || !strings.Contains(string(text), "\n  creationTimestamp: ") {
		t.Errorf("given back: %v\n%s", err, text)
	}
	mustGive(string(text), api.Unchanged)
	mustGive(strings.Replace(routeCalled("b", ""), "{name: a}", "{name: other}", 1), api.Configured)
	if at := f.created(t, "b"); !at.Equal(first) {
		t.Errorf("changed: %v, want %v", at, first)
	}
	mustGive(routeCalled("a", ""), api.Created)
	if at := f.created(t, "a"); !at.After(first) {
		t.Errorf("the later is of %v, the first of %v", at, first)
	}
	if _, err := f.Rollback(t.Context(), Target{Kind: "TCPRoute", Name: "b"}); err != nil {
		t.Fatal(err)
	}
	if at := f.created(t, "b"); !at.Equal(first) {
		t.Errorf("rolled back: %v, want %v", at, first)
	}
	given := `, creationTimestamp: "2026-01-31T12:00:00Z"`
	mustGive(routeCalled("b", given), api.Configured)
	mustGive(routeCalled("b", ""), api.Unchanged)
	if at := f.created(t, "b"); at.Year() != 2026 || at.YearDay() != 31 {
		t.Errorf("given: %v", at)
	}
}

// TestNewRouteIsTheYoungest: a leader whose clock is behind sets no timestamp
// before those of the last leader, and ignores implausible ones.
func TestNewRouteIsTheYoungest(t *testing.T) {
	f := newForeignFixture(t)
	ahead := time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond)
	for _, text := range []string{
		routeCalled("ahead", `, creationTimestamp: "`+ahead.Format(time.RFC3339Nano)+`"`),
		routeCalled("odd", `, creationTimestamp: "9999-12-31T23:59:59.999999Z"`),
		routeCalled("new", ""),
	} {
		if _, _, err := f.applyForeign(t, text); err != nil {
			t.Fatal(err)
		}
	}
	if at := f.created(t, "new"); !at.Equal(ahead.Add(time.Microsecond)) {
		t.Errorf("dated %v, the one before %v", at, ahead)
	}
}

// TestRoutesOfOneChangeShareATimestamp: routes created together have one
// timestamp, so that names decide, as in check.
func TestRoutesOfOneChangeShareATimestamp(t *testing.T) {
	f := newForeignFixture(t)
	objects, faults := codec.DecodeForeign("new.yaml",
		[]byte(routeCalled("b", "")+"---\n"+routeCalled("a", "")), f.cfg.Kinds, formats.All())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if _, err := f.Apply(t.Context(), Change{Objects: objects}); err != nil {
		t.Fatal(err)
	}
	if a, b := f.created(t, "a"), f.created(t, "b"); !a.Equal(b) {
		t.Errorf("%v and %v", a, b)
	}
	for i := range objects {
		if at := gateway.OriginOf(objects[i].Spec).CreationTimestamp; at != "" {
			t.Errorf("the caller's resource has the date %s", at)
		}
	}
}

// TestDryRunSetsNoTimestamp: a dry run shows the route as given, and no
// difference in a timestamp that is kept.
func TestDryRunSetsNoTimestamp(t *testing.T) {
	f := newForeignFixture(t)
	try := func(text string) api.Change {
		t.Helper()
		objects, _ := codec.DecodeForeign("new.yaml", []byte(text), f.cfg.Kinds, formats.All())
		r, err := f.Apply(t.Context(), Change{Objects: objects, DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		return r.Changes[0]
	}
	if c := try(routeCalled("b", "")); c.Action != api.Created || strings.Contains(c.After, "creationTimestamp") {
		t.Errorf("%+v", c)
	}
	if _, _, err := f.applyForeign(t, routeCalled("b", "")); err != nil {
		t.Fatal(err)
	}
	if c := try(routeCalled("b", "")); c.Action != api.Unchanged {
		t.Errorf("%+v", c)
	}
	changed := strings.Replace(routeCalled("b", ""), "{name: a}", "{name: other}", 1)
	if c := try(changed); c.Action != api.Configured || strings.Replace(c.Before, "name: a\n", "name: other\n", 1) != c.After {
		t.Errorf("%+v", c)
	}
}
