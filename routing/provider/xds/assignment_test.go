package xds

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"penstock/routing/provider"
	"penstock/routing/provider/providertest"
)

func assign(name string, localities ...*endpointv3.LocalityLbEndpoints) *endpointv3.ClusterLoadAssignment {
	return &endpointv3.ClusterLoadAssignment{ClusterName: name, Endpoints: localities}
}

// in returns a locality; weight 0 is none.
func in(zone string, priority, weight uint32, endpoints ...*endpointv3.LbEndpoint) *endpointv3.LocalityLbEndpoints {
	return &endpointv3.LocalityLbEndpoints{
		Locality: &corev3.Locality{Zone: zone}, Priority: priority, LoadBalancingWeight: weightOf(weight), LbEndpoints: endpoints,
	}
}

func weightOf(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		return nil
	}
	return wrapperspb.UInt32(n)
}

// at returns an endpoint; weight 0 is none.
func at(address string, weight uint32, health corev3.HealthStatus) *endpointv3.LbEndpoint {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		panic(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		panic(err)
	}
	return lbEndpoint(&corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}, weight, health)
}

func lbEndpoint(address *corev3.Address, weight uint32, health corev3.HealthStatus) *endpointv3.LbEndpoint {
	return &endpointv3.LbEndpoint{
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: &endpointv3.Endpoint{Address: address}},
		LoadBalancingWeight: weightOf(weight), HealthStatus: health,
	}
}

// simple returns an assignment of endpoints in no locality.
func simple(name string, addresses ...string) *endpointv3.ClusterLoadAssignment {
	l := in("", 0, 0)
	for _, a := range addresses {
		l.LbEndpoints = append(l.LbEndpoints, at(a, 0, corev3.HealthStatus_UNKNOWN))
	}
	return assign(name, l)
}

// text returns endpoints as providertest.Sink does.
func text(list []provider.Endpoint) string {
	sink := providertest.NewSink(web)
	sink.Report(web, list)
	return sink.Text(web)
}

const (
	healthy   = corev3.HealthStatus_HEALTHY
	unhealthy = corev3.HealthStatus_UNHEALTHY
	unknown   = corev3.HealthStatus_UNKNOWN
)

