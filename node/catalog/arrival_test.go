package catalog

import (
	"context"
	"testing"

	"penstock/consensus"
	"penstock/routing/resource"
)

// What was checked acts: the set and the objects are not made again, unless
// something else came in between.
func TestWhatComesBackAsItWentIsNotReadAgain(t *testing.T) {
	store := consensus.NewMemory(consensus.Limits{})
	c := New(store, resource.RoutingKinds())
	type act struct {
		set     *resource.Set
		changes []resource.Change
	}
	acts := make(chan act, 10)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- c.Follow(ctx, func(set *resource.Set, changes []resource.Change) error {
			acts <- act{set, changes}
			return nil
		})
	}()
	defer func() { cancel(); <-done }()
	given := objects(t, base)
	if _, err := c.Apply(ctx, given, false); err != nil {
		t.Fatal(err)
	}
	first := <-acts
	if set, _ := c.InForce(); set != first.set || set.Len() != 2 {
		t.Errorf("%d objects are in force", set.Len())
	}
	for i, ch := range first.changes {
		if ch.Spec != given[i].Spec || ch.File != "" || ch.Lines != nil {
			t.Errorf("%v was read again", ch.Key)
		}
	}
	// Another node changes the same key and one more before the follower looks.
	key := resource.Key{Kind: "Service", Name: "apps"}
	other := resource.Object{Key: key, Spec: &resource.Service{Protocol: "http"}}
	another := resource.Object{Key: resource.Key{Kind: "Service", Name: "more"}, Spec: &resource.Service{}}
	mine := resource.Put(resource.Object{Key: key, Spec: &resource.Service{Protocol: "tcp"}})
	coming := arrival{from: first.set, to: new(resource.Set)}
	coming.expect(mine, consensus.Op{Key: consensus.Key(key), Value: []byte("mine")})
	c.expect(&coming)
	ops := []consensus.Op{
		{Key: consensus.Key(key), Value: resource.EncodeWithSecrets(other)},
		{Key: consensus.Key(another.Key), Value: resource.EncodeWithSecrets(another)},
	}
	committed, err := store.Commit(ctx, &consensus.Batch{Ops: ops})
	if err != nil {
		t.Fatal(err)
	}
	second := <-acts
	if got, _ := second.set.Get(key); !resource.Equal(got, other) || second.set.Len() != 3 {
		t.Errorf("%d objects act, apps is %+v", second.set.Len(), got.Spec)
	}
	if err := c.await(ctx, committed.Index); err != nil { // it acts before it is in force
		t.Fatal(err)
	}
	c.expect(nil)
	if _, err := c.Delete(ctx, "service", "more"); err != nil {
		t.Fatal(err)
	}
	if third := <-acts; third.set.Len() != 2 || !third.changes[0].Delete {
		t.Errorf("%d objects after a delete", third.set.Len())
	}
}
