package kafka

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
	"penstock/netio"
)

// A physical cluster of one broker behind one virtual broker; more stands in
// the virtual cluster's spec.
func oneBroker(address, more string) string {
	return fmt.Sprintf(`kind: PhysicalCluster
name: big
spec: {brokers: [{name: a, address: %q}]}
---
kind: Listener
name: one
spec: {address: "127.0.0.1:0", protocol: kafka}
---
kind: VirtualCluster
name: t1
spec:
  physicalClusterRef: big
  brokers: [{name: a, endpointRef: one, physicalBrokerRef: a, advertise: "virtual:1"}]
%s
`, address, more)
}

func mapping(address, to string) string {
	return fmt.Sprintf("  filters: [{type: BrokerAddress, config: {brokerAddressMapping: {%q: %q}}}]\n", address, to)
}

// docs/kafka.md, "What changes without a reconnect": an established connection
// sees another brokerAddressMapping from its next request on.
func TestNewMappingAppliesToOpenConnections(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	at := k.ListenAddrs()[0]
	s := newStage(t, Config{})
	s.apply(oneBroker(at, mapping(at, "first:1")))
	c := dial(t, s.listen(nil, "one")["one"])
	if got := c.told(c.metadata("none")); got != "first" {
		t.Fatalf("clients see %q, want first", got)
	}
	first := s.virtual("t1")
	for _, name := range []string{"second", "third"} {
		s.apply(oneBroker(at, mapping(at, name+":1")))
		if got := c.told(c.metadata("none")); got != name {
			t.Errorf("the connection sees %q after the change, want %s", got, name)
		}
	}
	if !over(first) {
		t.Error("the first version is still held, but none of its filters is in use")
	}
	last := s.virtual("t1")
	s.remove("VirtualCluster", "t1")
	c.Close()
	testkit.WaitFor(t, "the last version is released", func() bool { return over(last) })
}

// The same for the address of a virtual broker, and for unmappedBrokers. A change
// of settings alone holds no version.
func TestNewAddressAppliesToOpenConnections(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	at := k.ListenAddrs()[0]
	s := newStage(t, Config{})
	s.apply(oneBroker(at, ""))
	c := dial(t, s.listen(nil, "one")["one"])
	if got := c.told(c.metadata("none")); got != "virtual" {
		t.Fatalf("clients see %q, want virtual", got)
	}
	before := s.virtual("t1")
	s.apply(oneBroker(at, "  maxInFlight: 7"))
	c.metadata("none")
	if !over(before) {
		t.Error("a version is still held although the next one has the same filters")
	}
	s.apply(oneBroker(at, mapping("elsewhere:9", "x:1")+"  unmappedBrokers: fail"))
	if got := c.told(c.metadata("none")); got != "virtual" {
		t.Errorf("clients see %q, want virtual", got)
	}
}

// The same: a response in flight keeps what its request began with, and the
// version is kept as long.
func TestRequestsInFlightKeepTheirFilters(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	at := k.ListenAddrs()[0]
	s := newStage(t, Config{})
	s.apply(oneBroker(at, mapping(at, "first:1")))
	c := dial(t, s.listen(nil, "one")["one"])
	first := s.virtual("t1")
	broker := hold(k)
	question := metadata("none")
	c.send(question)
	<-broker.held
	s.apply(oneBroker(at, mapping(at, "second:1")))
	if over(first) {
		t.Error("the version was released while a request needs its filters")
	}
	close(broker.free)
	resp, err := c.receive(question)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.told(resp.(*kmsg.MetadataResponse)); got != "first" {
		t.Errorf("the request in flight sees %q, want first", got)
	}
	if got := c.told(c.metadata("none")); got != "second" {
		t.Errorf("the next request sees %q, want second", got)
	}
	if !over(first) {
		t.Error("the version is still held after its last response")
	}
}

// The same: another tenant's key is for new connections; what is established
// keeps its tenant until it ends.
func TestNewTenantAppliesToNewConnectionsOnly(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1), kfake.SeedTopics(1, "red-orders"), kfake.SeedTopics(3, "blue-orders"))
	at := k.ListenAddrs()[0]
	s := newStage(t, Config{})
	tenant := func(key string) string {
		return oneBroker(at, "  filters: [{type: MultiTenant, config: {tenantKey: "+key+"}}]\n")
	}
	partitions := func(c *client) int {
		m := c.metadata("orders")
		if len(m.Topics) != 1 {
			t.Fatalf("%d topics, want orders", len(m.Topics))
		}
		return len(m.Topics[0].Partitions)
	}
	s.apply(tenant("red"))
	address := s.listen(nil, "one")["one"]
	old := dial(t, address)
	if n := partitions(old); n != 1 {
		t.Fatalf("red's topic has %d partitions, want 1", n)
	}
	red := s.virtual("t1")
	s.apply(tenant("blue"))
	for range 2 {
		if n := partitions(old); n != 1 {
			t.Errorf("the connection of red sees a topic of %d partitions after the change, want its own, of 1", n)
		}
	}
	if n := partitions(dial(t, address)); n != 3 {
		t.Errorf("a new connection sees a topic of %d partitions, want blue's, of 3", n)
	}
	if over(red) {
		t.Error("the version of red was released while a connection uses it")
	}
	// What it refused is not held against what comes later.
	s.apply(tenant("red") + "  maxInFlight: 9\n")
	now := s.virtual("t1")
	if n := partitions(old); n != 1 {
		t.Errorf("the connection of red sees a topic of %d partitions, want 1", n)
	}
	if !over(red) {
		t.Error("the first version of red is still held although the new one accepts the connection")
	}
	s.remove("VirtualCluster", "t1")
	old.Close()
	testkit.WaitFor(t, "the last version is released", func() bool { return over(now) })
}

// What one more connection than the limit gets is its end, at once and however
// many come at a time.
func TestConnectionLimitCountsAllListeners(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	s := newStage(t, Config{})
	s.apply(oneBroker(k.ListenAddrs()[0], "  limits: {connections: 2}\n  drain: {window: 0s}\n"))
	address := s.listen(nil, "one")["one"]
	var in []*client
	for range 2 {
		c := dial(t, address)
		c.metadata("none")
		in = append(in, c)
	}
	for range 3 {
		refused(t, address)
	}
	testkit.WaitFor(t, "three are refused", func() bool { return s.ends(netio.LimitConnections) == 3 })
	in[0].Close()
	testkit.WaitFor(t, "there is room for another connection", func() bool { return s.ends(netio.ClientFIN) == 1 })
	dial(t, address).metadata("none")
	in[1].metadata("none")
}
