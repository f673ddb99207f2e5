package kafka

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"penstock/internal/testkit"
	"penstock/kafka/model"
)

// logged is a log whose lines are counted.
type logged struct{ testkit.Log }

// lines counts the lines with a text.
func (l *logged) lines(text string) int { return strings.Count(l.String(), text) }

// discovering is a virtual cluster with ports for its brokers.
func discovering(bootstrap, ports, more string) string {
	return fmt.Sprintf(`kind: PhysicalCluster
name: big
spec: {bootstrap: [%q]}
---
kind: VirtualCluster
name: t1
spec:
  physicalClusterRef: big
  brokers: {discover: {address: 127.0.0.1, bootstrapPort: 9192, brokerPorts: %s}}
%s`, bootstrap, ports, more)
}

// shown tells which brokers clients see, and which partitions have a leader.
func shown(m *kmsg.MetadataResponse) string {
	var brokers, leaders []int32
	var codes []int16
	for _, b := range m.Brokers {
		brokers = append(brokers, b.NodeID)
	}
	slices.SortFunc(m.Topics[0].Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int { return int(a.Partition - b.Partition) })
	for _, p := range m.Topics[0].Partitions {
		leaders, codes = append(leaders, p.Leader), append(codes, p.ErrorCode)
	}
	return fmt.Sprint("brokers ", brokers, " leaders ", leaders, " errors ", codes)
}

// A broker outside of brokerPorts is left out, loudly; the others go on, and it
// comes back on the same connection once it has a port.
func TestBrokerWithoutAPortIsHidden(t *testing.T) {
	k := fake(t, kfake.NumBrokers(3), kfake.SeedTopics(3, "t"))
	for p := range int32(3) {
		if err := k.MoveTopicPartition("t", p, p); err != nil {
			t.Fatal(err)
		}
	}
	log := new(logged)
	s := newStage(t, Config{Log: slog.New(slog.NewTextHandler(log, nil))})
	s.apply(discovering(k.ListenAddrs()[0], "9193-9194", ""))
	c := dial(t, s.listen(nil, "virtualcluster/t1:9192")["virtualcluster/t1:9192"])
	if got, want := shown(c.metadata("t")), "brokers [0 1] leaders [0 1 -1] errors [0 0 5]"; got != want {
		t.Errorf("clients see %s, want %s", got, want)
	}
	testkit.WaitFor(t, "a warning in the log", func() bool { return log.lines(`msg="brokers without a virtual address"`) > 0 })
	if n := s.proxy.Unmapped()["t1"]; n != 1 {
		t.Errorf("%d brokers count as hidden, want 1", n)
	}
	brokers := s.proxy.Status()[0].Brokers
	last := brokers[len(brokers)-1]
	const why = "hidden from clients: node 2 has no port in brokerPorts 9193-9194 (node ids 0 to 1)"
	if last.Name != "2" || last.Address != k.ListenAddrs()[2] || last.Err != why {
		t.Errorf("the status has %+v", last)
	}
	_, message, _ := s.proxy.Table().WarnUnmapped(s.virtual("t1").Spec())
	if !strings.Contains(message, "has no port for node 2 at "+k.ListenAddrs()[2]+": clients will not see it") {
		t.Errorf("the change warns with %q", message)
	}
	c.metadata("t")
	s.apply(discovering(k.ListenAddrs()[0], "9193-9195", ""))
	if got, want := shown(c.metadata("t")), "brokers [0 1 2] leaders [0 1 2] errors [0 0 0]"; got != want {
		t.Errorf("with one more port clients see %s, want %s", got, want)
	}
	testkit.WaitFor(t, "the all-clear to be logged", func() bool { return log.lines("every broker has a virtual address again") == 1 })
	if n := log.lines(`msg="brokers without a virtual address"`); n != 1 {
		t.Errorf("%d warnings", n)
	}
	if _, message, _ := s.proxy.Table().WarnUnmapped(s.virtual("t1").Spec()); message != "" {
		t.Errorf("warned with %q although each broker has a port", message)
	}
}

// Who wants to be closed instead is.
func TestBrokerWithoutAPortEndsConnectionsIfConfigured(t *testing.T) {
	k := fake(t, kfake.NumBrokers(2))
	s := newStage(t, Config{})
	s.apply(discovering(k.ListenAddrs()[0], "9193", "  unmappedBrokers: fail\n"))
	c := dial(t, s.listen(nil, "virtualcluster/t1:9192")["virtualcluster/t1:9192"])
	c.send(metadata("t"))
	c.closed()
	testkit.WaitFor(t, "the reason", func() bool { return s.ends("kafka_unmapped_broker") == 1 })
}

// Where brokers are listed, the answers that pass tell of those that are not.
func TestBrokerThatIsNotListedIsHidden(t *testing.T) {
	k := fake(t, kfake.NumBrokers(2))
	at := k.ListenAddrs()
	log := new(logged)
	s := newStage(t, Config{Log: slog.New(slog.NewTextHandler(log, nil))})
	s.apply(oneBroker(at[0], ""))
	c := dial(t, s.listen(nil, "one")["one"])
	if m := c.metadata("none"); len(m.Brokers) != 1 {
		t.Errorf("clients see %d brokers, want 1", len(m.Brokers))
	}
	if m := c.metadata("none"); m.ControllerID != m.Brokers[0].NodeID {
		t.Errorf("clients see the controller %d, which is hidden", m.ControllerID)
	}
	testkit.WaitFor(t, "a warning in the log", func() bool { return log.lines("node 1 has no broker in spec.brokers, at "+at[1]) == 1 })
	want := []model.Unmapped{{NodeID: 1, Address: at[1]}}
	if got := s.virtual("t1").Unmapped(); len(got) != 1 || got[0] != want[0] {
		t.Errorf("hidden brokers %v, want %v", got, want)
	}
	s.apply(oneBroker(at[0], mapping(at[1], "x:1")))
	if got := s.virtual("t1").Unmapped(); len(got) != 0 {
		t.Errorf("hidden brokers %v, although they are mapped manually", got)
	}
}

// An address that is known to refuse is not explained as if it were well.
func TestExplainShowsTheLastFailure(t *testing.T) {
	at := testkit.FreeAddress(t)
	s := newStage(t, Config{})
	s.apply(oneBroker(at, ""))
	last := func() string {
		steps := s.proxy.Explain("one", "", false).Steps
		return steps[len(steps)-1].Result
	}
	if got := last(); got != "connect to "+at {
		t.Errorf("before the first attempt: %s", got)
	}
	refused(t, s.listen(nil, "one")["one"])
	testkit.WaitFor(t, "explain to show the failure", func() bool {
		return strings.Contains(last(), "connect to "+at+"; the last attempt failed ") && strings.Contains(last(), "refused")
	})
}
