package routing

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

// routeFor returns a route from a source to one destination.
func routeFor(source resource.TargetRef, destination string, refs ...resource.BackendRef) *resource.MeshTCPRoute {
	return &resource.MeshTCPRoute{TargetRef: &source, To: []resource.RouteTo{{
		TargetRef: resource.TargetRef{Kind: kindMeshService, Name: destination},
		Rules:     []resource.RouteRule{{Default: resource.RouteDefault{BackendRefs: refs}}},
	}}}
}

// manyPolicies returns a mesh of n services with one policy each, and n more
// policies of equal rank on the first service, one for each service as source.
func manyPolicies(t testing.TB, n int) *Router {
	r := NewRouter(Config{NodeTags: map[string]string{"zone": "a"}})
	var batch []resource.Change
	for i := range n {
		name := fmt.Sprintf("service-%04d", i)
		s := service(2)
		batch = append(batch, put("Service", name, s),
			put("MeshTCPRoute", "own-"+name, routeFor(resource.TargetRef{Kind: kindMesh}, name,
				resource.BackendRef{Kind: kindMeshService, Name: name})),
			put("MeshTCPRoute", "for-"+name, routeFor(resource.TargetRef{Kind: kindMeshService, Name: name}, "service-0000",
				resource.BackendRef{Kind: kindMeshService, Name: name})))
	}
	mustApply(t, r, batch...)
	return r
}

// A page lists no more than its limit, and all pages together list the same as
// a query without a limit.
func TestEffectiveIsPaged(t *testing.T) {
	table := manyPolicies(t, 1000).Table()
	all, more := table.Effective(&EffectiveQuery{})
	if len(all) != 1000 || more != nil {
		t.Fatalf("%d destinations, more %v", len(all), more)
	}
	// The first service has a policy for each of 1000 sources, and one for Mesh,
	// which loses to each of them and has each as an exception.
	first := all[0]
	if len(first.Sources) != 1001 || first.Policies != 1001 {
		t.Fatalf("%d sources of %d policies for the first", len(first.Sources), first.Policies)
	}
	last := first.Sources[1000]
	if last.Source != kindMesh || len(last.Except) != maxListed || last.MoreExcept != 1000-maxListed {
		t.Errorf("%s lists %d exceptions and %d more", last.Source, len(last.Except), last.MoreExcept)
	}
	var parts []Effective
	q := EffectiveQuery{Limit: 70}
	for answers := 0; ; answers++ {
		list, more := table.Effective(&q)
		listed := 0
		for _, e := range list {
			for _, s := range e.Sources {
				listed += 1 + len(s.Losers) + len(s.Except)
			}
			if n := len(parts); n > 0 && parts[n-1].Destination == e.Destination {
				parts[n-1].Sources = append(parts[n-1].Sources, e.Sources...)
				continue
			}
			parts = append(parts, e)
		}
		if listed > q.Limit+2*maxListed { // one source may exceed the limit
			t.Fatalf("an answer lists %d, the limit is %d", listed, q.Limit)
		}
		if more == nil {
			break
		}
		if answers > 5000 {
			t.Fatal("the answers do not end")
		}
		q.After = *more
	}
	if !slices.EqualFunc(parts, all, func(a, b Effective) bool { return fmt.Sprint(a) == fmt.Sprint(b) }) {
		t.Error("the parts are not the whole")
	}
}

// All losers are counted, but only the first maxListed are listed.
func TestLosersAreBounded(t *testing.T) {
	r := equalRank(t, 150, false, func(int) resource.TargetRef { return resource.TargetRef{Kind: kindMesh} })
	list, _ := r.Table().Effective(&EffectiveQuery{Destination: "service-0"})
	if s := list[0].Sources; len(s) != 1 || s[0].Policy != "route-0000" ||
		len(s[0].Losers) != maxListed || s[0].MoreLosers != 149-maxListed || s[0].Losers[0].Policy != "route-0001" {
		t.Errorf("%d sources, %+v", len(s), s)
	}
}

// The reported winner decides for the simplest source of its class, and for all
// others in it except those of the listed exceptions. Every matching policy is
// listed.
func TestEffectiveListsDecidingPolicies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRouter(Config{})
		batch := []resource.Change{put("Service", "apps", service(1))}
		tags := rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "service"}), rapid.SampledFrom([]string{"1", "2", "web"}), 1, 3)
		for i := range rapid.IntRange(0, 8).Draw(t, "policies") {
			ref := resource.TargetRef{Kind: rapid.SampledFrom(precedence).Draw(t, "kind")}
			if ref.Kind == kindMeshService || ref.Kind == kindMeshServiceSubset {
				ref.Name = rapid.SampledFrom([]string{"web", "1"}).Draw(t, "name")
			}
			if ref.Kind == kindMeshSubset || ref.Kind == kindMeshServiceSubset {
				ref.Tags = tags.Draw(t, "tags")
			}
			batch = append(batch, put("MeshTCPRoute", fmt.Sprint("r", i), routeFor(ref, "apps")))
		}
		if _, err := r.Apply(batch, t0); err != nil {
			t.Fatal(err)
		}
		list, _ := r.Table().Effective(&EffectiveQuery{Destination: "apps"})
		s, _ := r.Table().Service("apps")
		client := source{layers: [4]map[string]string{0: tags.Draw(t, "client")}}
		chosen := s.first(&client)
		for _, e := range list[0].Sources {
			i := slices.IndexFunc(s.policies, func(p *policy) bool { return refText(&p.source) == e.Source })
			if i >= 0 && !client.matches(&s.policies[i].source) {
				continue // the client is not in this class
			}
			told := map[string]bool{e.Policy: true}
			for _, x := range e.Except {
				told[x.Policy] = true
			}
			switch {
			case chosen == nil && e.Source == OtherSources:
			case chosen == nil || e.Never != "":
				t.Fatalf("%v is decided by %v, but it is said of %s: %+v", client.all(), chosen, e.Source, e)
			case !told[chosen.route] && e.Source != OtherSources:
				t.Fatalf("%v is decided by %s, of which %s tells nothing: %+v", client.all(), chosen.route, e.Source, e)
			}
			for _, l := range e.Losers {
				told[l.Policy] = true
			}
			for _, p := range s.policies {
				if p.route == e.Policy {
					break // policies after the winner decide for no source here
				}
				if i >= 0 && client.matches(&p.source) && !told[p.route] {
					t.Fatalf("%s matches %v too, and %s does not tell: %+v", p.route, client.all(), e.Source, e)
				}
			}
			if chosen != nil && len(e.Except) == 0 && i >= 0 && e.Policy != chosen.route {
				t.Fatalf("%v of %s is decided by %s, not %s: tags %v",
					client.all(), e.Source, chosen.route, e.Policy, slices.Collect(maps.Values(told)))
			}
		}
	})
}
