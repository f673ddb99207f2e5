package xds

import (
	"fmt"
	"math"
	"testing"

	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"pgregory.net/rapid"

	"penstock/routing/provider"
)

// The weights of endpoints are in the proportions that the weights of localities
// and endpoints say, whatever these are.
func TestSharesHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.OneOf(rapid.Uint32Range(1, 20), rapid.Uint32Range(1, math.MaxUint32))
		var localities []*endpointv3.LocalityLbEndpoints
		share := map[string]float64{} // by address
		for l := range rapid.IntRange(1, 5).Draw(t, "localities") {
			locality := in("z", 0, weight.Draw(t, "locality"))
			weights := rapid.SliceOfN(weight, 1, 5).Draw(t, "endpoints")
			sum := 0.0
			for _, w := range weights {
				sum += float64(w)
			}
			for i, w := range weights {
				address := fmt.Sprintf("10.0.%d.%d:80", l, i+1)
				locality.LbEndpoints = append(locality.LbEndpoints, at(address, w, healthy))
				share[address] = float64(locality.GetLoadBalancingWeight().GetValue()) * float64(w) / sum
			}
			localities = append(localities, locality)
		}
		list, err := endpoints(assign("web", localities...), 100)
		if err != nil {
			t.Fatal(err)
		}
		largest := list[0]
		for _, e := range list {
			if e.Weight > largest.Weight {
				largest = e
			}
		}
		for _, e := range list {
			got, want := float64(e.Weight)/float64(largest.Weight), share[e.Address]/share[largest.Address]
			if e.Weight < 1 || e.Weight > provider.MaxWeight || math.Abs(got-want) > 1.0/provider.MaxWeight {
				t.Fatalf("%s has the weight %d, %v of the largest, want %v", e.Address, e.Weight, got, want)
			}
		}
	})
}
