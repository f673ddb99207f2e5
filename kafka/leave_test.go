package kafka

import (
	"fmt"
	"testing"

	"penstock/kafka/session"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// A drain does not see a connection that is being made while its broker is
// removed: that one notices once it is connected.
func TestConnectingWhileTheBrokerIsRemovedIsDrained(t *testing.T) {
	kinds := append(resource.RoutingKinds(), Kinds()...)
	proxy := New(Config{Bind: "127.0.0.1", Loops: 1})
	defer proxy.Close()
	apply := func(text string) {
		t.Helper()
		objects, faults := codec.Decode("k.yaml", []byte(text), kinds)
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		var changes []resource.Change
		for _, o := range objects {
			changes = append(changes, resource.Put(o))
		}
		if _, err := proxy.Apply(changes); err != nil {
			t.Fatal(err)
		}
	}
	const physical = `kind: PhysicalCluster
name: big
spec: {brokers: [{name: a, address: "127.0.0.1:1"}, {name: b, address: "127.0.0.1:2"}]}
---
kind: Listener
name: one
spec: {address: "127.0.0.1:0", protocol: kafka}
---
kind: Listener
name: two
spec: {address: "127.0.0.1:0", protocol: kafka}
---
`
	const virtual = `kind: VirtualCluster
name: t1
spec:
  physicalClusterRef: big
  brokers:
  - {name: %s, endpointRef: one, physicalBrokerRef: a, advertise: "x:1"}
  - {name: b, endpointRef: two, physicalBrokerRef: b, advertise: "x:2"}
`
	with := func(name string) string {
		return physical + fmt.Sprintf(virtual, name)
	}
	apply(with("a"))
	v, _ := proxy.Table().Virtual("t1")
	connecting := func(broker string) *Connection {
		stats := proxy.clusters.of(v.State())
		c := &Connection{proxy: proxy, state: v.State(), physical: v.Physical().State(), stats: stats,
			tally: stats.brokers.of(broker), broker: broker}
		c.session = session.New(session.Options{Host: c})
		return c
	}
	a, b, stays := connecting("a"), connecting("b"), connecting("b")
	if _, gone := stays.orphaned(); gone {
		t.Error("the connection of an existing broker was drained")
	}
	apply(with("c"))
	if _, gone := a.orphaned(); !gone {
		t.Error("the connection of a removed broker stays")
	}
	if _, gone := b.orphaned(); gone {
		t.Error("the connection of another broker was drained")
	}
	if _, err := proxy.Apply([]resource.Change{{Object: resource.Object{Key: resource.Key{Kind: "VirtualCluster", Name: "t1"}},
		Delete: true}}); err != nil {
		t.Fatal(err)
	}
	if _, gone := b.orphaned(); !gone {
		t.Error("the connection of a removed cluster stays")
	}
}

// A filter may meet a broker on a connection's last breath.
func TestSignalAfterCloseIsHarmless(t *testing.T) {
	proxy := New(Config{Loops: 1})
	proxy.Close()
	proxy.signalBrokersChanged()
}
