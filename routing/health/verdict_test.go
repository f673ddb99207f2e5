package health

import (
	"strings"
	"testing"

	"penstock/routing/endpoint"
)

// Rise and fall, of rule 16 of integration/rules_test.go: + is a probe that
// succeeds, - one that fails; the state after each is u (unchecked), H or U.
func TestRiseAndFall(t *testing.T) {
	for _, tc := range []struct {
		name             string
		rise, fall       int
		results, healths string
	}{
		{"the first success decides at once", 3, 3, "+", "H"},
		{"the first failure decides at once", 3, 3, "-", "U"},
		{"two failures in a row", 2, 2, "+--", "HHU"},
		{"a success between them starts the count again", 2, 2, "+-+-+--", "HHHHHHU"},
		{"two successes in a row", 2, 2, "--++", "UUUH"},
		{"a failure between them starts the count again", 2, 2, "-+-+-++", "UUUUUUH"},
		{"one each", 1, 1, "+-+-", "HUHU"},
		{"nought is one", 0, 0, "+-+-", "HUHU"},
		{"rise and fall apart", 3, 2, "+--++-+++", "HHUUUUUUH"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var v verdict
			var got strings.Builder
			for i, r := range tc.results {
				before := v.health
				if changed := v.add(r == '+', tc.rise, tc.fall); changed != (v.health != before) {
					t.Errorf("result %d: changed is %v from %v to %v", i, changed, before, v.health)
				}
				got.WriteByte(map[endpoint.Health]byte{endpoint.Unchecked: 'u', endpoint.Healthy: 'H', endpoint.Unhealthy: 'U'}[v.health])
			}
			if got.String() != tc.healths {
				t.Errorf("%s gives %s, want %s", tc.results, got.String(), tc.healths)
			}
		})
	}
}