func TestEndpointsOfAssignments(t *testing.T) {
	tagged := at("10.0.0.1:80", 0, corev3.HealthStatus_DEGRADED)
	fields, err := structpb.NewStruct(map[string]any{
		"version": "v2", "share": 0.25, "shard": 1e6, "canary": true, "list": []any{"x"}, "map": map[string]any{}, "null": nil, "zone": "x",
	})
	if err != nil {
		t.Fatal(err)
	}
	tagged.Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": fields, "other": fields}}

	for _, test := range []struct {
		name, want string
		given      *endpointv3.ClusterLoadAssignment
	}{
		{"nothing", "none", assign("web")},
		{"a locality without endpoints", "none", assign("web", in("a", 0, 1))},
		{"weights of endpoints", "10.0.0.1:80*5; [2001:db8::1]:80",
			assign("web", in("", 0, 0, at("10.0.0.1:80", 5, unknown), at("[2001:db8::1]:80", 0, unknown)))},
		{"health", "10.0.0.1:80; 10.0.0.2:80; 10.0.0.3:80 notReady; 10.0.0.4:80 notReady; 10.0.0.5:80 terminating; 10.0.0.6:80{health=degraded}; 10.0.0.7:80",
			assign("web", in("", 0, 0, at("10.0.0.1:80", 0, unknown), at("10.0.0.2:80", 0, healthy),
				at("10.0.0.3:80", 0, unhealthy), at("10.0.0.4:80", 0, corev3.HealthStatus_TIMEOUT),
				at("10.0.0.5:80", 0, corev3.HealthStatus_DRAINING), at("10.0.0.6:80", 0, corev3.HealthStatus_DEGRADED), at("10.0.0.7:80", 0, 99)))},
		{"zone", "10.0.0.1:80{zone=a}; 10.0.0.2:80{zone=b}",
			assign("web", in("a", 0, 0, at("10.0.0.1:80", 0, unknown)), in("b", 0, 0, at("10.0.0.2:80", 0, unknown)))},
		{"metadata", "10.0.0.1:80{canary=true health=degraded shard=1000000 share=0.25 version=v2 zone=a}", assign("web", in("a", 0, 0, tagged))},

		{"weights of localities", "10.0.0.1:80*3{zone=a}; 10.0.0.2:80*3{zone=a}; 10.0.0.3:80*2{zone=b}",
			assign("web", in("a", 0, 3, at("10.0.0.1:80", 0, unknown), at("10.0.0.2:80", 0, unknown)), in("b", 0, 1, at("10.0.0.3:80", 0, unknown)))},
		{"weights of localities that count their endpoints", "10.0.0.1:80*2{zone=a}; 10.0.0.2:80{zone=a}; 10.0.0.3:80{zone=b}",
			assign("web", in("a", 0, 3, at("10.0.0.1:80", 2, unknown), at("10.0.0.2:80", 1, unknown)), in("b", 0, 1, at("10.0.0.3:80", 0, unknown)))},
		{"a locality without weight beside one with", "10.0.0.1:80*7{zone=a}; 10.0.0.2:80*0{zone=b}",
			assign("web", in("a", 0, 7, at("10.0.0.1:80", 3, unknown)), in("b", 0, 0, at("10.0.0.2:80", 3, unknown)))},
		{"weights over the range", "10.0.0.1:80*1000000; 10.0.0.2:80*250000; 10.0.0.3:80",
			assign("web", in("", 0, 0, at("10.0.0.1:80", 4_000_000_000, unknown), at("10.0.0.2:80", 1_000_000_000, unknown), at("10.0.0.3:80", 1, unknown)))},

		{"two priorities", "10.0.0.1:80; 10.0.0.2:80 priority 1",
			assign("web", in("", 1, 0, at("10.0.0.2:80", 0, unknown)), in("", 0, 0, at("10.0.0.1:80", 0, unknown)))},
		{"an empty first priority", "10.0.0.2:80 priority 1; 10.0.0.3:80 priority 2",
			assign("web", in("", 0, 0), in("", 1, 0, at("10.0.0.2:80", 0, unknown)), in("", 2, 0, at("10.0.0.3:80", 0, unknown)))},
		{"a first priority that is not ready", "10.0.0.1:80 notReady; 10.0.0.2:80 priority 1; 10.0.0.3:80 priority 2",
			assign("web", in("", 0, 0, at("10.0.0.1:80", 0, unhealthy)), in("", 1, 0, at("10.0.0.2:80", 0, unknown)), in("", 2, 0, at("10.0.0.3:80", 0, unknown)))},
		{"no priority is ready", "10.0.0.1:80 notReady; 10.0.0.2:80 priority 5 notReady",
			assign("web", in("", 0, 0, at("10.0.0.1:80", 0, unhealthy)), in("", 5, 0, at("10.0.0.2:80", 0, unhealthy)))},
	} {
		before := proto.Clone(test.given)
		got, err := endpoints(test.given, 10)
		if err != nil || text(got) != test.want {
			t.Errorf("%s: %s, %v\nwant %s", test.name, text(got), err, test.want)
		}
		if !proto.Equal(before, test.given) {
			t.Errorf("%s: the assignment was changed", test.name)
		}
	}
}

