package resource

import (
	"strings"
	"testing"
)

// Policies of one of Kuma's meshes do not act on services of another, and
// Penstock cannot keep them apart.
func TestPoliciesAreOfOneMesh(t *testing.T) {
	route := func(name, mesh, form string) Change {
		o := decode(t, "kind: MeshTCPRoute\nname: "+name+"\nlabels: {kuma.io/mesh: "+mesh+", penstock/format: "+form+"}\nspec: {to: [{targetRef: {kind: MeshService, name: a}, rules: [{}]}]}\n")[0]
		o.File = ""
		return Put(o)
	}
	set, faults, _ := new(Set).With([]Change{route("a", "one", "kuma"), route("b", "one", "kuma-kubernetes"), route("other", "two", "smi")})
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, c := range []struct {
		what    string
		changes []Change
		want    string
	}{
		{"another mesh", []Change{route("c", "two", "kuma")}, `MeshTCPRoute/c labels["kuma.io/mesh"]: differs from the mesh one of MeshTCPRoute/a, and Penstock is one mesh (two)`},
		{"one that changes", []Change{route("b", "two", "kuma")}, "MeshTCPRoute/b labels"},
		{"the same", []Change{route("c", "one", "kuma")}, ""},
		{"no policy of Kuma's", []Change{route("c", "two", "other")}, ""},
		{"all that change", []Change{route("a", "two", "kuma"), route("b", "two", "kuma")}, ""},
		{"one in place of the others", []Change{route("c", "two", "kuma"), Delete(Key{"MeshTCPRoute", "a"}), Delete(Key{"MeshTCPRoute", "b"})}, ""},
	} {
		_, faults, _ := set.With(c.changes)
		if got := faults.Error(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
