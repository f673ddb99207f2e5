package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"penstock/internal/testkit"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Counters of a cluster that is removed go with its last connection, and do
// not come back with whoever looked at the table before.
func TestCountersOfARemovedClusterAreReleased(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	s := newStage(t, Config{})
	s.apply(oneBroker(k.ListenAddrs()[0], "  drain: {window: 1h}"))
	v := s.virtual("t1")
	address := s.listen(nil, "one")["one"]
	idle, busy := dial(t, address), dial(t, address)
	idle.metadata("none")
	busy.metadata("none")
	s.remove("VirtualCluster", "t1")
	if n := len(s.proxy.Counts()); n != 1 {
		t.Errorf("%d clusters are counted while one has a connection, want 1", n)
	}
	idle.Close()
	busy.Close()
	testkit.WaitFor(t, "its counters are released", func() bool { return len(s.proxy.Counts()) == 0 })
	s.proxy.clusters.of(v.State()).open.Add(1) // as a connection by an older table
	if n := len(s.proxy.Counts()); n != 0 {
		t.Errorf("%d clusters are counted after the removal, want none", n)
	}
}

// A cluster that is removed while connections have it, and comes again, is one
// cluster to who counts.
func TestRecreatedClusterIsCountedOnce(t *testing.T) {
	k := fake(t, kfake.NumBrokers(1))
	s := newStage(t, Config{})
	text := oneBroker(k.ListenAddrs()[0], "  drain: {window: 1h}")
	s.apply(text)
	address := s.listen(nil, "one")["one"]
	// The first one leaves at once, the other is to in half an hour.
	for range 2 {
		dial(t, address).metadata("none")
	}
	s.remove("VirtualCluster", "t1")
	s.apply(text)
	after := dial(t, address)
	after.metadata("none")
	if err := after.versions(); err != nil {
		t.Fatal(err)
	}
	requests := func() map[string]uint64 {
		counts := s.proxy.Counts()
		if len(counts) != 1 {
			t.Fatalf("%d clusters are counted, want one", len(counts))
		}
		by := map[string]uint64{}
		for _, a := range counts[0].APIs {
			if _, twice := by[a.API]; twice {
				t.Errorf("%s is counted twice", a.API)
			}
			by[a.API] = a.Requests
			n := uint64(0)
			for _, bucket := range a.Broker.Counts {
				n += bucket
			}
			if n != a.Requests {
				t.Errorf("%s: %d latencies of %d requests", a.API, n, a.Requests)
			}
		}
		return by
	}
	testkit.WaitFor(t, "all are counted", func() bool {
		by := requests()
		return by["Metadata"] == 3 && by["ApiVersions"] == 1
	})
}

// A virtual cluster that could never be served can be removed.
func TestClusterThatWasNeverServedIsRemoved(t *testing.T) {
	s := newStage(t, Config{})
	objects, faults := codec.Decode("k.yaml", []byte(oneBroker("127.0.0.1:1", "")), append(resource.RoutingKinds(), Kinds()...))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	virtual := objects[len(objects)-1]
	if _, err := s.proxy.Apply([]resource.Change{resource.Put(virtual)}); err == nil {
		t.Fatal("a virtual cluster without a physical one is served")
	}
	s.remove("VirtualCluster", "t1")
}
