// Package catalog keeps the resources that are in force. A change goes through
// three steps: it is checked against what is in force, committed to the store,
// and acts when the follower has brought the store's new content to the rooms;
// only then its writer is answered. What another node commits comes the same
// way, without the first step.
//
//	c := catalog.New(store, kinds)
//	go c.Follow(ctx, func(set *resource.Set, changes []resource.Change) error { ... })
//	result, err := c.Apply(ctx, objects, false)
package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/routing/resource"
)

// Store is what is needed of the agreed content.
type Store interface {
	// Commit applies a batch, all of it or nothing.
	Commit(ctx context.Context, b *consensus.Batch) (consensus.Result, error)
	// Wait returns a view whose index is above after.
	Wait(ctx context.Context, after uint64) (consensus.View, error)
}

// Catalog is what is in force: the store's content as objects. Its methods may
// be called from anywhere.
type Catalog struct {
	store Store
	kinds []resource.Kind

	// admitting orders the changes that come through this node, so that
	// each is checked against all before it.
	admitting sync.Mutex
	// committed is the index of the last change that went to the store; its
	// writer may have gone before it acted. Guarded by admitting.
	committed uint64

	mu      sync.Mutex
	set     *resource.Set
	view    consensus.View
	coming  *arrival      // of whoever is admitting; nil: none
	changed chan struct{} // closed when view is replaced
}

// New makes a catalog with nothing in force. Until Follow runs, changes wait.
func New(s Store, kinds []resource.Kind) *Catalog {
	return &Catalog{store: s, kinds: kinds, set: new(resource.Set), changed: make(chan struct{})}
}

// InForce is the content that acts now.
func (c *Catalog) InForce() (*resource.Set, consensus.View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set, c.view
}

// Follow brings each new content of the store to act, until ctx ends, whose
// error it returns then, or until it cannot go on.
func (c *Catalog) Follow(ctx context.Context, act func(set *resource.Set, changes []resource.Change) error) error {
	for {
		set, old := c.InForce()
		view, err := c.store.Wait(ctx, old.Index())
		if err != nil {
			return err
		}
		changes, next, err := c.since(set, view, old.Index())
		if err != nil {
			return err
		}
		if err := act(next, changes); err != nil {
			return err
		}
		c.mu.Lock()
		c.set, c.view = next, view
		close(c.changed)
		c.changed = make(chan struct{})
		c.mu.Unlock()
	}
}

// since gives what changed from a set of that index to a view, and the set it
// leads to. What was admitted stands, whatever is wrong with it now.
func (c *Catalog) since(set *resource.Set, view consensus.View, index uint64) ([]resource.Change, *resource.Set, error) {
	c.mu.Lock()
	coming := c.coming
	c.mu.Unlock()
	found := 0
	keys, known := view.Changed(index)
	if !known {
		for o := range set.All("") {
			keys = append(keys, consensus.Key(o.Key))
		}
		for e := range view.All() {
			keys = append(keys, e.Key)
		}
	}
	seen := make(map[consensus.Key]bool, len(keys))
	changes := make([]resource.Change, 0, len(keys))
	for _, k := range keys {
		if seen[k] {
			continue
		}
		seen[k] = true
		e, ok := view.Get(k)
		if change, own := coming.find(k, e.Value); own {
			changes = append(changes, change)
			found++
			continue
		}
		if !ok {
			changes = append(changes, resource.Delete(resource.Key(k)))
			continue
		}
		o, err := resource.Restore(e.Value, c.kinds)
		if err != nil {
			return nil, nil, fmt.Errorf("stored %s/%s: %w", k.Kind, k.Name, err)
		}
		changes = append(changes, resource.Put(o))
	}
	if coming.whole(set, found, len(changes)) {
		return changes, coming.to, nil
	}
	return changes, set.Next(changes), nil
}

