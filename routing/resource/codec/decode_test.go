package codec

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/manual"
	"penstock/routing/resource/validate"
)

var update = flag.Bool("update", false, "rewrite the expected faults in testdata")

// decode decodes a text that must be valid.
func decode(t testing.TB, text string) []resource.Object {
	t.Helper()
	objects, faults := Decode("test.yaml", []byte(text), resource.RoutingKinds())
	if len(faults) > 0 {
		t.Fatalf("unexpected faults:\n%v", faults)
	}
	return objects
}

// faultsOf decodes a text that must be invalid, and returns its faults.
func faultsOf(t testing.TB, text string) string {
	t.Helper()
	_, faults := Decode("test.yaml", []byte(text), resource.RoutingKinds())
	if len(faults) == 0 {
		t.Fatalf("taken without a fault:\n%s", text)
	}
	return faults.Error()
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

func glob(t testing.TB, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return files
}

// Each file in testdata/bad breaks one rule or a few of a kind; the file beside
// it has the expected faults (go test -update writes them).
func TestBadFilesMatchExpectedFaults(t *testing.T) {
	for _, file := range append(glob(t, "testdata/bad/*.yaml"), glob(t, "testdata/bad/*.json")...) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, faults := Decode(filepath.Base(file), data, resource.RoutingKinds())
			got := faults.Error() + "\n"
			if len(faults) == 0 {
				more, warnings := validate.Objects(objects)
				got = more.Error() + "\n"
				if len(more) == 0 {
					got = "warnings:\n" + resource.Faults(warnings).Error() + "\n"
				}
			}
			golden := file + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("faults:\n%swant:\n%s", got, want)
			}
		})
	}
}

func TestGoodFilesAreAccepted(t *testing.T) {
	for _, file := range append(glob(t, "testdata/good/*.yaml"), glob(t, "testdata/good/*.json")...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if objects, faults := Decode(file, data, resource.RoutingKinds()); len(faults) > 0 || len(objects) == 0 {
			t.Errorf("%d objects, faults:\n%v", len(objects), faults)
		}
	}
}

// Names of Services may be those that Kuma gives to Kubernetes services; other
// names may not.
func TestServiceNamesMayHaveUnderscores(t *testing.T) {
	decode(t, `
kind: Service
name: backend_kuma-demo_svc_3001
spec: {endpoints: [{address: "127.0.0.1:1"}]}
---
kind: MeshTCPRoute
name: a
spec: {to: [{targetRef: {kind: MeshService, name: backend_kuma-demo_svc_3001}, rules: [{}]}]}
---
kind: Listener
name: a
spec: {address: ":1", protocol: tls, service: a_b, hosts: [{names: [a.example.com], service: a_b}]}
---
kind: Host
name: a
spec: {listener: a, names: [b.example.com], service: a_b}
`)
	for _, text := range []string{
		"kind: Host\nname: a_b\nspec: {listener: a, names: [b.example.com], service: a}",
		"kind: Service\nname: _a\nspec: {}",
		"kind: Service\nname: a_\nspec: {}",
	} {
		faultsOf(t, text)
	}
}

// Every key of the model is used in one of the good files.
func TestGoodFilesUseEveryKey(t *testing.T) {
	var text strings.Builder
	for _, file := range append(glob(t, "testdata/good/*.yaml"), glob(t, "testdata/http/good/*.yaml")...) {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		objects, _ := Decode("", data, resource.RoutingKinds())
		for _, o := range objects {
			text.Write(EncodeWithSecrets(o))
		}
	}
	var specs []reflect.Type
	for _, k := range resource.RoutingKinds() {
		specs = append(specs, reflect.TypeOf(k.New()))
	}
	for _, s := range manual.Structs(specs) {
		for _, key := range resource.SchemaOf(s).Names {
			if !strings.Contains(text.String(), `"`+key+`":`) {
				t.Errorf("%s: no good file has %s", s.Name(), key)
			}
		}
	}
}
