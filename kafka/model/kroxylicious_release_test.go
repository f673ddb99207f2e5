package model_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"penstock/kafka/filter"
	"penstock/kafka/filter/apiversions"
	"penstock/kafka/filter/brokeraddress"
	"penstock/kafka/filter/multitenant"
	"penstock/kafka/filter/topicmetrics"
	"penstock/kafka/model"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// Configuration files of Kroxylicious' releases become resources; what was left
// out of them is warned of, and what cannot be is a fault. Each has what it
// comes to beside it.
func TestKroxyliciousConfigurationsBecomeResources(t *testing.T) {
	types := []filter.Type{apiversions.Type(), brokeraddress.Type(), multitenant.Type, topicmetrics.Type()}
	kinds := append(resource.RoutingKinds(), model.Kinds(types)...)
	files, err := filepath.Glob("testdata/kroxylicious/release/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			objects, faults, warnings := codec.DecodeReport(filepath.Base(file), data, kinds, model.Foreign())
			for i := range objects {
				faults = append(faults, codec.LoadFiles(&objects[i], filepath.Dir(file),
					func(name string, _ int) ([]byte, error) { return os.ReadFile(name) })...)
			}
			together, more := validate.Objects(objects)
			var text strings.Builder
			for _, w := range append(warnings, more...) {
				text.WriteString("warning: " + w.Error() + "\n")
			}
			if strings.HasPrefix(filepath.Base(file), "bad-") {
				model.Golden(t, file+".txt", text.String()+faults.Error()+"\n")
				return
			}
			if faults = append(faults, together...); len(faults) > 0 {
				t.Fatal(faults)
			}
			var changes []resource.Change
			for _, o := range objects {
				changes = append(changes, resource.Put(o))
				text.WriteString("---\n")
				text.Write(codec.EncodeYAML(o))
			}
			model.Golden(t, file+".txt", text.String())
			m := model.New(model.Config{Bind: "127.0.0.1", Types: types})
			if _, err := m.Apply(changes); err != nil {
				t.Error(err)
			}
		})
	}
}