// await waits until the store's content of that index acts.
func (c *Catalog) await(ctx context.Context, index uint64) error {
	for {
		c.mu.Lock()
		at, changed := c.view.Index(), c.changed
		c.mu.Unlock()
		if at >= index {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Apply creates or changes resources, all of them or none, and returns when
// they act.
func (c *Catalog) Apply(ctx context.Context, objects []resource.Object, dryRun bool) (*admin.ApplyResult, error) {
	c.admitting.Lock()
	defer c.admitting.Unlock()
	if err := c.await(ctx, c.committed); err != nil {
		return nil, err
	}
	set, view := c.InForce()
	var changes []resource.Change
	var ops []consensus.Op
	coming := arrival{from: set}
	var faults, outdated resource.Faults
	result := &admin.ApplyResult{Index: view.Index(), Changes: make([]admin.Change, 0, len(objects))}
	for i := range objects {
		o, version := inForce(objects[i]), objects[i].Version
		stored, exists := set.Get(o.Key)
		o, wrong := resource.FillHidden(o, stored)
		faults = append(faults, wrong...)
		objects[i] = o
		done := admin.Change{Kind: o.Kind, Name: o.Name, Action: admin.Created}
		switch {
		case exists && resource.Equal(o, stored):
			done.Action = admin.Unchanged
		case exists:
			done.Action = admin.Configured
		}
		changes = append(changes, resource.Put(o))
		if done.Action != admin.Unchanged {
			op := consensus.Op{Key: consensus.Key(o.Key), Value: resource.EncodeWithSecrets(o)}
			if version != 0 {
				op.IfVersion = &version
				outdated = append(outdated, versionFault(view, o, version)...)
			}
			ops = append(ops, op)
			coming.expect(resource.Put(o), op)
			if dryRun {
				describeChange(&done, stored, o, exists)
			}
		}
		result.Changes = append(result.Changes, done)
	}
	next, wrong, warnings := set.With(changes)
	faults = append(append(faults, wrong...), resource.Admit(objects, time.Now())...)
	if len(faults) > 0 {
		return nil, invalid(append(outdated, faults...))
	}
	if len(outdated) > 0 {
		refusal := invalid(outdated)
		refusal.Code = admin.Refused
		return nil, refusal
	}
	result.Warnings = faultsOf(warnings)
	if dryRun || len(ops) == 0 {
		return result, nil
	}
	var err error
	coming.to = next
	result.Index, err = c.commit(ctx, ops, &coming)
	return result, err
}

// versionFault says that an object was read in another version than the one
// there is. The store looks again, at the moment that counts.
func versionFault(view consensus.View, o resource.Object, version uint64) resource.Faults {
	e, ok := view.Get(consensus.Key(o.Key))
	switch {
	case !ok:
		return resource.Faults{o.Fault("version", "there is no such resource; leave version out to create it", version)}
	case e.Version != version:
		return resource.Faults{o.Fault("version", fmt.Sprintf("someone changed it since, it is at version %d: get it again", e.Version), version)}
	}
	return nil
}

// describeChange writes down both sides of a change, secrets hidden.
func describeChange(done *admin.Change, stored, next resource.Object, exists bool) {
	if exists {
		done.Before = string(resource.EncodeYAML(stored))
	}
	done.After = string(resource.EncodeYAML(next))
}

// Delete deletes one resource, unless others use it.
func (c *Catalog) Delete(ctx context.Context, kind, name string) (*admin.DeleteResult, error) {
	k, err := resource.FindKind(c.kinds, kind)
	if err != nil {
		return nil, admin.Errorf(admin.Invalid, "%v", err)
	}
	c.admitting.Lock()
	defer c.admitting.Unlock()
	if err := c.await(ctx, c.committed); err != nil {
		return nil, err
	}
	key := resource.Key{Kind: k.Name, Name: name}
	set, _ := c.InForce()
	if _, ok := set.Get(key); !ok {
		return nil, notFound(key)
	}
	change := resource.Delete(key)
	next, faults, _ := set.With([]resource.Change{change})
	if len(faults) > 0 {
		return nil, admin.Errorf(admin.Refused, "%s %s; change or delete those first", strings.TrimSpace(faults[0].Path), faults[0].Message)
	}
	op := consensus.Op{Key: consensus.Key(key)}
	coming := arrival{from: set, to: next}
	coming.expect(change, op)
	index, err := c.commit(ctx, []consensus.Op{op}, &coming)
	return &admin.DeleteResult{Index: index, Kind: k.Name, Name: name}, err
}

func notFound(k resource.Key) error {
	return admin.Errorf(admin.NotFound, "there is no %s %q", k.Kind, k.Name)
}

// commit gives a batch to the store and waits until it acts here.
func (c *Catalog) commit(ctx context.Context, ops []consensus.Op, coming *arrival) (uint64, error) {
	c.expect(coming)
	defer c.expect(nil)
	result, err := c.store.Commit(ctx, &consensus.Batch{Ops: ops})
	switch {
	case errors.Is(err, consensus.ErrVersion):
		return 0, admin.Errorf(admin.Refused, "%v; someone changed it since: get it again", err)
	case errors.Is(err, consensus.ErrTooLarge):
		return 0, admin.Errorf(admin.TooLarge, "%v", err)
	case err != nil:
		return 0, err
	}
	c.committed = result.Index
	return result.Index, c.await(ctx, result.Index)
}

// expect says what comes through the store next.
func (c *Catalog) expect(coming *arrival) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.coming = coming
}

// Get lists the resources of a kind, or one of them, secrets hidden.
func (c *Catalog) Get(kind, name string) (*admin.GetResult, error) {
	k, err := resource.FindKind(c.kinds, kind)
	if err != nil {
		return nil, admin.Errorf(admin.Invalid, "%v", err)
	}
	set, view := c.InForce()
	result := &admin.GetResult{Kind: k.Name, Documents: []admin.Document{}}
	add := func(o resource.Object) {
		e, _ := view.Get(consensus.Key(o.Key))
		o.Version = e.Version
		result.Documents = append(result.Documents, admin.Document{Kind: o.Kind, Name: o.Name, Data: resource.EncodeJSON(o)})
	}
	if name != "" {
		key := resource.Key{Kind: k.Name, Name: name}
		o, ok := set.Get(key)
		if !ok {
			return nil, notFound(key)
		}
		add(o)
		return result, nil
	}
	for o := range set.All(k.Name) {
		add(o)
	}
	return result, nil
}

// Decode reads the documents of a request.
func (c *Catalog) Decode(docs [][]byte) ([]resource.Object, error) {
	var objects []resource.Object
	var faults resource.Faults
	for _, d := range docs {
		some, wrong := resource.Decode("", d, c.kinds)
		objects, faults = append(objects, some...), append(faults, wrong...)
	}
	if len(faults) > 0 {
		return nil, invalid(faults)
	}
	return objects, nil
}

// invalid is the refusal that lists faults.
func invalid(faults resource.Faults) *admin.Error {
	e := admin.Errorf(admin.Invalid, "%d faults; nothing was changed", len(faults))
	if len(faults) == 1 {
		e.Message = "1 fault; nothing was changed"
	}
	e.Faults = faultsOf(faults)
	return e
}

func faultsOf[F ~[]resource.Fault](faults F) []admin.Fault {
	var out []admin.Fault
	for _, f := range faults {
		key, path, _ := strings.Cut(f.Path, " ")
		out = append(out, admin.Fault{Key: key, Path: path, Message: f.Message, Value: f.Value})
	}
	return out
}
