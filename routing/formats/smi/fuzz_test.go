package smi

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	yaml "go.yaml.in/yaml/v3"

	"penstock/routing/formats/document"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// Any document of SMI yields faults, or routes that are valid and have the shape
// of a split.
func FuzzDocuments(f *testing.F) {
	files, err := filepath.Glob("../testdata/smi/*/*.yaml")
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
	foreign := Foreign()
	foreign[0].Convert = func(root *yaml.Node, fault codec.ForeignFault) []*yaml.Node {
		nodes := convert(root, fault)
		for _, n := range nodes {
			for _, label := range document.Child(n, "labels").Content {
				if label.Value == resource.FormatSMI {
					label.Value = converted
				}
			}
		}
		return nodes
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		objects, _ := codec.DecodeForeign("x.yaml", data, kinds, foreign)
		for i := range objects {
			o := &objects[i]
			validate.Spec(o.Spec, func(path, message string, value any) {
				t.Fatalf("%s is not valid: %s %s (%v)", o.Key, path, message, value)
			})
			if o.Labels[resource.LabelFormat] != converted {
				continue
			}
			o.Labels[resource.LabelFormat] = resource.FormatSMI
			to := o.Spec.(*resource.MeshTCPRoute).To[0]
			refs := to.Rules[0].Default.BackendRefs
			if len(refs) == 0 || slices.ContainsFunc(refs, func(b resource.BackendRef) bool {
				return b.Name == to.TargetRef.Name || b.Weight == nil
			}) {
				t.Fatalf("no split:\n%s", codec.EncodeYAML(*o))
			}
		}
		validate.Objects(objects)
	})
}

// converted marks routes that came from a TrafficSplit, as opposed to Penstock's
// own routes with the same label.
const converted = "c4f1d6a2b85e9037"
