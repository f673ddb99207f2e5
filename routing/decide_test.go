package routing

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// service returns a service with n endpoints, 10.0.0.0:1 and up.
func service(n int) *resource.Service {
	s := &resource.Service{}
	for i := range n {
		s.Endpoints = append(s.Endpoints, resource.Endpoint{Address: fmt.Sprintf("10.0.%d.%d:1", i>>8, i&255)})
	}
	return s
}

func plainTo(name string) resource.Change {
	return put("Listener", "front", &resource.Listener{Service: name})
}

// Whatever happens to connections, in any order, each is counted at its current
// endpoint and nowhere else.
func TestConnectionsCountExactlyWhereTheyAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := NewRouter(Config{})
		s := service(3)
		s.Connect.RetryBudget = new(100)
		if _, err := r.Apply([]resource.Change{put("Service", "apps", s), plainTo("apps")}, t0); err != nil {
			t.Fatal(err)
		}
		first, _ := r.Table().Service("apps")
		group := first.Group()
		all := group.Endpoints()
		var open []*Decision
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			var d *Decision
			if len(open) > 0 {
				d = rapid.SampledFrom(open).Draw(t, "connection")
			}
			switch step := rapid.IntRange(0, 6).Draw(t, "step"); {
			case step == 0 || d == nil:
				fresh, reason := r.Decide(&Input{Listener: "front"})
				if reason != OK {
					t.Fatal(reason)
				}
				open = append(open, &fresh)
			case step <= 2:
				before := d.Attempts()
				e, reason := d.Next(t0)
				if (e == nil) != (reason != OK) || e != d.Endpoint() && reason == OK {
					t.Fatalf("Next gave %v and %q", e, reason)
				}
				if d.Attempts() > 3 || reason == OK && d.Attempts() != before+1 {
					t.Fatalf("%d attempts", d.Attempts())
				}
			case step == 3:
				d.Connected(t0)
			case step == 4:
				d.Failed(t0)
			case step == 5:
				d.EarlyReset(t0)
			default:
				d.Closed()
			}
			want := map[*endpoint.Endpoint]int64{}
			for _, d := range open {
				if e := d.Endpoint(); e != nil {
					want[e]++
				}
			}
			for _, e := range all {
				if e.Active() != want[e] {
					t.Fatalf("%s has %d, counts %d", e.Address, want[e], e.Active())
				}
			}
		}
		for _, d := range open {
			d.Closed()
			d.Closed()
		}
		for _, e := range all {
			if e.Active() != 0 {
				t.Fatalf("%s counts %d with none left", e.Address, e.Active())
			}
		}
	})
}

// Rule 17 of integration/rules_test.go: retries have a budget over all
// connections of the service.
func TestRetriesHaveABudget(t *testing.T) {
	r := NewRouter(Config{})
	s := service(5)
	s.Connect.Attempts, s.Connect.RetryBudget = 10, new(10)
	mustApply(t, r, put("Service", "apps", s), plainTo("apps"))
	attempts := func(n int, now time.Time) (sum int) {
		for range n {
			d, _ := r.Decide(&Input{Listener: "front"})
			for {
				if _, reason := d.Next(now); reason == RetriesExhausted {
					break
				}
				d.RecordFault(endpoint.ConnectTimedOut, "", now)
			}
			sum += d.Attempts()
			d.Closed()
		}
		return sum
	}
	// The first connection of each round retries at four endpoints that are not
	// yet known to fail.
	if got := attempts(50, t0); got != 50+4+10 {
		t.Errorf("50 failing connections made %d attempts, want 64: 10 retries are always allowed", got)
	}
	if got := attempts(950, t0.Add(time.Second)); got != 950+4+90 {
		t.Errorf("950 more made %d attempts, want 1044: a tenth of 1000 may be retries", got)
	}
	if got := attempts(1, t0.Add(time.Minute)); got != 10 {
		t.Errorf("a minute later one made %d attempts, want all 10", got)
	}
}

