package xds

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"penstock/internal/testkit"
	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
)

// testServer is a server on loopback that serves a World.
type testServer struct {
	*Server
	t       *testing.T
	address string

	mu    sync.Mutex
	world *snapshottest.World
}

func newTestServer(t *testing.T, change func(*Config)) *testServer {
	t.Helper()
	ts := &testServer{t: t, world: snapshottest.New("web", "web")}
	cfg := Config{Plain: true, Node: "n1", Window: time.Millisecond, Build: func() snapshot.Snapshot {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return ts.world.Snapshot()
	}}
	if change != nil {
		change(&cfg)
	}
	ts.Server = New(cfg)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ts.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- ts.Serve(l) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		ts.Stop(ctx)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ts
}

// set serves changed resources.
func (ts *testServer) set(change func(w *snapshottest.World)) {
	ts.mu.Lock()
	change(ts.world)
	ts.mu.Unlock()
	ts.Changed()
}

func (ts *testServer) dial() *grpc.ClientConn {
	ts.t.Helper()
	c, err := grpc.NewClient(ts.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		ts.t.Fatal(err)
	}
	ts.t.Cleanup(func() { c.Close() })
	return c
}

func testNode() *corev3.Node { return &corev3.Node{Id: "envoy-1", Cluster: "web"} }

// ads opens an aggregated stream in the state of the world.
func (ts *testServer) ads() discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesClient {
	ts.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.Patience)
	ts.t.Cleanup(cancel)
	s, err := discoveryv3.NewAggregatedDiscoveryServiceClient(ts.dial()).StreamAggregatedResources(ctx)
	if err != nil {
		ts.t.Fatal(err)
	}
	return s
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
