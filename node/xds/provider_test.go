package xds_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"penstock/node/xds"
	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
	source "penstock/routing/provider/xds"
)

func assignment(name string, port uint32) *snapshot.Resource {
	address := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "10.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}}}
	return snapshottest.Resource(name, &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: []*endpointv3.LocalityLbEndpoints{{
		LbEndpoints: []*endpointv3.LbEndpoint{{HostIdentifier: &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}}}},
	}}})
}

// Penstock as a client of EDS gets endpoints from Penstock's discovery server, by
// each variant of the protocol.
func TestOwnSource(t *testing.T) {
	for _, delta := range []bool{false, true} {
		for _, separate := range []bool{false, true} {
			t.Run(fmt.Sprintf("delta=%v,separate=%v", delta, separate), func(t *testing.T) {
				world := snapshottest.New("web", "web").PutResource(snapshot.Endpoint, assignment("shop", 80))
				s := xds.New(xds.Config{Plain: true, Build: world.Snapshot})
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				go s.Serve(l) //nolint:errcheck // Stop ends it
				t.Cleanup(func() {
					ctx, cancel := context.WithCancel(context.Background())
					cancel()
					s.Stop(ctx)
				})
				client, err := source.New(source.Config{
					Server: l.Addr().String(), Delta: delta, Separate: separate, Node: source.Node{ID: "edge-1", Cluster: "web"},
				})
				if err != nil {
					t.Fatal(err)
				}
				shop := provider.Query{Service: "shop"}
				sink := providertest.NewSink(shop)
				sink.Start(t, client)
				sink.Await(t, shop, "10.0.0.1:80")
				s.Update(world.PutResource(snapshot.Endpoint, assignment("shop", 81)).Snapshot())
				sink.Await(t, shop, "10.0.0.1:81")
			})
		}
	}
}
