package formats

import (
	"strings"
	"testing"
)

// Exported objects are valid for the API: required fields are present even if
// they are empty.
func TestReferenceGrantsRoundTrip(t *testing.T) {
	const text = `apiVersion: gateway.networking.k8s.io/v1beta1
kind: ReferenceGrant
metadata:
  name: g
  namespace: shop
spec:
  from:
    - group: gateway.networking.k8s.io
      kind: TLSRoute
      namespace: default
  to:
    - group: ""
      kind: Service
    - group: ""
      kind: Secret
      name: tls
`
	objects, faults := decode("a.yaml", text)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	out, err := Encode("gateway", objects[0])
	if err != nil || string(out) != text {
		t.Errorf("%v\n%s\nwant\n%s", err, out, text)
	}
}

// Penstock's own format refuses versions that the API does not have, since the
// exported object could not be read again.
func TestOriginsRequireAKnownVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v1":       "",
		"v1alpha2": "",
		"v1alpha3": "a.yaml:3: TCPRoute/odd spec.origin.apiVersion: " +
			"this version of TCPRoute is not supported; use one of v1, v1alpha2 (v1alpha3)",
		"v7": "a.yaml:3: TCPRoute/odd spec.origin.apiVersion: " +
			"this version of TCPRoute is not supported; use one of v1, v1alpha2 (v7)",
	} {
		_, faults := decode("a.yaml", "kind: TCPRoute\nname: odd\n"+
			"spec: {origin: {apiVersion: "+version+"}, rules: [{backendRefs: [{name: a}]}]}\n")
		got := ""
		if len(faults) > 0 {
			got = faults.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}

// The version is exported as the generation that a status refers to; an object
// without a version has none.
func TestVersionIsExportedAsGeneration(t *testing.T) {
	objects, faults := decode("a.yaml", "apiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\n"+
		"metadata: {name: a, generation: 3}\nspec: {rules: [{backendRefs: [{name: a}]}]}\n")
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for version, want := range map[uint64]string{0: "", 7: "  generation: 7\n"} {
		objects[0].Version = version
		out, err := Encode("gateway", objects[0])
		if err != nil || !strings.Contains(string(out), "  name: a\n"+want+"spec:") {
			t.Errorf("%d: %v\n%s", version, err, out)
		}
		if again, faults := decode("a.yaml", string(out)); len(faults) > 0 || again[0].Version != 0 {
			t.Errorf("%d, taken again: %v", version, faults)
		}
	}
}
