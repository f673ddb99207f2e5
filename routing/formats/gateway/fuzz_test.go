package gateway

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// Whatever documents of the Gateway API hold: faults, or resources that are
// valid and come back the same when they are given back and taken again, and of
// which listeners and a status can be made.
func FuzzDocuments(f *testing.F) {
	files, err := filepath.Glob("../testdata/gateway/*/*.yaml")
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
	kinds := append(resource.RoutingKinds(), gateway.Kinds()...)
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, _ := resource.DecodeForeign("x.yaml", data, kinds, Foreign())
		var changes []resource.Change
		for _, o := range objects {
			changes = append(changes, resource.Put(o))
			o.Spec.Validate(func(path, message string, value any) {
				t.Fatalf("%s is not valid: %s %s (%v)", o.Key, path, message, value)
			})
			if !gateway.IsKind(o.Kind) || o.Format() == "Penstock" {
				continue
			}
			root, err := Export(o)
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.Marshal(root)
			if err != nil {
				t.Fatal(err)
			}
			again, faults := resource.DecodeForeign("y.yaml", text, kinds, Foreign())
			if len(faults) > 0 || len(again) != 1 {
				t.Fatalf("what is given back is not taken: %v\n%s", faults, text)
			}
			if !resource.Equal(o, again[0]) {
				t.Fatalf("another when it is taken again:\n%s\n%s", text, resource.EncodeYAML(o))
			}
		}
		set, _, _ := new(resource.Set).With(changes)
		statuses := gateway.NewStatuses(set, nil)
		for o := range set.All("") {
			statuses.Of(&o, 1, time.Time{})
		}
		new(gateway.Model).With(changes)
	})
}
