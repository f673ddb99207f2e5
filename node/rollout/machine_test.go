package rollout

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"penstock/routing/resource"
)

var t0 = time.Unix(1_700_000_000, 0)

// step is a step of a route under test.
type step struct {
	weight int
	lasts  time.Duration
}

// routeOf returns a route with a rollout.
func routeOf(abort resource.RolloutAbort, steps ...step) *resource.MeshTCPRoute {
	r := &resource.MeshTCPRoute{
		To: []resource.RouteTo{{
			TargetRef: resource.TargetRef{Kind: "MeshService", Name: "apps"},
			Rules: []resource.RouteRule{{Default: resource.RouteDefault{BackendRefs: []resource.BackendRef{
				{Kind: "MeshService", Name: "old"}, {Kind: "MeshService", Name: "new"},
			}}}},
		}},
		Rollout: &resource.RouteRollout{Backend: resource.RolloutBackend{Name: "new"}, Abort: abort},
	}
	for _, s := range steps {
		one := resource.RolloutStep{Weight: s.weight}
		if s.lasts > 0 {
			one.For = new(resource.Duration(s.lasts))
		}
		r.Rollout.Steps = append(r.Rollout.Steps, one)
	}
	return r
}

// healthy returns the observation of a healthy backend.
func healthy(watched time.Duration) *Measurements {
	return &Measurements{Now: t0, Watched: watched, Endpoints: 1}
}

// TestStepsAdvanceInOrder runs a normal rollout from start to end.
func TestStepsAdvanceInOrder(t *testing.T) {
	r := routeOf(resource.RolloutAbort{Window: resource.Duration(time.Minute)}, step{5, 10 * time.Minute}, step{50, time.Hour}, step{100, 0})
	var s *State
	for i, want := range []struct {
		watched time.Duration
		state   string
	}{
		{0, "running 1 5"},
		{10*time.Minute - 1, ""},
		{10 * time.Minute, "running 2 50"},
		{time.Hour - 1, ""},
		{time.Hour, "running 3 100"},
		{time.Minute - 1, ""}, // the last step lasts for the window
		{time.Minute, "done 3 100"},
		{1000 * time.Hour, ""},
	} {
		next := Next(r, s, healthy(want.watched))
		got := ""
		if next != nil {
			got = fmt.Sprintf("%s %d %d", next.Phase, next.Step, next.Weight)
			s = next
		}
		if got != want.state {
			t.Fatalf("observation %d, watched for %v: %q, want %q", i, want.watched, got, want.state)
		}
	}
}

func TestAbortThresholds(t *testing.T) {
	percent := func(p int) *int { return &p }
	for what, x := range map[string]struct {
		abort resource.RolloutAbort
		seen  Measurements
		want  string // "": no abort
	}{
		"too few to judge": {resource.RolloutAbort{}, Measurements{Counts: Counts{19, 19, 0}}, ""},
		"at the bound":     {resource.RolloutAbort{}, Measurements{Counts: Counts{100, 5, 0}}, ""},
		"over the bound": {
			resource.RolloutAbort{}, Measurements{Counts: Counts{100, 6, 0}},
			"6 of 100 connects within 1m failed or were reset, more than 5 %",
		},
		"resets count": {
			resource.RolloutAbort{}, Measurements{Counts: Counts{100, 3, 3}},
			"6 of 100 connects within 1m failed or were reset, more than 5 %",
		},
		"resets alone": {
			resource.RolloutAbort{}, Measurements{Counts: Counts{0, 0, 20}},
			"20 of 20 connects within 1m failed or were reset, more than 5 %",
		},
		"none at all": {
			resource.RolloutAbort{Failures: percent(0), Connections: 1}, Measurements{Counts: Counts{1000, 1, 0}},
			"1 of 1000 connects within 1m failed or were reset, more than 0 %",
		},
		"never": {
			resource.RolloutAbort{Failures: percent(100), Ejections: percent(100)},
			Measurements{Counts: Counts{100, 100, 0}, Endpoints: 3, Ejected: 3}, "",
		},
		"few are ejected": {resource.RolloutAbort{}, Measurements{Endpoints: 10, Ejected: 3}, ""},
		"more is ejected": {
			resource.RolloutAbort{}, Measurements{Endpoints: 4, Ejected: 3},
			"3 of 4 endpoints, summed over nodes, are ejected, more than 30 %",
		},
	} {
		r := routeOf(x.abort, step{5, time.Hour}, step{100, 0})
		for _, phase := range []string{resource.RolloutRunning, resource.RolloutPaused} {
			s := Next(r, nil, healthy(0))
			s.Phase = phase
			next := Next(r, s, &x.seen)
			switch {
			case x.want == "" && next != nil:
				t.Errorf("%s, %s: %+v", what, phase, next)
			case x.want != "" && (next == nil || next.Phase != resource.RolloutAborted ||
				next.Weight != 0 || next.Step != 1 || next.Reason != x.want):
				t.Errorf("%s, %s: %+v, want aborted since %s", what, phase, next, x.want)
			case next != nil && Next(r, next, &x.seen) != nil:
				t.Errorf("%s: an aborted rollout continues", what)
			}
		}
	}
}

