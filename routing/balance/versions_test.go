package balance

import (
	"slices"
	"testing"

	"penstock/routing/endpoint"
)

// Every endpoint gets its turns even if each connection uses a new version of
// the table.
func TestRoundRobinSurvivesManyVersions(t *testing.T) {
	members, more := equal(5), equal(6)
	more[5].Weight = 0
	counts := make([]int, 6)
	var p *Pool
	for k := range 1000 {
		p = New(Config{}, [][]Member{members, more}[k%2], p)
		counts[p.Pick(&Query{Now: t0})]++
	}
	for i, n := range counts[:5] {
		if n < 195 || n > 205 {
			t.Errorf("endpoint %d got %d of 1000 with a new version for each: %v", i, n, counts)
		}
	}
}

// Positions of turns are rebased in time: even in a service that runs very long
// the turns stay in order.
func TestRoundRobinSurvivesRebase(t *testing.T) {
	p := New(Config{}, group(3, 2, 1), nil)
	s := p.levels[0].near.turns
	s.at += rebase - 10*unit
	for i := range s.heap {
		s.heap[i].at += rebase - 10*unit
	}
	if counts := picks(p, 6*1000, t0); !slices.Equal(counts, []int{3000, 2000, 1000}) {
		t.Errorf("counts %v", counts)
	}
	if s.at >= rebase || s.heap[0].at >= rebase+unit {
		t.Errorf("the position was not rebased: %d", s.at)
	}
}

// Maglev hashes the resolved address, not the name: nodes may have found the
// same endpoints by different names.
func TestMaglevHashesResolvedAddress(t *testing.T) {
	members, named := equal(5), equal(5)
	for i := range named {
		named[i].Endpoint = &endpoint.Endpoint{Address: "apps.example.com:80", Addr: members[i].Addr}
	}
	a, b := New(Config{Policy: Maglev}, members, nil), New(Config{Policy: Maglev}, named, nil)
	for k := range 1000 {
		q := &Query{Now: t0, Hash: Mix(uint64(k))}
		if x, y := a.Pick(q), b.Pick(q); x != y {
			t.Fatalf("hash %x goes to %d or to %d", q.Hash, x, y)
		}
	}
}

// The share that leaves the zone is kept even if each connection uses a new
// version of the table.
func TestZoneSharesSurviveManyVersions(t *testing.T) {
	cfg := Config{ZoneTag: "zone", Zone: "a", ZoneMinHealthy: 100}
	members, more := equal(4), equal(5)
	more[4].Weight = 0
	for i := range 2 {
		for _, list := range [][]Member{members, more} {
			list[i].Endpoint = &endpoint.Endpoint{Address: list[i].Address, Addr: list[i].Addr, Tags: map[string]string{"zone": "a"}}
		}
	}
	members[0].SetHealth(endpoint.Unhealthy, t0)
	more[0].SetHealth(endpoint.Unhealthy, t0)
	near := 0
	var p *Pool
	for k := range 1000 {
		p = New(cfg, [][]Member{members, more}[k%2], p)
		if p.Near(p.Pick(&Query{Now: t0})) {
			near++
		}
	}
	if near < 495 || near > 505 {
		t.Errorf("%d of 1000 stay near where half of the zone is left", near)
	}
}
