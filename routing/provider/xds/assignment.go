package xds

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"penstock/routing/provider"
)

const (
	// lbMetadata is the metadata that Envoy selects subsets by.
	lbMetadata = "envoy.lb"
	// HealthTag is "degraded" for endpoints of that health status.
	HealthTag = "health"
)

// endpoints returns the endpoints of a ClusterLoadAssignment with their priorities.
func endpoints(cla *endpointv3.ClusterLoadAssignment, limit int) ([]provider.Endpoint, error) {
	localities := slices.Clone(cla.GetEndpoints())
	slices.SortStableFunc(localities, func(a, b *endpointv3.LocalityLbEndpoints) int {
		return cmp.Compare(a.GetPriority(), b.GetPriority())
	})
	n := 0
	for _, l := range localities {
		n += len(l.GetLbEndpoints())
	}
	if n > limit {
		return nil, fmt.Errorf("it has %d endpoints; the maximum is %d (maxEndpoints)", n, limit)
	}
	list := make([]provider.Endpoint, 0, n)
	for len(localities) > 0 {
		end := slices.IndexFunc(localities, func(l *endpointv3.LocalityLbEndpoints) bool {
			return l.GetPriority() != localities[0].GetPriority()
		})
		if end < 0 {
			end = len(localities)
		}
		var err error
		if list, err = appendPriority(list, localities[:end]); err != nil {
			return nil, err
		}
		localities = localities[end:]
	}
	return list, nil
}

// appendPriority appends the endpoints of one priority.
func appendPriority(list []provider.Endpoint, localities []*endpointv3.LocalityLbEndpoints) ([]provider.Endpoint, error) {
	priority := localities[0].GetPriority()
	if priority > provider.MaxPriority {
		return nil, fmt.Errorf("locality %q: the priority is %d; the maximum is %d",
			localities[0].GetLocality().GetZone(), priority, provider.MaxPriority)
	}
	shares, err := sharesOf(localities)
	if err != nil {
		return nil, err
	}
	for _, l := range localities {
		if l.GetLbConfig() != nil {
			return nil, fmt.Errorf("locality %q takes its endpoints from another place (lb_config), which is not supported", l.GetLocality().GetZone())
		}
		var shared map[string]string // the tags of endpoints without metadata
		if zone := l.GetLocality().GetZone(); zone != "" {
			shared = map[string]string{provider.ZoneTag: zone}
		}
		for i, lb := range l.GetLbEndpoints() {
			address, err := addressOf(lb.GetEndpoint().GetAddress())
			if err != nil {
				return nil, fmt.Errorf("locality %q, endpoint %d: %w", l.GetLocality().GetZone(), i, err)
			}
			list = append(list, provider.Endpoint{
				Address: address, Weight: shares.weight(l, lb), Priority: int(priority),
				State: stateOf(lb.GetHealthStatus()), Tags: tagsOf(lb, shared),
			})
		}
	}
	return list, nil
}

// addressOf returns IP:port.
func addressOf(a *corev3.Address) (string, error) {
	if pipe := a.GetPipe(); pipe != nil {
		return "", fmt.Errorf("the address is the Unix socket %.100q; only IP addresses with a port are supported", pipe.GetPath())
	}
	socket := a.GetSocketAddress()
	switch {
	case a.GetAddress() == nil:
		return "", errors.New("the address is missing")
	case socket == nil:
		return "", fmt.Errorf("the address is of type %T; only IP addresses with a port are supported", a.GetAddress())
	case socket.GetProtocol() != corev3.SocketAddress_TCP:
		return "", fmt.Errorf("the protocol of %.100q is %v; only TCP is supported", socket.GetAddress(), socket.GetProtocol())
	case socket.GetPortValue() == 0 || socket.GetPortValue() > math.MaxUint16:
		return "", fmt.Errorf("the port of %.100q is %d; it must be 1 to 65535, not a name", socket.GetAddress(), socket.GetPortValue())
	}
	ip, err := netip.ParseAddr(socket.GetAddress())
	if err != nil {
		return "", fmt.Errorf("the address %.100q is not an IP address, which EDS requires", socket.GetAddress())
	}
	return netip.AddrPortFrom(ip, uint16(socket.GetPortValue())).String(), nil
}

// stateOf returns the state for a health status. One that is not known here
// counts as healthy, as in Envoy.
func stateOf(status corev3.HealthStatus) provider.State {
	switch status {
	case corev3.HealthStatus_UNHEALTHY, corev3.HealthStatus_TIMEOUT:
		return provider.NotReady
	case corev3.HealthStatus_DRAINING:
		return provider.Terminating
	default:
		return provider.Ready
	}
}

// tagsOf returns the tags of an endpoint: the strings, numbers and booleans of
// its metadata for load balancing, over which those of its locality win.
func tagsOf(e *endpointv3.LbEndpoint, locality map[string]string) map[string]string {
	fields := e.GetMetadata().GetFilterMetadata()[lbMetadata].GetFields()
	degraded := e.GetHealthStatus() == corev3.HealthStatus_DEGRADED
	if len(fields) == 0 && !degraded {
		return locality
	}
	tags := make(map[string]string, len(fields)+len(locality)+1)
	for key, value := range fields {
		switch v := value.GetKind().(type) {
		case *structpb.Value_StringValue:
			tags[key] = v.StringValue
		case *structpb.Value_NumberValue:
			tags[key] = strconv.FormatFloat(v.NumberValue, 'f', -1, 64)
		case *structpb.Value_BoolValue:
			tags[key] = strconv.FormatBool(v.BoolValue)
		}
	}
	if zone, ok := locality[provider.ZoneTag]; ok {
		tags[provider.ZoneTag] = zone
	}
	if degraded {
		tags[HealthTag] = "degraded"
	}
	return tags
}
