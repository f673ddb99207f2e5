package node

import (
	"encoding/json"
	"io"
	"net"
	"slices"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/telemetry"
)

// telemetry asks a node for what it has recorded.
func (n *testNode) telemetry(t *testing.T, query string) *api.TelemetryResult {
	t.Helper()
	status, body := n.get(t, "/v1/telemetry?"+query)
	if status == 404 {
		return nil // not recorded yet
	}
	var r api.TelemetryResult
	if err := json.Unmarshal([]byte(body), &r); status != 200 || err != nil {
		t.Fatalf("%s: %d %s, %v", query, status, body, err)
	}
	return &r
}

// A node remembers the traffic that it has carried, without Prometheus.
func TestNodeRemembersItsTraffic(t *testing.T) {
	t.Parallel()
	n := startNode(t, nodetest.OneService(nodetest.NewBackend(t, "hello")))
	recorded := func() bool {
		r := n.telemetry(t, "metric=penstock_accepted_connections")
		return r != nil && r.Frames[0].Points > 0
	}
	testkit.WaitFor(t, "a second pass", recorded) // what is there in the first one has no increase
	c, err := net.Dial("tcp", n.at(t, "edge"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadFull(c, make([]byte, len("hello"))); err != nil {
		t.Fatal(err)
	}
	sum := func(metric, by string) (total float64) {
		r := n.telemetry(t, "metric="+metric+"&service=apps&by="+by)
		if r == nil {
			return 0
		}
		for _, g := range r.Frames[0].Groups {
			for _, v := range g.Values {
				total += v
			}
		}
		return total
	}
	testkit.WaitFor(t, "the connection in the history", func() bool {
		return sum("penstock_routed_connections_total", "listener,node") == 1 && sum("penstock_bytes_total", "direction") >= float64(len("hello"))
	})
	var r *api.TelemetryResult
	for name, kind := range map[string]telemetry.Kind{
		"penstock_bytes_total": telemetry.Counter, "penstock_connections": telemetry.Gauge, "penstock_connect_duration_seconds": telemetry.Histogram,
		"process_resident_memory_bytes": telemetry.Gauge, "penstock_endpoint_healthy": telemetry.Gauge,
	} {
		testkit.WaitFor(t, name+" as a "+string(kind), func() bool { // some are recorded every ten seconds
			r = n.telemetry(t, "")
			return slices.ContainsFunc(r.Metrics, func(m telemetry.Recorded) bool { return m.Name == name && m.Kind == kind })
		})
	}
	if len(r.Nodes) != 1 || r.Nodes[0].Error != "" || n.metric(t, "penstock_history_series") == "0" {
		t.Errorf("%+v", r.Nodes)
	}
	for query, want := range map[string]int{"metric=penstock_bytes_total&by=nonsense": 400, "metric=penstock_nonsense": 404, "metric=penstock_bytes_total&step=2s": 400} {
		if status, body := n.get(t, "/v1/telemetry?"+query); status != want {
			t.Errorf("%s: %d %s, want %d", query, status, body, want)
		}
	}
}
