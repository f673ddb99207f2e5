package xds

import (
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"penstock/internal/testkit"
	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
)

func TestDrainSendsClientsToAnotherNode(t *testing.T) {
	ts := newTestServer(t, nil)
	ts.set(func(w *snapshottest.World) { w.Put(snapshot.Cluster, "shop", "1") })
	request := &discoveryv3.DiscoveryRequest{Node: testNode(), TypeUrl: snapshot.Cluster.URL()}
	open := func() error { return ts.ask(ts.dial(), request) }
	s := ts.ads()
	if err := s.Send(request); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	ts.Drain()
	ts.Drain() // as a second signal does
	var err error
	for err == nil {
		_, err = s.Recv()
	}
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a stream ends with %v", err)
	}
	if err := open(); status.Code(err) != codes.Unavailable {
		t.Errorf("a new stream: %v", err)
	}
	testkit.WaitFor(t, "no stream", func() bool { return ts.Counts().Streams == 0 })
	ts.Resume()
	if err := open(); err != nil {
		t.Errorf("back in service: %v", err)
	}
}
