package balance

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/endpoint"
)

var t0 = time.Unix(1_700_000_000, 0)

// group returns endpoints with these weights at 10.0.0.0 and up.
func group(weights ...int) []Member {
	members := make([]Member, len(weights))
	for i, w := range weights {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 80)
		members[i] = Member{Endpoint: &endpoint.Endpoint{Address: addr.String(), Addr: addr}, Weight: w}
	}
	return members
}

// count holds what the tests count.
var count = endpoint.NewGroup("apps", nil)

func acquire(m Member) { count.Acquire(m.Endpoint, endpoint.Connection) }
func release(m Member) { count.Release(m.Endpoint, endpoint.Connection, true) }

func equal(n int) []Member { return group(slices.Repeat([]int{1}, n)...) }

// picks counts the members picked for n connections, each with a hash of its
// own.
func picks(p *Pool, n int, now time.Time) []int {
	counts := make([]int, len(p.Members()))
	for k := range n {
		if i := p.Pick(&Query{Now: now, Hash: Mix(uint64(k))}); i >= 0 {
			counts[i]++
		}
	}
	return counts
}

// within reports whether counts are within that many standard deviations of the
// shares that the weights give.
func within(counts []int, weights []float64, sigmas float64) bool {
	n, sum := 0, 0.0
	for i, c := range counts {
		n += c
		sum += weights[i]
	}
	for i, c := range counts {
		p := weights[i] / sum
		if math.Abs(float64(c)-p*float64(n)) > sigmas*math.Sqrt(float64(n)*p*(1-p))+1e-9 {
			return false
		}
	}
	return true
}

func eachPolicy(t *testing.T, test func(t *testing.T, policy Policy)) {
	for policy := range Policy(len(policies)) {
		t.Run(policy.String(), func(t *testing.T) { test(t, policy) })
	}
}

func TestPoliciesHaveResourceNames(t *testing.T) {
	for policy := range Policy(len(policies)) {
		if got, ok := ParsePolicy(policy.String()); !ok || got != policy {
			t.Errorf("ParsePolicy(%q) = %v, %v", policy, got, ok)
		}
	}
	if got, ok := ParsePolicy(""); !ok || got != RoundRobin {
		t.Errorf("the default is %v, %v", got, ok)
	}
	if got, ok := ParsePolicy("fastest"); ok {
		t.Errorf("an unknown policy is %v", got)
	}
}

// Rule 14 of integration/rules_test.go: weights are shares of connections, and
// weight 0 gets nothing.
func TestRoundRobinIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.IntRange(0, 20), 1, 12).Draw(t, "weights")
		weights[0]++
		p := New(Config{}, group(weights...), nil)
		period := 0
		for _, w := range weights {
			period += w
		}
		picks(p, rapid.IntRange(0, period).Draw(t, "before"), t0)
		if got := picks(p, period, t0); !slices.Equal(got, weights) {
			t.Fatalf("a window of %d gave %v, want %v", period, got, weights)
		}
	})
}

func TestConcurrentRoundRobinIsExact(t *testing.T) {
	p := New(Config{}, group(5, 3, 2), nil)
	const loops, each = 4, 2500
	counts := make([][]int, loops)
	var done sync.WaitGroup
	for l := range loops {
		done.Go(func() { counts[l] = picks(p, each, t0) })
	}
	done.Wait()
	sum := make([]int, 3)
	for _, c := range counts {
		for i := range c {
			sum[i] += c[i]
		}
	}
	if !slices.Equal(sum, []int{5000, 3000, 2000}) {
		t.Errorf("got %v", sum)
	}
}

func TestRoundRobinContinuesInNextVersion(t *testing.T) {
	members := equal(4)
	old := New(Config{}, members, nil)
	var order []int
	for range 2 {
		order = append(order, old.Pick(&Query{Now: t0}))
	}
	next := New(Config{}, append(slices.Clone(members), equal(5)[4]), old)
	for range 3 {
		order = append(order, next.Pick(&Query{Now: t0}))
	}
	slices.Sort(order)
	if !slices.Equal(order, []int{0, 1, 2, 3, 4}) {
		t.Errorf("five turns over two versions went to %v", order)
	}
	if again := New(Config{}, slices.Clone(members), old); again != old {
		t.Error("an unchanged pool was rebuilt")
	}
	light := New(Config{}, group(1, 1_000_000), nil)
	light.Pick(&Query{Now: t0})
	heavy := New(Config{}, group(1_000_000, 1_000_000), light)
	if got := picks(heavy, 100, t0); got[0] < 49 {
		t.Errorf("an endpoint with a raised weight waits for its old turn: %v", got)
	}
}

