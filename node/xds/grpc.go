package xds

import (
	"time"

	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	listenerservice "github.com/envoyproxy/go-control-plane/envoy/service/listener/v3"
	routeservice "github.com/envoyproxy/go-control-plane/envoy/service/route/v3"
	secretservice "github.com/envoyproxy/go-control-plane/envoy/service/secret/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"penstock/node/xds/snapshot"
)

// Bounds of a connection.
const (
	maxConnStreams = 100       // at a time, of one connection
	maxHeaders     = 16 << 10  // bytes of a stream's headers
	bufferSize     = 8 << 10   // bytes read at a time
	maxIdle        = time.Hour // without a stream
)

// newGRPC makes the gRPC server with its services.
func (s *Server) newGRPC() *grpc.Server {
	g := grpc.NewServer(
		grpc.Creds(&handshake{s}),
		grpc.ForceServerCodecV2(&codec{maxNames: s.cfg.MaxNames}),
		grpc.MaxRecvMsgSize(s.cfg.MaxRequest),
		grpc.MaxConcurrentStreams(maxConnStreams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ReadBufferSize(bufferSize),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: s.cfg.KeepAlive, Timeout: s.cfg.KeepAlive / 2, MaxConnectionIdle: maxIdle,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: s.cfg.MinPing, PermitWithoutStream: true}),
	)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(g, aggregated{server: s})
	clusterservice.RegisterClusterDiscoveryServiceServer(g, clusters{server: s})
	endpointservice.RegisterEndpointDiscoveryServiceServer(g, endpoints{server: s})
	listenerservice.RegisterListenerDiscoveryServiceServer(g, listeners{server: s})
	routeservice.RegisterRouteDiscoveryServiceServer(g, routes{server: s})
	secretservice.RegisterSecretDiscoveryServiceServer(g, secrets{server: s})
	return g
}

// The requests and responses of all services are the same.
type (
	stateOfTheWorld = grpc.BidiStreamingServer[discoveryv3.DiscoveryRequest, discoveryv3.DiscoveryResponse]
	delta           = grpc.BidiStreamingServer[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse]
)

type aggregated struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
}

func (a aggregated) StreamAggregatedResources(ss stateOfTheWorld) error {
	return a.server.serve(ss, snapshot.Types, false)
}

func (a aggregated) DeltaAggregatedResources(ss delta) error {
	return a.server.serve(ss, snapshot.Types, true)
}

type clusters struct {
	clusterservice.UnimplementedClusterDiscoveryServiceServer
	server *Server
}

func (c clusters) StreamClusters(ss stateOfTheWorld) error {
	return c.server.serve(ss, snapshot.Cluster, false)
}

func (c clusters) DeltaClusters(ss delta) error { return c.server.serve(ss, snapshot.Cluster, true) }

type endpoints struct {
	endpointservice.UnimplementedEndpointDiscoveryServiceServer
	server *Server
}

func (e endpoints) StreamEndpoints(ss stateOfTheWorld) error {
	return e.server.serve(ss, snapshot.Endpoint, false)
}

func (e endpoints) DeltaEndpoints(ss delta) error { return e.server.serve(ss, snapshot.Endpoint, true) }

type listeners struct {
	listenerservice.UnimplementedListenerDiscoveryServiceServer
	server *Server
}

func (l listeners) StreamListeners(ss stateOfTheWorld) error {
	return l.server.serve(ss, snapshot.Listener, false)
}

func (l listeners) DeltaListeners(ss delta) error { return l.server.serve(ss, snapshot.Listener, true) }

type routes struct {
	routeservice.UnimplementedRouteDiscoveryServiceServer
	server *Server
}

func (r routes) StreamRoutes(ss stateOfTheWorld) error {
	return r.server.serve(ss, snapshot.Route, false)
}

func (r routes) DeltaRoutes(ss delta) error { return r.server.serve(ss, snapshot.Route, true) }

type secrets struct {
	secretservice.UnimplementedSecretDiscoveryServiceServer
	server *Server
}

func (c secrets) StreamSecrets(ss stateOfTheWorld) error {
	return c.server.serve(ss, snapshot.Secret, false)
}

func (c secrets) DeltaSecrets(ss delta) error { return c.server.serve(ss, snapshot.Secret, true) }
