package routing

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

// splitOver returns a router with listeners of these names and a service that
// is split over others by weights.
func splitOver(t interface{ Fatal(...any) }, weights []int, listeners ...string) *Router {
	r := NewRouter(Config{})
	batch := []resource.Change{put("Service", "apps", service(1)), put("MeshTCPRoute", "split", splitBy(weights))}
	for i := range weights {
		batch = append(batch, put("Service", fmt.Sprint("part-", i), service(1)))
	}
	for _, name := range listeners {
		batch = append(batch, put("Listener", name, &resource.Listener{Service: "apps"}))
	}
	if _, err := r.Apply(batch, t0); err != nil {
		t.Fatal(err)
	}
	return r
}

func splitBy(weights []int) *resource.MeshTCPRoute {
	var refs []resource.BackendRef
	for i, w := range weights {
		refs = append(refs, resource.BackendRef{Kind: kindMeshService, Name: fmt.Sprint("part-", i), Weight: new(w)})
	}
	return routeFor(resource.TargetRef{Kind: kindMesh}, "apps", refs...)
}

// turnsTaken returns the part that each of n connections goes to.
func turnsTaken(t interface{ Fatalf(string, ...any) }, r *Router, n int, listeners ...string) []int {
	turns := make([]int, n)
	for i := range turns {
		d, reason := r.Decide(&Input{Listener: listeners[i%len(listeners)]})
		if reason != OK {
			t.Fatalf("connection %d: %s", i, reason)
		}
		if _, err := fmt.Sscanf(d.Service(), "part-%d", &turns[i]); err != nil {
			t.Fatalf("connection %d goes to %q", i, d.Service())
		}
		d.Closed()
	}
	return turns
}

// If the weights add up to 1000, or to a divisor of it, each backend gets
// exactly its share of any 1000 consecutive connections, through any listeners.
func TestAnyThousandConnectionsAreSplitExactly(t *testing.T) {
	const window = 1000
	rapid.Check(t, func(t *rapid.T) {
		sum := rapid.SampledFrom([]int{1, 2, 4, 5, 8, 10, 20, 25, 40, 50, 100, 125, 200, 250, 500, 1000}).Draw(t, "sum")
		var weights []int
		for left := sum; left > 0; left -= weights[len(weights)-1] {
			weights = append(weights, rapid.IntRange(1, left).Draw(t, "weight"))
		}
		weights = append(weights, 0)
		r := splitOver(t, weights, "a", "b", "c")
		turns := turnsTaken(t, r, 2*window+rapid.IntRange(0, 500).Draw(t, "more"), "a", "b", "c")
		counts := make([]int, len(weights))
		for i, part := range turns {
			counts[part]++
			if i >= window {
				counts[turns[i-window]]--
			}
			for p, w := range weights {
				if i >= window-1 && counts[p]*sum != w*window {
					t.Fatalf("of the 1000 connections up to %d part %d of %v had %d", i, p, weights, counts[p])
				}
			}
		}
	})
}

// The Gateway API's conformance suite requires each share of 500 connections to
// be within 5 points, from any starting point.
func TestSharesOfFiveHundredAreWithinFivePoints(t *testing.T) {
	for _, weights := range [][]int{
		{70, 30, 0}, {1, 1}, {1, 0}, {90, 10}, {8, 1, 1}, {333, 333, 334}, {999_983, 500_009, 7}, {1_000_000, 1},
		{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
	} {
		sum := 0
		for _, w := range weights {
			sum += w
		}
		r := splitOver(t, weights, "front")
		for begin := range 20 {
			counts := make([]int, len(weights))
			for _, part := range turnsTaken(t, r, 500, "front") {
				counts[part]++
			}
			for p, w := range weights {
				share, want := float64(counts[p])/500, float64(w)/float64(sum)
				if share < want-0.05 || share > want+0.05 || (w == 0) != (counts[p] == 0) && want*500 >= 1 {
					t.Errorf("%v, round %d: part %d had %.3f of 500, want %.3f", weights, begin, p, share, want)
				}
			}
			turnsTaken(t, r, 37, "front") // the next round starts at another position
			if begin == 10 {              // and continues after a change of another route
				mustApply(t, r, put("MeshTCPRoute", "other", routeFor(resource.TargetRef{Kind: kindMesh}, "part-0")))
			}
		}
	}
}
