package routing

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// outcomes returns where the next n connections go.
func outcomes(r *Router, in *Input, n int) (list []string) {
	for range n {
		d, reason := r.Decide(in)
		at := ""
		if reason == OK {
			var e *endpoint.Endpoint
			if e, reason = d.Next(t0); e != nil {
				at = e.Addr.String()
			}
		}
		list = append(list, d.Service()+" "+at+" "+string(reason))
	}
	return list
}

// A clone continues where the table is, without affecting it: decisions on the
// clone predict those on the table.
func TestClonePredictsAndChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := mesh{t}
		o := &oracle{services: map[string]*resource.Service{}, routes: map[string]*resource.MeshTCPRoute{}}
		r := NewRouter(Config{})
		batch := []resource.Change{put("Listener", "front", &resource.Listener{Service: "s-0"})}
		for i := range 4 {
			name := fmt.Sprintf("s-%d", i)
			o.services[name] = m.service()
			o.services[name].Balancing.Policy = rapid.SampledFrom([]string{"roundRobin", "maglev"}).Draw(t, "policy")
			batch = append(batch, put("Service", name, o.services[name]))
		}
		for range rapid.IntRange(0, 6).Draw(t, "changes") {
			batch = append(batch, m.change(o))
		}
		if _, err := r.Apply(batch, t0); err != nil {
			t.Fatal(err)
		}
		in := &Input{Listener: "front", Tags: m.tags(0, 3, sourceTags...)}
		outcomes(r, in, rapid.IntRange(0, 30).Draw(t, "before"))
		for s := range r.Table().Services() {
			for i, e := range s.Group().Endpoints() {
				if i%3 == 2 {
					e.SetHealth(endpoint.Unhealthy, t0)
				}
			}
		}
		table := r.Table()
		before := dump(table)
		fork := table.clone(nil, t0)
		if got := dump(fork.Table()); got != before {
			t.Fatalf("the fork is\n%s\nand the table\n%s", got, before)
		}
		for s := range table.Services() {
			twin, _ := fork.Table().Service(s.Name())
			for i, e := range s.Group().Endpoints() {
				if x := twin.Group().Endpoints()[i]; x == e || x.Active() != e.Active() || x.Health() != e.Health() {
					t.Fatalf("endpoint %s is the same, or in another state", e.Address)
				}
			}
		}
		foretold := outcomes(fork, in, 20)
		if _, err := fork.Apply([]resource.Change{m.change(o), m.change(o)}, t0); err != nil {
			t.Fatal(err)
		}
		outcomes(fork, in, 20)
		if r.Table() != table || dump(table) != before {
			t.Fatal("the table has changed")
		}
		if happened := outcomes(r, in, 20); fmt.Sprint(happened) != fmt.Sprint(foretold) {
			t.Fatalf("the fork foretells\n%q\nand then comes\n%q", foretold, happened)
		}
	})
}

// Two refs of a route to the same subset have separate turns, and a clone
// continues those of each.
func TestRefsToTheSameSubsetHaveSeparateTurns(t *testing.T) {
	t.Parallel()
	v2 := map[string]string{"version": "2"}
	s := &resource.Service{Balancing: resource.Balancing{Policy: "roundRobin"}}
	for i := range 2 {
		s.Endpoints = append(s.Endpoints, resource.Endpoint{Address: fmt.Sprintf("10.0.0.%d:1", i), Weight: new(1), Tags: v2})
	}
	subset := resource.BackendRef{Kind: "MeshServiceSubset", Name: "s", Tags: v2}
	route := &resource.MeshTCPRoute{TargetRef: &resource.TargetRef{Kind: "Mesh"}, To: []resource.RouteTo{{
		TargetRef: resource.TargetRef{Kind: "MeshService", Name: "s"},
		Rules:     []resource.RouteRule{{Default: resource.RouteDefault{BackendRefs: []resource.BackendRef{subset, subset}}}},
	}}}
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "s", s), put("Listener", "front", &resource.Listener{Service: "s"}), put("MeshTCPRoute", "r", route))
	in := &Input{Listener: "front"}
	outcomes(r, in, 1) // the two refs' turns now differ
	clone := r.Table().clone(nil, t0)
	foretold := outcomes(clone, in, 8)
	if happened := outcomes(r, in, 8); fmt.Sprint(happened) != fmt.Sprint(foretold) {
		t.Errorf("the clone says %q, and then comes %q", foretold, happened)
	}
}
