package translate

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"penstock/routing"
)

// listenerPrefix begins the names of listeners for upstreams.
const listenerPrefix = "upstream/"

func listenerName(upstream string) string { return listenerPrefix + upstream }

// makeListener returns the listener for the destination.
func (p *plan) makeListener(name, address string) *listenerv3.Listener {
	filter := &listenerv3.Filter{Name: "envoy.filters.network.tcp_proxy"}
	var config proto.Message
	if isHTTP(p.spec.Protocol) {
		filter.Name = "envoy.filters.network.http_connection_manager"
		config = p.connectionManager()
	} else {
		config = p.tcpProxy()
	}
	filter.ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: packed(config)}
	return &listenerv3.Listener{
		Name: name, Address: addressOf(address), TrafficDirection: corev3.TrafficDirection_OUTBOUND,
		FilterChains: []*listenerv3.FilterChain{{Filters: []*listenerv3.Filter{filter}}},
	}
}

func (p *plan) tcpProxy() *tcpv3.TcpProxy {
	t := &tcpv3.TcpProxy{
		StatPrefix:         p.to,
		IdleTimeout:        duration(*p.spec.IdleTimeout),
		MaxConnectAttempts: number(p.spec.Connect.Attempts),
	}
	if age := *p.spec.MaxAge; age > 0 {
		t.MaxDownstreamConnectionDuration = duration(age)
	}
	if p.hashes {
		t.HashPolicy = []*typev3.HashPolicy{{PolicySpecifier: &typev3.HashPolicy_SourceIp_{SourceIp: &typev3.HashPolicy_SourceIp{}}}}
	}
	shares := weigh(p.Backends)
	if len(shares) == 1 {
		t.ClusterSpecifier = &tcpv3.TcpProxy_Cluster{Cluster: shares[0].cluster}
		return t
	}
	weighted := &tcpv3.TcpProxy_WeightedCluster{}
	for _, s := range shares {
		weighted.Clusters = append(weighted.Clusters, &tcpv3.TcpProxy_WeightedCluster_ClusterWeight{Name: s.cluster, Weight: s.weight})
	}
	t.ClusterSpecifier = &tcpv3.TcpProxy_WeightedClusters{WeightedClusters: weighted}
	return t
}

// share is a cluster with its weight.
type share struct {
	cluster string
	weight  uint32
}

// weigh returns the clusters of backends, each once and at least one: what is to
// be closed goes to a cluster without endpoints. At most 1,000 weights of at most
// 1,000,000 fit 32 bits.
func weigh(backends []routing.PlanBackend) (shares []share) {
	places := map[string]int{}
	for i := range backends {
		b := &backends[i]
		name := clusterName(b.Service, b.Tags)
		if b.Closed != "" {
			name = closedCluster
		}
		if place, ok := places[name]; ok {
			shares[place].weight += uint32(b.Weight)
			continue
		}
		places[name] = len(shares)
		shares = append(shares, share{name, uint32(b.Weight)})
	}
	if len(shares) == 0 {
		return []share{{closedCluster, 1}}
	}
	return shares
}

func (p *plan) connectionManager() *hcmv3.HttpConnectionManager {
	m := manager(p.to)
	m.UseRemoteAddress = wrapperspb.Bool(true)
	m.NormalizePath = wrapperspb.Bool(true)
	m.PathWithEscapedSlashesAction = hcmv3.HttpConnectionManager_KEEP_UNCHANGED
	m.ServerHeaderTransformation = hcmv3.HttpConnectionManager_PASS_THROUGH
	m.StreamIdleTimeout = duration(*p.spec.IdleTimeout)
	m.CommonHttpProtocolOptions = &corev3.HttpProtocolOptions{IdleTimeout: duration(*p.spec.IdleTimeout)}
	if age := *p.spec.MaxAge; age > 0 {
		m.CommonHttpProtocolOptions.MaxConnectionDuration = duration(age)
	}
	for _, protocol := range p.spec.HTTP.Protocols() {
		m.UpgradeConfigs = append(m.UpgradeConfigs, &hcmv3.HttpConnectionManager_UpgradeConfig{UpgradeType: protocol})
	}
	return m
}

// manager returns the settings that Envoy and gRPC clients understand: the routes
// come by RDS.
func manager(service string) *hcmv3.HttpConnectionManager {
	router := packed(&routerv3.Router{SuppressEnvoyHeaders: true})
	return &hcmv3.HttpConnectionManager{
		StatPrefix: service,
		RouteSpecifier: &hcmv3.HttpConnectionManager_Rds{Rds: &hcmv3.Rds{
			ConfigSource: overADS(), RouteConfigName: service,
		}},
		HttpFilters: []*hcmv3.HttpFilter{{
			Name: "envoy.filters.http.router", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: router},
		}},
	}
}

// makeAPIListener returns the listener of a gRPC client that dials
// xds:///SERVICE (gRFC A27).
func makeAPIListener(service string) *listenerv3.Listener {
	return &listenerv3.Listener{Name: service, ApiListener: &listenerv3.ApiListener{ApiListener: packed(manager(service))}}
}
