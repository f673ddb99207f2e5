package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const base = `
kind: Listener
name: edge
spec: {address: "127.0.0.1:9000", service: apps}
---
kind: Service
name: apps
spec: {endpoints: [{address: "127.0.0.1:7001"}]}
`

// fixture is a catalog with a running Follow, which sends the keys that it
// applies to acted.
type fixture struct {
	*Catalog
	store   *store.Memory
	applied chan []resource.Key
}

func newFixture(t *testing.T, s *store.Memory) *fixture {
	t.Helper()
	return newFixtureOf(t, s, resource.RoutingKinds())
}

func newFixtureOf(t *testing.T, s *store.Memory, kinds []resource.Kind) *fixture {
	t.Helper()
	f := &fixture{New(Config{Store: s, Kinds: kinds}), s, make(chan []resource.Key, 1000)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- f.Follow(ctx, func(_ *validate.Set, changes []resource.Change) error {
			keys := make([]resource.Key, len(changes))
			for i := range changes {
				keys[i] = changes[i].Key
			}
			f.applied <- keys
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow: %v", err)
		}
	})
	return f
}

func objects(t testing.TB, text string) []resource.Object {
	t.Helper()
	list, faults := codec.Decode("test.yaml", []byte(text), resource.RoutingKinds())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return list
}

// apply returns the action for each object, or the error.
func (f *fixture) apply(t *testing.T, text string) (string, error) {
	t.Helper()
	r, err := f.Apply(t.Context(), Change{Objects: objects(t, text)})
	if err != nil {
		return "", err
	}
	var words []string
	for _, c := range r.Changes {
		words = append(words, fmt.Sprintf("%s/%s %s", c.Kind, c.Name, c.Action))
	}
	return strings.Join(words, ", "), nil
}

func (f *fixture) mustApply(t *testing.T, text, want string) {
	t.Helper()
	if got, err := f.apply(t, text); err != nil || got != want {
		t.Errorf("apply: %q, %v; want %q", got, err, want)
	}
}

