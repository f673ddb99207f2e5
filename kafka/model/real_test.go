package model_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"penstock/kafka/filter"
	"penstock/kafka/filter/apiversions"
	"penstock/kafka/filter/brokeraddress"
	"penstock/kafka/filter/multitenant"
	"penstock/kafka/model"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// The reference document's examples with the filters that there really are:
// those that are printed in it exist, but for MyFunkyFilter, and can be made.
func TestReferenceExamplesHaveRealFilters(t *testing.T) {
	types := []filter.Type{apiversions.Type(), brokeraddress.Type(), multitenant.Type}
	kinds := append(resource.RoutingKinds(), model.Kinds(types)...)
	for name, want := range map[string][]string{
		"one-to-one-filled":  {"my-public-cluster ApiVersions BrokerAddress"},
		"many-to-one-filled": {"my-tenant1 ApiVersions BrokerAddress MultiTenant", "my-tenant2 ApiVersions BrokerAddress MultiTenant"},
	} {
		data, err := os.ReadFile("testdata/kroxylicious/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		objects, faults := codec.DecodeForeign("x.yaml", data, kinds, model.Foreign())
		if len(faults) > 0 {
			t.Fatalf("%s: %v", name, faults)
		}
		var changes []resource.Change
		for _, o := range objects {
			changes = append(changes, resource.Put(o))
		}
		m := model.New(model.Config{Bind: "127.0.0.1", Types: types})
		if _, err := m.Apply(changes); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []string
		for v := range m.Table().Virtuals() {
			chain := v.Name()
			for _, l := range v.Chain() {
				chain += " " + l.Type
			}
			got = append(got, chain)
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s: %s", name, strings.Join(got, ", "))
		}
	}
}
