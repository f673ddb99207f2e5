package catalog

import (
	"fmt"
	"testing"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/routing/resource"
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

var canaryNote = resource.Key{Kind: resource.KindRollout, Name: "canary"}

// note stores the state of the route's rollout as done.
func (w *rolloutWorld) note(t *testing.T) {
	t.Helper()
	_, err := w.Keep(t.Context(), Keeping{Make: func(get func(resource.Key) (resource.Object, bool)) ([]resource.Change, string, error) {
		o, ok := get(resource.Key{Kind: "MeshTCPRoute", Name: "canary"})
		if !ok {
			return nil, "", fmt.Errorf("there is no route")
		}
		s := &resource.Rollout{Of: o.Spec.(*resource.MeshTCPRoute).RolloutOf(), Phase: resource.RolloutDone, Step: 2, Weight: 100}
		return []resource.Change{resource.Put(resource.Object{Key: canaryNote, Spec: s})}, "done", nil
	}})
	if err != nil {
		t.Fatal(err)
	}
}

// rolloutWorld is a catalog with a route whose rollout is done.
type rolloutWorld struct {
	*Catalog
	store *consensus.Memory
	acted map[resource.Key][]resource.Change // the latest changes put in force, by each of their keys
}

const both = "[{weight: 20, for: 1h}, {weight: 100}]"

func newRolloutWorld(t *testing.T) *rolloutWorld {
	t.Helper()
	w := &rolloutWorld{store: consensus.NewMemory(consensus.Limits{}), acted: map[resource.Key][]resource.Change{}}
	w.Catalog = New(Config{Store: w.store, Kinds: append(resource.RoutingKinds(), resource.RolloutKind())})
	following(t, w.Catalog, func(_ *resource.Set, changes []resource.Change) {
		for i := range changes {
			w.acted[changes[i].Key] = changes
		}
	})
	mustApply(t, w.Catalog, canary(rolloutBy(both)))
	w.note(t)
	return w
}

// TestWhatIsNotedOfARolloutGoesWithIt: the change that ends a rollout also
// deletes its state, so that a route created again right away starts at its
// first step. The state stays as long as the rollout.
func TestWhatIsNotedOfARolloutGoesWithIt(t *testing.T) {
	other := rolloutBy("[{weight: 30, for: 1h}, {weight: 100}]")
	for what, x := range map[string]struct {
		change func(*rolloutWorld) (*admin.ApplyResult, error)
		told   string
		stays  bool
	}{
		"deleted": {func(w *rolloutWorld) (*admin.ApplyResult, error) {
			_, err := w.Delete(t.Context(), Target{Kind: "meshtcproute", Name: "canary"})
			return &admin.ApplyResult{}, err
		}, "", false},
		"pruned": {func(w *rolloutWorld) (*admin.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Prune: map[string]string{"team": "a"}})
		}, "MeshTCPRoute/canary deleted", false},
		"taken out": {func(w *rolloutWorld) (*admin.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Objects: objects(t, canary(""))})
		}, "Service/apps unchanged, MeshTCPRoute/canary configured", false},
		"another": {func(w *rolloutWorld) (*admin.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Objects: objects(t, canary(other))})
		}, "Service/apps unchanged, MeshTCPRoute/canary configured", false},
		"the same": {func(w *rolloutWorld) (*admin.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Objects: objects(t, canary(rolloutBy(both)))})
		}, "Service/apps unchanged, MeshTCPRoute/canary unchanged", true},
		"other bounds": {func(w *rolloutWorld) (*admin.ApplyResult, error) {
			bounds := canary("  rollout: {backend: {name: apps, tags: {version: v2}}, abort: {failures: 1}, steps: " + both + "}\n")
			return w.Apply(t.Context(), Change{Objects: objects(t, bounds)})
		}, "Service/apps unchanged, MeshTCPRoute/canary configured", true},
		"only tried": {func(w *rolloutWorld) (*admin.ApplyResult, error) {
			return w.Apply(t.Context(), Change{Prune: map[string]string{"team": "a"}, DryRun: true})
		}, "MeshTCPRoute/canary deleted", true},
	} {
		t.Run(what, func(t *testing.T) {
			w := newRolloutWorld(t)
			r, err := x.change(w)
			wantTold(t, what, x.told, r, err)
			set, view := w.InForce()
			if _, ok := set.Get(canaryNote); ok != x.stays {
				t.Errorf("what is noted is there: %v, want %v", ok, x.stays)
			}
			if changes := w.acted[canaryNote]; !x.stays && len(changes) != 2 {
				t.Errorf("it acts beside %v, want beside the route", changes)
			}
			if h := view.History(consensus.Key(canaryNote)); !x.stays && (len(h) != 2 || h[0].Value != nil) {
				t.Errorf("the history has %+v", h)
			}
			checkAgrees(t, w.Catalog, w.store)
		})
	}
}

// TestChangesThatEndARolloutAreToldAsThoseOfTheRoute: also for a rollback of
// the route and for repeated requests. A rollout without a stored state adds
// nothing to the batch.
func TestChangesThatEndARolloutAreToldAsThoseOfTheRoute(t *testing.T) {
	w := newRolloutWorld(t)
	mustApply(t, w.Catalog, canary("")) // ends it
	r, err := w.Rollback(t.Context(), Target{Kind: "meshtcproute", Name: "canary"})
	wantTold(t, "rollback", "MeshTCPRoute/canary configured", r, err)
	if changes := w.acted[resource.Key{Kind: "MeshTCPRoute", Name: "canary"}]; len(changes) != 1 {
		t.Errorf("with nothing noted, %v act", changes)
	}
	w.note(t)
	for range 2 {
		r, err = w.Rollback(t.Context(), Target{Kind: "meshtcproute", Name: "canary", ID: consensus.ID{1}})
		wantTold(t, "the same rollback", "MeshTCPRoute/canary configured", r, err)
	}
	if set, _ := w.InForce(); set.Count(resource.KindRollout) != 0 {
		t.Error("rolled back to no rollout, something is noted of it")
	}
	mustApply(t, w.Catalog, canary(rolloutBy(both)))
	w.note(t)
	changes, err := w.Preview(Change{Prune: map[string]string{"team": "a"}})
	if err != nil || len(changes) != 2 || changes[1].Key != canaryNote || !changes[1].Delete {
		t.Errorf("tried: %v, %v", changes, err)
	}
	for range 2 {
		r, err = w.Apply(t.Context(), Change{Prune: map[string]string{"team": "a"}, ID: consensus.ID{2}})
		wantTold(t, "the same prune", "MeshTCPRoute/canary deleted", r, err)
	}
	// An older build may have left the state of a deleted route, which does not
	// belong to a new route.
	mustApply(t, w.Catalog, canary(rolloutBy(both)))
	w.note(t)
	route := consensus.Key{Kind: "MeshTCPRoute", Name: "canary"}
	if _, err := w.store.Commit(t.Context(), &consensus.Batch{Ops: []consensus.Op{{Key: route}}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Await(t.Context(), w.store.Snapshot().Index()); err != nil {
		t.Fatal(err)
	}
	mustApply(t, w.Catalog, canary(rolloutBy(both)))
	if set, _ := w.InForce(); set.Count(resource.KindRollout) != 0 {
		t.Error("a route that is there again has what was noted before")
	}
	checkAgrees(t, w.Catalog, w.store)
}