// A recovered endpoint gets its share, not the turns that it missed.
func TestRoundRobinSkippedTurnsAreLost(t *testing.T) {
	members := equal(3)
	p := New(Config{}, members, nil)
	members[0].SetHealth(endpoint.Unhealthy, t0)
	if got := picks(p, 1000, t0); !slices.Equal(got, []int{0, 500, 500}) {
		t.Errorf("without the first: %v", got)
	}
	members[0].SetHealth(endpoint.Healthy, t0)
	if got := picks(p, 30, t0); got[0] < 9 || got[0] > 11 {
		t.Errorf("with it again: %v", got)
	}
}

func TestEveryPolicyFollowsWeights(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		members := group(5, 0, 3, 2)
		p := New(Config{Policy: policy}, members, nil)
		got := picks(p, 20_000, t0)
		// Maglev's slots are exact to one in sixty.
		if !within(got, []float64{5, 0, 3, 2}, 6) || got[1] != 0 {
			t.Errorf("got %v", got)
		}
	})
}

func TestEveryPolicyFollowsWeightsOfMany(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		weights, shares := make([]int, 100), make([]float64, 100)
		for i := range weights {
			weights[i] = 1 + i%3
			shares[i] = float64(weights[i])
		}
		members := group(weights...)
		p := New(Config{Policy: policy}, members, nil)
		counts := make([]int, len(members))
		for k := range 40_000 {
			i := p.Pick(&Query{Now: t0, Hash: Mix(uint64(k))})
			counts[i]++
			acquire(members[i]) // connections stay open
		}
		if !within(counts, shares, 6) {
			t.Errorf("got %v", counts)
		}
	})
}

func TestNoPolicyPicksUnusable(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		for _, n := range []int{1, 3, 40} {
			members := equal(n)
			p := New(Config{Policy: policy}, members, nil)
			for i := range members {
				if i != n-1 {
					members[i].SetHealth(endpoint.Unhealthy, t0)
				}
			}
			if got := picks(p, 50, t0); got[n-1] != 50 {
				t.Errorf("of %d with one usable: %v", n, got)
			}
			if got := p.Pick(&Query{Now: t0, Tried: setOf(n - 1)}); got != n-1 {
				t.Errorf("of %d the only usable one was tried: the next is %d", n, got)
			}
			members[n-1].SetHealth(endpoint.Unhealthy, t0)
			if got := p.Pick(&Query{Now: t0}); got != None {
				t.Errorf("%d endpoints, none usable: %d", n, got)
			}
			panicking := New(Config{Policy: policy, Panic: true}, members, nil)
			got := map[int]bool{}
			for k := range 1000 {
				got[panicking.Pick(&Query{Now: t0, Hash: Mix(uint64(k))})] = true
			}
			if len(got) != n || got[None] {
				t.Errorf("of %d in panic: %d endpoints are used", n, len(got))
			}
		}
	})
}

// Rule 16 of integration/rules_test.go: an ejected endpoint gets no connections
// until its ejection ends.
func TestNoPolicyPicksEjected(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		g := endpoint.NewGroup("apps", nil)
		g.Configure(&endpoint.Ejection{Failures: 1, Window: time.Second, Duration: time.Second, MaxShare: 50}, t0)
		var set []endpoint.Spec
		for _, m := range equal(2) {
			set = append(set, endpoint.Spec{Address: m.Address, Addr: m.Addr})
		}
		var members []Member
		for _, e := range g.Update(set, t0) {
			members = append(members, Member{Endpoint: e, Weight: 1})
		}
		p := New(Config{Policy: policy}, members, nil)
		g.Failed(members[0].Endpoint, endpoint.ConnectFailed, t0)
		if got := picks(p, 100, t0); got[0] != 0 {
			t.Errorf("while it is ejected: %v", got)
		}
		if got := picks(p, 100, t0.Add(time.Second)); got[0] == 0 {
			t.Errorf("when that is over: %v", got)
		}
	})
}

