package ops

import (
	"errors"
	"testing"
	"time"

	"penstock/node/api"
)

// A sample of the cluster sums the samples of its nodes, names those without one,
// and lists the newest connections of all.
func TestTopSumsTheNodesOfTheCluster(t *testing.T) {
	t.Parallel()
	flow := func(service string, n int64, rate float64) api.Flow {
		return api.Flow{Listener: "edge", Service: service, Connections: n, NewRate: rate, InRate: 10 * rate, Total: uint64(n)}
	}
	s := sumTop([]topPart{
		{node: "n1", sample: &api.TopSample{
			Node: "n1", Connections: 3, Interval: time.Second, Flows: []api.Flow{flow("b", 2, 1), flow("a", 1, 1)},
			Latest:          []api.Connection{{ID: 1, Age: 5 * time.Second}, {ID: 2, Age: 9 * time.Second}},
			VirtualClusters: []api.ClusterRate{{Name: "t1", Requests: 2}},
		}},
		{node: "n2", sample: &api.TopSample{
			Node: "n2", Connections: 4, Interval: 2 * time.Second, Flows: []api.Flow{flow("b", 4, 3)},
			Latest:          []api.Connection{{ID: 1, Age: 7 * time.Second}},
			VirtualClusters: []api.ClusterRate{{Name: "t1", Requests: 3}},
		}},
		{node: "n3", err: errors.New("did not answer")},
	}, 2)
	if s.Node != "" || s.Connections != 7 || s.Interval != 2*time.Second || len(s.Nodes) != 3 {
		t.Fatalf("%+v", s)
	}
	if n := s.Nodes[0]; n.Name != "n1" || n.Connections != 3 || n.NewRate != 2 || n.InRate != 20 || n.Error != "" {
		t.Errorf("n1: %+v", n)
	}
	if n := s.Nodes[2]; n.Name != "n3" || n.Error != "did not answer" || n.Connections != 0 {
		t.Errorf("n3: %+v", n)
	}
	if len(s.Flows) != 2 || s.Flows[0].Service != "a" || s.Flows[1].Connections != 6 || s.Flows[1].NewRate != 4 || s.Flows[1].Total != 6 {
		t.Errorf("flows: %+v", s.Flows)
	}
	if len(s.Latest) != 2 || s.Latest[0].Node != "n1" || s.Latest[1].Node != "n2" {
		t.Errorf("latest: %+v", s.Latest)
	}
	if len(s.VirtualClusters) != 1 || s.VirtualClusters[0].Requests != 5 {
		t.Errorf("virtual clusters: %+v", s.VirtualClusters)
	}
}
