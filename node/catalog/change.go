package catalog

import (
	"context"
	"fmt"
	"strings"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// Target is the resource of a Delete or Rollback, with the details of the
// change.
type Target struct {
	Kind, Name string // the kind in any case, singular or plural
	// Version is, for Delete, the version that the resource must have, 0: any; for
	// Rollback, the version to restore, 0: the one before the last change.
	Version uint64
	ID      store.ID   // as in Change
	Note    store.Note // as in Change
}

// key returns the key of a kind and name.
func (c *Catalog) key(kind, name string) (resource.Key, error) {
	k, err := resource.FindKind(c.cfg.Kinds, kind)
	if err != nil {
		return resource.Key{}, api.Errorf(api.Invalid, "%v", err)
	}
	return resource.Key{Kind: k.Name, Name: name}, nil
}

// Delete deletes one resource, unless others refer to it. Its errors are
// Apply's.
func (c *Catalog) Delete(ctx context.Context, t Target) (*api.DeleteResult, error) {
	key, err := c.key(t.Kind, t.Name)
	if err != nil {
		return nil, err
	}
	var warnings []api.Fault
	out, err := c.makeChange(ctx, t.ID, completeNote(t.Note, "delete"), func(base *baseline) (*plan, error) {
		stored, exists, _ := base.get(key)
		if !exists {
			return nil, notFound(key)
		}
		if err := c.refuseOwned(&stored); err != nil {
			return nil, err
		}
		if t.Version != 0 {
			switch fault, err := base.versionFault(key, t.Version); {
			case err != nil:
				return nil, err
			case fault != "":
				return nil, api.Errorf(api.Refused, "%v, version %d: %s", key, t.Version, fault)
			}
		}
		p := new(plan)
		p.add(resource.Delete(key), store.Op{Key: store.Key(key)})
		p.endRollouts(base.set)
		next, faults, warned := base.set.With(p.changes)
		if len(faults) > 0 {
			return nil, api.Errorf(api.Refused, "%s %s; change or delete those first", strings.TrimSpace(faults[0].Path), faults[0].Message)
		}
		p.next, warnings = next, faultsOf(warned)
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	return &api.DeleteResult{Index: out.index, Kind: key.Kind, Name: key.Name, Warnings: warnings}, nil
}

// Rollback restores the content that a resource had at a version, secrets
// included, even if the resource was deleted since. The content is checked as
// if it were applied now. Its errors are Apply's.
func (c *Catalog) Rollback(ctx context.Context, t Target) (*api.ApplyResult, error) {
	key, err := c.key(t.Kind, t.Name)
	if err != nil {
		return nil, err
	}
	var result *api.ApplyResult
	out, err := c.makeChange(ctx, t.ID, completeNote(t.Note, "rollback"), func(base *baseline) (*plan, error) {
		if t.Version == 0 && base.hasPending(key) {
			return nil, errOvertaken // the pending change will be the last one
		}
		r, err := findRevision(base.view, key, t.Version)
		if err != nil {
			return nil, err
		}
		o, err := c.decodeRevision(key, r)
		if err != nil {
			return nil, err
		}
		a := &applyCheck{catalog: c, base: base, change: &Change{Objects: []resource.Object{o}}, result: &api.ApplyResult{}}
		result = a.result
		p, err := a.check()
		if err == nil {
			p.note = fmt.Sprintf("rollback to %d", r.Version)
		}
		return p, err
	})
	if err != nil {
		return nil, err
	}
	if out.repeated {
		result = c.repeated([]resource.Object{{Key: key}}, out.index)
	}
	result.Index = out.index
	return result, nil
}

// findRevision returns the revision to restore.
func findRevision(view store.Snapshot, key resource.Key, version uint64) (store.Revision, error) {
	revisions := view.History(store.Key(key))
	known := make([]string, 0, len(revisions))
	for i, r := range revisions {
		if r.Value != nil {
			known = append(known, fmt.Sprint(r.Version))
		}
		switch {
		case version == 0 && i != 1, version != 0 && version != r.Version:
		case r.Value != nil:
			return r, nil
		case version == 0:
			return r, api.Errorf(api.Refused, "%v did not exist before its last change: delete it, or name a version", key)
		default:
			return r, api.Errorf(api.Refused, "%v was deleted in version %d: delete it, or name another version", key, version)
		}
	}
	var none store.Revision
	switch {
	case len(revisions) == 0:
		return none, api.Errorf(api.NotFound, "there is no %s %q, and no history of it", key.Kind, key.Name)
	case version == 0:
		return none, api.Errorf(api.NotFound, "%v has no earlier version", key)
	}
	return none, api.Errorf(api.NotFound, "the history of %v has no version %d, only %s", key, version, strings.Join(known, ", "))
}

// decodeRevision returns the object of a revision, validated by this build's
// rules.
func (c *Catalog) decodeRevision(key resource.Key, r store.Revision) (resource.Object, error) {
	value, err := c.open(store.Key(key), r.Value)
	if err != nil {
		return resource.Object{}, api.Errorf(api.Refused, "%v, version %d: %v", key, r.Version, err)
	}
	objects, faults := codec.Decode("", value, c.cfg.Kinds)
	switch {
	case len(faults) > 0:
		return resource.Object{}, invalid(faults)
	case len(objects) != 1 || objects[0].Key != key:
		return resource.Object{}, api.Errorf(api.Internal, "version %d of %v contains another resource", r.Version, key)
	}
	return objects[0], nil
}
