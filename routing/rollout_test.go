package routing

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

// rollout writes the state of a route's rollout like the leader: its phase,
// step and weight; with a further argument as that of another rollout. Without
// a phase it prints the counts.
func (w *world) rollout(args []string) string {
	name := args[0]
	if len(args) == 1 {
		c, ok := w.router.Table().RolloutCounts(name, w.now)
		if !ok {
			return "none"
		}
		return fmt.Sprintf("%d connects, %d failed, %d resets; %d endpoints, %d ejected", c.Connects, c.Failed, c.Resets, c.Endpoints, c.Ejected)
	}
	r, ok := w.router.Table().routes.Get(name)
	if !ok {
		w.t.Fatalf("no route %q", name)
	}
	s := &resource.Rollout{Of: r.RolloutID(), Phase: args[1]}
	s.Step, _ = strconv.Atoi(args[2])
	s.Weight, _ = strconv.Atoi(args[3])
	if len(args) > 4 {
		s.Of = args[4]
	}
	return w.change([]resource.Change{put(resource.KindRollout, name, s)})
}

func rolloutRoute(weights []int, at int, steps ...int) *resource.MeshTCPRoute {
	r := splitBy(weights)
	r.Rollout = &resource.RouteRollout{Backend: resource.RolloutBackend{Name: fmt.Sprint("part-", at)}}
	for _, w := range steps {
		r.Rollout.Steps = append(r.Rollout.Steps, resource.RolloutStep{Weight: w, For: new(resource.Duration(1))})
	}
	return r
}

// In each hundred connections the new backend gets exactly the weight of the
// step, from the first connection of a step on. Connections by another route
// are not counted.
func TestEachStepsShareIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		steps := rapid.SliceOfNDistinct(rapid.IntRange(1, 100), 1, 4, rapid.ID).Draw(t, "steps")
		route := rolloutRoute([]int{1, rapid.IntRange(0, 5).Draw(t, "own")}, 1, steps...)
		r := NewRouter(Config{})
		if _, err := r.Apply([]resource.Change{
			put("Service", "apps", service(1)), put("Service", "part-0", service(1)), put("Service", "part-1", service(1)),
			put("Listener", "front", &resource.Listener{Service: "apps"}), put("Listener", "direct", &resource.Listener{Service: "part-1"}),
			put("MeshTCPRoute", "split", route),
		}, t0); err != nil {
			t.Fatal(err)
		}
		total := uint64(0)
		for i, want := range steps {
			if i > 0 || rapid.Bool().Draw(t, "noted") { // the first step applies before the leader records it
				note := &resource.Rollout{Of: route.RolloutID(), Phase: "running", Step: i + 1, Weight: want}
				if _, err := r.Apply([]resource.Change{put(resource.KindRollout, "split", note)}, t0); err != nil {
					t.Fatal(err)
				}
			}
			got, hundreds := 0, rapid.IntRange(1, 3).Draw(t, "hundreds")
			for range 100 * hundreds {
				d, reason := r.Decide(&Input{Listener: "front"})
				if reason != OK {
					t.Fatal(reason)
				}
				if d.Service() == "part-1" {
					got++
				}
				if _, reason := d.Next(t0); reason != OK {
					t.Fatal(reason)
				}
				d.Connected(t0)
				d.Closed()
				total += map[bool]uint64{true: 1}[d.Service() == "part-1"]
				other, _ := r.Decide(&Input{Listener: "direct"})
				_, _ = other.Next(t0)
				other.Connected(t0)
				other.Closed()
			}
			c, ok := r.Table().RolloutCounts("split", t0)
			if !ok || c.Connects != total || c.Failed+c.Resets != 0 {
				t.Fatalf("step %d: counted %+v, want %d connects", i+1, c, total)
			}
			if got != want*hundreds {
				t.Fatalf("step %d: %d connections of %d hundreds came, want %d of each", i+1, got, hundreds, want)
			}
		}
	})
}

