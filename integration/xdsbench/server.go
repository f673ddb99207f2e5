package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	serverv3 "github.com/envoyproxy/go-control-plane/pkg/server/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"penstock/node/xds"
	"penstock/node/xds/snapshot"
	"penstock/node/xds/snapshottest"
)

// proxyService is the service whose proxies the clients are.
const proxyService = "web"

// assignment is the endpoints of a service, of which version is a part of the
// first one.
func assignment(service, version int) *endpointv3.ClusterLoadAssignment {
	group := &endpointv3.LocalityLbEndpoints{
		Locality: &corev3.Locality{Zone: "a"}, LoadBalancingWeight: wrapperspb.UInt32(3),
	}
	for i := range 3 {
		port := 8000 + i
		if i == 0 {
			port += 1 + version%1000
		}
		address := &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: fmt.Sprintf("10.%d.%d.%d", service>>8, service&255, i), PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(port)},
		}}}
		group.LbEndpoints = append(group.LbEndpoints, &endpointv3.LbEndpoint{
			LoadBalancingWeight: wrapperspb.UInt32(1),
			HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
		})
	}
	return &endpointv3.ClusterLoadAssignment{ClusterName: serviceName(service), Endpoints: []*endpointv3.LocalityLbEndpoints{group}}
}

func serviceName(i int) string { return fmt.Sprintf("service-%04d", i) }

// serve serves, says where, and obeys the commands "change" and "cpu".
func serve(o *options) error {
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var change func(version int) error
	if o.serve == names[0] {
		change = servePenstock(o, l)
	} else if change, err = serveControlPlane(o, l); err != nil {
		return err
	}
	fmt.Println(l.Addr())
	version := 0
	for commands := bufio.NewScanner(os.Stdin); commands.Scan(); {
		switch commands.Text() {
		case "cpu":
			var u syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
				return err
			}
			fmt.Println(u.Utime.Nano() + u.Stime.Nano())
		case "change":
			version++
			at := time.Now().UnixNano()
			if err := change(version); err != nil {
				return err
			}
			fmt.Println(at)
		}
	}
	return nil
}

// servePenstock starts Penstock's server, with the windows that it has by
// default.
func servePenstock(o *options, l net.Listener) func(version int) error {
	world := snapshottest.New(proxyService, proxyService)
	put := func(service, version int) {
		m := assignment(service, version)
		world.PutResource(snapshot.Endpoint, snapshottest.Resource(m.GetClusterName(), m))
	}
	for i := range o.services {
		put(i, 0)
	}
	var mu sync.Mutex
	s := xds.New(xds.Config{
		Plain: true, MaxStreams: o.clients, MaxConnections: o.clients, MaxPerIdentity: o.clients,
		Build: func() snapshot.Snapshot {
			mu.Lock()
			defer mu.Unlock()
			return world.Snapshot()
		},
	})
	go s.Serve(l) //nolint:errcheck // it ends with the process
	return func(version int) error {
		mu.Lock()
		put(version%o.services, version)
		mu.Unlock()
		s.Changed()
		return nil
	}
}

// oneNode makes all clients one node, so that one snapshot serves all.
type oneNode struct{}

// ID implements cache.NodeHash.
func (oneNode) ID(*corev3.Node) string { return proxyService }

func serveControlPlane(o *options, l net.Listener) (change func(version int) error, err error) {
	c := cache.NewSnapshotCache(false, oneNode{}, nil)
	all := make([]types.Resource, o.services)
	for i := range all {
		all[i] = assignment(i, 0)
	}
	change = func(version int) error {
		all[version%o.services] = assignment(version%o.services, version)
		s, err := cache.NewSnapshot(strconv.Itoa(version), map[string][]types.Resource{snapshot.Endpoint.URL(): all})
		if err != nil {
			return err
		}
		return c.SetSnapshot(context.Background(), proxyService, s)
	}
	if err := change(0); err != nil {
		return nil, err
	}
	g := grpc.NewServer()
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, serverv3.NewServer(context.Background(), c, nil))
	go g.Serve(l) //nolint:errcheck // it ends with the process
	return change, nil
}