// TestStepWaitsForEndpoints: the share of a backend without endpoints does not
// grow.
func TestStepWaitsForEndpoints(t *testing.T) {
	r := routeOf(resource.RolloutAbort{}, step{5, time.Second}, step{100, 0})
	s := Next(r, nil, healthy(0))
	if next := Next(r, s, &Measurements{Watched: time.Hour}); next != nil {
		t.Errorf("it continues to %+v", next)
	}
	if next := Next(r, s, &Measurements{Watched: time.Hour, Endpoints: 1}); next == nil || next.Step != 2 {
		t.Errorf("with an endpoint it does not continue: %+v", next)
	}
}

func TestCommands(t *testing.T) {
	r := routeOf(resource.RolloutAbort{}, step{5, time.Hour}, step{50, time.Hour}, step{100, 0})
	of := r.RolloutID()
	at := func(phase string) *State {
		return &State{Of: of, Phase: phase, Step: 2, Weight: 50, Spent: resource.Duration(time.Minute)}
	}
	for _, phase := range []string{"running", "paused", "done", "aborted", "rolledBack"} {
		for _, command := range Commands {
			next, err := ApplyCommand(command, r, at(phase), healthy(2*time.Minute), "alice")
			got := "refused"
			if err == nil {
				got = fmt.Sprintf("%s %d %d %v", next.Phase, next.Step, next.Weight, next.Spent)
			}
			want := map[string]string{
				"running pause": "paused 2 50 3m", "paused resume": "running 2 50 1m",
				"running rollback": "rolledBack 2 0 0s", "paused rollback": "rolledBack 2 0 0s", "done rollback": "rolledBack 2 0 0s",
			}[phase+" "+command]
			if command == Restart {
				want = "running 1 5 0s"
			}
			if want == "" {
				want = "refused"
			}
			if got != want {
				t.Errorf("%s when %s: %s, want %s", command, phase, got, want)
			}
			if err == nil && next.Reason != command+" by alice" {
				t.Errorf("%s: the reason is %q", command, next.Reason)
			}
			if err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), PhaseText(phase))) {
				t.Errorf("%s when %s: %v", command, phase, err)
			}
			// A rollout under way needs no restart.
			if advised := err != nil && strings.Contains(err.Error(), "restart starts it over"); advised !=
				(got == "refused" && !at(phase).UnderWay()) {
				t.Errorf("%s when %s: %v", command, phase, err)
			}
		}
	}
	// The state of another rollout is ignored.
	old := at("aborted")
	old.Of = "another"
	if next, err := ApplyCommand(Pause, r, old, healthy(0), "bob"); err != nil || next.Step != 1 || next.Of != of {
		t.Errorf("pause of a changed rollout: %+v, %v", next, err)
	}
}

