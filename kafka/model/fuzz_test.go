package model

import (
	"os"
	"path/filepath"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// Whatever is decoded comes back as it was, and whatever is admitted compiles.
func FuzzResources(f *testing.F) {
	for _, pattern := range []string{"testdata/bad/*.yaml", "testdata/good/*.yaml", "testdata/kroxylicious/*.yaml",
		"testdata/kroxylicious/release/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatalf("no files %s: %v", pattern, err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	kinds := testKinds()
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, _ := codec.DecodeForeign("x.yaml", data, kinds, Foreign())
		changes := puts(certificates())
		for _, o := range objects {
			again, err := codec.Restore(codec.EncodeWithSecrets(o), kinds)
			if err != nil || !resource.Equal(o, again) {
				t.Fatalf("%v changed in a round trip: %v\n%s", o.Key, err, codec.EncodeWithSecrets(o))
			}
			if _, faults := codec.Decode("", codec.EncodeYAML(o), kinds); len(faults) > 0 && !resource.HasHidden(again) &&
				o.Kind != kindCertificate {
				t.Fatalf("the encoded resource is rejected: %v\n%s", faults, codec.EncodeYAML(o))
			}
			changes = append(changes, resource.Put(o))
		}
		set, faults, _ := new(validate.Set).With(changes)
		if len(faults) > 0 {
			return
		}
		m := New(Config{Bind: "127.0.0.1", Types: testTypes()})
		if _, err := m.Apply(changes); err != nil {
			t.Fatalf("accepted, but does not compile: %v", err)
		}
		for v := range m.Table().Virtuals() {
			for _, b := range v.Known() {
				v.Advertised(b)
				if _, reason := v.Targets(b); reason != "" && !v.Discovered() {
					t.Fatalf("%s %s has no route: %s", v.Name(), b.Name(), reason)
				}
			}
		}
		var rest []resource.Change
		for o := range set.All("") {
			rest = append(rest, resource.Delete(o.Key))
		}
		if _, err := m.Apply(rest); err != nil {
			t.Fatal(err)
		}
	})
}
