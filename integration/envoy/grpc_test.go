package envoy

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/xds"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// grpcBackend serves gRPC's health service, and its name in the headers.
func grpcBackend(t *testing.T, name string) (addr string) {
	t.Helper()
	s := grpc.NewServer(grpc.UnaryInterceptor(
		func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			_ = grpc.SetHeader(ctx, metadata.Pairs("backend", name)) // the call fails otherwise
			return next(ctx, req)
		}))
	healthpb.RegisterHealthServer(s, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }() // until Stop
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// dialByXDS connects to a service by xDS, with gRPC's own client.
func dialByXDS(t *testing.T, bootstrap []byte, service string) *grpc.ClientConn {
	t.Helper()
	builder, err := xds.NewXDSResolverWithConfigForTesting(bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient("xds:///"+service, grpc.WithResolvers(builder),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// call returns the backend that answers a call, or the error.
func call(t *testing.T, conn *grpc.ClientConn) string {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var header metadata.MD
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.Header(&header), grpc.WaitForReady(true))
	if err != nil {
		return err.Error()
	}
	return strings.Join(header.Get("backend"), ",")
}

// The client of gRPC follows the weights of a route, and goes on when the node that
// it talks to is lost.
func TestGRPCClients(t *testing.T) {
	c := startCluster(t)
	v1, v2 := grpcBackend(t, "v1"), grpcBackend(t, "v2")
	route := func(one, two int) string {
		return fmt.Sprintf(`kind: MeshHTTPRoute
name: orders
spec:
  to:
  - targetRef: {kind: MeshService, name: orders}
    rules:
    - matches: [{path: {type: PathPrefix, value: /}}]
      default:
        backendRefs:
        - {kind: MeshServiceSubset, name: orders, weight: %d, tags: {version: v1}}
        - {kind: MeshServiceSubset, name: orders, weight: %d, tags: {version: v2}}
`, one, two)
	}
	c.apply(fmt.Sprintf("kind: Service\nname: orders\nspec: {protocol: http2, endpoints: %s}\n---\n"+
		"kind: Service\nname: checkout\nspec: {protocol: http2, discovery: {upstreams: [{service: orders}]}}\n---\n%s",
		endpoints("v1", v1, "v2", v2), route(75, 25)))
	dir := filepath.Join(scratch, "checkout")
	c.penstock(nil, "xds", "bootstrap", "--for", "checkout", "--out", dir, "--format", "grpc")
	bootstrap, err := os.ReadFile(dir + "/grpc.json")
	if err != nil {
		t.Fatal(err)
	}
	conn := dialByXDS(t, bootstrap, "orders")
	ask := func() string { return call(t, conn) }
	wantShares(t, "calls", shares(calls, ask), map[string]int{"v1": 75, "v2": 25})
	c.apply(route(0, 1))
	testkit.WaitFor(t, "v1 to get nothing", func() bool { return shares(50, ask)["v2"] == 50 })

	var p *api.Proxy
	testkit.WaitFor(t, "the client among the proxies", func() bool { p = c.proxy("checkout"); return p != nil })
	victim := c.named(p.Node)
	victim.kill()
	c.apply(route(1, 0))
	// A client has what it knows as long as its node is away.
	if got := shares(200, ask); got["v1"]+got["v2"] != 200 {
		t.Errorf("calls failed when the node was lost: %v", got)
	}
	// One that starts meanwhile goes to the next node of the file.
	later := dialByXDS(t, bootstrap, "orders")
	testkit.WaitFor(t, "a client that starts now to have the change", func() bool {
		return shares(50, func() string { return call(t, later) })["v1"] == 50
	})
	victim.start()
	victim.waitReady()
	testkit.WaitFor(t, "the first client to have the change", func() bool { return shares(50, ask)["v1"] == 50 })
}
