package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// startFollow runs a catalog's Follow; do may be nil.
func startFollow(t testing.TB, c *Catalog, do func(set *validate.Set, changes []resource.Change)) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- c.Follow(ctx, func(set *validate.Set, changes []resource.Change) error {
			if do != nil {
				do(set, changes)
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow: %v", err)
		}
	})
}

// unwantedWindow fires once an unwanted event would have happened.
func unwantedWindow(t *testing.T) <-chan time.Time {
	t.Helper()
	return time.After(50 * time.Millisecond)
}

// newOnManualStore returns a catalog whose changes the store may delay.
func newOnManualStore(t *testing.T) (*Catalog, *manualStore) {
	t.Helper()
	r := newManualStore()
	c := New(Config{Store: r, Kinds: resource.RoutingKinds()})
	startFollow(t, c, nil)
	return c, r
}

func mustApply(t testing.TB, c *Catalog, text string) *api.ApplyResult {
	t.Helper()
	result, err := c.Apply(t.Context(), Change{Objects: objects(t, text)})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// checkAgrees fails unless the content in force is valid and equals the
// store's.
func checkAgrees(t testing.TB, c *Catalog, s Store) {
	t.Helper()
	if err := c.Await(t.Context(), s.Snapshot().Index()); err != nil {
		t.Fatal(err)
	}
	set, view := c.InForce()
	var stored []resource.Change
	for e := range view.All() {
		o, err := c.decodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, resource.Put(o))
		if got, ok := set.Get(o.Key); !ok || !resource.Equal(got, o) {
			t.Errorf("%v is stored as\n%sand in force as\n%s", o.Key, codec.EncodeYAML(o), codec.EncodeYAML(got))
		}
	}
	if set.Len() != view.Len() {
		t.Errorf("%d objects are in force, %d stored", set.Len(), view.Len())
	}
	if _, faults, _ := new(validate.Set).With(stored); len(faults) > 0 {
		t.Errorf("the stored resources are not valid: %v", faults)
	}
}

// TestOneOfTwentyPipelinedChangesFails: the store rejects the changes that were
// checked against a failed one; they are checked again, and succeed.
func TestOneOfTwentyPipelinedChangesFails(t *testing.T) {
	for name, failure := range map[string]error{
		"refused":        store.ErrTooLarge,
		"not the leader": store.ErrNotLeader,
		"unknown":        store.ErrUnknown,
	} {
		t.Run(name, func(t *testing.T) {
			c, manual := newOnManualStore(t)
			mustApply(t, c, base)
			manual.hold()
			results := make([]chan error, 20)
			for i := range results {
				results[i] = make(chan error, 1)
				uses := i
				if i == 10 {
					uses = 9 // the one that fails
				}
				text := fmt.Sprintf("kind: Service\nname: s%d\nspec: {}\n---\n"+
					"kind: Listener\nname: l%d\nspec: {address: \":%d\", service: s%d}", i, i, 10_000+i, uses)
				list := objects(t, text)
				go func() {
					_, err := c.Apply(t.Context(), Change{Objects: list})
					results[i] <- err
				}()
				if err := manual.waitHeld(t.Context(), i+1); err != nil {
					t.Fatal(err)
				}
			}
			n := 0
			manual.release(func(*store.Batch) error {
				if n++; n == 10 {
					return failure
				}
				return nil
			})
			for i, result := range results {
				err := <-result
				var refusal *api.Error
				switch {
				case i == 9 && err == nil:
					t.Error("the one that failed was answered as done")
				case i == 9 && !errors.Is(failure, store.ErrTooLarge) && !errors.Is(err, failure):
					t.Errorf("the one that failed: %v", err)
				case i == 10 && (!errors.As(err, &refusal) || len(refusal.Faults) != 1 || refusal.Faults[0].Value != "s9"):
					t.Errorf("the change that refers to the failed one: %v", err)
				case i != 9 && i != 10 && err != nil:
					t.Errorf("number %d: %v", i, err)
				}
			}
			if n := manual.Snapshot().Len(); n != 2+2*18 {
				t.Errorf("%d entries are stored", n)
			}
			checkAgrees(t, c, manual)
			mustApply(t, c, strings.ReplaceAll(base, "7001", "7002"))
			checkAgrees(t, c, manual)
		})
	}
}

