package kuma

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/resource"
)

// Whatever Kuma's documents hold: faults, or resources that are valid and come
// back the same when they are given back and taken again.
func FuzzDocuments(f *testing.F) {
	files, err := filepath.Glob("../testdata/kuma/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	kinds := resource.RoutingKinds()
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, _ := resource.DecodeForeign("x.yaml", data, kinds, Foreign())
		for _, o := range objects {
			o.Spec.Validate(func(path, message string, value any) {
				t.Fatalf("%s is not valid: %s %s (%v)", o.Key, path, message, value)
			})
			root, err := Export(o)
			if err != nil {
				r, _ := o.Spec.(*resource.MeshTCPRoute)
				if own := r != nil && r.Rollout != nil; !own && slices.Contains(taken, o.Kind) {
					t.Fatal(err)
				}
				continue
			}
			text, err := yaml.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			again, faults := resource.DecodeForeign("y.yaml", text, kinds, Foreign())
			if len(faults) > 0 || len(again) != 1 {
				t.Fatalf("what is given back is not taken: %v\n%s", faults, text)
			}
			if o.Format() != "Kuma" { // its labels were written by hand
				again[0].Labels = o.Labels
			}
			if !resource.Equal(o, again[0]) {
				t.Fatalf("another when it is taken again:\n%s\n%s", text, resource.EncodeYAML(o))
			}
		}
	})
}