// TestPauseBeforeTheFirstStateSpendsNothing: a rollout that is paused before
// its state is stored keeps its whole first step; the time of an earlier
// rollout does not count.
func TestPauseBeforeTheFirstStateSpendsNothing(t *testing.T) {
	r := routeOf(resource.RolloutAbort{}, step{5, time.Hour}, step{50, time.Hour})
	old := &State{Of: "another", Phase: resource.RolloutDone, Step: 3, Weight: 100}
	for what, s := range map[string]*State{"another": old, "none": nil} {
		seen := healthy(240 * time.Hour)
		paused, err := ApplyCommand(Pause, r, s, seen, "bob")
		if err != nil || paused.Spent != 0 || seen.Watched == 0 {
			t.Fatalf("%s: %+v, %v", what, paused, err)
		}
		resumed, err := ApplyCommand(Resume, r, paused, healthy(0), "bob")
		if err != nil {
			t.Fatal(err)
		}
		if next := Next(r, resumed, healthy(time.Hour-1)); next != nil {
			t.Errorf("%s: continues too early, to %+v", what, next)
		}
		if next := Next(r, resumed, healthy(time.Hour)); next == nil || next.Step != 2 {
			t.Errorf("%s: after its time it comes to %+v", what, next)
		}
	}
}

// model simulates a cluster: each node times the state in force by its own
// Tracker, any node may lead at any moment, and clocks may show anything.
type model struct {
	t     *rapid.T
	now   time.Time // the true time, which only the Trackers use
	nodes []*Tracker
	down  map[int]bool
	route *resource.MeshTCPRoute
	state *State
	// The actual history of the route's rollout.
	inForce time.Time     // start of the state
	ran     time.Duration // time in this step before inForce, without pauses
}

func (l *model) key() resource.Key { return resource.Key{Kind: resource.KindRollout, Name: "canary"} }

// store stores a state, which all nodes that are up apply.
func (l *model) store(s *State) {
	l.state = s
	l.inForce = l.now
	for i, b := range l.nodes {
		if !l.down[i] {
			b.Apply([]resource.Change{resource.Put(resource.Object{Key: l.key(), Spec: s})}, l.now)
		}
	}
}

func (l *model) put(r *resource.MeshTCPRoute) {
	l.route = r
	for i, b := range l.nodes {
		if !l.down[i] {
			b.Apply([]resource.Change{resource.Put(resource.Object{Key: resource.Key{Kind: kindRoute, Name: "canary"}, Spec: r})}, l.now)
		}
	}
}

// observe returns a leader's observation: the longest time in force that any
// responding node reports.
func (l *model) observe(leader int, answering []int, counts Counts) (*Measurements, Record) {
	own, _ := l.nodes[leader].Get("canary", l.now)
	wall := l.now.Add(time.Duration(rapid.Int64Range(-1e15, 1e15).Draw(l.t, "the leader's clock is off by")))
	seen := &Measurements{Now: wall, Counts: counts, Endpoints: 1, Watched: own.Watched}
	for _, i := range answering {
		if item, ok := l.nodes[i].Get("canary", l.now); ok && !l.down[i] && StateDigest(item.State) == StateDigest(own.State) {
			seen.Watched = max(seen.Watched, item.Watched)
		}
	}
	return seen, own
}

// TestRolloutUnderRandomFailures: leaders change at any moment, clocks jump,
// answers are late or lost, nodes restart, the route changes midway, users send
// commands. Yet steps follow in order, none is skipped or too short, and an
// aborted or rolled back rollout stays so until a user restarts it.
func TestRolloutUnderRandomFailures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := &model{t: t, now: t0, down: map[int]bool{}}
		for range rapid.IntRange(1, 4).Draw(t, "nodes") {
			l.nodes = append(l.nodes, new(Tracker))
		}
		draw := func() *resource.MeshTCPRoute {
			weights := rapid.SliceOfNDistinct(rapid.IntRange(1, 100), 1, 4, rapid.ID).Draw(t, "weights")
			slices.Sort(weights)
			var steps []step
			for _, w := range weights {
				steps = append(steps, step{w, time.Duration(rapid.IntRange(1, 100).Draw(t, "seconds")) * time.Second})
			}
			return routeOf(resource.RolloutAbort{Connections: 10}, steps...)
		}
		l.put(draw())
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			l.event(draw)
		}
	})
}

