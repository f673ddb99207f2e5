package kafka

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"penstock/internal/testkit"
	"penstock/netio"
	"penstock/routing"
)

// discovered is a virtual cluster that follows the brokers of a physical one,
// and looks at it once an hour.
func discovered(bootstrap string) string {
	return fmt.Sprintf(`kind: PhysicalCluster
name: big
spec: {bootstrap: [%q], discovery: {interval: 1h}}
---
kind: VirtualCluster
name: t1
spec:
  physicalClusterRef: big
  brokers: {discover: {address: 127.0.0.1, bootstrapPort: 9192, brokerPorts: 9193-9199}}
`, bootstrap)
}

// at is the listener of a port, by the name that the proxy knows it by.
func (s *stage) at(port int) string {
	name := fmt.Sprintf("virtualcluster/t1:%d", port)
	return s.listen(nil, name)[name]
}

// looked waits for the first look at a cluster.
func (s *stage) looked(brokers int) {
	s.t.Helper()
	testkit.WaitFor(s.t, "the brokers are looked up", func() bool {
		w, ok := s.proxy.DiscoveryStatus("big")
		return ok && len(w.Brokers) == brokers
	})
}

// Clients may learn of a new broker from another node before this node has
// discovered it: they wait for discovery, and reach the broker.
func TestConnectionWaitsForBrokerDiscovery(t *testing.T) {
	k := fake(t, kfake.NumBrokers(2))
	s := newStage(t, Config{})
	s.apply(discovered(k.ListenAddrs()[0]))
	s.looked(2)
	id, _, err := k.AddNode(-1, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, s.at(9193+int(id)))
	if err := c.versions(); err != nil {
		t.Fatal(err)
	}
	connections := func() (n []int64) {
		for _, b := range s.proxy.Status()[0].Brokers {
			n = append(n, b.Connections)
		}
		return n
	}
	if got := connections(); !slices.Equal(got, []int64{0, 0, 0, 1}) {
		t.Errorf("the bootstrap and the brokers have %v connections, want one at the last of three", got)
	}
	c.Close()
	testkit.WaitFor(t, "the connection is no longer counted", func() bool { return !slices.Contains(connections(), 1) })
}

// A client of an unknown broker waits until discovery has not found the broker.
func TestConnectionToUnknownBrokerIsClosed(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	s := newStage(t, Config{})
	s.apply(discovered(k.ListenAddrs()[0]))
	s.looked(1)
	before, _ := s.proxy.DiscoveryStatus("big")
	refused(t, s.at(9199))
	testkit.WaitFor(t, "the connection has ended", func() bool { return s.ends(netio.Reason(routing.NoEndpoint)) == 1 })
	if after, _ := s.proxy.DiscoveryStatus("big"); !after.At.After(before.At) {
		t.Error("broker discovery did not run")
	}
	for _, b := range s.proxy.Status()[0].Brokers {
		if b.Connections != 0 {
			t.Errorf("broker %s has %d connections", b.Name, b.Connections)
		}
	}
}

// The wait is bounded even if the cluster does not answer.
func TestConnectionIsClosedIfDiscoveryTakesTooLong(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	s := newStage(t, Config{})
	s.apply(discovered(k.ListenAddrs()[0]))
	s.looked(1)
	k.Close()
	s.proxy.discoveryWait = 300 * time.Millisecond
	begun := time.Now()
	refused(t, s.at(9199))
	if took := time.Since(begun); took < s.proxy.discoveryWait {
		t.Errorf("refused after %v, want at least %v", took, s.proxy.discoveryWait)
	}
}

// hosts resolves the names in m.
type hosts struct{ m sync.Map }

func (h *hosts) Lookup(host string) ([]netip.Addr, bool) {
	if a, ok := h.m.Load(host); ok {
		return []netip.Addr{a.(netip.Addr)}, true
	}
	return nil, false
}

// A client of a broker with a host name waits until the name has an address.
func TestConnectionWaitsForHostNameResolution(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	_, port, err := net.SplitHostPort(k.ListenAddrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	names := new(hosts)
	s := newStage(t, Config{Hosts: names})
	s.apply(oneBroker("kafka.test:"+port, ""))
	address := s.listen(nil, "one")["one"]
	c := dial(t, address)
	testkit.WaitFor(t, "the client waits", func() bool {
		list := s.engine.Connections(1)
		return len(list) == 1 && list[0].Phase == "waiting"
	})
	names.m.Store("kafka.test", netip.MustParseAddr("127.0.0.1"))
	if err := c.versions(); err != nil {
		t.Fatal(err)
	}
}

// That wait is bounded by resolveWait.
func TestConnectionIsClosedIfHostNameDoesNotResolve(t *testing.T) {
	s := newStage(t, Config{Hosts: new(hosts)})
	s.proxy.resolveWait = 300 * time.Millisecond
	s.apply(oneBroker("kafka.test:9092", ""))
	address := s.listen(nil, "one")["one"]
	begun := time.Now()
	refused(t, address)
	if took := time.Since(begun); took < s.proxy.resolveWait {
		t.Errorf("waited %v for the host name, want %v", took, s.proxy.resolveWait)
	}
}

// New connections follow a broker that moves. Open ones continue until the old
// address ends them.
func TestConnectionSurvivesABrokersMove(t *testing.T) {
	before, after := fake(t, kfake.NumBrokers(1), kfake.ClusterID("before")), fake(t, kfake.NumBrokers(1), kfake.ClusterID("after"))
	s := newStage(t, Config{})
	s.apply(discovered(before.ListenAddrs()[0]))
	s.looked(1)
	id := 0
	for n := range s.virtual("t1").Physical().State().Brokers() {
		id = int(n)
	}
	address := s.at(9193 + id)
	where := func(c *client) string {
		t.Helper()
		m := c.metadata("none")
		if m.ClusterID == nil {
			t.Fatal("the cluster was not discovered")
		}
		return *m.ClusterID
	}
	old := dial(t, address)
	if got := where(old); got != "before" {
		t.Fatalf("connected to %s", got)
	}
	s.virtual("t1").Physical().State().SetBrokers(map[int32]string{int32(id): after.ListenAddrs()[0]})
	if got := where(dial(t, address)); got != "after" {
		t.Errorf("a new connection goes to %s", got)
	}
	if got := where(old); got != "before" {
		t.Errorf("the old connection goes to %s", got)
	}
	before.Close()
	if !old.closed() {
		t.Error("the old connection was reset, want the end that its broker made")
	}
	if n := s.ends(netio.Drained); n > 0 {
		t.Errorf("%d connections were drained", n)
	}
}
