//go:build !race

package formats

import (
	"strings"
	"testing"

	"penstock/routing/resource"
)

// Policies of 10 MB, each large in another way, are refused with one fault,
// before all of their parts are checked.
func TestLargePoliciesAreRefused(t *testing.T) {
	const size = 10 << 20 // bytes
	fill := func(line string) string { return strings.Repeat(line, size/len(line)) }
	some := func(line string) string { return strings.Repeat(line, 2000) }
	frame := func(refs string) string {
		return `{"type": "MeshTCPRoute", "name": "a", "spec": {"to": [{"targetRef": {"kind": "MeshService", "name": "b"}, ` +
			`"rules": [{"default": {"backendRefs": [` + "\n" + refs + `{"kind": "MeshService", "name": "last"}]}}]}]}}`
	}
	name := strings.Repeat("a", 200)
	for what, x := range map[string]struct{ text, want string }{
		"many values": {
			"type: MeshTCPRoute\nname: a\nspec:\n  to:\n" + fill("  - {targetRef: {kind: MeshService, name: a}}\n"),
			"x.yaml:1: file: the document has more than 1000000 values: split it",
		},
		"many backends": {
			frame(fill(`{"kind": "MeshService", "name": "` + name + `"},` + "\n")),
			"x.yaml:1: MeshTCPRoute/a spec.to[0].rules[0].default.backendRefs: must hold at most 1000 backends (44244)",
		},
		"many splits": {
			"kind: List\nitems:\n" + some("- {apiVersion: split.smi-spec.io/v1alpha2}\n"),
			"x.yaml:1002: file: more than 1000 faults; the others are not listed",
		},
		"a long name": {
			frame(`{"kind": "MeshService", "name": "` + fill("a") + `"},`),
			"x.yaml:2: MeshTCPRoute/a spec.to[0].rules[0].default.backendRefs[0].name: must be lower-case letters, digits, '-', '_' and '.', " +
				"with a letter or digit first and last, at most 253 in all (" + strings.Repeat("a", 80) + "... 10485760 bytes)",
		},
		"a long kind": {
			"apiVersion: kuma.io/v1alpha1\nkind: " + some("a") + "\n",
			"x.yaml:2: document kind: is not supported; supported kinds of Kuma are MeshTCPRoute, MeshHTTPRoute, MeshTrafficPermission, MeshRateLimit, " +
				"MeshTrace, MeshMetric, MeshAccessLog (" +
				strings.Repeat("a", 80) + "... 2000 bytes)",
		},
		"deep": {
			`{"type": "MeshTCPRoute", "name": "a", "spec": ` + fill("["),
			"x.yaml:1: file: the document has more than 1000000 values: split it",
		},
	} {
		_, faults := decode("x.yaml", x.text)
		if len(faults) == 0 || len(faults) > resource.MaxFaults+1 {
			t.Errorf("%s: %d faults", what, len(faults))
			continue
		}
		last := faults[len(faults)-1].Error()
		if last != x.want {
			t.Errorf("%s: %s\nwant: %s", what, last[:min(len(last), 500)], x.want)
		}
	}
}
