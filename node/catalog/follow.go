package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"penstock/consensus/store"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// decryptRetryInterval is the interval of the attempts to decrypt unread
// entries.
const decryptRetryInterval = 5 * time.Second

// Follow puts each new content of the store in force, until ctx ends, whose
// error it then returns, or until it fails. act is called with the changes of
// the resources, if there are any.
func (c *Catalog) Follow(ctx context.Context, act func(set *validate.Set, changes []resource.Change) error) error {
	for {
		set, old := c.InForce()
		view, err := c.wait(ctx, old)
		if err != nil {
			return err
		}
		s, err := c.stepTo(set, old, view)
		if err != nil {
			return err
		}
		if len(s.changes) > 0 {
			if err := act(s.set, s.changes); err != nil {
				return err
			}
		}
		c.advance(view, s)
	}
}

// wait waits for a new snapshot. While there are unread entries, it also
// returns the old one every c.retryInterval, for another attempt.
func (c *Catalog) wait(ctx context.Context, old store.Snapshot) (store.Snapshot, error) {
	if len(c.snapshot().unread) == 0 {
		return c.cfg.Store.Wait(ctx, old.Index())
	}
	again, cancel := context.WithTimeout(ctx, c.retryInterval)
	defer cancel()
	view, err := c.cfg.Store.Wait(again, old.Index())
	switch {
	case err == nil:
		return view, nil
	case ctx.Err() != nil:
		return view, ctx.Err()
	case again.Err() != nil:
		return old, nil
	}
	return view, err
}

// step is the transition from one content to a later one.
type step struct {
	changes []resource.Change
	set     *validate.Set
	unread  map[store.Key]unreadEntry
	arrived []*pendingChange // own changes that the step includes
	// foreign: the step includes changes of other writers, so that the pending
	// changes were not checked against the actual content.
	foreign bool
}

// stepTo returns the step from a set, which belongs to the old snapshot, to a
// later snapshot. Objects that were admitted stay, whatever is wrong with them
// now.
func (c *Catalog) stepTo(set *validate.Set, old, view store.Snapshot) (*step, error) {
	c.mu.Lock()
	s := &step{set: set, unread: c.unread}
	for i, pc := range c.pending {
		if pc.sequence == view.Sequence() {
			s.arrived = c.pending[:i+1]
		}
	}
	c.mu.Unlock()
	keys := changedKeys(old, view)
	for k := range s.unread {
		keys = append(keys, k)
	}
	seen := make(map[store.Key]bool, len(keys))
	keys = slices.DeleteFunc(keys, func(k store.Key) bool {
		gone := k.Internal() || seen[k]
		seen[k] = true
		return gone
	})
	s.foreign = view.Sequence() != old.Sequence() && (len(s.arrived) == 0 || s.arrived[0].from != set)
	keyChanges := make([]keyChange, len(keys))
	inParallel(len(keys), func(from, to int) {
		for i := from; i < to; i++ {
			keyChanges[i] = c.readKey(s.arrived, view, keys[i])
		}
	})
	for i := range keyChanges {
		if err := c.addKeyChange(s, set, &keyChanges[i]); err != nil {
			return nil, err
		}
	}
	switch {
	case !s.foreign && len(s.arrived) > 0:
		s.set = s.arrived[len(s.arrived)-1].to
	case len(s.changes) > 0:
		s.set = set.Next(s.changes)
	}
	return s, nil
}

// keyChange is the change of one key.
type keyChange struct {
	key    store.Key
	entry  store.Entry
	exists bool
	own    bool // change is from a pending change
	change resource.Change
	err    error // why the entry cannot be read
}

// readKey reads a key from a snapshot.
func (c *Catalog) readKey(arrived []*pendingChange, view store.Snapshot, k store.Key) keyChange {
	n := keyChange{key: k}
	n.entry, n.exists = view.Get(k)
	if n.change, n.own = findPending(arrived, k, n.entry.Value); n.own || !n.exists {
		return n
	}
	o, err := c.decodeEntry(n.entry)
	n.change, n.err = resource.Put(o), err
	return n
}

