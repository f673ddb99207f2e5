package translate

import (
	"math"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"penstock/node/xds/snapshot"
	"penstock/routing/resource"
)

// closedCluster is a cluster without endpoints: connections that it gets are
// closed. No service can have the name.
const closedCluster = "penstock/closed"

var closed = encode(snapshot.Cluster, closedCluster, &clusterv3.Cluster{
	Name:                 closedCluster,
	ClusterDiscoveryType: &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STATIC},
	LoadAssignment:       &endpointv3.ClusterLoadAssignment{ClusterName: closedCluster},
})

// makeCluster returns the cluster of a service or a subset of it.
func (sh *shared) makeCluster(x *subset, certificate bool) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:                      x.name,
		ConnectTimeout:            duration(sh.spec.Connect.Timeout),
		CommonLbConfig:            &clusterv3.Cluster_CommonLbConfig{HealthyPanicThreshold: &typev3.Percent{Value: sh.panicThreshold()}},
		CircuitBreakers:           unlimited(),
		HealthChecks:              sh.healthChecks(),
		OutlierDetection:          outlierDetection(sh.spec.Ejection),
		TransportSocket:           sh.transportSocket(x, certificate),
		IgnoreHealthOnHostRemoval: true, // an endpoint that leaves gets no new connections
	}
	sh.setDiscovery(c, x)
	setBalancing(c, &sh.spec.Balancing)
	if isHTTP(sh.spec.Protocol) {
		c.TypedExtensionProtocolOptions = map[string]*anypb.Any{httpOptions: packed(sh.httpOptions())}
		c.ConnectionPoolPerDownstreamConnection = sh.spec.ProxyProtocol != nil // the header names one client
	}
	return c
}

// setDiscovery sets where the endpoints come from: by EDS, or, if there are host
// names, from the cluster itself, so that the proxy resolves them.
func (sh *shared) setDiscovery(c *clusterv3.Cluster, x *subset) {
	if !sh.byName {
		c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_EDS}
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: overADS()}
		return
	}
	c.ClusterDiscoveryType = &clusterv3.Cluster_Type{Type: clusterv3.Cluster_STRICT_DNS}
	c.LoadAssignment = sh.makeAssignment(x)
	// Its successor, the extension DnsCluster, is unknown to older Envoys and gRPC.
	c.DnsRefreshRate = duration(sh.spec.Resolve) //nolint:staticcheck
	c.DnsLookupFamily = clusterv3.Cluster_ALL
}

// panicThreshold is the share of healthy endpoints, in percent, below which all
// are used. Envoy rounds it to a whole number.
func (sh *shared) panicThreshold() float64 {
	if sh.panics() {
		return 1
	}
	return 0
}

func (sh *shared) panics() bool { return sh.spec.AllUnhealthy == "panic" }

func setBalancing(c *clusterv3.Cluster, b *resource.Balancing) {
	var slow *clusterv3.Cluster_SlowStartConfig
	if b.SlowStart > 0 {
		slow = &clusterv3.Cluster_SlowStartConfig{SlowStartWindow: duration(b.SlowStart)}
	}
	switch b.Policy {
	case "leastConnections":
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		least := &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: slow}
		c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{LeastRequestLbConfig: least}
	case "random":
		c.LbPolicy = clusterv3.Cluster_RANDOM
	case "maglev":
		c.LbPolicy = clusterv3.Cluster_MAGLEV
	default:
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if slow != nil {
			c.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: slow}}
		}
	}
}

// unlimited lifts Envoy's default of 1,024 connections and requests, which a
// Service does not have.
func unlimited() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections: number(uint32(math.MaxUint32)), MaxPendingRequests: number(uint32(math.MaxUint32)),
		MaxRequests: number(uint32(math.MaxUint32)),
	}}}
}

// maxEjections is how many times longer than the first an ejection gets at most.
const maxEjections = 10

