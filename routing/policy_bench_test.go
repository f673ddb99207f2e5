package routing

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"penstock/routing/resource"
)

// meshes are the benchmarked meshes, each with its worst case: a source that
// matches last, or no policy.
var meshes = []struct {
	name string
	make func(testing.TB) (*Router, *Input)
}{
	{"typical", typicalMesh},
	{"1000 policies on 1000 services", func(t testing.TB) (*Router, *Input) {
		return equalRank(t, 1000, true, func(i int) resource.TargetRef {
			return resource.TargetRef{Kind: kindMeshService, Name: fmt.Sprint("web-", i)}
		}), clientOf(999)
	}},
	{"1000 services of equal rank on one", func(t testing.TB) (*Router, *Input) {
		return equalRank(t, 1000, false, func(i int) resource.TargetRef {
			return resource.TargetRef{Kind: kindMeshService, Name: fmt.Sprint("web-", i)}
		}), clientOf(999)
	}},
	{"1000 subsets of equal rank on one", func(t testing.TB) (*Router, *Input) {
		return equalRank(t, 1000, false, func(i int) resource.TargetRef {
			return resource.TargetRef{Kind: kindMeshSubset, Tags: map[string]string{"zone": "a", "tenant": fmt.Sprint(i)}}
		}), clientOf(999)
	}},
	{"1000 subsets of one service on one", func(t testing.TB) (*Router, *Input) {
		return equalRank(t, 1000, false, func(i int) resource.TargetRef {
			return resource.TargetRef{Kind: kindMeshServiceSubset, Name: "web-999", Tags: map[string]string{"tenant": fmt.Sprint(i)}}
		}), clientOf(999)
	}},
	{"1000 subsets by tags of their own on one", func(t testing.TB) (*Router, *Input) {
		return equalRank(t, 1000, false, func(i int) resource.TargetRef {
			return resource.TargetRef{Kind: kindMeshSubset, Tags: map[string]string{fmt.Sprint("tag-", i): "yes"}}
		}), clientOf(999)
	}},
	{"1000 for the same source on one", func(t testing.TB) (*Router, *Input) {
		return equalRank(t, 1000, false, func(int) resource.TargetRef { return resource.TargetRef{Kind: kindMesh} }), clientOf(999)
	}},
}

// clientOf returns a connection whose network sets its service and whose
// identity sets its tenant.
func clientOf(tenant int) *Input {
	return &Input{Listener: "edge", Client: netip.MustParseAddr("10.1.2.3"), Tags: map[string]string{"tenant": fmt.Sprint(tenant)}}
}

// typicalMesh returns 20 services with three policies each, and a listener with
// five networks.
func typicalMesh(t testing.TB) (*Router, *Input) {
	r := NewRouter(Config{NodeTags: map[string]string{"zone": "a", "region": "eu"}})
	l := &resource.Listener{Service: "service-07", Tags: map[string]string{"team": "shop"}}
	for i := range 5 {
		l.Sources = append(l.Sources, resource.SourceRule{
			From: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", i))},
			Tags: map[string]string{"service": fmt.Sprint("web-", i)},
		})
	}
	batch := []resource.Change{put("Listener", "edge", l)}
	for i := range 20 {
		name := fmt.Sprintf("service-%02d", i)
		canary := []resource.BackendRef{
			{Kind: kindMeshService, Name: name, Weight: new(90)},
			{Kind: kindMeshService, Name: fmt.Sprintf("service-%02d", (i+1)%20), Weight: new(10)},
		}
		batch = append(batch, put("Service", name, service(3)),
			put("MeshTCPRoute", name+"-all", routeFor(resource.TargetRef{Kind: kindMesh}, name, canary...)),
			put("MeshTCPRoute", name+"-zone", routeFor(
				resource.TargetRef{Kind: kindMeshSubset, Tags: map[string]string{"zone": "b"}}, name, canary...)),
			put("MeshTCPRoute", name+"-web", routeFor(resource.TargetRef{Kind: kindMeshService, Name: "web-9"}, name, canary...)))
	}
	mustApply(t, r, batch...)
	return r, clientOf(1)
}

// equalRank returns a router with n services and n policies of equal rank: one
// per service, or all on the first, where the last by name matches.
func equalRank(t testing.TB, n int, spread bool, source func(int) resource.TargetRef) *Router {
	r := NewRouter(Config{NodeTags: map[string]string{"zone": "a"}})
	web := map[string]string{"service": fmt.Sprint("web-", n-1), fmt.Sprint("tag-", n-1): "yes"}
	services := []resource.Change{put("Listener", "edge", &resource.Listener{
		Service: fmt.Sprint("service-", map[bool]int{true: n - 1}[spread]),
		Sources: []resource.SourceRule{{From: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Tags: web}},
	})}
	for i := range n {
		services = append(services, put("Service", fmt.Sprint("service-", i), service(2)))
	}
	mustApply(t, r, services...)
	mustApply(t, r, policiesOn(n, spread, source)...)
	return r
}

