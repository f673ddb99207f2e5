package validate_test

import (
	"fmt"
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// A Kuma policy does not act on services of another mesh, and Penstock cannot
// keep meshes apart.
func TestPoliciesMustShareAMesh(t *testing.T) {
	route := func(name, mesh, form string) resource.Change {
		o := decode(t, "kind: MeshTCPRoute\nname: "+name+"\n"+
			"labels: {kuma.io/mesh: "+mesh+", penstock/format: "+form+"}\n"+
			"spec: {to: [{targetRef: {kind: MeshService, name: a}, rules: [{}]}]}\n")[0]
		o.File = ""
		return resource.Put(o)
	}
	set, faults, _ := new(validate.Set).With([]resource.Change{
		route("a", "one", "kuma"), route("b", "one", "kuma-kubernetes"), route("other", "two", "smi"),
	})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, c := range []struct {
		what    string
		changes []resource.Change
		want    string
	}{
		{
			"another mesh",
			[]resource.Change{route("c", "two", "kuma")},
			`MeshTCPRoute/c labels["kuma.io/mesh"]: differs from the mesh one of MeshTCPRoute/a: Penstock supports only one mesh (two)`,
		},
		{"one that changes", []resource.Change{route("b", "two", "kuma")}, "MeshTCPRoute/b labels"},
		{"the same", []resource.Change{route("c", "one", "kuma")}, ""},
		{"no policy of Kuma's", []resource.Change{route("c", "two", "other")}, ""},
		{"all that change", []resource.Change{route("a", "two", "kuma"), route("b", "two", "kuma")}, ""},
		{
			"one in place of the others",
			[]resource.Change{route("c", "two", "kuma"), resource.Delete(key("MeshTCPRoute", "a")), resource.Delete(key("MeshTCPRoute", "b"))},
			"",
		},
	} {
		_, faults, _ := set.With(c.changes)
		if got := faults.Error(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// splitChange puts a route that was converted from an SMI split.
func splitChange(name, root string, backends ...string) resource.Change {
	target := resource.TargetRef{Kind: "MeshService", Name: root}
	r := &resource.MeshTCPRoute{To: []resource.RouteTo{{TargetRef: target, Rules: []resource.RouteRule{{}}}}}
	for _, b := range backends {
		r.To[0].Rules[0].Default.BackendRefs = append(r.To[0].Rules[0].Default.BackendRefs, resource.BackendRef{Kind: "MeshService", Name: b})
	}
	labels := map[string]string{resource.LabelFormat: resource.FormatSMI}
	return resource.Put(resource.Object{Key: key("MeshTCPRoute", name), Labels: labels, Spec: r})
}

// A cycle closes over stored splits, and opens when one of them is deleted.
func TestSplitCyclesAreRefused(t *testing.T) {
	set, faults, warnings := new(validate.Set).With([]resource.Change{
		splitChange("first", "a", "b", "leaf"), splitChange("second", "b", "c"), splitChange("beside", "x", "a"),
	})
	if len(faults) > 0 || !strings.Contains(resource.Faults(warnings).Error(),
		"MeshTCPRoute/beside spec.to[0].rules[0].default.backendRefs[0].name: is the root of the split MeshTCPRoute/first, "+
			"which does not split these connections again (a)") {
		t.Fatal(faults, resource.Faults(warnings))
	}
	plain := splitChange("third", "c", "a")
	plain.Labels = nil
	for _, c := range []struct {
		what    string
		changes []resource.Change
		want    string
	}{
		{
			"one that closes it",
			[]resource.Change{splitChange("third", "c", "a")},
			"MeshTCPRoute/third spec.to[0].rules[0].default.backendRefs[0].name: is the root of the split MeshTCPRoute/first, " +
				"which leads back to c: splits must not form a cycle (a)",
		},
		{"one that leads into one", []resource.Change{splitChange("third", "d", "a")}, ""},
		{"one that opens another", []resource.Change{splitChange("third", "c", "a"), splitChange("second", "b", "leaf")}, ""},
		{"one that takes part of it away", []resource.Change{splitChange("third", "c", "a"), resource.Delete(key("MeshTCPRoute", "first"))}, ""},
		{"a route that was no split", []resource.Change{plain}, ""},
	} {
		_, faults, _ := set.With(c.changes)
		if got := faults.Error(); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// A cycle of many splits is found in linear time.
func TestLongSplitCyclesAreFound(t *testing.T) {
	const n = resource.MaxFaults * 5
	var changes []resource.Change
	for i := range n {
		changes = append(changes, splitChange(fmt.Sprint(i), fmt.Sprint(i), fmt.Sprint((i+1)%n)))
	}
	if _, faults, _ := new(validate.Set).With(changes); len(faults) != resource.MaxFaults {
		t.Errorf("%d faults", len(faults))
	}
	if _, faults, _ := new(validate.Set).With(changes[1:]); len(faults) != 0 {
		t.Errorf("a chain has %d faults: %v", len(faults), faults[0])
	}
}
