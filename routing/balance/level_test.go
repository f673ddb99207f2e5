package balance

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"penstock/routing/endpoint"
)

// levels returns n endpoints for each of the levels, of which so many percent are
// healthy.
func levels(n int, numbers []int, healthy []int) []Member {
	members := equal(n * len(numbers))
	for i := range members {
		k := i / n
		members[i].Level = numbers[k]
		if i%n >= n*healthy[k]/100 {
			members[i].SetHealth(endpoint.Unhealthy, t0)
		}
	}
	return members
}

// The examples of Envoy's documentation, "Priority levels": with an
// overprovisioning factor of 1.4, which is a minimum of 100/1.4 percent, here 71.
// So a share may differ from Envoy's by one point, as does its rounding.
func TestLevelsSpillOverAsEnvoyDocuments(t *testing.T) {
	for _, c := range []struct{ healthy, want []int }{
		{[]int{100, 100}, []int{100, 0}},
		{[]int{72, 72}, []int{100, 0}},
		{[]int{71, 71}, []int{99, 1}},
		{[]int{50, 50}, []int{70, 30}},
		{[]int{25, 100}, []int{35, 65}},
		{[]int{25, 25}, []int{50, 50}},
		{[]int{0, 100}, []int{0, 100}},
		{[]int{5, 0}, []int{100, 0}},
		{[]int{100, 100, 100}, []int{100, 0, 0}},
		{[]int{72, 72, 100}, []int{100, 0, 0}},
		{[]int{71, 71, 100}, []int{99, 1, 0}},
		{[]int{50, 50, 100}, []int{70, 30, 0}},
		{[]int{25, 100, 100}, []int{35, 65, 0}},
		{[]int{25, 25, 100}, []int{35, 35, 30}},
		{[]int{25, 25, 20}, []int{36, 36, 28}},
		{[]int{0, 0, 0}, []int{0, 0, 0}},
	} {
		numbers := []int{0, 1, 7}[:len(c.healthy)]
		p := New(Config{MinHealthy: 71}, levels(100, numbers, c.healthy), nil)
		for k, want := range c.want {
			if got := p.LevelShare(k*100, t0) * 100; math.Abs(got-float64(want)) > 1.5 {
				t.Errorf("healthy %v: level %d has %.1f %%, want %d", c.healthy, k, got, want)
			}
		}
	}
}

// What is picked follows the shares, by every policy.
func TestPicksFollowTheSharesOfLevels(t *testing.T) {
	for policy := range policies {
		p := New(Config{Policy: Policy(policy), MinHealthy: 71}, levels(20, []int{0, 3}, []int{50, 100}), nil)
		const n = 20_000
		first := 0
		for i := range n {
			at := p.Pick(&Query{Now: t0, Hash: Mix(uint64(i))})
			if at < 0 || !p.Members()[at].Ready(t0) || !p.Uses(at, t0) {
				t.Fatalf("%v: picked %d", Policy(policy), at)
			}
			if at < 20 {
				first++
			}
		}
		if share := float64(first) / n; math.Abs(share-0.704) > 0.02 {
			t.Errorf("%v: the first level had %.3f", Policy(policy), share)
		}
	}
}

