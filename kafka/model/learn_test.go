package model_test

import (
	"testing"

	"penstock/kafka/filter"
	"penstock/kafka/filter/apiversions"
	"penstock/kafka/filter/brokeraddress"
	"penstock/kafka/model"
	"penstock/routing"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// A broker that cannot be looked up (the cluster wants a login that the proxy
// does not have) becomes known by the first answer that names it.
func TestBrokersAreLearnedFromResponses(t *testing.T) {
	types := []filter.Type{apiversions.Type(), brokeraddress.Type()}
	objects, faults := codec.Decode("k.yaml", []byte(`kind: PhysicalCluster
name: big
spec: {bootstrap: ["kafka:9092"]}
---
kind: VirtualCluster
name: t1
spec:
  physicalClusterRef: big
  brokers: {discover: {address: 127.0.0.1, bootstrapPort: 9192, brokerPorts: 9193-9199}}
`), append(resource.RoutingKinds(), model.Kinds(types)...))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	m := model.New(model.Config{Bind: "127.0.0.1", Types: types})
	var changes []resource.Change
	for _, o := range objects {
		changes = append(changes, resource.Put(o))
	}
	if _, err := m.Apply(changes); err != nil {
		t.Fatal(err)
	}
	v, _ := m.Table().Virtual("t1")
	told := 0
	v.Physical().State().OnLearned(func() { told++ })
	broker, ok := v.Broker("5")
	if !ok {
		t.Fatal("broker 5 is missing although it has a port")
	}
	if _, reason := v.Targets(broker); reason != routing.NoEndpoint {
		t.Errorf("an unknown broker resolves to %q", reason)
	}
	for range 3 {
		if b, ok := v.State().Address(5, "kafka5.internal", 9092); !ok || b.Host != "127.0.0.1" || b.Port != 9198 {
			t.Errorf("clients see %+v, %t", b, ok)
		}
	}
	targets, reason := v.Targets(broker)
	if reason != routing.OK || len(targets) != 1 || targets[0].Address != "kafka5.internal:9092" {
		t.Errorf("the broker resolves to %v, %q", targets, reason)
	}
	if told != 1 {
		t.Errorf("notified %d times, want once", told)
	}
	v.State().Address(5, "kafka5.moved", 9092)
	if targets, _ := v.Targets(broker); targets[0].Address != "kafka5.moved:9092" {
		t.Errorf("a moved broker is still at %v", targets)
	}
}