// A split stays exact over tables that do not change it, even with concurrent
// connections and changes: rule 14 of integration/rules_test.go.
func TestDecisionsDuringChanges(t *testing.T) {
	r := NewRouter(Config{})
	tagged := func(n int) *resource.Service {
		s := service(4)
		for i := range s.Endpoints {
			s.Endpoints[i].Tags = map[string]string{"version": fmt.Sprint(i % 2), "n": fmt.Sprint(n)}
		}
		return s
	}
	backend := func(version string, weight int) resource.BackendRef {
		return resource.BackendRef{Kind: kindMeshServiceSubset, Name: "apps", Tags: map[string]string{"version": version}, Weight: new(weight)}
	}
	route := &resource.MeshTCPRoute{To: []resource.RouteTo{{
		TargetRef: resource.TargetRef{Kind: kindMeshService, Name: "apps"},
		Rules:     []resource.RouteRule{{Default: resource.RouteDefault{BackendRefs: []resource.BackendRef{backend("0", 90), backend("1", 10)}}}},
	}}}
	mustApply(t, r, put("Service", "apps", tagged(0)), put("MeshTCPRoute", "canary", route), plainTo("apps"))

	const loops, each = 4, 2500
	var canary [loops]int
	var work, writer sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := r.Apply([]resource.Change{
				put("Service", "apps", tagged(n)), put("Service", fmt.Sprint("other-", n%5), service(n%7)),
				put("Listener", "edge", &resource.Listener{Protocol: "tls", Hosts: manyRules(n % 50)}),
			}, t0); err != nil {
				t.Error(err)
			}
		}
	})
	for l := range loops {
		work.Go(func() {
			for n := range each {
				d, reason := r.Decide(&Input{Listener: "front"})
				if reason != OK {
					t.Errorf("closed: %s", reason)
					return
				}
				e, reason := d.Next(t0)
				if reason != OK {
					t.Errorf("closed: %s", reason)
					return
				}
				if e.Tags["version"] == "1" {
					canary[l]++
				}
				d.Connected(t0)
				if n%100 == 0 {
					r.Explain(&Input{Listener: "front"}, t0)
				}
				if n%500 == 0 { // what-if analysis advances no split
					whatIf, err := r.Table().WhatIf([]resource.Change{
						put("MeshTCPRoute", "canary", routeFor(resource.TargetRef{Kind: kindMesh}, "apps")),
					}, nil, t0)
					if err != nil {
						t.Error(err)
						return
					}
					whatIf.DiffSummary(nil)
					if _, err := whatIf.Simulate(t.Context(), &SimulateRequest{Connections: 10}, t0); err != nil {
						t.Error(err)
					}
				}
				d.Closed()
			}
		})
	}
	work.Wait()
	close(stop)
	writer.Wait()
	sum := 0
	for _, n := range canary {
		sum += n
	}
	if sum != loops*each/10 {
		t.Errorf("the canary had %d of %d connections, want a tenth", sum, loops*each)
	}
	s, _ := r.Table().Service("apps")
	for _, e := range s.Group().Endpoints() {
		if e.Active() != 0 {
			t.Errorf("%s counts %d connections after all have closed", e.Address, e.Active())
		}
	}
}

// State that outlives tables is found again by service and address.
func TestStateOutlivesTables(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "apps", service(3)), plainTo("apps"))
	d, _ := r.Decide(&Input{Listener: "front"})
	e, _ := d.Next(t0)
	d.Connected(t0)
	e.SetHealth(endpoint.Unhealthy, t0)
	old, _ := r.Table().Service("apps")

	fewer := service(4)
	fewer.Endpoints = slices.Delete(fewer.Endpoints, 1, 2)
	fewer.Balancing.Policy = "leastConnections"
	mustApply(t, r, put("Service", "apps", fewer))
	now, _ := r.Table().Service("apps")
	if now == old || now.Group() != old.Group() {
		t.Fatal("the version, or the group of its endpoints, is not as it should be")
	}
	if m := now.Members()[0]; m.Endpoint != e || m.Active() != 1 || m.Health() != endpoint.Unhealthy {
		t.Errorf("%s: %d active, %v", m.Address, m.Active(), m.Health())
	}
	d.Closed()
	if m := now.Members()[0]; m.Active() != 0 {
		t.Errorf("%d active after the connection closed", m.Active())
	}
}