// addKeyChange adds the change of one key to a step.
func (c *Catalog) addKeyChange(s *step, set *validate.Set, n *keyChange) error {
	k := n.key
	_, had := set.Get(resource.Key(k))
	if n.own {
		s.markReadable(k)
		if !n.change.Delete || had {
			s.changes = append(s.changes, n.change)
		}
		return nil
	}
	before, unopened := s.unread[k]
	if unopened && n.exists && before.version != n.entry.Version {
		unopened = false // it has changed since
	}
	s.foreign = s.foreign || !unopened || !n.exists
	switch {
	case !n.exists:
		s.markReadable(k)
		if had {
			s.changes = append(s.changes, resource.Delete(resource.Key(k)))
		}
		return nil
	case errors.Is(n.err, errSealed):
		if !unopened {
			c.cfg.Log.Error("cannot decrypt a resource: its previous version stays in force",
				"resource", k.Kind+"/"+k.Name, "version", n.entry.Version, "error", n.err)
		}
		s.unread = maps.Clone(s.unread)
		if s.unread == nil {
			s.unread = map[store.Key]unreadEntry{}
		}
		s.unread[k] = unreadEntry{n.entry.Version, n.err.Error()}
		return nil
	case n.err != nil:
		return fmt.Errorf("cannot decode stored %s/%s: %w", k.Kind, k.Name, n.err)
	}
	s.markReadable(k)
	s.foreign = true
	s.changes = append(s.changes, n.change)
	return nil
}

// markReadable records that the entry of a key could be decrypted.
func (s *step) markReadable(k store.Key) {
	if _, ok := s.unread[k]; ok {
		s.unread = maps.Clone(s.unread)
		delete(s.unread, k)
	}
}

// decodeEntry decodes the object of an entry.
func (c *Catalog) decodeEntry(e store.Entry) (resource.Object, error) {
	value, err := c.open(e.Key, e.Value)
	if err != nil {
		return resource.Object{}, err
	}
	return codec.Restore(value, c.cfg.Kinds)
}

// advance puts a step in force.
func (c *Catalog) advance(view store.Snapshot, s *step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set, c.view, c.unread = s.set, view, s.unread
	switch n := len(s.arrived); {
	case s.foreign:
		c.ahead, c.pending = nil, nil
	case n > 0 && len(c.pending) >= n && c.pending[0] == s.arrived[0]:
		c.pending = append([]*pendingChange(nil), c.pending[n:]...)
		if len(c.pending) == 0 && c.ahead != nil && c.ahead.set == c.set {
			c.ahead.tail = nil // it is in force, and retains old content
		}
	}
	c.settleInForce()
	c.notify()
}

// findPending returns the latest pending change of a key, and whether it led to
// the stored value, which is nil after a delete.
func findPending(pending []*pendingChange, k store.Key, value []byte) (resource.Change, bool) {
	for i := len(pending) - 1; i >= 0; i-- {
		x, ok := pending[i].steps[k]
		if !ok {
			continue
		}
		return x.change, (x.value == nil) == (value == nil) && bytes.Equal(x.value, value)
	}
	return resource.Change{}, false
}

// changedKeys lists the keys that differ between two snapshots, and possibly
// others.
func changedKeys(old, view store.Snapshot) []store.Key {
	if keys, known := view.Changed(old.Index()); known {
		return keys
	}
	var keys []store.Key
	for e := range view.All() {
		if was, ok := old.Get(e.Key); !ok || was.Version != e.Version {
			keys = append(keys, e.Key)
		}
	}
	for e := range old.All() {
		if _, ok := view.Get(e.Key); !ok {
			keys = append(keys, e.Key)
		}
	}
	return keys
}
