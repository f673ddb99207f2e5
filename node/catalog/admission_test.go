package catalog

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// TestChangeIsCheckedAgainstAbandonedPendingChange: a writer whose context ends
// leaves its change pending. The next change must be checked against it.
func TestChangeIsCheckedAgainstAbandonedPendingChange(t *testing.T) {
	memory := store.NewMemory(store.Limits{})
	c := New(Config{Store: memory, Kinds: resource.RoutingKinds()})
	gate, acting := make(chan struct{}), make(chan struct{}, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- c.Follow(ctx, func(*validate.Set, []resource.Change) error {
			acting <- struct{}{}
			<-gate
			return nil
		})
	}()
	defer func() { cancel(); <-done }()

	impatient, leave := context.WithCancel(t.Context())
	go func() { <-acting; leave() }()
	if _, err := c.Apply(impatient, Change{Objects: objects(t, base)}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the cancelled writer got %v", err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := c.Delete(t.Context(), Target{Kind: "Service", Name: "apps"})
		result <- err
	}()
	// If it is admitted at once, it reaches the store before the gate opens.
	for early := time.Now().Add(50 * time.Millisecond); memory.Snapshot().Len() == 2 && time.Now().Before(early); {
		runtime.Gosched()
	}
	close(gate)
	var refusal *api.Error
	if err := <-result; !errors.As(err, &refusal) || refusal.Code != api.Refused {
		t.Errorf("a service was deleted that a listener uses: %v", err)
	}
	if v := memory.Snapshot(); v.Len() != 2 {
		t.Errorf("the store has %d entries, want 2", v.Len())
	}
}

// TestVersionConflictSaysWhatToDo: the error for an outdated version, or for
// the version of a deleted resource, says what to do.
func TestVersionConflictSaysWhatToDo(t *testing.T) {
	f := newFixture(t, store.NewMemory(store.Limits{}))
	if _, err := f.Apply(t.Context(), Change{Objects: objects(t, "kind: Service\nname: apps\nspec: {}")}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ text, want string }{
		"gone": {
			"kind: Service\nname: old\nversion: 7\nspec: {}",
			"there is no such resource; omit version to create it (7)",
		},
		"older": {
			"kind: Service\nname: apps\nversion: 7\nspec: {protocol: http}",
			"changed since, now at version 1: get it again (7)",
		},
	} {
		for _, dryRun := range []bool{false, true} {
			_, err := f.Apply(t.Context(), Change{Objects: objects(t, test.text), DryRun: dryRun})
			var refusal *api.Error
			if !errors.As(err, &refusal) || len(refusal.Faults) != 1 {
				t.Errorf("%s, dry run %v: %v", name, dryRun, err)
				continue
			}
			fault := refusal.Faults[0]
			if got := fault.Message + " (" + fault.Value + ")"; fault.Path != "version" || !strings.Contains(got, test.want) {
				t.Errorf("%s, dry run %v: %s: %s, want %s", name, dryRun, fault.Path, got, test.want)
			}
		}
	}
	same := "kind: Service\nname: apps\nversion: 7\nspec: {}"
	if r, err := f.Apply(t.Context(), Change{Objects: objects(t, same)}); err != nil || r.Changes[0].Action != api.Unchanged {
		t.Errorf("an unchanged resource with another version: %v, %v", r, err)
	}
}