func TestUnrelatedChangesKeepPointers(t *testing.T) {
	r := NewRouter(Config{})
	mustApply(t, r, put("Service", "apps", service(3)), put("Service", "other", service(1)), plainTo("apps"))
	apps, _ := r.Table().Service("apps")
	front, _ := r.Table().Listener("front")
	a := mustApply(t, r, put("Service", "other", service(2)))
	if !slices.Equal(a.Services, []string{"other"}) || a.Listeners != nil || a.Hosts {
		t.Errorf("changed: %+v", a)
	}
	if now, _ := a.Table.Service("apps"); now != apps {
		t.Error("another service was made anew")
	}
	if now, _ := a.Table.Listener("front"); now != front {
		t.Error("a listener was made anew")
	}
}

// Explain advances no split, counts nothing and predicts the next decision.
func TestExplainPredictsNextConnection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := changes{}
		r := NewRouter(Config{NodeTags: map[string]string{"v": "1"}})
		var batch []resource.Change
		for n := range 5 {
			s := g.service(t)
			s.Balancing.Policy = rapid.SampledFrom([]string{"roundRobin", "maglev"}).Draw(t, "policy")
			batch = append(batch, put("Service", fmt.Sprintf("s-%d", n), s))
		}
		for n := range 2 {
			batch = append(batch, put("MeshTCPRoute", fmt.Sprintf("r-%d", n), g.route(t)))
		}
		batch = append(batch, put("Listener", "edge", g.listener(t)))
		for i := range batch {
			if _, err := r.Apply(batch[i:i+1], t0); err != nil && batch[i].Kind != "Certificate" {
				t.Fatal(err)
			}
		}
		for range 30 {
			in := &Input{Listener: "edge", HasServerName: true, Client: netip.AddrFrom4([4]byte{10, 0, 0, byte(rand.IntN(4))})}
			in.ServerName = fmt.Sprintf("n%d.example", rapid.IntRange(0, 14).Draw(t, "name"))
			in.ALPN = rapid.SampledFrom([][]string{nil, {"h2"}, {"h3", "h2"}}).Draw(t, "alpn")
			e := r.Explain(in, t0)
			if again := r.Explain(in, t0); again.Text() != e.Text() {
				t.Fatalf("the second time:\n%s\nthe first time:\n%s", again.Text(), e.Text())
			}
			if e.Reason == NoCertificate { // the handshake fails before routing
				l, _ := r.Table().Listener("edge")
				if _, why := l.Certificates(in.ServerName, true); why != NoCertificate || l.Spec().TLS.Mode != "terminate" {
					t.Fatalf("the handshake says %q after:\n%s", why, e.Text())
				}
				continue
			}
			d, reason := r.Decide(in)
			at := ""
			if reason == OK {
				var to *endpoint.Endpoint
				if to, reason = d.Next(t0); to != nil {
					at = to.Addr.String()
					if to.Unix != "" {
						at = to.Address
					}
				}
			}
			if e.Reason != reason || e.Service != d.Service() || e.Destination != d.Destination() || e.Endpoint != at {
				t.Fatalf("decided %q %q %q %q after:\n%s", d.Destination(), d.Service(), at, reason, e.Text())
			}
			d.Closed()
		}
	})
}