func TestBackupsAreUsedOnlyWhenNoOtherEndpointIs(t *testing.T) {
	numbers := []int{0, 1, Backup, Backup + 1}
	for _, c := range []struct {
		healthy []int
		want    []int
	}{
		{[]int{10, 0, 100, 100}, []int{0}},
		{[]int{0, 10, 100, 100}, []int{1}},
		{[]int{0, 0, 100, 100}, []int{2}},
		{[]int{0, 0, 50, 100}, []int{2, 3}},
	} {
		p := New(Config{MinHealthy: 71}, levels(10, numbers, c.healthy), nil)
		var got []int
		for range 1000 {
			if k := p.Pick(&Query{Now: t0}) / 10; !slices.Contains(got, k) {
				got = append(got, k)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("healthy %v: levels %v were used, want %v", c.healthy, got, c.want)
		}
	}
}

// A connection that failed at the only endpoint of its level goes to the next one.
func TestARetryGoesToTheNextLevel(t *testing.T) {
	for _, next := range []int{1, Backup} {
		members := equal(2)
		members[1].Level = next
		p := New(Config{MinHealthy: 71}, members, nil)
		tried := setOf(0)
		if i := p.Pick(&Query{Now: t0, Tried: tried}); i != 1 {
			t.Errorf("level %d: picked %d", next, i)
		}
	}
}

// Endpoints at their bounds are busy: their connections wait, rather than go to a
// level that has no share. One that has some gets them.
func TestFullEndpointsDoNotSpillOver(t *testing.T) {
	for healthy, want := range map[int]int{100: Full, 50: 1} {
		members := levels(2, []int{0, 1}, []int{healthy, 100})
		g := endpoint.NewGroup("apps", nil)
		bounds := endpoint.Bounds{Connections: 1}
		for _, m := range members[:2] {
			g.Acquire(m.Endpoint, endpoint.Connection)
		}
		p := New(Config{MinHealthy: 71}, members, nil)
		for range 100 {
			i := p.Pick(&Query{Now: t0, Bounds: &bounds})
			if i >= 0 {
				i /= 2
			}
			if i != want {
				t.Fatalf("%d %% healthy: picked %d, want %d", healthy, i, want)
			}
		}
	}
}

// In a panic all endpoints count as healthy, so the first level takes everything.
func TestPanicUsesTheFirstLevel(t *testing.T) {
	p := New(Config{MinHealthy: 71, Panic: true}, levels(4, []int{0, 1, Backup}, []int{0, 0, 0}), nil)
	for range 100 {
		if i := p.Pick(&Query{Now: t0}); i < 0 || i >= 4 || !p.Uses(i, t0) || p.Uses(i+4, t0) {
			t.Fatalf("picked %d", i)
		}
	}
}

// The zone preference works within each level: health decides about the level
// first, then the zone.
func TestZonesArePreferredWithinALevel(t *testing.T) {
	members := levels(4, []int{0, 1}, []int{50, 100})
	for i := range members {
		members[i].Tags = map[string]string{"zone": []string{"a", "b"}[i%2]}
	}
	p := New(Config{MinHealthy: 71, ZoneTag: "zone", Zone: "a", ZoneMinHealthy: 50}, members, nil)
	const n = 50_000 // two points are eight standard deviations
	counts := map[string]int{}
	for range n {
		i := p.Pick(&Query{Now: t0})
		counts[fmt.Sprintf("%d%s", i/4, members[i].Tags["zone"])]++
	}
	if counts["0b"]+counts["1b"] != 0 || math.Abs(float64(counts["0a"])/n-0.704) > 0.02 {
		t.Errorf("%v", counts)
	}
}

// An endpoint of another group is never picked: neither in a panic, nor as a backup, nor
// because no other is left untried.
func TestEndpointsThatDoNotMatchAreNeverPicked(t *testing.T) {
	for _, policy := range []Policy{RoundRobin, LeastConnections, Random, Maglev} {
		members := levels(6, []int{0, 1}, []int{0, 0}) // none is usable
		for i := range members {
			members[i].Tags = map[string]string{"group": []string{"a", "b"}[i%2]}
		}
		members[4].Tags = nil
		cfg := Config{Policy: policy, MinHealthy: 71, Panic: true, MatchTag: "group", MatchValue: "a"}
		p := New(cfg, members, nil)
		tried := &Set{}
		for n := range 1000 {
			i := p.Pick(&Query{Now: t0, Hash: Mix(uint64(n)), Tried: tried})
			if members[i].Tags["group"] != "a" {
				t.Fatalf("%v picked %v", policy, members[i].Tags)
			}
			tried.Add(i)
		}
		for i := range members {
			if is := members[i].Tags["group"] == "a"; p.Matches(i) != is || p.Uses(i, t0) && !is {
				t.Errorf("%v: member %d with %v matches: %t, is used: %t", policy, i, members[i].Tags, p.Matches(i), p.Uses(i, t0))
			}
		}
		cfg.MatchValue = "c"
		if p = New(cfg, members, p); !p.Empty() || p.Pick(&Query{Now: t0}) != None {
			t.Errorf("%v: a node of another group has endpoints", policy)
		}
		cfg.MatchValue = ""
		if p = New(cfg, members, p); p.Empty() || !p.Matches(4) {
			t.Errorf("%v: a node without the tag is restricted", policy)
		}
	}
}

func TestPicksAmongLevelsAllocateNothing(t *testing.T) {
	p := New(Config{MinHealthy: 71}, levels(4, []int{0, 1, 2}, []int{50, 50, 100}), nil)
	if n := testing.AllocsPerRun(100, func() { p.Pick(&Query{Now: t0}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
