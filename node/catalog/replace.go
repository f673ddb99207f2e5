package catalog

import (
	"context"
	"slices"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Replacement is a snapshot that replaces all resources.
type Replacement struct {
	// Entries are the snapshot's; internal ones are ignored.
	Entries []store.Entry
	// Open decrypts the snapshot's sealed values; nil: this node's Sealer does.
	Open func(aad, sealed []byte) ([]byte, error)
	ID   store.ID   // as in Change
	Note store.Note // as in Change; without What "restore"
}

// Replace replaces all resources by those of a snapshot, in one change. It
// deletes all others, and leaves identical ones untouched. The resources are
// checked together as usual, but not by the rules that only concern a first
// apply, such as the expiry of certificates. Its errors are Apply's.
func (c *Catalog) Replace(ctx context.Context, r Replacement) (*api.RestoreResult, error) {
	all, err := c.decodeSnapshot(r)
	if err != nil {
		return nil, err
	}
	result := &api.RestoreResult{Resources: len(all)}
	out, err := c.makeChange(ctx, r.ID, completeNote(r.Note, "restore"), func(base *baseline) (*plan, error) {
		result.Deleted = 0
		p := new(plan)
		kept := make(map[resource.Key]bool, len(all))
		for i := range all {
			o := all[i].object
			kept[o.Key] = true
			if stored, exists, known := base.get(o.Key); exists && known && resource.Equal(o, stored) {
				continue
			}
			if err := c.checkAdmission(o); err != nil {
				return nil, err
			}
			value, err := c.seal(store.Key(o.Key), all[i].plain)
			if err != nil {
				return nil, err
			}
			p.add(resource.Put(o), store.Op{Key: store.Key(o.Key), Value: value})
		}
		leave := base.set.WithLabels("", nil)
		for k := range base.unread {
			if _, exists := base.set.Get(resource.Key(k)); !exists && !base.hasPending(resource.Key(k)) {
				leave = append(leave, resource.Object{Key: resource.Key(k)})
			}
		}
		for _, o := range referrersFirst(base.set, leave) {
			if !kept[o.Key] {
				p.add(resource.Delete(o.Key), store.Op{Key: store.Key(o.Key)})
				result.Deleted++
			}
		}
		next, faults, _ := base.set.With(p.changes)
		if len(faults) > 0 {
			return nil, invalid(faults)
		}
		p.next = next
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	if result.Index = out.index; out.repeated {
		_, view := c.InForce()
		keys, _ := view.Changed(out.index - 1)
		gone := map[store.Key]bool{} // empty if the history has forgotten it
		for _, k := range keys {
			if !k.Internal() && actionAt(view, k, out.index) == api.Deleted {
				gone[k] = true
			}
		}
		result.Deleted = len(gone)
	}
	return result, nil
}

// snapshotResource is one resource of a snapshot.
type snapshotResource struct {
	object resource.Object
	plain  []byte // encoded object
	fault  string // why it cannot be restored; "": it can
}

// decodeSnapshot decodes the resources of a replacement.
func (c *Catalog) decodeSnapshot(r Replacement) ([]snapshotResource, error) {
	open := r.Open
	if open == nil && c.cfg.Sealer != nil {
		open = c.cfg.Sealer.Open
	}
	entries := slices.DeleteFunc(slices.Clone(r.Entries), func(e store.Entry) bool { return e.Internal() })
	all := make([]snapshotResource, len(entries))
	inParallel(len(entries), func(from, to int) {
		for i := from; i < to; i++ {
			all[i] = c.decodeSnapshotEntry(open, entries[i])
		}
	})
	var faults []api.Fault
	for i := range all {
		if why := all[i].fault; why != "" && len(faults) < resource.MaxFaults {
			faults = append(faults, api.Fault{Key: entries[i].Kind + "/" + entries[i].Name, Message: why})
		}
	}
	if len(faults) > 0 {
		e := api.Errorf(api.Invalid, "the snapshot cannot be restored here: %d faults; nothing was changed", len(faults))
		e.Faults = faults
		return nil, e
	}
	return all, nil
}

func (c *Catalog) decodeSnapshotEntry(open func(aad, sealed []byte) ([]byte, error), e store.Entry) (r snapshotResource) {
	var err error
	if r.plain, err = openWith(open, e.Key, e.Value); err == nil {
		r.object, err = codec.Restore(r.plain, c.cfg.Kinds)
	}
	switch {
	case err != nil:
		r.fault = err.Error()
	case r.object.Key != resource.Key(e.Key):
		r.fault = "contains " + r.object.String()
	}
	return r
}
