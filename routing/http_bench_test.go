package routing

import (
	"fmt"
	"testing"

	"penstock/routing/resource"
)

// httpMesh returns a service with a MeshHTTPRoute of n rules, each with a path
// of its own and a canary.
func httpMesh(t testing.TB, n int) (*Router, *Input) {
	r := NewRouter(Config{NodeTags: map[string]string{"zone": "a"}})
	shop, next := service(3), service(2)
	shop.Protocol = "http"
	to := resource.HTTPRouteTo{TargetRef: resource.TargetRef{Kind: kindMeshService, Name: "shop"}}
	for i := range n {
		to.Rules = append(to.Rules, resource.HTTPRule{
			Matches: []resource.HTTPMatch{{
				Path:    &resource.PathMatch{Type: "PathPrefix", Value: fmt.Sprintf("/part-%03d", i)},
				Headers: []resource.HeaderMatch{{Name: "x-beta", Value: "yes"}},
			}},
			Default: resource.HTTPDefault{BackendRefs: []resource.BackendRef{
				{Kind: kindMeshService, Name: "shop", Weight: new(9)}, {Kind: kindMeshService, Name: "next"},
			}},
		})
	}
	mustApply(t, r, put("Service", "shop", shop), put("Service", "next", next),
		put("Listener", "edge", &resource.Listener{Service: "shop", Tags: map[string]string{"protocol": "http"}}),
		put("MeshHTTPRoute", "shop", &resource.MeshHTTPRoute{To: []resource.HTTPRouteTo{to}}))
	return r, clientOf(1)
}

// Neither a connection whose requests are routed individually allocates, nor a
// request, if no rule looks at query parameters.
func TestRequestsAllocateNothing(t *testing.T) {
	r, in := httpMesh(t, 10)
	q := NewRequest("GET", "/part-007/a?b=1", "a.example", map[string]string{"x-beta": "yes"})
	table := r.Table()
	if d, reason := r.Decide(in); reason != OK || !d.HTTP() {
		t.Fatalf("%v %q", d.HTTP(), reason)
	}
	if a, reason := table.Request(in, "shop", q); reason != OK || a.Route != "shop" || a.Rule != 7 {
		t.Fatalf("%s rules[%d] %q", a.Route, a.Rule, reason)
	}
	if n := testing.AllocsPerRun(100, func() { r.Decide(in) }); n != 0 {
		t.Errorf("a connection: %v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = table.Request(in, "shop", q) }); n != 0 {
		t.Errorf("a request: %v allocations", n)
	}
}

// BenchmarkRequests routes a request that matches the last of n rules.
func BenchmarkRequests(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		r, in := httpMesh(b, n)
		q := NewRequest("GET", fmt.Sprintf("/part-%03d/a", n-1), "a.example", map[string]string{"x-beta": "yes"})
		table := r.Table()
		b.Run(fmt.Sprintf("%d rules", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = table.Request(in, "shop", q)
			}
		})
	}
}