// TestNoResultDependsOnAFailedChange: an error, or the finding that there is
// nothing to do, waits for the pending change that it depends on, and is
// discarded if that fails.
func TestNoResultDependsOnAFailedChange(t *testing.T) {
	const uses = "kind: Listener\nname: second\nspec: {address: \":9001\", service: spare}"
	const spare = "kind: Service\nname: spare\nspec: {}"
	c, manual := newOnManualStore(t)
	mustApply(t, c, base+"---\n"+spare)
	manual.hold()
	deleted, applied, same := make(chan error, 1), make(chan error, 1), make(chan string, 1)
	go func() {
		_, err := c.Delete(t.Context(), Target{Kind: "service", Name: "spare"})
		deleted <- err
	}()
	if err := manual.waitHeld(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	change := strings.ReplaceAll(base, "7001", "7002")
	lists := [][]resource.Object{objects(t, uses), objects(t, change)}
	go func() {
		_, err := c.Apply(t.Context(), Change{Objects: lists[0]})
		applied <- err
	}()
	go func() { _, _ = c.Apply(t.Context(), Change{Objects: lists[1]}) }()
	if err := manual.waitHeld(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	go func() {
		result, err := c.Apply(t.Context(), Change{Objects: lists[1]})
		if err != nil {
			same <- err.Error()
			return
		}
		same <- result.Changes[1].Action
	}()
	select {
	case err := <-applied:
		t.Fatalf("answered before the delete was decided: %v", err)
	case s := <-same:
		t.Fatalf("answered before the change was decided: %v", s)
	case <-unwantedWindow(t):
	}
	first := true
	manual.release(func(*store.Batch) error {
		defer func() { first = false }()
		if first {
			return store.ErrTooLarge
		}
		return nil
	})
	if err := <-deleted; code(err) != api.TooLarge {
		t.Errorf("delete: %v", err)
	}
	if err := <-applied; err != nil {
		t.Errorf("the user of the service that was not deleted: %v", err)
	}
	if s := <-same; s != api.Unchanged && s != api.Configured {
		t.Errorf("the same again: %v", s)
	}
	checkAgrees(t, c, manual)
}

// TestVersionCheckConsidersPendingChanges: a writer that has read the version
// in force must not overwrite a pending change, unless that fails.
func TestVersionCheckConsidersPendingChanges(t *testing.T) {
	for _, failure := range []error{nil, store.ErrTooLarge} {
		c, manual := newOnManualStore(t)
		mustApply(t, c, base)
		manual.hold()
		lists := [][]resource.Object{
			objects(t, "kind: Service\nname: apps\nspec: {protocol: http}"),
			objects(t, "kind: Service\nname: apps\nversion: 1\nspec: {protocol: http2}"),
		}
		first, second := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := c.Apply(t.Context(), Change{Objects: lists[0]})
			first <- err
		}()
		if err := manual.waitHeld(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := c.Apply(t.Context(), Change{Objects: lists[1]})
			second <- err
		}()
		select {
		case err := <-second:
			t.Errorf("answered before the other was decided: %v", err)
		case <-unwantedWindow(t):
		}
		manual.release(func(*store.Batch) error { return failure })
		if err := <-first; (err != nil) != (failure != nil) {
			t.Error(err)
		}
		if err := <-second; failure == nil && code(err) != api.Refused || failure != nil && err != nil {
			t.Errorf("the other ended with %v: %v", failure, err)
		}
	}
}

// TestChangeOnStaleContentIsRejected: another leader has changed the content,
// and this node's follower is behind. Its first change is stale; its second,
// which was checked against the first, must not mistake the other leader's
// change for the first.
func TestChangeOnStaleContentIsRejected(t *testing.T) {
	manual := newManualStore()
	var acting sync.Mutex
	old := New(Config{Store: manual, Kinds: resource.RoutingKinds()})
	startFollow(t, old, func(*validate.Set, []resource.Change) { acting.Lock(); defer acting.Unlock() })
	other := New(Config{Store: manual.Memory, Kinds: resource.RoutingKinds()})
	startFollow(t, other, nil)
	mustApply(t, old, base+"---\nkind: Service\nname: spare\nspec: {}")
	mustApply(t, old, strings.ReplaceAll(base, "7001", "7002")) // its pipeline has started

	acting.Lock()
	manual.hold()
	if _, err := other.Delete(t.Context(), Target{Kind: "service", Name: "spare"}); err != nil {
		t.Fatal(err)
	}
	results := make(chan error, 2)
	for i, text := range []string{
		"kind: Service\nname: harmless\nspec: {}",
		"kind: Listener\nname: second\nspec: {address: \":9001\", service: spare}",
	} {
		list := objects(t, text)
		go func() {
			_, err := old.Apply(t.Context(), Change{Objects: list})
			results <- err
		}()
		if err := manual.waitHeld(t.Context(), i+1); err != nil {
			t.Fatal(err)
		}
	}
	manual.release(func(*store.Batch) error { return nil })
	acting.Unlock()
	refused := 0
	for range 2 {
		if err := <-results; err != nil {
			refused++
			if code(err) != api.Invalid {
				t.Error(err)
			}
		}
	}
	if refused != 1 {
		t.Errorf("%d were refused, want the one that refers to a deleted resource", refused)
	}
	checkAgrees(t, old, manual)
	checkAgrees(t, other, manual)
}

// TestChangesOfOtherNodesAreConsidered: a node's own earlier proposal does not
// count once another node has changed the resource.
func TestChangesOfOtherNodesAreConsidered(t *testing.T) {
	memory := store.NewMemory(store.Limits{})
	var nodes [2]*Catalog
	for i := range nodes {
		nodes[i] = New(Config{Store: memory, Kinds: resource.RoutingKinds()})
		startFollow(t, nodes[i], nil)
	}
	for i := range 6 {
		r := mustApply(t, nodes[i%2], strings.ReplaceAll(base, "7001", fmt.Sprint(7001+i%2)))
		if got := r.Changes[1].Action; got != api.Configured && i > 0 {
			t.Errorf("change %d: %s", i, got)
		}
	}
	checkAgrees(t, nodes[0], memory)
	checkAgrees(t, nodes[1], memory)
}

// TestOnlyTheLeaderAdmits: neither a node that never led nor a former leader
// answers from its local state.
func TestOnlyTheLeaderAdmits(t *testing.T) {
	for _, led := range []bool{false, true} {
		memory := store.NewMemory(store.Limits{})
		leader := New(Config{Store: memory, Kinds: resource.RoutingKinds()})
		startFollow(t, leader, nil)
		mustApply(t, leader, base)
		var leads atomic.Bool
		c := New(Config{Store: memory, Kinds: resource.RoutingKinds(), Barrier: func(context.Context) error {
			if leads.Load() {
				return nil
			}
			return fmt.Errorf("node n2: %w", store.ErrNotLeader)
		}})
		startFollow(t, c, nil)
		if leads.Store(led); led {
			mustApply(t, c, strings.ReplaceAll(base, "7001", "7002"))
			mustApply(t, c, base)
		}
		leads.Store(false)
		at := memory.Snapshot().Index()
		for name, change := range map[string]Change{
			"none":    {Objects: objects(t, base)},
			"a fault": {Objects: objects(t, "kind: Listener\nname: x\nspec: {address: \":1\", service: nobody}")},
			"dry run": {Objects: objects(t, base), DryRun: true},
		} {
			if _, err := c.Apply(t.Context(), change); !errors.Is(err, store.ErrNotLeader) {
				t.Errorf("led %v, %s: %v", led, name, err)
			}
		}
		if now := memory.Snapshot().Index(); now != at {
			t.Errorf("the store went from %d to %d", at, now)
		}
	}
}

// TestUnmodifiedPendingChangeIsNotDecodedAgain: the set and objects from the
// check are put in force without decoding, unless another change comes between.
func TestUnmodifiedPendingChangeIsNotDecodedAgain(t *testing.T) {
	c, manual := newOnManualStore(t)
	manual.hold()
	texts := []string{base, "kind: Service\nname: more\nspec: {}", strings.ReplaceAll(base, "7001", "7002")}
	done := make(chan error, len(texts))
	var given []resource.Object
	for i, text := range texts {
		list := objects(t, text)
		given = append(given, list...)
		go func() {
			_, err := c.Apply(t.Context(), Change{Objects: list})
			done <- err
		}()
		if err := manual.waitHeld(t.Context(), i+1); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	want := c.ahead.set
	c.mu.Unlock()
	manual.release(func(*store.Batch) error { return nil })
	for range texts {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	set, _ := c.InForce()
	if set != want {
		t.Error("the set was made again")
	}
	for _, o := range given[2:] {
		if got, _ := set.Get(o.Key); got.Spec != o.Spec || got.File != "" || got.Lines != nil {
			t.Errorf("%v was read again", o.Key)
		}
	}
	checkAgrees(t, c, manual)
}

func TestPendingChangesAreBounded(t *testing.T) {
	c, manual := newOnManualStore(t)
	mustApply(t, c, base)
	manual.hold()
	done := make(chan error, maxPending+10)
	for i := range maxPending + 10 {
		o := service(t, i, 1)
		go func() {
			_, err := c.Apply(t.Context(), Change{Objects: []resource.Object{o}})
			done <- err
		}()
	}
	if err := manual.waitHeld(t.Context(), maxPending); err != nil {
		t.Fatal(err)
	}
	<-unwantedWindow(t)
	manual.mu.Lock()
	n := len(manual.held)
	manual.mu.Unlock()
	if n != maxPending {
		t.Errorf("%d changes are pending, the bound is %d", n, maxPending)
	}
	manual.release(func(*store.Batch) error { return nil })
	for range maxPending + 10 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	checkAgrees(t, c, manual)
}
