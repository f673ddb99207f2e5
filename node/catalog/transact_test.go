package catalog

import (
	"context"
	"errors"
	"sync"
	"testing"

	"penstock/consensus/store"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// TestTransactLosesNoUpdate: concurrent read-modify-write changes of
// one resource lose no update.
func TestTransactLosesNoUpdate(t *testing.T) {
	c := New(Config{Store: store.NewMemory(store.Limits{}), Kinds: append(resource.RoutingKinds(), resource.RolloutKind())})
	ctx, stop := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() {
		if err := c.Follow(ctx, func(*validate.Set, []resource.Change) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	defer following.Wait()
	defer stop()
	key := resource.Key{Kind: resource.KindRollout, Name: "canary"}
	more := func(get func(resource.Key) (resource.Object, bool)) ([]resource.Change, string, error) {
		s := resource.Rollout{Phase: resource.RolloutRunning}
		if o, ok := get(key); ok {
			s = *o.Spec.(*resource.Rollout)
		}
		s.Step++
		return []resource.Change{resource.Put(resource.Object{Key: key, Spec: &s})}, "one more", nil
	}
	const writers, each = 8, 10
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				if _, err := c.Transact(ctx, Transaction{Make: more, Note: store.Note{Who: "someone"}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	set, view := c.InForce()
	if o, ok := set.Get(key); !ok || o.Spec.(*resource.Rollout).Step != writers*each {
		t.Errorf("after %d changes it is %+v", writers*each, o.Spec)
	}
	if r := view.History(store.Key(key)); len(r) == 0 || r[0].Who != "someone" || r[0].What != "one more" {
		t.Errorf("the history has %+v", r)
	}
	// A repeated request applies once, an empty change does nothing, an error of
	// Make is returned.
	id := store.ID{1}
	for range 2 {
		if _, err := c.Transact(ctx, Transaction{Make: more, ID: id}); err != nil {
			t.Error(err)
		}
	}
	before := c.snapshot().view.Sequence()
	nothing := func(func(resource.Key) (resource.Object, bool)) ([]resource.Change, string, error) {
		return nil, "", nil
	}
	if _, err := c.Transact(ctx, Transaction{Make: nothing}); err != nil {
		t.Error(err)
	}
	wrong := errors.New("not so")
	if _, err := c.Transact(ctx, Transaction{Make: func(func(resource.Key) (resource.Object, bool)) ([]resource.Change, string, error) {
		return nil, "", wrong
	}}); !errors.Is(err, wrong) {
		t.Errorf("got %v", err)
	}
	set, view = c.InForce()
	if o, _ := set.Get(key); o.Spec.(*resource.Rollout).Step != writers*each+1 || view.Sequence() != before {
		t.Errorf("in the end it is %+v", o.Spec)
	}
}