// An established connection keeps its endpoint at every step of the rollout.
func TestRolloutKeepsEstablishedConnections(t *testing.T) {
	route := rolloutRoute([]int{1, 1}, 1, 50, 100)
	r := NewRouter(Config{})
	if _, err := r.Apply([]resource.Change{
		put("Service", "apps", service(1)), put("Service", "part-0", service(1)), put("Service", "part-1", service(1)),
		put("Listener", "front", &resource.Listener{Service: "apps"}), put("MeshTCPRoute", "split", route),
	}, t0); err != nil {
		t.Fatal(err)
	}
	held := map[string]*Decision{}
	for range 2 {
		d, _ := r.Decide(&Input{Listener: "front"})
		if _, reason := d.Next(t0); reason != OK {
			t.Fatal(reason)
		}
		d.Connected(t0)
		held[d.Service()] = &d
	}
	for _, note := range []resource.Rollout{{Phase: "running", Step: 2, Weight: 100}, {Phase: "aborted", Step: 2}} {
		note.Of = route.RolloutID()
		if _, err := r.Apply([]resource.Change{put(resource.KindRollout, "split", &note)}, t0); err != nil {
			t.Fatal(err)
		}
		for name, d := range held {
			s, _ := r.Table().Service(name)
			if d.Endpoint() == nil || d.Endpoint().Active() != 1 || s.Members()[0].Endpoint != d.Endpoint() {
				t.Errorf("%s: the connection to %s is not where it was", note.Phase, name)
			}
		}
	}
	// An early reset is counted in the counter that counted the connect, without
	// keeping another table alive.
	held["part-1"].EarlyReset(t0)
	if c, _ := r.Table().RolloutCounts("split", t0); c.Connects != 1 || c.Resets != 1 {
		t.Errorf("counted %+v, want one connect and one reset", c)
	}
}

