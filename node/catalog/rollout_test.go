package catalog

import (
	"fmt"
	"testing"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// canary returns a service and a route to it; rollout is the route's field of
// that name.
func canary(rollout string) string {
	return `
kind: Service
name: apps
spec: {endpoints: [{address: "127.0.0.1:1", tags: {version: v1}}, {address: "127.0.0.1:2", tags: {version: v2}}]}
---
kind: MeshTCPRoute
name: canary
labels: {team: a}
spec:
  to:
  - targetRef: {kind: MeshService, name: apps}
    rules:
    - default: {backendRefs: [{kind: MeshServiceSubset, name: apps, tags: {version: v1}}, ` +
		`{kind: MeshServiceSubset, name: apps, tags: {version: v2}}]}
` + rollout
}

func rolloutBy(steps string) string {
	return "  rollout: {backend: {name: apps, tags: {version: v2}}, steps: " + steps + "}\n"
}

var canaryState = resource.Key{Kind: resource.KindRollout, Name: "canary"}

// storeState stores the state of the route's rollout as done.
func (w *rolloutFixture) storeState(t *testing.T) {
	t.Helper()
	done := func(get func(resource.Key) (resource.Object, bool)) ([]resource.Change, string, error) {
		o, ok := get(resource.Key{Kind: "MeshTCPRoute", Name: "canary"})
		if !ok {
			return nil, "", fmt.Errorf("there is no route")
		}
		s := &resource.Rollout{Of: o.Spec.(*resource.MeshTCPRoute).RolloutID(), Phase: resource.RolloutDone, Step: 2, Weight: 100}
		return []resource.Change{resource.Put(resource.Object{Key: canaryState, Spec: s})}, "done", nil
	}
	if _, err := w.Transact(t.Context(), Transaction{Make: done}); err != nil {
		t.Fatal(err)
	}
}

// rolloutFixture is a catalog with a route whose rollout is done.
type rolloutFixture struct {
	*Catalog
	store   *store.Memory
	applied map[resource.Key][]resource.Change // the latest changes put in force, by each of their keys
}

const both = "[{weight: 20, for: 1h}, {weight: 100}]"

func newRolloutFixture(t *testing.T) *rolloutFixture {
	t.Helper()
	w := &rolloutFixture{store: store.NewMemory(store.Limits{}), applied: map[resource.Key][]resource.Change{}}
	w.Catalog = New(Config{Store: w.store, Kinds: append(resource.RoutingKinds(), resource.RolloutKind())})
	startFollow(t, w.Catalog, func(_ *validate.Set, changes []resource.Change) {
		for i := range changes {
			w.applied[changes[i].Key] = changes
		}
	})
	mustApply(t, w.Catalog, canary(rolloutBy(both)))
	w.storeState(t)
	return w
}

// TestEndOfARolloutDeletesItsState: the change that ends a rollout also
// deletes its state, so that a route created again right away starts at its
// first step. The state stays as long as the rollout.
func TestEndOfARolloutDeletesItsState(t *testing.T) {
	other := rolloutBy("[{weight: 30, for: 1h}, {weight: 100}]")
	for what, x := range map[string]struct {
		change func(*rolloutFixture) (*api.ApplyResult, error)
		want   string
		stays  bool
	}{
		"deleted": {func(w *rolloutFixture) (*api.ApplyResult, error) {
			_, err := w.Delete(t.Context(), Target{Kind: "meshtcproute", Name: "canary"})
			return &api.ApplyResult{}, err
		}, "", false},
		"pruned": {func(w *rolloutFixture) (*api.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Prune: map[string]string{"team": "a"}})
		}, "MeshTCPRoute/canary deleted", false},
		"taken out": {func(w *rolloutFixture) (*api.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Objects: objects(t, canary(""))})
		}, "Service/apps unchanged, MeshTCPRoute/canary configured", false},
		"another": {func(w *rolloutFixture) (*api.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Objects: objects(t, canary(other))})
		}, "Service/apps unchanged, MeshTCPRoute/canary configured", false},
		"the same": {func(w *rolloutFixture) (*api.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Objects: objects(t, canary(rolloutBy(both)))})
		}, "Service/apps unchanged, MeshTCPRoute/canary unchanged", true},
		"other bounds": {func(w *rolloutFixture) (*api.ApplyResult, error) {
			bounds := canary("  rollout: {backend: {name: apps, tags: {version: v2}}, abort: {failures: 1}, steps: " + both + "}\n")
			return w.Apply(t.Context(), Change{Objects: objects(t, bounds)})
		}, "Service/apps unchanged, MeshTCPRoute/canary configured", true},
		"only tried": {func(w *rolloutFixture) (*api.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Prune: map[string]string{"team": "a"}, DryRun: true})
		}, "MeshTCPRoute/canary deleted", true},
	} {
		t.Run(what, func(t *testing.T) {
			w := newRolloutFixture(t)
			r, err := x.change(w)
			wantResult(t, what, x.want, r, err)
			set, view := w.InForce()
			if _, ok := set.Get(canaryState); ok != x.stays {
				t.Errorf("the state is stored: %v, want %v", ok, x.stays)
			}
			if changes := w.applied[canaryState]; !x.stays && len(changes) != 2 {
				t.Errorf("it applied with %v, want with the route", changes)
			}
			if h := view.History(store.Key(canaryState)); !x.stays && (len(h) != 2 || h[0].Value != nil) {
				t.Errorf("the history has %+v", h)
			}
			checkAgrees(t, w.Catalog, w.store)
		})
	}
}

