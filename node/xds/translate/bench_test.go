package translate_test

import (
	"fmt"
	"testing"

	"penstock/node/xds/snapshot"
	"penstock/routing/resource"
)

// BenchmarkOneEndpointChanges measures what a change of one endpoint costs: the
// next snapshot, what differs in each type, and the endpoints that changed, for a
// proxy that sees everything.
func BenchmarkOneEndpointChanges(b *testing.B) {
	for _, size := range []struct{ services, endpoints int }{{1_000, 10}, {10_000, 10}, {1, 10_000}} {
		b.Run(fmt.Sprintf("services=%d/endpoints=%d", size.services, size.endpoints), func(b *testing.B) {
			w := newWorld(b)
			changes := []resource.Change{resource.Put(resource.Object{
				Key:  resource.Key{Kind: "Service", Name: "proxy"},
				Spec: &resource.Service{Discovery: &resource.Discovery{Upstreams: []resource.Upstream{{Service: resource.EveryService}}}},
			})}
			for i := range size.services {
				changes = append(changes, resource.Put(largeService(i, size.endpoints, 0)))
			}
			since := w.change(changes...)
			for kind := range snapshot.Types {
				since.View("proxy").All(kind)
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if _, err := w.router.Apply([]resource.Change{resource.Put(largeService(n%size.services, size.endpoints, n+1))}, now); err != nil {
					b.Fatal(err)
				}
				next := w.update()
				changed := 0
				for kind := range snapshot.Types {
					names, ok := next.Changed(since, kind)
					if !ok {
						b.Fatal("unknown")
					}
					for _, name := range names {
						next.View("proxy").Get(kind, name)
					}
					changed += len(names)
				}
				if changed != 1 {
					b.Fatalf("%d resources changed", changed)
				}
				since = next
			}
		})
	}
}

// largeService returns a service whose first endpoint has a weight of its own.
func largeService(i, endpoints, version int) resource.Object {
	s := &resource.Service{}
	for j := range endpoints {
		weight := 1
		if j == 0 {
			weight = 1 + version
		}
		s.Endpoints = append(s.Endpoints, resource.Endpoint{Address: fmt.Sprintf("10.%d.%d.%d:80", i%200, j/200, j%200), Weight: &weight})
	}
	return resource.Object{Key: resource.Key{Kind: "Service", Name: fmt.Sprintf("s%d", i)}, Spec: s}
}
