package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// TestTwoLeadersAdmitNothingInvalid: two nodes both believe that they lead, and
// make concurrent changes in the same store; batches are lost, rejected or end
// unknown, and followers fall behind. In the end the content is valid, every
// acknowledged change was applied, and both nodes have the store's content.
func TestTwoLeadersAdmitNothingInvalid(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		memory := store.NewMemory(store.Limits{})
		nodes := [2]*lossyStore{{Memory: memory}, {Memory: memory}}
		ctx, cancel := context.WithCancel(context.Background())
		var followers sync.WaitGroup
		defer followers.Wait()
		defer cancel()
		var catalogs [2]*Catalog
		var acting [2]sync.Mutex
		for i, n := range nodes {
			c := New(Config{Store: n, Kinds: resource.RoutingKinds()})
			catalogs[i] = c
			followers.Go(func() {
				err := c.Follow(ctx, func(*validate.Set, []resource.Change) error {
					acting[i].Lock()
					defer acting[i].Unlock()
					return nil
				})
				if !errors.Is(err, context.Canceled) {
					panic(err)
				}
			})
		}
		check := func() {
			var stored []resource.Change
			view := memory.Snapshot()
			for e := range view.All() {
				o, err := codec.Restore(e.Value, resource.RoutingKinds())
				if err != nil {
					r.Fatal(err)
				}
				stored = append(stored, resource.Put(o))
			}
			if _, faults, _ := new(validate.Set).With(stored); len(faults) > 0 {
				r.Fatalf("the resources stored at %d are not valid: %v", view.Index(), faults)
			}
		}
		for range rapid.IntRange(1, 6).Draw(r, "rounds") {
			behind := rapid.SliceOfNDistinct(rapid.IntRange(0, 1), 0, 1, rapid.ID).Draw(r, "behind")
			for _, i := range behind {
				acting[i].Lock()
			}
			var writers sync.WaitGroup
			ends := make(chan error, 100)
			for range rapid.IntRange(1, 8).Draw(r, "writers") {
				c := catalogs[rapid.IntRange(0, 1).Draw(r, "node")]
				do := drawChange(r)
				writers.Go(func() { ends <- do(c) })
			}
			for _, n := range nodes {
				n.plan(rapid.SliceOfN(rapid.SampledFrom([]fate{acts, acts, acts, lost, unknown, refused}), 0, 8).Draw(r, "fates"))
			}
			for _, i := range behind {
				acting[i].Unlock()
			}
			writers.Wait()
			close(ends)
			for err := range ends {
				var refusal *api.Error
				if err != nil && !errors.As(err, &refusal) && !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrNotLeader) {
					r.Fatalf("a change ended with %v", err)
				}
			}
			check()
		}
		for i, c := range catalogs {
			if err := c.Await(ctx, memory.Snapshot().Index()); err != nil {
				r.Fatal(err)
			}
			set, view := c.InForce()
			if set.Len() != view.Len() {
				r.Fatalf("node %d: %d objects are in force, %d stored", i, set.Len(), view.Len())
			}
			for e := range view.All() {
				got, ok := set.Get(resource.Key(e.Key))
				if !ok || string(codec.EncodeWithSecrets(got)) != string(e.Value) {
					r.Fatalf("node %d: %v is in force as %s, stored as %s", i, e.Key, codec.EncodeWithSecrets(got), e.Value)
				}
			}
		}
	})
}

// drawChange draws a change that may conflict with others: services come and
// go, listeners refer to them and need the same ports.
func drawChange(r *rapid.T) func(*Catalog) error {
	names := []string{"a", "b", "c"}
	service := rapid.SampledFrom(names).Draw(r, "service")
	listener := rapid.SampledFrom(names).Draw(r, "listener")
	port := rapid.IntRange(1, 3).Draw(r, "port")
	apply := func(prune map[string]string, docs ...string) func(*Catalog) error {
		list, faults := codec.Decode("", []byte(strings.Join(docs, "\n---\n")), resource.RoutingKinds())
		if len(faults) > 0 {
			r.Fatal(faults)
		}
		return func(c *Catalog) error {
			_, err := c.Apply(context.Background(), Change{Objects: list, Prune: prune})
			return err
		}
	}
	one := fmt.Sprintf("kind: Service\nname: %s\nlabels: {l: %s}\nspec: {endpoints: [{address: \"x:%d\"}]}", service, listener, port)
	two := fmt.Sprintf("kind: Listener\nname: %s\nspec: {address: \":%d\", service: %s}", listener, port, service)
	target := Target{Kind: "service", Name: service}
	if rapid.Bool().Draw(r, "of the listener") {
		target = Target{Kind: "listener", Name: listener}
	}
	return rapid.SampledFrom([]func(*Catalog) error{
		apply(nil, one),
		apply(nil, two),
		apply(nil, one, two),
		apply(map[string]string{"l": listener}, two),
		func(c *Catalog) error { _, err := c.Delete(context.Background(), target); return err },
		func(c *Catalog) error { _, err := c.Rollback(context.Background(), target); return err },
	}).Draw(r, "change")
}

// fate is the outcome of a batch.
type fate int

const (
	acts    fate = iota
	lost         // not applied, and the writer gets an error
	unknown      // applied, and the writer gets ErrUnknown
	refused      // the store rejects it
)

// lossyStore is a node's connection to a shared store, with planned faults.
type lossyStore struct {
	*store.Memory

	mu    sync.Mutex
	fates []fate
}

func (l *lossyStore) plan(fates []fate) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fates = slices.Clone(fates)
}

func (l *lossyStore) Propose(ctx context.Context, b *store.Batch) (store.Pending, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := acts
	if len(l.fates) > 0 {
		next, l.fates = l.fates[0], l.fates[1:]
	}
	w := &heldBatch{done: make(chan struct{})}
	close(w.done)
	switch next {
	case lost:
		w.err = store.ErrNotLeader
	case refused:
		w.err = store.ErrTooLarge
	case unknown:
		_, _ = l.Commit(ctx, b)
		w.err = store.ErrUnknown
	default:
		return l.Memory.Propose(ctx, b)
	}
	return w, nil
}
