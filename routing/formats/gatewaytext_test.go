package formats

import (
	"strings"
	"testing"
)

// What is given back is what the API takes: fields that it requires are there
// also where they are empty.
func TestAGrantIsGivenBackAsItWasWritten(t *testing.T) {
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

// A version that the API does not have does not get in by Penstock's own frame
// either: what it is given back as could not be taken again.
func TestAnOriginHasAVersionThatThereIs(t *testing.T) {
	for version, want := range map[string]string{
		"v1":       "",
		"v1alpha2": "",
		"v1alpha3": "a.yaml:3: TCPRoute/odd spec.origin.apiVersion: this version of TCPRoute is not taken; known are v1, v1alpha2 (v1alpha3)",
		"v7":       "a.yaml:3: TCPRoute/odd spec.origin.apiVersion: this version of TCPRoute is not taken; known are v1, v1alpha2 (v7)",
	} {
		_, faults := decode("a.yaml", "kind: TCPRoute\nname: odd\nspec: {origin: {apiVersion: "+version+"}, rules: [{backendRefs: [{name: a}]}]}\n")
		got := ""
		if len(faults) > 0 {
			got = faults.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
}

// The version is given as the generation that a status speaks of; a document
// that has none of a cluster's has no generation either.
func TestTheVersionIsTheGeneration(t *testing.T) {
	objects, faults := decode("a.yaml", "apiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\nmetadata: {name: a, generation: 3}\nspec: {rules: [{backendRefs: [{name: a}]}]}\n")
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
