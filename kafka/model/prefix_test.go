package model_test

import (
	"strings"
	"testing"

	"penstock/kafka/filter"
	"penstock/kafka/filter/apiversions"
	"penstock/kafka/filter/brokeraddress"
	"penstock/kafka/filter/multitenant"
	"penstock/kafka/model"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

const collidingPair = `kind: PhysicalCluster
name: big
spec: {bootstrap: ["kafka:9092"]}
---
kind: VirtualCluster
name: one
spec:
  physicalClusterRef: big
  filters: [{type: MultiTenant, config: {prefix: a.b-}}]
  brokers: {discover: {address: 127.0.0.1, bootstrapPort: 9192, brokerPorts: 9193-9199}}
---
kind: VirtualCluster
name: two
spec:
  physicalClusterRef: big
  filters: [{type: MultiTenant, config: {prefix: a_b-}}]
  brokers: {discover: {address: 127.0.0.1, bootstrapPort: 9292, brokerPorts: 9293-9299}}
`

// Prefixes that differ in "." and "_" alone are refused, unless a node that did
// not look took them: then their clusters can still be changed.
func TestPrefixesThatKafkaTreatsAsEqual(t *testing.T) {
	types := []filter.Type{apiversions.Type(), brokeraddress.Type(), multitenant.Type}
	changes := func(text string) (list []resource.Change) {
		objects, faults := codec.Decode("k.yaml", []byte(text), append(resource.RoutingKinds(), model.Kinds(types)...))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for _, o := range objects {
			list = append(list, resource.Put(o))
		}
		return list
	}
	const like = "is too similar to the prefix "
	if _, faults, _ := new(validate.Set).With(changes(collidingPair)); len(faults) != 2 || !strings.Contains(faults[0].Message, like) {
		t.Errorf("a new pair: %v", faults)
	}
	stored := new(validate.Set).Next(changes(collidingPair))
	changed := strings.Replace(collidingPair, "brokers: {", "maxInFlight: 7\n  brokers: {", 2)
	_, faults, warnings := stored.With(changes(changed))
	if len(faults) > 0 || len(warnings) != 2 || !strings.Contains(warnings[0].Message, like) {
		t.Errorf("an existing pair: faults %v, warnings %v", faults, warnings)
	}
	moved := strings.Replace(collidingPair, "prefix: a.b-", "prefix: a.b-c_", 1)
	if _, faults, _ := stored.With(changes(moved)); len(faults) == 0 {
		t.Error("another colliding prefix is accepted")
	}
}