// outlierDetection ejects for failed connects and resets alone, as the Service
// does: an HTTP endpoint that answers 500 is reachable.
func outlierDetection(e *resource.Ejection) *clusterv3.OutlierDetection {
	if e == nil {
		return nil
	}
	return &clusterv3.OutlierDetection{
		SplitExternalLocalOriginErrors:         true,
		ConsecutiveLocalOriginFailure:          number(e.Failures),
		EnforcingConsecutiveLocalOriginFailure: number(100),
		EnforcingLocalOriginSuccessRate:        number(0),
		EnforcingConsecutive_5Xx:               number(0),
		EnforcingConsecutiveGatewayFailure:     number(0),
		EnforcingSuccessRate:                   number(0),
		Interval:                               duration(min(e.Window, e.Duration)),
		BaseEjectionTime:                       duration(e.Duration),
		MaxEjectionTime:                        duration(maxEjections * e.Duration),
		MaxEjectionPercent:                     number(*e.MaxShare),
	}
}

// checkJitter is how much longer the time between checks may be, in percent.
const checkJitter = 10

// healthChecks returns the Service's check. A check by TLS of an endpoint that
// serves plain text is left out: Envoy checks as it connects. So is one of MySQL's
// greeting, which Envoy cannot end so that the server does not block it.
func (sh *shared) healthChecks() []*corev3.HealthCheck {
	h := sh.spec.HealthCheck
	if h == nil || h.Type == "tls" && sh.spec.TLS == nil || h.Type == "mysql" {
		return nil
	}
	check := &corev3.HealthCheck{
		Timeout: duration(h.Timeout), Interval: duration(h.Interval), NoTrafficInterval: duration(h.Interval),
		IntervalJitterPercent: checkJitter,
		HealthyThreshold:      number(h.Rise), UnhealthyThreshold: number(h.Fall),
	}
	if h.Type == "http" {
		check.HealthChecker = &corev3.HealthCheck_HttpHealthCheck_{HttpHealthCheck: sh.httpCheck(h)}
	} else {
		tcp := &corev3.HealthCheck_TcpHealthCheck{Send: payload(h.Send)}
		if expect := payload(h.Expect); expect != nil {
			tcp.Receive = []*corev3.HealthCheck_Payload{expect}
		}
		check.HealthChecker = &corev3.HealthCheck_TcpHealthCheck_{TcpHealthCheck: tcp}
	}
	return []*corev3.HealthCheck{check}
}

func (sh *shared) httpCheck(h *resource.HealthCheck) *corev3.HealthCheck_HttpHealthCheck {
	check := &corev3.HealthCheck_HttpHealthCheck{Host: h.Host, Path: h.Path}
	if sh.spec.Protocol == "http2" {
		check.CodecClientType = typev3.CodecClientType_HTTP2
	}
	for _, status := range h.Status {
		check.ExpectedStatuses = append(check.ExpectedStatuses, &typev3.Int64Range{Start: int64(status), End: int64(status) + 1})
	}
	if len(h.Status) == 0 {
		check.ExpectedStatuses = []*typev3.Int64Range{{Start: 200, End: 400}}
	}
	return check
}

// payload returns what a check sends or expects; nil if that is nothing.
func payload(text string) *corev3.HealthCheck_Payload {
	data, err := resource.Unescape(text)
	if err != nil || len(data) == 0 { // validation refuses an error
		return nil
	}
	return &corev3.HealthCheck_Payload{Payload: &corev3.HealthCheck_Payload_Binary{Binary: data}}
}

// httpOptions is the name of the options for HTTP of clusters.
const httpOptions = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

func (sh *shared) httpOptions() *httpv3.HttpProtocolOptions {
	version := &httpv3.HttpProtocolOptions_ExplicitHttpConfig{
		ProtocolConfig: &httpv3.HttpProtocolOptions_ExplicitHttpConfig_HttpProtocolOptions{HttpProtocolOptions: &corev3.Http1ProtocolOptions{}},
	}
	if sh.spec.Protocol == "http2" {
		version.ProtocolConfig = &httpv3.HttpProtocolOptions_ExplicitHttpConfig_Http2ProtocolOptions{
			Http2ProtocolOptions: &corev3.Http2ProtocolOptions{},
		}
	}
	return &httpv3.HttpProtocolOptions{
		CommonHttpProtocolOptions: &corev3.HttpProtocolOptions{IdleTimeout: duration(sh.spec.HTTP.KeepIdle)},
		UpstreamProtocolOptions:   &httpv3.HttpProtocolOptions_ExplicitHttpConfig_{ExplicitHttpConfig: version},
	}
}
