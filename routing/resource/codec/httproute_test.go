package codec

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"penstock/routing/resource"
)

// Each file in testdata/http/bad breaks the rules of one part.
func TestBadHTTPRoutesMatchExpectedFaults(t *testing.T) {
	for _, file := range glob(t, "testdata/http/bad/*.yaml") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, faults := Decode(filepath.Base(file), data, resource.RoutingKinds())
			got := faults.Error() + "\n"
			if *update {
				if err := os.WriteFile(file+".txt", []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) || len(faults) == 0 {
				t.Errorf("faults:\n%swant:\n%s", got, want)
			}
		})
	}
}

func TestHTTPRoutesRoundTrip(t *testing.T) {
	o := httpRoute(t, "testdata/http/good/every-field.yaml")
	again, err := Restore(EncodeWithSecrets(o), resource.RoutingKinds())
	if err != nil || !resource.Equal(o, again) {
		t.Errorf("%v\n%s", err, EncodeWithSecrets(o))
	}
	if shown, faults := Decode("", EncodeYAML(o), resource.RoutingKinds()); len(faults) > 0 || !resource.Equal(o, shown[0]) {
		t.Errorf("%v\n%s", faults, EncodeYAML(o))
	}
	var paths []string
	for _, ref := range o.Spec.Refs() {
		if !ref.Optional || ref.Kind != "Service" {
			t.Errorf("%+v", ref)
		}
		paths = append(paths, ref.Path+" "+ref.Name)
	}
	want := []string{
		"spec.targetRef.name frontend_kuma-demo_svc_8080",
		"spec.to[0].targetRef.name shop",
		"spec.to[0].rules[0].default.backendRefs[0].name shop",
		"spec.to[0].rules[0].default.backendRefs[1].name shop-next",
	}
	if !slices.Equal(paths, want) {
		t.Errorf("%q", paths)
	}
}

func httpRoute(t *testing.T, file string) resource.Object {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	objects, faults := Decode(file, data, resource.RoutingKinds())
	if len(faults) > 0 || len(objects) != 1 {
		t.Fatalf("%d objects, faults:\n%v", len(objects), faults)
	}
	return objects[0]
}
