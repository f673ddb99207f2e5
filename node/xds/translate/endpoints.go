package translate

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"penstock/routing"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// isHostName reports whether an endpoint's address has to be resolved.
func isHostName(address string) bool {
	if isUnix(address) {
		return false
	}
	if _, err := netip.ParseAddrPort(address); err == nil {
		return false
	}
	host, _, ok := resource.SplitAddress(address)
	return ok && !isIP(host)
}

const unixPrefix = "unix:"

func isUnix(address string) bool { return strings.HasPrefix(address, unixPrefix) }

// makeAssignment returns the endpoints of a service or a subset of it. Those of
// weight 0 are left out, and so are those that take no connections at the moment
// if Envoy could use them in spite of that. Without any the assignment is empty:
// it tells proxies that there are none.
func (sh *shared) makeAssignment(x *subset) *endpointv3.ClusterLoadAssignment {
	list := sh.served(x)
	list, scale := merge(list)
	type place struct {
		level int
		zone  string
	}
	places := map[place]*endpointv3.LocalityLbEndpoints{}
	levels := levelsOf(list)
	a := &endpointv3.ClusterLoadAssignment{ClusterName: x.name}
	if len(levels) > 1 {
		a.Policy = &endpointv3.ClusterLoadAssignment_Policy{
			OverprovisioningFactor: number(uint32(100 * 100 / *sh.spec.Balancing.MinHealthy)),
		}
	}
	for i := range list {
		e := &list[i]
		zone := strings.ToValidUTF8(e.Tags[cmp.Or(sh.spec.Balancing.Zone, provider.ZoneTag)], "?")
		in := places[place{e.Level, zone}]
		if in == nil {
			priority, _ := slices.BinarySearch(levels, e.Level)
			in = &endpointv3.LocalityLbEndpoints{
				Locality: &corev3.Locality{Zone: zone}, LoadBalancingWeight: number(0), Priority: uint32(priority),
			}
			places[place{e.Level, zone}] = in
			a.Endpoints = append(a.Endpoints, in)
		}
		weight := scale(e.Weight)
		in.LoadBalancingWeight.Value += weight
		in.LbEndpoints = append(in.LbEndpoints, sh.endpoint(e, weight))
	}
	slices.SortFunc(a.Endpoints, func(a, b *endpointv3.LocalityLbEndpoints) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), strings.Compare(a.Locality.Zone, b.Locality.Zone))
	})
	return a
}

// levelsOf returns the levels of endpoints, in order. The index of each is its
// priority: those of xDS have no gaps.
func levelsOf(list []routing.Known) []int {
	var levels []int
	for i := range list {
		if at, known := slices.BinarySearch(levels, list[i].Level); !known {
			levels = slices.Insert(levels, at, list[i].Level)
		}
	}
	return levels
}

// served lists the endpoints to serve.
func (sh *shared) served(x *subset) []routing.Known {
	list := make([]routing.Known, 0, len(sh.endpoints))
	for i := range sh.endpoints {
		e := &sh.endpoints[i]
		switch {
		case e.Weight == 0 || !hasTags(e.Tags, x.tags):
		case e.State != provider.Ready && sh.panics():
		case sh.byName && isUnix(e.Address): // Envoy refuses both in one cluster
		default:
			list = append(list, *e)
		}
	}
	return list
}

// merge sorts endpoints by address and joins those with the same one, which Envoy
// and gRPC refuse, with the sum of their weights. scale returns the weight to
// write: the sum of all must fit 32 bits (ClusterLoadAssignment).
func merge(list []routing.Known) (merged []routing.Known, scale func(weight int) uint32) {
	slices.SortStableFunc(list, func(a, b routing.Known) int { return strings.Compare(a.Address, b.Address) })
	sum := 0
	for i := range list {
		e := &list[i]
		sum += e.Weight
		if n := len(merged); n > 0 && merged[n-1].Address == e.Address {
			merged[n-1].Weight += e.Weight
			continue
		}
		merged = append(merged, *e)
	}
	return merged, func(weight int) uint32 {
		if sum > math.MaxUint32 {
			weight = max(int(float64(weight)*(math.MaxUint32/2)/float64(sum)), 1)
		}
		return uint32(weight)
	}
}

func (sh *shared) endpoint(e *routing.Known, weight uint32) *endpointv3.LbEndpoint {
	of := &endpointv3.Endpoint{Address: addressOf(e.Address)}
	if h := sh.spec.HealthCheck; h != nil && !isUnix(e.Address) && (h.PortOf(e.Tags) != 0 || h.Type == "http" && h.Host == "") {
		of.HealthCheckConfig = &endpointv3.Endpoint_HealthCheckConfig{PortValue: uint32(h.PortOf(e.Tags))}
		if h.Type == "http" && h.Host == "" {
			of.HealthCheckConfig.Hostname = e.Address
		}
	}
	return &endpointv3.LbEndpoint{
		HostIdentifier:      &endpointv3.LbEndpoint_Endpoint{Endpoint: of},
		LoadBalancingWeight: number(weight),
		HealthStatus:        health(e.State),
	}
}

func health(s provider.State) corev3.HealthStatus {
	switch s {
	case provider.NotReady:
		return corev3.HealthStatus_UNHEALTHY
	case provider.Terminating:
		return corev3.HealthStatus_DRAINING
	default:
		return corev3.HealthStatus_UNKNOWN // healthy, until a check of the proxy says otherwise
	}
}

// addressOf returns a valid address as Envoy has it.
func addressOf(address string) *corev3.Address {
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	host, port, _ := resource.SplitAddress(address)
	n, _ := strconv.ParseUint(port, 10, 16)
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: host, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(n)},
	}}}
}