func TestInvalidAssignments(t *testing.T) {
	of := func(address *corev3.Address) *endpointv3.ClusterLoadAssignment {
		return assign("web", in("a", 0, 0, at("10.0.0.1:80", 0, unknown), lbEndpoint(address, 0, unknown)))
	}
	socket := func(change func(*corev3.SocketAddress)) *endpointv3.ClusterLoadAssignment {
		a := &corev3.SocketAddress{Address: "10.0.0.2", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 80}}
		change(a)
		return of(&corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: a}})
	}
	zero := at("10.0.0.1:80", 0, unknown)
	zero.LoadBalancingWeight = wrapperspb.UInt32(0)
	elsewhere := in("a", 0, 0)
	elsewhere.LbConfig = &endpointv3.LocalityLbEndpoints_LedsClusterLocalityConfig{}
	var many []string
	for i := range 11 {
		many = append(many, fmt.Sprintf("10.0.0.%d:80", i+1))
	}
	for want, given := range map[string]*endpointv3.ClusterLoadAssignment{
		`locality "a", endpoint 1: the address is missing`: of(nil),
		`the address is the Unix socket "/run/web.sock"; only IP addresses with a port are supported`: of(
			&corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: "/run/web.sock"}}}),
		"the address is of type *corev3.Address_EnvoyInternalAddress": of(
			&corev3.Address{Address: &corev3.Address_EnvoyInternalAddress{EnvoyInternalAddress: &corev3.EnvoyInternalAddress{}}}),
		`the address "web.example.com" is not an IP address`:       socket(func(a *corev3.SocketAddress) { a.Address = "web.example.com" }),
		`the address "\x1b[31m" is not an IP address`:              socket(func(a *corev3.SocketAddress) { a.Address = "\x1b[31m" }),
		`the protocol of "10.0.0.2" is UDP; only TCP is supported`: socket(func(a *corev3.SocketAddress) { a.Protocol = corev3.SocketAddress_UDP }),
		`the port of "10.0.0.2" is 65536; it must be 1 to 65535`: socket(func(a *corev3.SocketAddress) {
			a.PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: 65536}
		}),
		`the port of "10.0.0.2" is 0; it must be 1 to 65535, not a name`: socket(func(a *corev3.SocketAddress) {
			a.PortSpecifier = &corev3.SocketAddress_NamedPort{NamedPort: "http"}
		}),
		`locality "a", endpoint 0: the weight is 0; the minimum is 1`: assign("web", in("a", 0, 0, zero)),
		`locality "a" takes its endpoints from another place`:         assign("web", elsewhere),
		"it has 11 endpoints; the maximum is 10 (maxEndpoints)":       simple("web", many...),
		`endpoint 0: the weight is 0`:                                 assign("web", in("", 0, 0, at("10.0.0.1:80", 0, unknown)), in("", 1, 0, zero)),
	} {
		if got, err := endpoints(given, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s, %v\nwant the error %s", text(got), err, want)
		}
	}
}

// An assignment from outside gives endpoints that the runner can use, or an error.
func FuzzAssignment(f *testing.F) {
	for _, cla := range []*endpointv3.ClusterLoadAssignment{
		simple("web", "10.0.0.1:80", "[::1]:1"),
		assign("web", in("a", 0, 3, at("10.0.0.1:80", 2, healthy)), in("b", 1, 4_000_000_000, at("10.0.0.2:80", 4_000_000_000, unhealthy))),
	} {
		data, err := proto.Marshal(cla)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cla := &endpointv3.ClusterLoadAssignment{}
		if unmarshal(data, cla, 1000) != nil {
			return
		}
		list, err := endpoints(cla, 100)
		if err != nil && len(list) > 0 || len(list) > 100 {
			t.Fatalf("%d endpoints and the error %v", len(list), err)
		}
		for _, e := range list {
			if _, _, err := net.SplitHostPort(e.Address); err != nil || e.Weight < 0 || e.Weight > provider.MaxWeight {
				t.Fatalf("%+v: %v", e, err)
			}
		}
	})
}

// BenchmarkAssignment takes a resource of 10,000 endpoints, which EDS sends whole
// when one of them changes.
func BenchmarkAssignment(b *testing.B) {
	cla := assign("web")
	for zone := range 4 {
		l := in(fmt.Sprint("zone-", zone), 0, 1)
		for i := range 2500 {
			l.LbEndpoints = append(l.LbEndpoints, at(fmt.Sprintf("10.%d.%d.%d:80", zone, i/250, i%250+1), 0, healthy))
		}
		cla.Endpoints = append(cla.Endpoints, l)
	}
	data, err := proto.Marshal(cla)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		m := &endpointv3.ClusterLoadAssignment{}
		if err := unmarshal(data, m, DefaultMaxEndpoints*messagesPerEndpoint); err != nil {
			b.Fatal(err)
		}
		if list, err := endpoints(m, DefaultMaxEndpoints); err != nil || len(list) != 10_000 {
			b.Fatal(len(list), err)
		}
	}
}
