package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// diff counts the connections of the whole cluster through any node, for
// services and for virtual and physical clusters, and reports missing nodes.
func TestDiffCountsTheWholeCluster(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3)
	a, b := testkit.Serve(t, echo), testkit.Serve(t, echo)
	broker := testkit.Serve(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	const physical = "kind: PhysicalCluster\nname: big\nspec: {brokers: [{name: a, address: %q}], connect: {timeout: %s}}\n---\n"
	const virtual = "kind: VirtualCluster\nname: t1\nspec:\n  physicalClusterRef: big\n  maxInFlight: %d\n" +
		"  brokers: [{name: a, endpointRef: kafka, physicalBrokerRef: a, advertise: \"virtual:1\"}]\n---\n"
	f.members[0].apply(service("apps", []string{a}) + service("other", []string{b}) +
		listenerAt("web", ":8080", "service: apps") + listenerAt("kafka", ":9092", "protocol: kafka") + "---\n" +
		fmt.Sprintf(physical, broker, "1s") + fmt.Sprintf(virtual, 5))
	for i, m := range f.members[:2] {
		for range i + 1 { // one at n1, two at n2
			dial(t, m.ip+":9092")
			roundTrip(t, dial(t, m.ip+":8080"), "hello")
		}
	}
	asked, stopped := f.members[2], f.members[1]
	file := asked.file("change.yaml", fmt.Sprintf(physical, broker, "2s")+fmt.Sprintf(virtual, 6)+
		"kind: MeshTCPRoute\n"+
		"name: move\n"+
		"spec:\n"+
		"  to: [{targetRef: {kind: MeshService, name: apps}, rules: [{default: {backendRefs: [{kind: MeshService, "+
		"name: other}]}}]}]\n")
	deny := asked.file("deny.yaml", "kind: TrafficPermission\nname: closed\nspec: {to: [{services: [apps]}], action: deny}\n---\n"+
		"kind: TrafficPermission\nname: useless\nspec: {from: [{networks: [192.0.2.0/24]}], to: [{services: [apps]}], action: allow}\n")
	deniedSays := func(want ...string) bool {
		out := asked.must("diff", "-f", deny)
		return !slices.ContainsFunc(want, func(line string) bool { return !strings.Contains(out, "\n"+line) })
	}
	lines := func(n int) []string {
		return []string{
			fmt.Sprintf("move: all new connections to apps move from all endpoints of apps to other; %d established connection", n),
			fmt.Sprintf("Kafka: the physical cluster big of the virtual cluster t1: new connections to brokers use the new "+
				"settings; %d connection", n),
			fmt.Sprintf("Kafka: t1: %d connection", n),
		}
	}
	told := func(want ...string) bool {
		out := asked.must("diff", "-f", file)
		return !slices.ContainsFunc(want, func(line string) bool { return !strings.Contains(out, "\n"+line) })
	}
	testkit.WaitFor(t, "diff to count the connections of all nodes", func() bool { return told(lines(3)...) })
	testkit.WaitFor(t, "diff to name no node that does not answer", func() bool {
		return !strings.Contains(asked.must("diff", "-f", file), "no answer from")
	})

	testkit.WaitFor(t, "diff to count what a permission would close on all nodes", func() bool {
		return deniedSays("permissions: 3 established connections would be closed")
	})
	const useless = `TrafficPermission/useless spec.to[0]: allows nobody for from[0]: TrafficPermission "closed" denies`
	for _, command := range []string{"diff", "simulate"} {
		if r := asked.run(command, "-f", deny); !strings.Contains(r.err, useless) {
			t.Errorf("%s warns of %q, want %q", command, r.err, useless)
		}
	}

	stopped.signal(syscall.SIGSTOP)
	t.Cleanup(func() { stopped.signal(syscall.SIGCONT) })
	testkit.WaitFor(t, "diff to say whose connections it counts", func() bool {
		return told(append(lines(1), "connections are counted on 2 of 3 nodes; no answer from "+stopped.name)...)
	})
	testkit.WaitFor(t, "diff to say on which nodes a permission would close connections", func() bool {
		return deniedSays("permissions: 1 established connections would be closed",
			"connections are counted on 2 of 3 nodes; no answer from "+stopped.name)
	})
	var r api.SimulateResult
	testkit.WaitFor(t, "simulate to say which node does not answer", func() bool { // a busy one may answer late, too
		r = api.SimulateResult{}
		if err := json.Unmarshal([]byte(asked.must("simulate", "-f", file, "--connections", "1", "-o", "json")), &r); err != nil {
			t.Fatal(err)
		}
		c := r.Counted
		return c != nil && c.Nodes == 2 && c.Of == 3 && slices.Equal(c.Missing, []string{stopped.name})
	})
}