// RolloutCounts reports for how long a node has counted, since the route's
// rollout began.
func TestRolloutCountsIncludeTheirDuration(t *testing.T) {
	route := rolloutRoute([]int{1, 1}, 1, 50, 100)
	r := NewRouter(Config{})
	changes := []resource.Change{
		put("Service", "apps", service(1)), put("Service", "part-0", service(1)), put("Service", "part-1", service(1)),
		put("MeshTCPRoute", "split", route),
	}
	if _, err := r.Apply(changes, t0); err != nil {
		t.Fatal(err)
	}
	want := func(at, counting time.Duration) {
		t.Helper()
		if c, ok := r.Table().RolloutCounts("split", t0.Add(at)); !ok || c.Counting != counting {
			t.Errorf("after %v it has counted for %v, want %v", at, c.Counting, counting)
		}
	}
	want(0, 0)
	note := &resource.Rollout{Of: route.RolloutID(), Phase: "running", Step: 2, Weight: 100}
	if _, err := r.Apply([]resource.Change{put(resource.KindRollout, "split", note)}, t0.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	want(time.Hour, time.Hour)
	for _, change := range []resource.Change{
		resource.Delete(resource.Key{Kind: "MeshTCPRoute", Name: "split"}), put("MeshTCPRoute", "split", route),
	} {
		if _, err := r.Apply([]resource.Change{change}, t0.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	want(time.Hour+time.Second, time.Second)
}

// Simulated connections are not counted.
func TestSimulatedConnectionsDoNotCountForRollout(t *testing.T) {
	route := rolloutRoute([]int{1, 1}, 1, 50, 100)
	r := NewRouter(Config{})
	if _, err := r.Apply([]resource.Change{
		put("Service", "apps", service(1)), put("Service", "part-0", service(1)), put("Service", "part-1", service(1)),
		put("Listener", "front", &resource.Listener{Service: "apps"}), put("MeshTCPRoute", "split", route),
	}, t0); err != nil {
		t.Fatal(err)
	}
	whatIf, err := r.Table().WhatIf([]resource.Change{put("Service", "part-0", service(2))}, nil, t0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := whatIf.Simulate(t.Context(), &SimulateRequest{Connections: 100, Destination: "apps"}, t0); err != nil {
		t.Fatal(err)
	}
	if c, ok := r.Table().RolloutCounts("split", t0); !ok || c.Connects != 0 {
		t.Errorf("counted %+v, %v", c, ok)
	}
	fork := r.Table().clone(nil, t0)
	if c, ok := fork.Table().RolloutCounts("split", t0); !ok || c.Endpoints != 1 {
		t.Errorf("the fork has %+v, %v", c, ok)
	}
}

// If a new backend has all the weight and no endpoint, every connection is
// closed and counts as a failure of the rollout. Connections closed while it
// has no weight do not count, nor do explain and simulations.
func TestUnroutableConnectionsCountAsRolloutFailures(t *testing.T) {
	route := rolloutRoute([]int{1, 1}, 1, 50, 100)
	r := NewRouter(Config{})
	mustApply := func(changes ...resource.Change) {
		t.Helper()
		if _, err := r.Apply(changes, t0); err != nil {
			t.Fatal(err)
		}
	}
	note := func(phase string, step, weight int) resource.Change {
		return put(resource.KindRollout, "split", &resource.Rollout{Of: route.RolloutID(), Phase: phase, Step: step, Weight: weight})
	}
	mustApply(
		put("Service", "apps", service(1)), put("Service", "part-0", service(1)), put("Service", "part-1", service(1)),
		put("Listener", "front", &resource.Listener{Service: "apps"}), put("MeshTCPRoute", "split", route), note("running", 2, 100),
	)
	want := func(what string, closed int, counts RolloutCounts) {
		t.Helper()
		got := 0
		for range 10 {
			d, reason := r.Decide(&Input{Listener: "front"})
			if reason == NoBackend {
				got++
			}
			d.Closed()
		}
		if c, ok := r.Table().RolloutCounts("split", t0); got != closed || !ok || c != counts {
			t.Errorf("%s: %d of 10 are closed, and it has counted %+v, %v; want %d, %+v", what, got, c, ok, closed, counts)
		}
	}
	want("well", 0, RolloutCounts{Endpoints: 1})
	mustApply(put("Service", "part-1", service(0)))
	want("without an endpoint", 10, RolloutCounts{Connects: 10, Failed: 10})
	r.Table().Explain(&Input{Listener: "front"}, t0)
	whatIf, err := r.Table().WhatIf(nil, nil, t0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := whatIf.Simulate(t.Context(), &SimulateRequest{Connections: 10, Destination: "apps"}, t0); err != nil {
		t.Fatal(err)
	}
	mustApply(resource.Delete(resource.Key{Kind: "Service", Name: "part-1"}))
	want("without the service", 10, RolloutCounts{Connects: 20, Failed: 20})
	mustApply(note("aborted", 2, 0))
	want("aborted", 0, RolloutCounts{Connects: 20, Failed: 20})
	mustApply(put("Service", "part-0", service(0)))
	want("aborted, with nobody left", 10, RolloutCounts{Connects: 20, Failed: 20})
}

// A rollout among a hundred backends with large coprime weights replaces a
// split in the middle of its period: the table is built quickly, and the shares
// are exact.
func TestRolloutAmongManyLargeWeights(t *testing.T) {
	r := NewRouter(Config{})
	changes := []resource.Change{put("Service", "apps", service(1)), put("Listener", "front", &resource.Listener{Service: "apps"})}
	var weights []int
	for i := range 100 {
		changes = append(changes, put("Service", fmt.Sprint("part-", i), service(1)))
		weights = append(weights, 1_000_000-i)
	}
	changes = append(changes, put("MeshTCPRoute", "split", splitBy([]int{1, 1})))
	if _, err := r.Apply(changes, t0); err != nil {
		t.Fatal(err)
	}
	d, _ := r.Decide(&Input{Listener: "front"}) // the split is in the middle of its period
	d.Closed()
	if _, err := r.Apply([]resource.Change{put("MeshTCPRoute", "split", rolloutRoute(weights, 99, 51, 100))}, t0); err != nil {
		t.Fatal(err)
	}
	got := 0
	for range 1000 {
		d, reason := r.Decide(&Input{Listener: "front"})
		if reason != OK {
			t.Fatal(reason)
		}
		if d.Service() == "part-99" {
			got++
		}
		d.Closed()
	}
	if got < 509 || got > 511 {
		t.Errorf("at 51 %% the new one gets %d of 1000", got)
	}
}

// With the default limit of ejections, a new backend whose endpoints all refuse
// exceeds the default abort threshold of a rollout, whatever their number. The
// last usable endpoint is never ejected.
func TestEjectionOfWholeServiceExceedsRolloutBound(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 10} {
		route := rolloutRoute([]int{1, 1}, 1, 50, 100)
		r := NewRouter(Config{})
		broken := service(n)
		broken.Ejection = &resource.Ejection{}
		if _, err := r.Apply([]resource.Change{
			put("Service", "apps", service(1)), put("Service", "part-0", service(1)), put("Service", "part-1", broken),
			put("Listener", "front", &resource.Listener{Service: "part-1"}), put("MeshTCPRoute", "split", route),
		}, t0); err != nil {
			t.Fatal(err)
		}
		now, worst := t0, 0
		for range 2000 {
			now = now.Add(time.Millisecond)
			d, reason := r.Decide(&Input{Listener: "front"})
			if reason != OK {
				t.Fatal(reason)
			}
			if _, reason := d.Next(now); reason == OK {
				d.Failed(now)
			}
			d.Closed()
			c, _ := r.Table().RolloutCounts("split", now)
			worst = max(worst, c.Ejected)
		}
		bound := *route.Rollout.WithDefaults().Abort.Ejections
		if over := worst*100 > bound*n; over != (n > 1) {
			t.Errorf("of %d endpoints that all refuse at most %d are ejected: over %d %%: %v", n, worst, bound, over)
		}
	}
}
