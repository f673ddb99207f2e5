package integration

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// telemetry asks a node what all have recorded; nil: not yet.
func (m *member) telemetry(token, query string) *api.TelemetryResult {
	m.t.Helper()
	req, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://"+m.ip+":"+httpPort+"/v1/telemetry?"+query, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		m.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil
	}
	var r api.TelemetryResult
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		m.t.Fatal(err)
	}
	return &r
}

// Any node answers for the traffic of all, and one that is left says whose is missing.
func TestAnyNodeAnswersForTheCluster(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, "--http-insecure")
	f.members[0].apply(service("echo", []string{testkit.Serve(t, echo)}) + listener("edge", "service: echo"))
	token := f.members[0].token("--name", "reader", "--role", "reader")
	recorded := func(m *member) bool {
		r := m.telemetry(token, "metric=penstock_accepted_connections&by=node")
		return r != nil && len(r.Frames[0].Groups) == 3 && r.Frames[0].Points > 1
	}
	testkit.WaitFor(t, "all nodes to record", func() bool { return recorded(f.members[0]) })
	for i, m := range f.members {
		for range i + 1 {
			roundTrip(t, dial(t, m.addr("edge")), "x")
		}
	}
	// routed returns the connections of the last minutes by node.
	routed := func(m *member) map[string]float64 {
		by := map[string]float64{}
		if r := m.telemetry(token, "metric=penstock_routed_connections_total&by=node&service=echo"); r != nil {
			for _, g := range r.Frames[0].Groups {
				for _, v := range g.Values {
					by[g.Labels[0]] += v
				}
			}
		}
		return by
	}
	for _, m := range f.members {
		testkit.WaitFor(t, "the connections of all nodes, asked of "+m.name, func() bool {
			by := routed(m)
			return by["n1"] == 1 && by["n2"] == 2 && by["n3"] == 3
		})
	}
	f.members[2].kill()
	f.members[1].kill()
	testkit.WaitFor(t, "the one that is left to say who is missing", func() bool {
		r := f.members[0].telemetry(token, "metric=penstock_routed_connections_total&by=node&step=1s")
		return r != nil && len(r.Nodes) == 3 && r.Nodes[0].Error == "" && r.Nodes[1].Error != "" && r.Nodes[2].Error != "" &&
			len(r.Frames[0].Groups) > 0 && r.Frames[0].Groups[0].Labels[0] == "n1" && r.Frames[0].Step == time.Second
	})
}
