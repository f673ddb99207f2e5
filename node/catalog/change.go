package catalog

import (
	"context"
	"fmt"
	"strings"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/routing/resource"
)

// Target is the resource of a Delete or Rollback, with the details of the
// change.
type Target struct {
	Kind, Name string // the kind in any case, singular or plural
	// Version is, for Delete, the version that the resource must have, 0: any; for
	// Rollback, the version to restore, 0: the one before the last change.
	Version uint64
	ID      consensus.ID   // as in Change
	Note    consensus.Note // as in Change
}

// key returns the key of a kind and name.
func (c *Catalog) key(kind, name string) (resource.Key, error) {
	k, err := resource.FindKind(c.cfg.Kinds, kind)
	if err != nil {
		return resource.Key{}, admin.Errorf(admin.Invalid, "%v", err)
	}
	return resource.Key{Kind: k.Name, Name: name}, nil
}

// Delete deletes one resource, unless others refer to it. Its errors are
// Apply's.
func (c *Catalog) Delete(ctx context.Context, t Target) (*admin.DeleteResult, error) {
	key, err := c.key(t.Kind, t.Name)
	if err != nil {
		return nil, err
	}
	out, err := c.change(ctx, t.ID, noted(t.Note, "delete"), func(now *content) (*plan, error) {
		if _, exists, _ := now.get(key); !exists {
			return nil, notFound(key)
		}
		if t.Version != 0 {
			switch fault, err := now.versionFault(key, t.Version); {
			case err != nil:
				return nil, err
			case fault != "":
				return nil, admin.Errorf(admin.Refused, "%v, version %d: %s", key, t.Version, fault)
			}
		}
		p := new(plan)
		p.do(resource.Delete(key), consensus.Op{Key: consensus.Key(key)})
		p.endRollouts(now.set)
		next, faults, _ := now.set.With(p.changes)
		if len(faults) > 0 {
			return nil, admin.Errorf(admin.Refused, "%s %s; change or delete those first", strings.TrimSpace(faults[0].Path), faults[0].Message)
		}
		p.next = next
		return p, nil
	})
	if err != nil {
		return nil, err
	}
	return &admin.DeleteResult{Index: out.index, Kind: key.Kind, Name: key.Name}, nil
}

// Rollback restores the content that a resource had at a version, secrets
// included, even if the resource was deleted since. The content is checked as
// if it were applied now. Its errors are Apply's.
func (c *Catalog) Rollback(ctx context.Context, t Target) (*admin.ApplyResult, error) {
	key, err := c.key(t.Kind, t.Name)
	if err != nil {
		return nil, err
	}
	var result *admin.ApplyResult
	out, err := c.change(ctx, t.ID, noted(t.Note, "rollback"), func(now *content) (*plan, error) {
		if t.Version == 0 && now.touched(key) {
			return nil, errAgain // the pending change will be the last one
		}
		r, err := revisionOf(now.view, key, t.Version)
		if err != nil {
			return nil, err
		}
		o, err := c.former(key, r)
		if err != nil {
			return nil, err
		}
		a := &applying{catalog: c, now: now, change: &Change{Objects: []resource.Object{o}}, result: &admin.ApplyResult{}}
		result = a.result
		p, err := a.check()
		if err == nil {
			p.what = fmt.Sprintf("rollback to %d", r.Version)
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

// revisionOf returns the revision to restore.
func revisionOf(view consensus.Snapshot, key resource.Key, version uint64) (consensus.Revision, error) {
	revisions := view.History(consensus.Key(key))
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
			return r, admin.Errorf(admin.Refused, "%v was not there before its last change: delete it, or name a version", key)
		default:
			return r, admin.Errorf(admin.Refused, "%v was deleted in version %d: delete it, or name another version", key, version)
		}
	}
	var none consensus.Revision
	switch {
	case len(revisions) == 0:
		return none, admin.Errorf(admin.NotFound, "there is no %s %q, and no history of one", key.Kind, key.Name)
	case version == 0:
		return none, admin.Errorf(admin.NotFound, "%v has no earlier version", key)
	}
	return none, admin.Errorf(admin.NotFound, "%v has no version %d that is remembered; there are %s", key, version, strings.Join(known, ", "))
}

// former returns the object of a revision, validated by this build's rules.
func (c *Catalog) former(key resource.Key, r consensus.Revision) (resource.Object, error) {
	value, err := c.open(consensus.Key(key), r.Value)
	if err != nil {
		return resource.Object{}, admin.Errorf(admin.Refused, "%v, version %d: %v", key, r.Version, err)
	}
	objects, faults := resource.Decode("", value, c.cfg.Kinds)
	switch {
	case len(faults) > 0:
		return resource.Object{}, invalid(faults)
	case len(objects) != 1 || objects[0].Key != key:
		return resource.Object{}, admin.Errorf(admin.Internal, "version %d of %v holds something else", r.Version, key)
	}
	return objects[0], nil
}
