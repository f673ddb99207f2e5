package dns

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/provider"
)

func TestShares(t *testing.T) {
	for _, test := range []struct {
		targets []target
		want    string
	}{
		{nil, "[]"},
		{[]target{{0, 0}}, "[0]"},
		{[]target{{10, 1}, {20, 1}}, "[10 20]"},
		{[]target{{10, 2}, {20, 2}}, "[10 20]"},
		{[]target{{10, 2}, {20, 1}}, "[10 40]"},
		{[]target{{10, 1}, {5, 0}}, "[10 0]"},
		{[]target{{0, 1}, {0, 3}}, "[3 1]"},
		{[]target{{0, 1}, {1, 1}}, "[1 100]"},
		{[]target{{65535, 1}, {1, 1}}, "[65535 1]"},
		{[]target{{65535, 1}, {0, 1}}, "[936214 1]"},
		{[]target{{65535, 997}, {65535, 991}, {65535, 983}}, "[1003 1009 1017]"},
	} {
		if got := fmt.Sprint(shares(test.targets)); got != test.want {
			t.Errorf("%v: %s, want %s", test.targets, got, test.want)
		}
	}
}

// TestSharesHold checks, for any targets, that every address has a valid weight
// and that the targets' shares are as their weights are, within rounding.
func TestSharesHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		targets := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) target {
			return target{rapid.IntRange(0, 65535).Draw(t, "weight"), rapid.IntRange(0, 20).Draw(t, "addresses")}
		}), 1, maxTargets).Draw(t, "targets")
		weights := shares(targets)
		heaviest, unit := 0, 0.0 // what one of weight stands for
		for i, target := range targets {
			if target.addresses > 0 && target.weight > heaviest {
				heaviest = target.weight
				unit = float64(weights[i]*target.addresses) / float64(target.weight)
			}
		}
		for i, target := range targets {
			if target.addresses == 0 {
				continue
			}
			if weights[i] < 1 || weights[i] > provider.MaxWeight {
				t.Fatalf("%v: weight %d of target %d", targets, weights[i], i)
			}
			total := float64(weights[i] * target.addresses)
			rounding := float64(target.addresses) + 1e-3*total
			switch want := float64(target.weight) * unit; {
			case target.weight > 0 && math.Abs(total-want) > rounding:
				t.Fatalf("%v: target %d has %v in all, want %v", targets, i, total, want)
			case target.weight == 0 && heaviest > 0 && total > max(unit, float64(target.addresses)):
				t.Fatalf("%v: target %d of weight 0 has %v in all, as much as weight 1 (%v)", targets, i, total, unit)
			}
		}
	})
}
