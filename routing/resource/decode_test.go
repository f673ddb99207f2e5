package resource

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the expected faults in testdata")

// decode decodes a text that must be valid.
func decode(t testing.TB, text string) []Object {
	t.Helper()
	objects, faults := Decode("test.yaml", []byte(text), RoutingKinds())
	if len(faults) > 0 {
		t.Fatalf("unexpected faults:\n%v", faults)
	}
	return objects
}

// faultsOf decodes a text that must be invalid, and returns its faults.
func faultsOf(t testing.TB, text string) string {
	t.Helper()
	_, faults := Decode("test.yaml", []byte(text), RoutingKinds())
	if len(faults) == 0 {
		t.Fatalf("taken without a fault:\n%s", text)
	}
	return faults.Error()
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
			objects, faults := Decode(filepath.Base(file), data, RoutingKinds())
			got := faults.Error() + "\n"
			if len(faults) == 0 {
				more, warnings := ValidateSet(objects)
				got = more.Error() + "\n"
				if len(more) == 0 {
					got = "warnings:\n" + Faults(warnings).Error() + "\n"
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
		if objects, faults := Decode(file, data, RoutingKinds()); len(faults) > 0 || len(objects) == 0 {
			t.Errorf("%d objects, faults:\n%v", len(objects), faults)
		}
	}
}

func TestFindKindIgnoresCaseAndPlural(t *testing.T) {
	for _, s := range []string{"Service", "service", "SERVICES", "services"} {
		if k, err := FindKind(RoutingKinds(), s); err != nil || k.Name != "Service" {
			t.Errorf("%s: %v, %v", s, k.Name, err)
		}
	}
	_, err := FindKind(RoutingKinds(), "servce")
	if want := "unknown kind servce, did you mean Service?; " +
		"known kinds are Listener, Service, MeshTCPRoute, MeshHTTPRoute, Certificate, Host"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
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