func TestExplainListenerOfOtherNodes(t *testing.T) {
	r := NewRouter(Config{NodeTags: map[string]string{"zone": "a"}})
	mustApply(t, r, put("Listener", "front", &resource.Listener{Address: ":1", Nodes: map[string]string{"zone": "b"}}))
	if l, _ := r.Table().Listener("front"); l.RunsHere() {
		t.Error("it is to run here")
	}
	if e := r.Explain(&Input{Listener: "front"}, t0); e.Steps[0].Result != "tcp at :1, not on this node" {
		t.Errorf("got %q", e.Steps[0].Result)
	}
}

func TestEmptyTablesAndDecisionsRouteNothing(t *testing.T) {
	if _, ok := (&Table{}).Service("none"); ok {
		t.Error("an empty table has a service")
	}
	d := Decision{}
	if e, reason := d.Next(t0); e != nil || reason != RetriesExhausted || d.Service() != "" || d.Destination() != "" {
		t.Errorf("an empty decision leads to %v, %q", e, reason)
	}
	d.Closed()
}

func TestMaglevUsesConfiguredHashKey(t *testing.T) {
	r := NewRouter(Config{})
	s := service(50)
	s.Balancing = resource.Balancing{Policy: "maglev", HashOn: "serverName"}
	mustApply(t, r, put("Service", "apps", s),
		put("Listener", "edge", &resource.Listener{Protocol: "tls", Service: "apps", NoServerName: "service"}))
	to := func(name string, client byte) *endpoint.Endpoint {
		d, _ := r.Decide(&Input{
			Listener: "edge", ServerName: name, HasServerName: name != "", Client: netip.AddrFrom4([4]byte{192, 0, 2, client}),
		})
		e, _ := d.Next(t0)
		d.Closed()
		return e
	}
	if to("a.example", 1) != to("A.Example", 2) {
		t.Error("the same name leads to different endpoints")
	}
	byName, byClient := map[*endpoint.Endpoint]bool{}, map[*endpoint.Endpoint]bool{}
	for i := range byte(20) {
		byName[to(fmt.Sprintf("%d.example", i), 1)] = true
		byClient[to("", i)] = true
	}
	if len(byName) < 5 || len(byClient) < 5 {
		t.Errorf("20 names lead to %d endpoints, 20 clients without one to %d", len(byName), len(byClient))
	}
	if v4, mapped := hashAddr(netip.MustParseAddr("192.0.2.1")), hashAddr(netip.MustParseAddr("::ffff:192.0.2.1")); v4 != mapped {
		t.Error("an IPv4 address hashes otherwise when it is written as IPv6")
	}
}

func TestDecidingAllocatesNothing(t *testing.T) {
	r := tableOf(t, 1000)
	in := &Input{
		Listener: "edge", ServerName: "tenant-5.apps.example.com", HasServerName: true,
		Client: netip.MustParseAddr("10.1.2.3"), ALPN: []string{"h2"},
	}
	if n := testing.AllocsPerRun(100, func() {
		d, _ := r.Decide(in)
		d.Next(t0)
		d.Connected(t0)
		d.Closed()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if size := unsafe.Sizeof(Decision{}); size > 104 {
		t.Errorf("a decision takes %d bytes", size)
	}
}

// tableOf returns a router with n names and 100 services, each with a split,
// and with tags in every layer but the client's.
func tableOf(t testing.TB, n int) *Router {
	r := NewRouter(Config{NodeTags: map[string]string{"zone": "a"}})
	batch := []resource.Change{put("Listener", "edge", &resource.Listener{Protocol: "tls", Hosts: manyRules(n),
		Sources: []resource.SourceRule{{From: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, Tags: map[string]string{"service": "web"}}}})}
	for i := range 100 {
		name := fmt.Sprintf("service-%d", i)
		ref := func(name string, weight int) resource.BackendRef {
			return resource.BackendRef{Kind: kindMeshService, Name: name, Weight: new(weight)}
		}
		batch = append(batch, put("Service", name, service(3)), put("MeshTCPRoute", name, &resource.MeshTCPRoute{
			TargetRef: &resource.TargetRef{Kind: kindMeshSubset, Tags: map[string]string{"zone": "a"}},
			To: []resource.RouteTo{{TargetRef: resource.TargetRef{Kind: kindMeshService, Name: name},
				Rules: []resource.RouteRule{{Default: resource.RouteDefault{BackendRefs: []resource.BackendRef{
					ref(name, 90), ref(fmt.Sprintf("service-%d", (i+1)%100), 10)}}}}}}}))
	}
	mustApply(t, r, batch...)
	return r
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{10, 100_000} {
		r := tableOf(b, n)
		inputs := make([]*Input, 1024)
		for i := range inputs {
			inputs[i] = &Input{
				Listener: "edge", ServerName: fmt.Sprintf("tenant-%d.apps.example.com", i*7919%n), HasServerName: true,
				Client: netip.MustParseAddr("10.1.2.3"),
			}
		}
		for _, whole := range []bool{false, true} {
			name := map[bool]string{false: "resolve+route", true: "connection"}[whole]
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					d, _ := r.Decide(inputs[i&1023])
					if whole {
						d.Next(t0)
						d.Connected(t0)
						d.Closed()
					}
					i++
				}
			})
		}
	}
}

