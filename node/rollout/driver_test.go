package rollout

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/node/catalog"
	"penstock/routing/resource"
)

// fixture is a driver of one rollout, with its stored state and the nodes'
// reports. A stored state is in force at once.
type fixture struct {
	*Driver
	route *resource.MeshTCPRoute
	ask   func(ctx context.Context) []Report

	mu      sync.Mutex
	state   *State
	stored  []string // the phases stored so far
	tracker Tracker
}

func newFixture(r *resource.MeshTCPRoute, s *State) *fixture {
	x := &fixture{route: r}
	x.Driver = New(Config{
		Tracker: &x.tracker, Store: x, Leads: func() bool { return true }, Name: "a",
		Ask: func(ctx context.Context, _ []string) []Report { return x.ask(ctx) },
	})
	x.tracker.Apply([]resource.Change{resource.Put(resource.Object{Key: resource.Key{Kind: kindRoute, Name: "canary"}, Spec: r})}, time.Now())
	x.store(s)
	return x
}

func (x *fixture) store(s *State) {
	if x.state = s; s == nil {
		return
	}
	x.stored = append(x.stored, s.Phase)
	x.tracker.Apply([]resource.Change{
		resource.Put(resource.Object{Key: resource.Key{Kind: resource.KindRollout, Name: "canary"}, Spec: s}),
	}, time.Now())
}

// Transact implements Store for one route.
func (x *fixture) Transact(_ context.Context, k catalog.Transaction) (uint64, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	changes, _, err := k.Make(func(key resource.Key) (resource.Object, bool) {
		if key.Kind == kindRoute {
			return resource.Object{Key: key, Spec: x.route}, true
		}
		return resource.Object{Key: key, Spec: x.state}, x.state != nil
	})
	for _, c := range changes {
		x.store(c.Spec.(*State))
	}
	return 1, err
}

// setCounts sets the counts that node a reports from now on.
func (x *fixture) setCounts(connects, failed uint64) {
	x.ask = func(context.Context) []Report {
		return []Report{{ID: "1", Node: "a", ByRoute: map[string]NodeObservation{
			"canary": {Counts: Counts{Connects: connects, Failed: failed}, Endpoints: 1},
		}}}
	}
}

func (x *fixture) phases() string { return strings.Join(x.stored, " ") }

func longSteps() *resource.MeshTCPRoute {
	return routeOf(resource.RolloutAbort{}, step{5, time.Hour}, step{50, time.Hour})
}

func runningOf(r *resource.MeshTCPRoute) *State {
	return &State{Of: r.RolloutID(), Phase: resource.RolloutRunning, Step: 1, Weight: 5}
}

// TestObserveRecordsNothing: the answers to a concurrent status
// request are not evaluated, in whatever order they arrive.
func TestObserveRecordsNothing(t *testing.T) {
	r := longSteps()
	x := newFixture(r, runningOf(r))
	x.setCounts(1000, 200) // before this leader
	x.Round(t.Context())
	asked, answer := make(chan bool), make(chan bool)
	x.ask = func(context.Context) []Report { // a has reported 1001, and the round waits for another node
		asked <- true
		<-answer
		return []Report{{ID: "1", Node: "a", ByRoute: map[string]NodeObservation{
			"canary": {Counts: Counts{Connects: 1001, Failed: 200}, Endpoints: 1},
		}}}
	}
	var round sync.WaitGroup
	round.Go(func() { x.Round(t.Context()) })
	<-asked
	x.setCounts(1002, 200)
	if got := x.Observe(t.Context(), []string{"canary"})[0].Measured.Counts; got != (Counts{}) {
		t.Errorf("the status has %+v, want the observation of the last round", got)
	}
	close(answer)
	round.Wait()
	if got := x.Observe(t.Context(), []string{"canary"})[0].Measured.Counts; got != (Counts{Connects: 1}) {
		t.Errorf("after the round the status has %+v", got)
	}
	if got := x.phases(); got != "running" {
		t.Errorf("without a single new failure it is %s", got)
	}
}

// TestFailuresBeforeRestartDoNotCount: only failures after a restart
// count.
func TestFailuresBeforeRestartDoNotCount(t *testing.T) {
	r := longSteps()
	x := newFixture(r, nil)
	x.setCounts(0, 0)
	x.Round(t.Context()) // the rollout starts
	x.setCounts(1000, 40)
	x.Round(t.Context())
	x.setCounts(2000, 900) // since the last round
	if _, err := x.Execute(t.Context(), Restart, "canary", "alice", store.ID{}); err != nil {
		t.Fatal(err)
	}
	if got := x.Observe(t.Context(), []string{"canary"})[0].Measured.Counts; got != (Counts{}) {
		t.Errorf("after a restart it has %+v", got)
	}
	for range 3 {
		x.Round(t.Context())
	}
	if got := x.phases(); got != "running running" {
		t.Errorf("after a restart it is %s", got)
	}
	x.setCounts(2100, 920)
	x.Round(t.Context())
	if got := x.phases(); got != "running running aborted" {
		t.Errorf("of 100 connects 20 have failed since, and it is %s", got)
	}
}

// TestNodesWithTheSameNameAreCountedSeparately: two nodes may share a name, for
// example after one was copied. Each is counted by itself, and the counts of
// one do not look like a restart of the other.
func TestNodesWithTheSameNameAreCountedSeparately(t *testing.T) {
	r := longSteps()
	x := newFixture(r, runningOf(r))
	for i := range uint64(5) {
		x.ask = func(context.Context) []Report {
			both := []Report{
				{ID: "1", Node: "a", ByRoute: map[string]NodeObservation{"canary": {Counts: Counts{Connects: 1000 + i, Failed: 300}, Endpoints: 1}}},
				{ID: "2", Node: "a", ByRoute: map[string]NodeObservation{"canary": {Counts: Counts{Connects: 10}, Endpoints: 1}}},
			}
			if i%2 > 0 {
				slices.Reverse(both)
			}
			return both
		}
		x.Round(t.Context())
	}
	if got := x.phases(); got != "running" {
		t.Errorf("without a single new failure it is %s", got)
	}
	if got := x.Observe(t.Context(), []string{"canary"})[0]; got.Measured.Connects != 4 || got.Nodes != 2 {
		t.Errorf("it has counted %+v", got)
	}
}
