package model

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// decodeForeign reads a document as apply and check do.
func decodeForeign(t *testing.T, file string) ([]resource.Object, resource.Faults) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, faults := codec.DecodeForeign(filepath.Base(file), data, testKinds(), Foreign())
	for i := range objects {
		faults = append(faults, codec.LoadFiles(&objects[i], filepath.Dir(file),
			func(name string, _ int) ([]byte, error) { return os.ReadFile(name) })...)
	}
	return objects, faults
}

// The two examples of the reference document as they are printed: all that is
// wrong with each is reported at once, and nothing else.
func TestReferenceExamplesHaveExactlyTheirErrors(t *testing.T) {
	for _, name := range []string{"one-to-one", "many-to-one", "mixed"} {
		file := "testdata/kroxylicious/" + name + ".yaml"
		_, faults := decodeForeign(t, file)
		golden(t, file+".txt", faults.Error()+"\n")
	}
}

// With their blanks filled they are resources, and lead where they say.
func TestReferenceExamplesRunOnceCompleted(t *testing.T) {
	for _, x := range []struct{ name, sni, want string }{
		{"one-to-one", "broker-B.myvanitydomain.com", "my-public-cluster broker-2 with my-public-cluster -> " +
			"broker-2.azB.internal.svc:19080 in the clear"},
		{"many-to-one", "broker-3.my-tenant2.kafka.com", "my-tenant2 broker-3 with my-tenant2 -> stocky:9092 in the clear"},
	} {
		file := "testdata/kroxylicious/" + x.name + "-filled.yaml"
		objects, faults := decodeForeign(t, file)
		if len(faults) > 0 {
			t.Fatalf("%s:\n%v", file, faults)
		}
		var text strings.Builder
		for i, o := range objects {
			if i > 0 {
				text.WriteString("---\n")
			}
			text.Write(codec.EncodeYAML(o))
		}
		golden(t, file+".txt", text.String())
		w := newWorld(t)
		w.change(puts(objects))
		if got := w.connect("my-tls-endpoint", x.sni); got != x.want {
			t.Errorf("%s: %s, want %s", x.name, got, x.want)
		}
	}
}

// Faults of other documents are those of their own format.
func TestOtherDocumentsAreNotConverted(t *testing.T) {
	_, faults := codec.DecodeForeign("x.yaml", []byte("listeners: []\n---\nkind: Service\nname: a\nendpoints: []\nspec: "+
		"{}\n"), testKinds(), Foreign())
	want := "x.yaml:1: document 1: kind is missing"
	if len(faults) == 0 || faults[0].Error() != want || !strings.Contains(faults.Error(),
		"x.yaml:5: Service/a: unknown field, it belongs under spec") {
		t.Errorf("%v", faults)
	}
	objects, faults := codec.DecodeForeign("x.yaml", []byte("endpoints:\n- {name: a, type: PLAIN, address: ':1'}\n---\nkind: "+
		"Service\nname: a\nspec: {}\n"), testKinds(), Foreign())
	if len(faults) > 0 || len(objects) != 2 {
		t.Errorf("%d objects, %v", len(objects), faults)
	}
}

// A name that the certificate is not for is warned of, with what it is for.
func TestNamesThatTheCertificateDoesNotCoverAreWarnedOf(t *testing.T) {
	pem, err := os.ReadFile("testdata/kroxylicious/a.crt")
	if err != nil {
		t.Fatal(err)
	}
	// It is for a.example.com and *.a.example.com.
	objects := append(decode(t, `
kind: Listener
name: edge
spec: {address: ":9092", protocol: kafka, tls: {}}
---
kind: PhysicalCluster
name: found
spec: {bootstrap: ["beefy:9092"]}
---
kind: VirtualCluster
name: right
spec:
  physicalClusterRef: found
  tls: {certificateRef: t1}
  brokers: {discover: {endpointRef: edge, bootstrap: a.example.com, sniPattern: "b-$(nodeId).a.example.com"}}
---
kind: VirtualCluster
name: wrong
spec:
  physicalClusterRef: found
  tls: {certificateRef: t1}
  brokers: {discover: {endpointRef: edge, bootstrap: b.a.example.com, sniPattern: "$(nodeId).b.a.example.com"}}
`), resource.Object{Key: resource.Key{Kind: kindCertificate, Name: "t1"}, Spec: &resource.Certificate{Cert: string(pem)}})
	faults, warnings := validate.Objects(objects)
	want := "test.yaml:17: VirtualCluster/wrong spec.brokers.discover.sniPattern: the Certificate t1 does not cover this name: " +
		"clients that verify it will refuse the connection ($(nodeId).b.a.example.com)"
	if len(faults) > 0 || len(warnings) != 1 || !strings.HasSuffix(warnings[0].Error(), strings.TrimPrefix(want, "test.yaml:17: ")) {
		t.Errorf("faults %v, warnings %v", faults, warnings)
	}
}