func BenchmarkAddOneNameTo100000(b *testing.B) {
	r := NewRouter(Config{})
	specs := [2]*resource.Listener{}
	for i := range specs {
		specs[i] = &resource.Listener{Protocol: "tls", Hosts: slices.Insert(manyRules(100_000), 50_000*i, rule("new.example", "s"))}
		mustApply(b, r, put("Listener", "edge", specs[i]))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		mustApply(b, r, put("Listener", "edge", specs[i&1]))
		i++
	}
}

func BenchmarkChangeOneServiceOf10000(b *testing.B) {
	r := NewRouter(Config{})
	var batch []resource.Change
	for i := range 10_000 {
		batch = append(batch, put("Service", fmt.Sprintf("service-%d", i), service(3)))
	}
	mustApply(b, r, batch...)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		mustApply(b, r, put("Service", "service-77", service(3+i&1)))
		i++
	}
}

func BenchmarkFirstTableOf100000Names(b *testing.B) {
	l := put("Listener", "edge", &resource.Listener{Protocol: "tls", Hosts: manyRules(100_000)})
	b.ReportAllocs()
	for b.Loop() {
		mustApply(b, NewRouter(Config{}), l)
	}
}

// A connection without a local port on this node does not count against its
// endpoint, not even as the probe after a pause, and the other endpoint is
// next.
func TestLocalFaultsDoNotCountAgainstEndpoints(t *testing.T) {
	t.Parallel()
	r := NewRouter(Config{})
	if _, err := r.Apply([]resource.Change{put("Service", "apps", service(2)), plainTo("apps")}, t0); err != nil {
		t.Fatal(err)
	}
	d, _ := r.Decide(&Input{Listener: "front"})
	first, reason := d.Next(t0)
	if reason != OK {
		t.Fatal(reason)
	}
	d.RecordLocalFault("no port", t0)
	d.RecordLocalFault("no port", t0) // the second call has no effect
	if n := first.Active(); n != 0 || !first.Ready(t0) {
		t.Errorf("%d connections, ready %v", n, first.Ready(t0))
	}
	apps, _ := r.Table().Service("apps")
	if c := apps.Group().Condition(first, t0); c.Error != "no port" || c.Reason != "" {
		t.Errorf("it is shown as %+v, want the error and nothing else", c)
	}
	second, reason := d.Next(t0)
	if reason != OK || second == first || !first.Ready(t0) {
		t.Errorf("then %v, %v; the first is ready: %v", second.Addr, reason, first.Ready(t0))
	}
	d.Failed(t0)
	if second.Ready(t0) {
		t.Error("an endpoint that failed is ready")
	}
	d.Closed()
	d.RecordLocalFault("no port", t0)
}
