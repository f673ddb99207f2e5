package node

import (
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/nodetest"
	"penstock/node/rpc"
	"penstock/routing"
)

// Status, explain and metrics agree on an endpoint: state, reason and last error,
// and whether it is used although none is healthy.
func TestStatusAndExplainAgreeOnEndpoints(t *testing.T) {
	t.Parallel()
	dead, good := testkit.FreeAddress(t), nodetest.NewBackend(t, "ok").At()
	n := startNode(t, nodetest.PlainService("paused", dead, good)+
		strings.Replace(nodetest.PlainService("ejected", dead, good), "spec:\n", "spec:\n  ejection: {failures: 1, duration: 1h}\n", 1)+
		strings.Replace(nodetest.PlainService("unhealthy", dead, good), "spec:\n",
			"spec:\n  ejection: {failures: 1, duration: 1h}\n  healthCheck: {interval: 100ms, fall: 1}\n", 1)+
		strings.Replace(nodetest.PlainService("panic", dead), "spec:\n",
			"spec:\n  allUnhealthy: panic\n  healthCheck: {interval: 100ms, fall: 1}\n", 1))
	for _, c := range []struct{ service, state, reason, used string }{
		{"paused", "paused", "it did not connect", "1/2"},
		{"ejected", "ejected", "it is ejected for", "1/2"},
		{"unhealthy", "unhealthy", "its health checks fail", "1/2"},
		{"panic", "unhealthy", "its health checks fail", "panic"},
	} {
		at := n.at(t, c.service)
		var e api.EndpointStatus
		var s api.ServiceStatus
		testkit.WaitFor(t, c.service+" to be "+c.state, func() bool {
			nodetest.Attempt(at)
			for _, s = range n.mustStatus(t).Services {
				if s.Name == c.service {
					break
				}
			}
			e = s.Endpoints[0]
			return e.Health == c.state
		})
		if !strings.HasPrefix(e.Reason, c.reason) || !strings.Contains(e.Error, "refused") || e.ErrorAt == nil || e.Used != (c.used == "panic") {
			t.Errorf("%s: status says %+v", c.service, e)
		}
		if c.used == "panic" && !strings.Contains(s.State, "allUnhealthy is panic: all are used") {
			t.Errorf("%s: status says %q of what is used", c.service, s.State)
		}
		x, err := rpc.Call[routing.Explanation](t.Context(), n.client, api.MethodExplain, api.ExplainRequest{Listener: c.service})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range x.Steps {
			if step.Name != "endpoint" {
				continue
			}
			got := step.Endpoints[0]
			if got.Eligible || !strings.HasPrefix(got.Why, c.reason) || !strings.Contains(got.Error, "refused") || got.Used != e.Used {
				t.Errorf("%s: explain says %+v", c.service, got)
			}
		}
		if n.metric(t, `penstock_endpoint_state{endpoint="`+dead+`",service="`+c.service+`",state="`+c.state+`"}`) != "1" &&
			c.service != "paused" {
			t.Errorf("%s: no metric says %s", c.service, c.state)
		}
	}
}
