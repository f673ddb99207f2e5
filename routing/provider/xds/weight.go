package xds

import (
	"fmt"
	"math"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"

	"penstock/routing/provider"
)

// shares turns the weights of localities and endpoints into one weight for each
// endpoint. The weight of a locality, divided among its endpoints by their own
// weights, is what each gets. If no locality has a weight, the weights of
// endpoints stay as they are; otherwise a locality without one gets nothing, as
// in Envoy.
//
// Fractions become integers by a common factor: the least that makes all exact,
// or, where that would exceed provider.MaxWeight, one that uses the whole range,
// with rounding.
type shares struct {
	sums     map[*endpointv3.LocalityLbEndpoints]uint64 // of the endpoints' weights
	weighted bool                                       // a locality has a weight
	factor   float64
}

// sharesOf returns the shares of the localities of one priority.
func sharesOf(localities []*endpointv3.LocalityLbEndpoints) (shares, error) {
	s := shares{sums: make(map[*endpointv3.LocalityLbEndpoints]uint64, len(localities))}
	for _, l := range localities {
		for i, e := range l.GetLbEndpoints() {
			if w := e.GetLoadBalancingWeight(); w != nil && w.GetValue() == 0 {
				return s, fmt.Errorf("locality %q, endpoint %d: the weight is 0; the minimum is 1", l.GetLocality().GetZone(), i)
			}
			s.sums[l] += endpointWeight(e)
		}
		s.weighted = s.weighted || l.GetLoadBalancingWeight().GetValue() > 0
	}
	common, largest := uint64(1), 0.0
	for _, l := range localities {
		for _, e := range l.GetLbEndpoints() {
			largest = max(largest, s.share(l, e))
			if s.weighted && common <= provider.MaxWeight {
				common = commonMultiple(common, s.denominator(l, e))
			}
		}
	}
	s.factor = float64(common)
	if s.factor*largest > provider.MaxWeight || common > provider.MaxWeight {
		s.factor = provider.MaxWeight / largest
	}
	return s, nil
}

func endpointWeight(e *endpointv3.LbEndpoint) uint64 {
	if w := e.GetLoadBalancingWeight(); w != nil {
		return uint64(w.GetValue())
	}
	return 1
}

// share returns what an endpoint gets, in the unit of the weights.
func (s *shares) share(l *endpointv3.LocalityLbEndpoints, e *endpointv3.LbEndpoint) float64 {
	if !s.weighted {
		return float64(endpointWeight(e))
	}
	return float64(l.GetLoadBalancingWeight().GetValue()) * float64(endpointWeight(e)) / float64(s.sums[l])
}

// denominator returns that of the share as a reduced fraction.
func (s *shares) denominator(l *endpointv3.LocalityLbEndpoints, e *endpointv3.LbEndpoint) uint64 {
	sum := s.sums[l]
	return sum / greatestCommonDivisor(sum, uint64(l.GetLoadBalancingWeight().GetValue())*endpointWeight(e))
}

// weight returns the weight of an endpoint, 0 for no share and at least 1 for
// any.
func (s *shares) weight(l *endpointv3.LocalityLbEndpoints, e *endpointv3.LbEndpoint) int {
	share := s.share(l, e)
	if share == 0 {
		return 0
	}
	return max(1, int(math.Round(share*s.factor)))
}

func greatestCommonDivisor(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// commonMultiple returns the least common multiple, or more than
// provider.MaxWeight if one of the numbers is above that.
func commonMultiple(a, b uint64) uint64 {
	if max(a, b) > provider.MaxWeight {
		return max(a, b)
	}
	return a / greatestCommonDivisor(a, b) * b
}