// Rule 17 of integration/rules_test.go: a retry goes to another endpoint while
// there is one.
func TestRetriesGoElsewhere(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		for _, n := range []int{4, 40} {
			p := New(Config{Policy: policy}, equal(n), nil)
			for k := range 20 {
				q := Query{Now: t0, Hash: uint64(k), Tried: new(Set)}
				seen := map[int]bool{}
				for range n {
					i := p.Pick(&q)
					seen[i] = true
					q.Tried.Add(i)
				}
				if len(seen) != n || seen[None] {
					t.Fatalf("%d attempts went to %d endpoints", n, len(seen))
				}
				if i := p.Pick(&q); i == None {
					t.Error("nothing is left after all were tried")
				}
			}
		}
	})
}

func TestPeekingChangesNothing(t *testing.T) {
	p := New(Config{}, group(3, 2, 1), nil)
	for range 20 {
		want := p.Pick(&Query{Now: t0, Peek: true})
		if again := p.Pick(&Query{Now: t0, Peek: true}); again != want {
			t.Fatalf("looking twice gives %d and %d", want, again)
		}
		if got := p.Pick(&Query{Now: t0}); got != want {
			t.Fatalf("got %d after peeking at %d", got, want)
		}
	}
}

// Rule 15 of integration/rules_test.go: connections being established count
// (Acquire precedes them), and a full scan finds the least loaded of a few.
func TestLeastConnectionsInSmallPool(t *testing.T) {
	members := group(1, 1, 4)
	p := New(Config{Policy: LeastConnections}, members, nil)
	load := func(n ...int) {
		for i, m := range members {
			for m.Active() < int64(n[i]) {
				acquire(m)
			}
			for m.Active() > int64(n[i]) {
				release(m)
			}
		}
	}
	for _, c := range []struct{ load, want []int }{
		{[]int{1, 0, 1}, []int{1}},
		{[]int{2, 1, 3}, []int{2}},
		{[]int{5, 6, 100}, []int{0}},
		{[]int{1, 2, 4}, []int{0, 2}}, // equal load per weight: at random
	} {
		load(c.load...)
		got := picks(p, 200, t0)
		for i, n := range got {
			if (n > 0) != slices.Contains(c.want, i) {
				t.Errorf("at %v: %v, want only %v", c.load, got, c.want)
			}
		}
	}
}

// Rule 15 of integration/rules_test.go: two random choices among many: never
// the more loaded of the two, and a nearly even result.
func TestLeastConnectionsInLargePool(t *testing.T) {
	members := equal(200)
	p := New(Config{Policy: LeastConnections}, members, nil)
	for range 200 * 50 {
		acquire(members[p.Pick(&Query{Now: t0})])
	}
	// A rarely drawn endpoint may lag: 1 in 100 runs has one below 44, 1 in 10^9
	// has one below 33, 1 in 10^14 has five below 44.
	least, most, lag := int64(1<<62), int64(0), 0
	for _, m := range members {
		least, most = min(least, m.Active()), max(most, m.Active())
		if m.Active() < 44 {
			lag++
		}
	}
	if least < 33 || most > 54 || lag > 4 {
		t.Errorf("50 connections for each: between %d and %d, %d below 44", least, most, lag)
	}
	for _, m := range members[1:] {
		for range 1000 {
			acquire(m)
		}
	}
	if got := picks(p, 20_000, t0)[0]; got < 100 || got > 320 { // 1 in 100 draws considers it
		t.Errorf("the one idle endpoint of 200 got %d of 20000", got)
	}
}

