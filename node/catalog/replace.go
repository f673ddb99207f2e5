package catalog

import (
	"context"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/routing/resource"
)

// Replacement is what all resources shall be.
type Replacement struct {
	// Entries are those of a snapshot; internal ones are passed by.
	Entries []consensus.Entry
	// Open opens what the snapshot has sealed; nil: this node's own sealer does.
	Open func(aad, sealed []byte) ([]byte, error)
	ID   consensus.ID   // Change.ID's
	Note consensus.Note // Change.Note's; without What "restore"
}

// Replace makes the resources those of a snapshot, by one change, and deletes
// all others; what is the same stays untouched. The resources are checked
// together as any are; but what matters only when something is applied for the
// first time, such as when a certificate expires, is not. Its errors are Apply's.
func (c *Catalog) Replace(ctx context.Context, r Replacement) (*admin.RestoreResult, error) {
	objects, err := c.reopened(r)
	if err != nil {
		return nil, err
	}
	result := &admin.RestoreResult{Resources: len(objects)}
	out, err := c.change(ctx, r.ID, noted(r.Note, "restore"), func(now *content) (*plan, error) {
		result.Deleted = 0
		p := new(plan)
		kept := make(map[resource.Key]bool, len(objects))
		for _, o := range objects {
			kept[o.Key] = true
			if stored, exists, known := now.get(o.Key); exists && known && resource.Equal(o, stored) {
				continue
			}
			value, err := c.seal(consensus.Key(o.Key), resource.EncodeWithSecrets(o))
			if err != nil {
				return nil, err
			}
			p.do(resource.Put(o), consensus.Op{Key: consensus.Key(o.Key), Value: value})
		}
		leave := now.set.WithLabels("", nil)
		for k := range now.unread {
			if _, exists := now.set.Get(resource.Key(k)); !exists && !now.touched(resource.Key(k)) {
				leave = append(leave, resource.Object{Key: resource.Key(k)})
			}
		}
		for _, o := range usersFirst(now.set, leave) {
			if !kept[o.Key] {
				p.do(resource.Delete(o.Key), consensus.Op{Key: consensus.Key(o.Key)})
				result.Deleted++
			}
		}
		next, faults, _ := now.set.With(p.changes)
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
		gone := map[consensus.Key]bool{} // none, where the history has forgotten it
		for _, k := range keys {
			if !k.Internal() && actionAt(view, k, out.index) == admin.Deleted {
				gone[k] = true
			}
		}
		result.Deleted = len(gone)
	}
	return result, nil
}

// reopened are the objects of a replacement.
func (c *Catalog) reopened(r Replacement) ([]resource.Object, error) {
	open := r.Open
	if open == nil && c.cfg.Sealer != nil {
		open = c.cfg.Sealer.Open
	}
	objects := make([]resource.Object, 0, len(r.Entries))
	var faults []admin.Fault
	fault := func(k consensus.Key, message string) {
		if len(faults) < resource.MaxFaults {
			faults = append(faults, admin.Fault{Key: k.Kind + "/" + k.Name, Message: message})
		}
	}
	for _, e := range r.Entries {
		if e.Internal() {
			continue
		}
		value, err := openWith(open, e.Key, e.Value)
		if err != nil {
			fault(e.Key, err.Error())
			continue
		}
		o, err := resource.Restore(value, c.cfg.Kinds)
		switch {
		case err != nil:
			fault(e.Key, err.Error())
		case o.Key != resource.Key(e.Key):
			fault(e.Key, "holds "+o.String())
		default:
			objects = append(objects, o)
		}
	}
	if len(faults) > 0 {
		e := admin.Errorf(admin.Invalid, "the snapshot cannot be restored here: %d faults; nothing was changed", len(faults))
		e.Faults = faults
		return nil, e
	}
	return objects, nil
}
