package kafka

import (
	"strings"
	"testing"

	"penstock/routing/resource"
)

// What a change does to connections is told before it is made.
func TestWordsOfChanges(t *testing.T) {
	s := newStage(t, Config{})
	s.apply(oneBroker("127.0.0.1:1", ""))
	changes := func(text string) (list []resource.Change) {
		objects, faults := resource.Decode("k.yaml", []byte(text), append(resource.RoutingKinds(), Kinds()...))
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		for _, o := range objects {
			list = append(list, resource.Put(o))
		}
		return list
	}
	gone := resource.Change{Object: resource.Object{Key: resource.Key{Kind: "VirtualCluster", Name: "t1"}}, Delete: true}
	for want, list := range map[string][]resource.Change{
		"t1: 0 connections on this node are kept, settings":           changes(oneBroker("127.0.0.1:1", "  maxInFlight: 7")),
		"t1: new connections get the new filters; 0 connections":      changes(oneBroker("127.0.0.1:1", "  filters: [{type: TopicMetrics}]\n")),
		"the virtual cluster t2 takes new connections":                changes(strings.ReplaceAll(oneBroker("127.0.0.1:1", ""), "name: t1", "name: t2")),
		"new connections to the virtual cluster t1 are closed; 0 con": {gone},
	} {
		if got := s.room.Words(list); len(got) != 1 || !strings.Contains(got[0], want) {
			t.Errorf("told is %q, want %q", got, want)
		}
	}
}
