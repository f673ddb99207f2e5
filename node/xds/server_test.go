package xds

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"go.uber.org/goleak"

	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAggregatedStream(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.set(func(w *snapshottest.World) { w.Put(snapshot.Cluster, "shop", "1").Put(snapshot.Endpoint, "shop", "1") })
	s := ts.ads()
	if err := s.Send(&discoveryv3.DiscoveryRequest{Node: testNode(), TypeUrl: snapshot.Cluster.URL()}); err != nil {
		t.Fatal(err)
	}
	var first *discoveryv3.DiscoveryResponse
	for first == nil || len(first.GetResources()) == 0 {
		first = must[*discoveryv3.DiscoveryResponse](t)(s.Recv())
		if err := s.Send(&discoveryv3.DiscoveryRequest{
			TypeUrl: snapshot.Cluster.URL(), VersionInfo: first.GetVersionInfo(), ResponseNonce: first.GetNonce(),
		}); err != nil {
			t.Fatal(err)
		}
	}
	if got := first.GetResources()[0].GetTypeUrl(); got != snapshot.Cluster.URL() || first.GetTypeUrl() != got {
		t.Errorf("a resource of type %q", got)
	}
	if err := s.Send(&discoveryv3.DiscoveryRequest{TypeUrl: snapshot.Endpoint.URL(), ResourceNames: []string{"shop"}}); err != nil {
		t.Fatal(err)
	}
	r := must[*discoveryv3.DiscoveryResponse](t)(s.Recv())
	if r.GetTypeUrl() != snapshot.Endpoint.URL() || len(r.GetResources()) != 1 {
		t.Errorf("got %v", r)
	}
}