func code(err error) api.Code {
	var e *api.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

func TestApplyReportsActions(t *testing.T) {
	f := newFixture(t, store.NewMemory(store.Limits{}))
	f.mustApply(t, base, "Listener/edge created, Service/apps created")
	f.mustApply(t, base, "Listener/edge unchanged, Service/apps unchanged")
	f.mustApply(t, strings.ReplaceAll(base, "7001", "7002"), "Listener/edge unchanged, Service/apps configured")
	if i := f.store.Snapshot().Index(); i != 2 {
		t.Errorf("the store is at %d, want 2: a change without effect is not committed", i)
	}
	if got, want := <-f.applied, 2; len(got) != want {
		t.Errorf("the first change acted on %v", got)
	}
	if got := <-f.applied; !slices.Equal(got, []resource.Key{{Kind: "Service", Name: "apps"}}) {
		t.Errorf("the second change acted on %v", got)
	}
}

func TestApplyReturnsOnceInForce(t *testing.T) {
	f := newFixture(t, store.NewMemory(store.Limits{}))
	f.mustApply(t, base, "Listener/edge created, Service/apps created")
	select {
	case <-f.applied:
	default:
		t.Error("apply returned before the change acted")
	}
	if set, view := f.InForce(); set.Len() != 2 || view.Index() != 1 {
		t.Errorf("in force: %d objects at %d", set.Len(), view.Index())
	}
}

func TestFaultRejectsTheWholeChange(t *testing.T) {
	f := newFixture(t, store.NewMemory(store.Limits{}))
	_, err := f.apply(t, strings.ReplaceAll(base, "service: apps", "service: nobody"))
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.Invalid || len(e.Faults) != 1 {
		t.Fatalf("a reference to nothing: %v", err)
	}
	if got := e.Faults[0]; got.Key != "Listener/edge" || got.Path != "spec.service" || got.Value != "nobody" {
		t.Errorf("fault %+v", got)
	}
	if set, _ := f.InForce(); set.Len() != 0 {
		t.Errorf("%d objects are in force", set.Len())
	}
}

func TestDryRunShowsBothSidesAndChangesNothing(t *testing.T) {
	f := newFixture(t, store.NewMemory(store.Limits{}))
	f.mustApply(t, base, "Listener/edge created, Service/apps created")
	r, err := f.Apply(t.Context(), Change{Objects: objects(t, strings.ReplaceAll(base, "7001", "7002")), DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if c := r.Changes[1]; c.Action != api.Configured || !strings.Contains(c.Before, "7001") || !strings.Contains(c.After, "7002") {
		t.Errorf("change %+v", c)
	}
	if c := r.Changes[0]; c.Action != api.Unchanged || c.Before != "" {
		t.Errorf("change %+v", c)
	}
	if _, view := f.InForce(); view.Index() != 1 {
		t.Errorf("the dry run was committed at %d", view.Index())
	}
}

func TestDeleteNamesTheReferrers(t *testing.T) {
	f := newFixture(t, store.NewMemory(store.Limits{}))
	f.mustApply(t, base, "Listener/edge created, Service/apps created")
	_, err := f.Delete(t.Context(), Target{Kind: "services", Name: "apps"})
	if code(err) != api.Refused || !strings.Contains(err.Error(), "Listener/edge") {
		t.Errorf("delete of a resource in use: %v", err)
	}
	if r, err := f.Delete(t.Context(), Target{Kind: "LISTENER", Name: "edge"}); err != nil || r.Kind != "Listener" {
		t.Errorf("delete: %+v, %v", r, err)
	}
	if _, err := f.Delete(t.Context(), Target{Kind: "service", Name: "apps"}); err != nil {
		t.Errorf("delete of a resource no longer in use: %v", err)
	}
	if _, err := f.Delete(t.Context(), Target{Kind: "service", Name: "apps"}); code(err) != api.NotFound {
		t.Errorf("delete of a deleted resource: %v", err)
	}
	if _, err := f.Delete(t.Context(), Target{Kind: "servant", Name: "apps"}); code(err) != api.Invalid ||
		!strings.Contains(err.Error(), "Service") {
		t.Errorf("delete of an unknown kind: %v", err)
	}
}

func TestOutdatedVersionIsRejected(t *testing.T) {
	f := newFixture(t, store.NewMemory(store.Limits{}))
	f.mustApply(t, base, "Listener/edge created, Service/apps created")
	r, err := f.Get(&api.GetRequest{Kind: "service", Name: "apps"})
	if err != nil {
		t.Fatal(err)
	}
	seen := strings.ReplaceAll(string(r.Documents[0].Data), "7001", "7002")
	f.mustApply(t, seen, "Service/apps configured")
	if _, err := f.apply(t, strings.ReplaceAll(seen, "7002", "7003")); code(err) != api.Refused {
		t.Errorf("a change based on an old version: %v", err)
	}
}

func TestGet(t *testing.T) {
	f := newFixture(t, store.NewMemory(store.Limits{}))
	f.mustApply(t, base, "Listener/edge created, Service/apps created")
	if r, err := f.Get(&api.GetRequest{Kind: "Services", Name: ""}); err != nil ||
		r.Kind != "Service" || len(r.Documents) != 1 || r.Documents[0].Name != "apps" {
		t.Errorf("all services: %+v, %v", r, err)
	}
	if r, err := f.Get(&api.GetRequest{Kind: "certificates", Name: ""}); err != nil || r.Documents == nil || len(r.Documents) != 0 {
		t.Errorf("all certificates: %+v, %v", r, err)
	}
	if _, err := f.Get(&api.GetRequest{Kind: "service", Name: "nobody"}); code(err) != api.NotFound {
		t.Errorf("a missing service: %v", err)
	}
}

// TestStoredResourcesAreInForceAfterStart: a catalog on a store that remembers
// only its last batches loads all of its content.
func TestStoredResourcesAreInForceAfterStart(t *testing.T) {
	s := store.NewMemory(store.Limits{})
	first := newFixture(t, s)
	first.mustApply(t, base, "Listener/edge created, Service/apps created")
	for i := range 300 {
		o := objects(t, fmt.Sprintf("kind: Service\nname: s%d\nspec: {endpoints: [{address: \"127.0.0.1:1\"}]}", i))[0]
		if _, err := s.Commit(t.Context(), &store.Batch{
			Ops: []store.Op{{Key: store.Key(o.Key), Value: codec.EncodeWithSecrets(o)}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	second := newFixture(t, s)
	if changed := <-second.applied; len(changed) != 302 {
		t.Errorf("%d objects acted at start, want 302", len(changed))
	}
	if err := second.Await(t.Context(), s.Snapshot().Index()); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Delete(t.Context(), Target{Kind: "service", Name: "s7"}); err != nil {
		t.Error(err)
	}
	if set, _ := second.InForce(); set.Len() != 301 {
		t.Errorf("%d objects are in force, want 301", set.Len())
	}
}

func TestUndecodableEntryStopsFollow(t *testing.T) {
	s := store.NewMemory(store.Limits{})
	c := New(Config{Store: s, Kinds: resource.RoutingKinds()})
	if _, err := s.Commit(t.Context(), &store.Batch{Ops: []store.Op{{
		Key:   store.Key{Kind: "Future", Name: "x"},
		Value: []byte(`{"kind":"Future","name":"x","spec":{}}`),
	}}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := c.Follow(ctx, func(*validate.Set, []resource.Change) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "Future/x") {
		t.Errorf("Follow: %v", err)
	}
}

func TestApplyReturnsWhenItsContextEnds(t *testing.T) {
	c := New(Config{Store: store.NewMemory(store.Limits{}), Kinds: resource.RoutingKinds()}) // Follow does not run
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := c.Apply(ctx, Change{Objects: objects(t, base)}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Apply: %v", err)
	}
}