// TestResultsOmitTheDeletedRolloutState: also for a rollback of
// the route and for repeated requests. A rollout without a stored state adds
// nothing to the batch.
func TestResultsOmitTheDeletedRolloutState(t *testing.T) {
	w := newRolloutFixture(t)
	mustApply(t, w.Catalog, canary("")) // ends it
	r, err := w.Rollback(t.Context(), Target{Kind: "meshtcproute", Name: "canary"})
	wantResult(t, "rollback", "MeshTCPRoute/canary configured", r, err)
	if changes := w.applied[resource.Key{Kind: "MeshTCPRoute", Name: "canary"}]; len(changes) != 1 {
		t.Errorf("without a stored state, %v act", changes)
	}
	w.storeState(t)
	for range 2 {
		r, err = w.Rollback(t.Context(), Target{Kind: "meshtcproute", Name: "canary", ID: store.ID{1}})
		wantResult(t, "the same rollback", "MeshTCPRoute/canary configured", r, err)
	}
	if set, _ := w.InForce(); set.Count(resource.KindRollout) != 0 {
		t.Error("rolled back to no rollout, a state is stored")
	}
	mustApply(t, w.Catalog, canary(rolloutBy(both)))
	w.storeState(t)
	changes, _, err := w.Preview(Change{Prune: map[string]string{"team": "a"}})
	if err != nil || len(changes) != 2 || changes[1].Key != canaryState || !changes[1].Delete {
		t.Errorf("tried: %v, %v", changes, err)
	}
	for range 2 {
		r, err = w.Apply(t.Context(), Change{Prune: map[string]string{"team": "a"}, ID: store.ID{2}})
		wantResult(t, "the same prune", "MeshTCPRoute/canary deleted", r, err)
	}
	// An older build may have left the state of a deleted route, which does not
	// belong to a new route.
	mustApply(t, w.Catalog, canary(rolloutBy(both)))
	w.storeState(t)
	route := store.Key{Kind: "MeshTCPRoute", Name: "canary"}
	if _, err := w.store.Commit(t.Context(), &store.Batch{Ops: []store.Op{{Key: route}}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Await(t.Context(), w.store.Snapshot().Index()); err != nil {
		t.Fatal(err)
	}
	mustApply(t, w.Catalog, canary(rolloutBy(both)))
	if set, _ := w.InForce(); set.Count(resource.KindRollout) != 0 {
		t.Error("a route created again has its earlier state")
	}
	checkAgrees(t, w.Catalog, w.store)
}