// event makes one random event happen.
func (l *model) event(draw func() *resource.MeshTCPRoute) {
	t := l.t
	node := rapid.IntRange(0, len(l.nodes)-1)
	switch rapid.SampledFrom([]string{
		"time", "time", "observe", "observe", "observe", "observe", "command", "route", "same route", "restart", "down",
	}).Draw(t, "event") {
	case "time":
		l.now = l.now.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "seconds")) * time.Second)
	case "observe":
		leader := node.Draw(t, "leader")
		if l.down[leader] {
			return
		}
		counts := Counts{Connects: 100}
		if rapid.IntRange(0, 9).Draw(t, "luck") == 0 {
			counts.Failed = 50
		}
		seen, own := l.observe(leader, rapid.SliceOfDistinct(node, rapid.ID).Draw(t, "answering"), counts)
		if !own.State.Same(l.state) || own.Route != l.route {
			return // the store rejects a decision about other content
		}
		if next := Next(own.Route, own.State, seen); next != nil {
			l.check(next, counts.Failed > 0)
			l.store(next)
		}
	case "command":
		leader := node.Draw(t, "leader")
		if l.down[leader] || l.state == nil {
			return
		}
		seen, own := l.observe(leader, nil, Counts{})
		command := rapid.SampledFrom(Commands).Draw(t, "command")
		next, err := ApplyCommand(command, l.route, own.State, seen, "someone")
		if err != nil || !own.State.Same(l.state) {
			return
		}
		if command == Pause && l.state.Of == next.Of {
			if truly := l.ran + l.now.Sub(l.inForce); next.Spent.D() > truly {
				t.Fatalf("paused after %v, and %v are said to be over", truly, next.Spent)
			}
			l.ran = next.Spent.D()
		}
		if next.Step != 1 && next.Step != l.state.Step {
			t.Fatalf("%s moves from step %d to %d", command, l.state.Step, next.Step)
		}
		if command == Restart || l.state.Of != next.Of {
			if next.Spent != 0 {
				t.Fatalf("%s: of a rollout that begins %v are said to be over", command, next.Spent)
			}
			l.ran = 0
		}
		l.store(next)
	case "route":
		l.put(draw())
	case "same route":
		again := *l.route
		l.put(&again)
	case "restart": // the node loses its Tracker
		i := node.Draw(t, "node")
		l.nodes[i], l.down[i] = new(Tracker), false
		l.nodes[i].Apply([]resource.Change{
			resource.Put(resource.Object{Key: resource.Key{Kind: kindRoute, Name: "canary"}, Spec: l.route}),
		}, l.now)
		if l.state != nil {
			l.nodes[i].Apply([]resource.Change{resource.Put(resource.Object{Key: l.key(), Spec: l.state})}, l.now)
		}
	case "down":
		l.down[node.Draw(t, "node")] = true
	}
}

// check compares a leader's decision with the actual history.
func (l *model) check(next *State, failing bool) {
	t, was := l.t, l.state
	if was == nil || was.Of != l.route.RolloutID() {
		if next.Step != 1 || next.Phase != resource.RolloutRunning || next.Weight != l.route.Rollout.Steps[0].Weight {
			t.Fatalf("it begins as %+v", next)
		}
		l.ran = 0
		return
	}
	if !was.UnderWay() {
		t.Fatalf("a rollout that was %s becomes %+v by itself", was.Phase, next)
	}
	if next.Phase == resource.RolloutAborted {
		if !failing || next.Weight != 0 {
			t.Fatalf("aborted, failing %v: %+v", failing, next)
		}
		return
	}
	if failing || was.Phase != resource.RolloutRunning {
		t.Fatalf("%s, failing %v: continues to %+v", was.Phase, failing, next)
	}
	steps := l.route.Rollout.Steps
	truly := l.now.Sub(l.inForce) + l.ran
	if truly < steps[was.Step-1].For.D() {
		t.Fatalf("step %d lasted %v, and is said to last %v", was.Step, truly, steps[was.Step-1].For)
	}
	switch {
	case next.Phase == resource.RolloutDone && was.Step == len(steps) && next.Step == was.Step && next.Weight == was.Weight:
	case next.Phase == resource.RolloutRunning && next.Step == was.Step+1 && next.Weight == steps[next.Step-1].Weight:
	default:
		t.Fatalf("after step %d of %d comes %+v", was.Step, len(steps), next)
	}
	l.ran = 0
}