// Rule 18 of integration/rules_test.go: a new endpoint's share grows, and the
// other endpoints keep theirs.
func TestSlowStart(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		members := equal(2)
		members[1].SetHealth(endpoint.Unhealthy, t0)
		members[1].SetHealth(endpoint.Healthy, t0)
		cfg := Config{Policy: policy, SlowStart: 10 * time.Second}
		share := func(after time.Duration) float64 {
			p := New(cfg, members, nil)
			got := picks(p, 10_000, t0.Add(after))
			return float64(got[1]) / float64(got[0]+got[1])
		}
		for _, c := range []struct {
			after    time.Duration
			from, to float64
		}{
			{0, 0.04, 0.12}, {5 * time.Second, 0.22, 0.37}, {10 * time.Second, 0.47, 0.53}, {time.Hour, 0.47, 0.53},
		} {
			if got := share(c.after); got < c.from || got > c.to {
				t.Errorf("after %v its share is %.2f, want %.2f to %.2f", c.after, got, c.from, c.to)
			}
		}
		members[0].SetHealth(endpoint.Unhealthy, t0)
		if got := share(0); got != 1 {
			t.Errorf("alone its share is %.2f, want all", got)
		}
	})
}

// Rule 18 of integration/rules_test.go: connections stay in the zone, and go
// elsewhere in proportion if it has too few usable endpoints.
func TestZonePreference(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		members := equal(20)
		for i := range members {
			members[i].Tags = map[string]string{"zone": []string{"a", "b"}[i/10]}
		}
		cfg := Config{Policy: policy, ZoneTag: "zone", Zone: "a", ZoneMinHealthy: 70}
		share := func(unusable int) float64 {
			for i, m := range members {
				m.SetHealth(endpoint.Healthy, t0)
				if i < unusable {
					m.SetHealth(endpoint.Unhealthy, t0)
				}
			}
			local := 0
			for i, n := range picks(New(cfg, members, nil), 10_000, t0) {
				if i < 10 {
					local += n
				}
			}
			return float64(local) / 10_000
		}
		for unusable, want := range map[int]float64{0: 1, 3: 1, 4: 6. / 7, 7: 3. / 7, 9: 1. / 7, 10: 0} {
			if got := share(unusable); math.Abs(got-want) > 0.03 || want == 1 && got != 1 {
				t.Errorf("with %d of 10 unusable %.2f stay, want %.2f", unusable, got, want)
			}
		}
		for _, m := range members {
			m.SetHealth(endpoint.Unhealthy, t0)
		}
		members[0].SetHealth(endpoint.Healthy, t0)
		if got := picks(New(cfg, members, nil), 100, t0); got[0] != 100 {
			t.Errorf("the only usable endpoint is near: %v", got)
		}
		members[19].SetHealth(endpoint.Healthy, t0)
		p := New(cfg, members, nil)
		for k := range 100 {
			q := Query{Now: t0, Hash: Mix(uint64(k)), Peek: true}
			want := p.Pick(&q)
			q.Peek = false
			if got := p.Pick(&q); got != want {
				t.Fatalf("connection %d went to %d after peeking at %d", k, got, want)
			}
			if again := p.Pick(&q); policy == Maglev && again != want {
				t.Fatalf("client %d went to %d and then to %d", k, want, again)
			}
		}
		panicking := cfg
		panicking.Panic = true
		for _, m := range members {
			m.SetHealth(endpoint.Unhealthy, t0)
		}
		if got := picks(New(panicking, members, nil), 2000, t0); !within(got, slices.Repeat([]float64{1}, 20), 6) {
			t.Errorf("in panic: %v", got)
		}
		cfg.Zone = "c"
		if p := New(cfg, members, nil); p.Empty() || p.NearShare(t0) != 1 {
			t.Error("in a zone without endpoints there is nothing to prefer")
		}
	})
}

// Rule 18 of integration/rules_test.go: removing one of a hundred endpoints
// moves its own clients and few others; the same client goes to the same
// endpoint.
func TestMaglevRemapsFewClients(t *testing.T) {
	members := equal(100)
	all := New(Config{Policy: Maglev}, members, nil)
	fewer := New(Config{Policy: Maglev}, slices.Delete(slices.Clone(members), 42, 43), all)
	moved, own := 0, 0
	const clients = 50_000
	for k := range clients {
		q := &Query{Now: t0, Hash: Mix(uint64(k))}
		before, after := all.Members()[all.Pick(q)], fewer.Members()[fewer.Pick(q)]
		if again := all.Members()[all.Pick(q)]; again != before {
			t.Fatal("the same client went elsewhere the second time")
		}
		switch {
		case before == members[42]:
			own++
		case before != after:
			moved++
		}
	}
	if own < clients/150 || own > clients/70 || moved > clients*3/100 {
		t.Errorf("of %d clients %d were its own and %d others moved", clients, own, moved)
	}
}

