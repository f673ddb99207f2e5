package dns

import "penstock/routing/provider"

// target is a target of SRV records of one priority.
type target struct {
	weight    int // 0 to 65535
	addresses int
}

// smallShare is how many times less a target of weight 0 gets than one of weight
// 1. RFC 2782 wants "a very small chance of being selected".
const smallShare = 100

// shares returns the weight of each address of each target, so that the targets'
// shares are as their weights are, and none is 0. Weights stay as they are if
// each target has one address and all or no weights are 0.
func shares(targets []target) []int {
	heaviest, zero := 0, false
	multiple := 1 // of all numbers of addresses
	for _, t := range targets {
		if t.addresses == 0 {
			continue
		}
		heaviest = max(heaviest, t.weight)
		zero = zero || t.weight == 0
		if multiple <= provider.MaxWeight {
			multiple = leastCommonMultiple(multiple, t.addresses)
		}
	}
	factor, small := multiple, multiple
	if zero && heaviest > 0 {
		factor *= smallShare
	}
	// Beyond the largest weight, shares are rounded.
	divisor := max(1, (max(heaviest, 1)*factor+provider.MaxWeight-1)/provider.MaxWeight)
	weights := make([]int, len(targets))
	for i, t := range targets {
		if t.addresses == 0 {
			continue
		}
		total := t.weight * factor
		if t.weight == 0 {
			total = small
		}
		weights[i] = max(1, total/t.addresses/divisor)
	}
	return weights
}

func leastCommonMultiple(a, b int) int {
	x, y := a, b
	for y != 0 {
		x, y = y, x%y
	}
	return a / x * b
}
