package xds

import (
	"context"
	"errors"
	"io"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	clusterservice "github.com/envoyproxy/go-control-plane/envoy/service/cluster/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	endpointservice "github.com/envoyproxy/go-control-plane/envoy/service/endpoint/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// methodOf returns the gRPC method for a type of resources.
func (c *Config) methodOf(typeURL string) string {
	switch {
	case !c.Separate && c.Delta:
		return discoveryv3.AggregatedDiscoveryService_DeltaAggregatedResources_FullMethodName
	case !c.Separate:
		return discoveryv3.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName
	case typeURL == clusterType && c.Delta:
		return clusterservice.ClusterDiscoveryService_DeltaClusters_FullMethodName
	case typeURL == clusterType:
		return clusterservice.ClusterDiscoveryService_StreamClusters_FullMethodName
	case c.Delta:
		return endpointservice.EndpointDiscoveryService_DeltaEndpoints_FullMethodName
	default:
		return endpointservice.EndpointDiscoveryService_StreamEndpoints_FullMethodName
	}
}

// stream is one gRPC stream, of either variant.
type stream struct {
	raw      grpc.ClientStream
	delta    bool
	node     *corev3.Node  // for the first request; nil after it
	requests chan *request // to be sent
}

func openStream(ctx context.Context, conn *grpc.ClientConn, method string, delta bool, node *corev3.Node) (*stream, error) {
	raw, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return nil, err
	}
	return &stream{raw: raw, delta: delta, node: node, requests: make(chan *request, maxQueue)}, nil
}

// send sends a request. It returns no error when the stream has ended: receive
// does, and says why.
func (s *stream) send(r *request) error {
	node := s.node
	s.node = nil
	refusal := status.New(codes.InvalidArgument, r.fault).Proto()
	var err error
	if s.delta {
		m := &discoveryv3.DeltaDiscoveryRequest{
			Node: node, TypeUrl: r.typeURL, ResponseNonce: r.nonce,
			ResourceNamesSubscribe: r.subscribe, ResourceNamesUnsubscribe: r.unsubscribe, InitialResourceVersions: r.known,
		}
		if r.fault != "" {
			m.ErrorDetail = refusal
		}
		err = s.raw.SendMsg(m)
	} else {
		m := &discoveryv3.DiscoveryRequest{
			Node: node, TypeUrl: r.typeURL, ResponseNonce: r.nonce, ResourceNames: r.names, VersionInfo: r.version,
		}
		if r.fault != "" {
			m.ErrorDetail = refusal
		}
		err = s.raw.SendMsg(m)
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// receive returns the next response.
func (s *stream) receive() (*response, error) {
	if s.delta {
		m := &discoveryv3.DeltaDiscoveryResponse{}
		if err := s.raw.RecvMsg(m); err != nil {
			return nil, err
		}
		r := &response{typeURL: m.GetTypeUrl(), version: m.GetSystemVersionInfo(), nonce: m.GetNonce(),
			removed: m.GetRemovedResources(), errors: m.GetResourceErrors(), resources: make([]resource, len(m.GetResources()))}
		for i, res := range m.GetResources() {
			r.resources[i] = resource{name: res.GetName(), version: res.GetVersion(), body: res.GetResource()}
		}
		return r, nil
	}
	m := &discoveryv3.DiscoveryResponse{}
	if err := s.raw.RecvMsg(m); err != nil {
		return nil, err
	}
	r := &response{typeURL: m.GetTypeUrl(), version: m.GetVersionInfo(), nonce: m.GetNonce(),
		errors: m.GetResourceErrors(), resources: make([]resource, len(m.GetResources()))}
	for i, body := range m.GetResources() {
		r.resources[i] = resource{version: m.GetVersionInfo(), body: body}
	}
	return r, nil
}