// If an endpoint fails only its own clients move, and they spread over the
// others.
func TestMaglevSpreadsTheClientsOfAFailedEndpoint(t *testing.T) {
	members := equal(10)
	p := New(Config{Policy: Maglev}, members, nil)
	before := map[int]int{}
	for k := range 5000 {
		before[k] = p.Pick(&Query{Now: t0, Hash: Mix(uint64(k))})
	}
	members[3].SetHealth(endpoint.Unhealthy, t0)
	counts := make([]int, 10)
	for k, was := range before {
		now := p.Pick(&Query{Now: t0, Hash: Mix(uint64(k))})
		if was != 3 && now != was {
			t.Fatalf("a client of endpoint %d moved to %d", was, now)
		}
		if was == 3 {
			counts[now]++
		}
	}
	for i, n := range counts {
		if (n == 0) != (i == 3) {
			t.Errorf("the clients of 3 went to %v", counts)
			break
		}
	}
}

func TestHashesAreTheSameInEveryVersion(t *testing.T) {
	for s, want := range map[string]uint64{"": 0xc3817c016ba4ff30, "10.0.0.1:80": 0xdf1d561fbd00135a} {
		if got := Hash(s); got != want {
			t.Errorf("Hash(%q) = %#x, want %#x: an upgrade would move every client", s, got, want)
		}
	}
}

func TestPickingAllocatesNothing(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		for _, n := range []int{3, 100} {
			p := New(Config{Policy: policy}, equal(n), nil)
			tried := setOf(1)
			if allocs := testing.AllocsPerRun(100, func() {
				p.Pick(&Query{Now: t0, Hash: 7})
				p.Pick(&Query{Now: t0, Hash: 7, Tried: tried})
			}); allocs != 0 {
				t.Errorf("of %d: %v allocations", n, allocs)
			}
		}
	})
}

func BenchmarkPick(b *testing.B) {
	for policy := range Policy(len(policies)) {
		for _, n := range []int{3, 100, 1000} {
			b.Run(fmt.Sprintf("%v/%d", policy, n), func(b *testing.B) {
				p := New(Config{Policy: policy}, equal(n), nil)
				b.ReportAllocs()
				h := uint64(0)
				for b.Loop() {
					h++
					p.Pick(&Query{Now: t0, Hash: Mix(h)})
				}
			})
		}
	}
}

func BenchmarkMaglevTable(b *testing.B) {
	for _, n := range []int{10, 100, 2000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			members := equal(n)
			for b.Loop() {
				New(Config{Policy: Maglev}, members, nil)
			}
		})
	}
}

func setOf(members ...int) *Set {
	s := new(Set)
	for _, i := range members {
		s.Add(i)
	}
	return s
}

// A paused endpoint gets no connections while another is ready, and is used if
// there is no other.
func TestPausedEndpointsAreLastResort(t *testing.T) {
	eachPolicy(t, func(t *testing.T, policy Policy) {
		for _, n := range []int{2, 3, 40} {
			g := endpoint.NewGroup("apps", nil)
			var set []endpoint.Spec
			for _, m := range equal(n) {
				set = append(set, endpoint.Spec{Address: m.Address, Addr: m.Addr})
			}
			var members []Member
			for _, e := range g.Update(set, t0) {
				members = append(members, Member{Endpoint: e, Weight: 1})
			}
			p := New(Config{Policy: policy}, members, nil)
			for i := range n - 1 {
				g.Failed(members[i].Endpoint, endpoint.ConnectFailed, t0)
			}
			if got := picks(p, 50, t0); got[n-1] != 50 || p.Source(t0) != FromReady {
				t.Errorf("%d endpoints, one not paused: %v", n, got)
			}
			if got := p.Pick(&Query{Now: t0, Tried: setOf(n - 1)}); got == n-1 {
				t.Errorf("of %d: the one that was tried comes before those that are paused", n)
			}
			members[n-1].SetHealth(endpoint.Unhealthy, t0)
			if got := picks(p, 50*n, t0); got[n-1] != 0 || got[0] == 0 || p.Source(t0) != FromPaused {
				t.Errorf("of %d with the rest paused: %v", n, got)
			}
		}
	})
}