func policiesOn(n int, spread bool, source func(int) resource.TargetRef) (policies []resource.Change) {
	for i := range n {
		destination := "service-0"
		if spread {
			destination = fmt.Sprint("service-", i)
		}
		policies = append(policies, put("MeshTCPRoute", fmt.Sprintf("route-%04d", i), routeFor(source(i), destination,
			resource.BackendRef{Kind: kindMeshService, Name: "service-0", Weight: new(9)},
			resource.BackendRef{Kind: kindMeshService, Name: "service-1"})))
	}
	return policies
}

// BenchmarkPolicies resolves and routes a connection. Goals: at most 200 ns in
// a typical mesh, and 500 ns with 1,000 policies in any arrangement.
func BenchmarkPolicies(b *testing.B) {
	for _, m := range meshes {
		r, in := m.make(b)
		b.Run(m.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Decide(in)
			}
		})
	}
}

func TestPoliciesAllocateNothing(t *testing.T) {
	for _, m := range meshes {
		r, in := m.make(t)
		if d, reason := r.Decide(in); reason != OK || d.Service() == "" {
			t.Fatalf("%s: %q", m.name, reason)
		}
		if n := testing.AllocsPerRun(100, func() { r.Decide(in) }); n != 0 {
			t.Errorf("%s: %v allocations", m.name, n)
		}
	}
}

// BenchmarkPolicyMemory reports the memory of a policy with two backends in a
// table, including its resource.
func BenchmarkPolicyMemory(b *testing.B) {
	for name, spread := range map[string]bool{"one on each of 1000 services": true, "1000 on one": false} {
		b.Run(name, func(b *testing.B) {
			const policies = 1000
			var bytes uint64
			for b.Loop() {
				r := equalRank(b, policies, spread, func(i int) resource.TargetRef {
					return resource.TargetRef{Kind: kindMeshService, Name: fmt.Sprint("web-", i)}
				})
				with := heap()
				var gone []resource.Change
				for i := range policies {
					gone = append(gone, resource.Delete(key("MeshTCPRoute", fmt.Sprintf("route-%04d", i))))
				}
				mustApply(b, r, gone...)
				bytes = with - min(with, heap())
				runtime.KeepAlive(r)
			}
			b.ReportMetric(float64(bytes)/policies, "bytes/policy")
		})
	}
}

// heap returns the bytes of heap in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkWhatIf runs the queries before a change of one policy among 1000
// on 1000 services: effective policies, summary of the change, and a simulation
// of 1000 connections.
func BenchmarkWhatIf(b *testing.B) {
	r, in := meshes[1].make(b)
	change := []resource.Change{put("MeshTCPRoute", "route-0999", routeFor(resource.TargetRef{Kind: kindMesh}, "service-999"))}
	for name, do := range map[string]func() error{
		"effective": func() error { r.Table().Effective(&EffectiveQuery{}); return nil },
		"diff": func() error {
			whatIf, err := r.Table().WhatIf(change, nil, t0)
			whatIf.DiffSummary(nil)
			return err
		},
		"play 1000": func() error {
			whatIf, err := r.Table().WhatIf(change, nil, t0)
			if err == nil {
				_, err = whatIf.Simulate(b.Context(), &SimulateRequest{Connections: 1000, Input: in}, t0)
			}
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkChangeOnePolicyOf1000 changes one of 1000 policies of one destination, and
// the service that they all refer to.
func BenchmarkChangeOnePolicyOf1000(b *testing.B) {
	r, _ := meshes[2].make(b)
	source := resource.TargetRef{Kind: kindMeshService, Name: "web-5"}
	ref := func(w int) resource.BackendRef {
		return resource.BackendRef{Kind: kindMeshService, Name: "service-0", Weight: &w}
	}
	for name, change := range map[string]func(i int) resource.Change{
		"policy": func(i int) resource.Change {
			return put("MeshTCPRoute", "route-0005", routeFor(source, "service-0", ref(1+i&1)))
		},
		"service": func(i int) resource.Change { return put("Service", "service-0", service(2+i&1)) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				mustApply(b, r, change(i))
				i++
			}
		})
	}
}
