package kafka

import (
	"fmt"
	"strings"
	"testing"

	"penstock/kafka/model"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// changesTo are those that put the clusters of a text in force; what only has
// to be there beside them is left out.
func changesTo(t *testing.T, kind, text string) (list []resource.Change) {
	t.Helper()
	objects, faults := codec.Decode("k.yaml", []byte(text), append(resource.RoutingKinds(), Kinds()...))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	for _, o := range objects {
		if o.Kind == kind {
			list = append(list, resource.Put(o))
		}
	}
	return list
}

// DiffSummary predicts what a change does to connections.
func TestDiffSummaryOfVirtualClusters(t *testing.T) {
	s := newStage(t, Config{})
	s.apply(oneBroker("127.0.0.1:1", ""))
	changes := func(text string) []resource.Change { return changesTo(t, model.KindVirtual, text) }
	gone := resource.Change{Object: resource.Object{Key: resource.Key{Kind: "VirtualCluster", Name: "t1"}}, Delete: true}
	for want, list := range map[string][]resource.Change{
		"t1: 0 connections are kept, settings":                   changes(oneBroker("127.0.0.1:1", "  maxInFlight: 7")),
		"t1: new connections get the new filters; 0 connections": changes(oneBroker("127.0.0.1:1", "  filters: [{type: TopicMetrics}]\n")),
		"the virtual cluster t2 accepts new connections": changes(strings.ReplaceAll(oneBroker("127.0.0.1:1", ""),
			"name: t1", "name: t2")),
		"new connections to the virtual cluster t1 are closed; 0 con": {gone},
	} {
		if got := s.proxy.DiffSummary(list, nil); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A change of a physical cluster acts on all virtual clusters that stand for
// it, with the connections that these have on all nodes.
func TestDiffSummaryOfPhysicalClusters(t *testing.T) {
	s := newStage(t, Config{})
	const more = `---
kind: VirtualCluster
name: %s
spec:
  physicalClusterRef: %s
  brokers: {discover: {bootstrapPort: %d, brokerPorts: %d-%d}}
`
	text := oneBroker("127.0.0.1:1", "") + "---\nkind: PhysicalCluster\nname: other\nspec: {bootstrap: [\"127.0.0.1:2\"]}\n" +
		"---\nkind: PhysicalCluster\nname: idle\nspec: {bootstrap: [\"127.0.0.1:3\"]}\n" + fmt.Sprintf(more, "u", "other", 100, 101, 102)
	for i := range 4 {
		text += fmt.Sprintf(more, fmt.Sprint("o", i), "other", 200+10*i, 201+10*i, 202+10*i)
	}
	s.apply(text)
	v, _ := s.proxy.Table().Virtual("t1")
	s.proxy.clusters.of(v.State()).open.Add(2)
	held := func(cluster string) int64 {
		return map[string]int64{"t1": 3, "o1": 1}[cluster]
	}
	physical := func(name, spec string) []resource.Change {
		return changesTo(t, model.KindPhysical, "kind: PhysicalCluster\nname: "+name+"\nspec: "+spec+"\n")
	}
	const five = "the physical cluster other of 5 virtual clusters (o0, o1, o2 and 2 more): "
	for want, list := range map[string][]resource.Change{
		"Kafka: the physical cluster big of the virtual cluster t1: new connections to brokers use the new settings; 5 " +
			"connections are kept": physical("big",
			`{brokers: [{name: a, address: "127.0.0.1:9"}]}`),
		"Kafka: " + five + "new connections get the new filters; 1 connection is kept, with the new filter " +
			"settings if every filter accepts the change, otherwise with the old ones": physical("other",
			`{bootstrap: ["127.0.0.1:2"], filters: [{type: TopicMetrics}]}`),
		"Kafka: " + five + "new connections to brokers use the new settings; broker discovery uses the new settings; 1 " +
			"connection is kept": physical("other",
			`{bootstrap: ["127.0.0.1:2"], connect: {timeout: 3s}, discovery: {interval: 1m}}`),
		"": append(physical("idle", `{bootstrap: ["127.0.0.1:4"]}`), physical("new", `{bootstrap: ["127.0.0.1:5"]}`)...),
	} {
		if got := strings.Join(s.proxy.DiffSummary(list, held), "\n"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
