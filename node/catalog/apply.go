package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// Change is a set of creations, updates and deletions, applied all or none.
type Change struct {
	// Objects are created or updated.
	Objects []resource.Object
	// Prune, if not empty, deletes the resources that have all of these labels and
	// are not among Objects.
	Prune map[string]string
	// Delete are resources to delete; those that do not exist are ignored.
	Delete []resource.Key
	// Owner is the resource.LabelAppliedBy of the writer if it is Config.Reserved,
	// whose resources nobody else may change; it changes no others. Empty for all
	// other writers.
	Owner string
	// DryRun reports what would change and changes nothing.
	DryRun bool
	// ID makes it safe to repeat a request whose result was lost. A change that
	// was applied is not applied again; the result is reconstructed from the
	// history. A resource that the history has forgotten, or that the request did
	// not change, is "unchanged"; warnings are not repeated. A request that
	// applied nothing, because there was nothing to do or it was refused, is not
	// remembered.
	ID store.ID
	// Note is the history entry. Without What it is "apply", without At now.
	Note store.Note
}

// Apply creates, updates and deletes resources, all of them or none, and
// returns once the change is in force here. The error is an *api.Error if the
// change was refused. It wraps store.ErrNotLeader if another node leads and
// nothing was done, and store.ErrUnknown if the outcome is unknown.
func (c *Catalog) Apply(ctx context.Context, change Change) (*api.ApplyResult, error) {
	if faults := validate.Labels(change.Prune); len(faults) > 0 {
		e := api.Errorf(api.Invalid, "prune: %s", faults[0])
		e.Details = faults[1:]
		return nil, e
	}
	id := change.ID
	if change.DryRun {
		id = store.ID{}
	}
	var result *api.ApplyResult
	out, err := c.makeChange(ctx, id, completeNote(change.Note, "apply"), func(base *baseline) (*plan, error) {
		result = &api.ApplyResult{Changes: make([]api.Change, 0, len(change.Objects))}
		a := &applyCheck{catalog: c, base: base, change: &change, result: result}
		return a.check()
	})
	if err != nil {
		return nil, err
	}
	if out.repeated {
		result = c.repeated(change.Objects, out.index)
	}
	result.Index = out.index
	return result, nil
}

// applyCheck is the check of one change.
type applyCheck struct {
	catalog *Catalog
	base    *baseline
	change  *Change
	result  *api.ApplyResult

	all      []resource.Change // checked together, including unchanged objects
	plan     plan
	faults   resource.Faults
	outdated resource.Faults // conflicts with the versions that the writer read
	pruned   map[resource.Key]bool
	created  string // creation timestamp of new objects; "": not chosen yet
}

func (a *applyCheck) check() (*plan, error) {
	admitted := make([]resource.Object, len(a.change.Objects))
	for i := range a.change.Objects {
		o, err := a.put(&a.change.Objects[i])
		if err != nil {
			return nil, err
		}
		admitted[i] = o
	}
	if len(a.change.Prune) > 0 {
		a.prune(admitted)
	}
	if len(a.change.Delete) > 0 {
		a.delete()
	}
	a.all = append(a.all, a.plan.endRollouts(a.base.set)...)
	next, wrong, warnings := a.base.set.With(a.all)
	a.faults = append(append(a.faults, wrong...), validate.Admit(admitted, time.Now())...)
	if err := a.faultsError(); err != nil {
		return nil, err
	}
	a.result.Warnings = append(a.result.Warnings, faultsOf(warnings)...)
	if a.change.DryRun {
		return &plan{}, nil
	}
	a.plan.next = next
	return &a.plan, nil
}

// checkAdmission calls Config.Admit.
func (c *Catalog) checkAdmission(o resource.Object) error {
	if c.cfg.Admit == nil {
		return nil
	}
	return c.cfg.Admit(o)
}

// put checks one object and returns it as it will be stored.
func (a *applyCheck) put(given *resource.Object) (resource.Object, error) {
	stored, exists, known := a.base.get(given.Key)
	// The fields that locate an object in its file are left out: the sender has
	// them.
	o, wrong := resource.FillHidden(resource.Object{Key: given.Key, Spec: given.Spec, Labels: given.Labels}, stored)
	a.faults = append(a.faults, wrong...)
	if exists && known {
		a.checkOrigin(&o, &stored)
	}
	a.checkOwner(&o, &stored, exists)
	a.setTimestamp(&o, &stored)
	done := api.Change{Kind: o.Kind, Name: o.Name, Action: api.Created}
	switch {
	case exists && known && resource.Equal(o, stored):
		done.Action = api.Unchanged
	case exists:
		done.Action = api.Configured
	}
	change := resource.Put(o)
	a.all = append(a.all, change)
	if done.Action != api.Unchanged {
		if err := a.catalog.checkAdmission(o); err != nil {
			return o, err
		}
		if err := a.checkVersion(&o, given.Version); err != nil {
			return o, err
		}
		value, err := a.catalog.seal(store.Key(o.Key), codec.EncodeWithSecrets(o))
		if err != nil {
			return o, err
		}
		a.plan.add(change, store.Op{Key: store.Key(o.Key), Value: value})
		if a.change.DryRun {
			if exists && known {
				done.Before = string(codec.EncodeYAML(stored))
			}
			done.After = string(codec.EncodeYAML(o))
		}
	}
	a.result.Changes = append(a.result.Changes, done)
	return o, nil
}

// checkVersion reports a conflict if the writer read another version of the
// object than the stored one.
func (a *applyCheck) checkVersion(o *resource.Object, version uint64) error {
	if version == 0 {
		return nil
	}
	fault, err := a.base.versionFault(o.Key, version)
	if fault != "" {
		a.outdated = append(a.outdated, o.Fault("version", fault, version))
	}
	return err
}

// versionFault returns the conflict between a version that a writer read and
// the stored one; "": none.
func (n *baseline) versionFault(k resource.Key, version uint64) (string, error) {
	e, exists := n.view.Get(store.Key(k))
	switch {
	case exists && e.Version == version && n.hasPending(k):
		return "", errOvertaken // decide once the pending change is in force
	case !exists && n.hasPending(k):
		return "", errOvertaken
	case !exists:
		return "there is no such resource; omit version to create it", nil
	case e.Version != version:
		return fmt.Sprintf("changed since, now at version %d: get it again", e.Version), nil
	}
	return "", nil
}

// prune adds the deletions of resources that have the labels and are not among
// the objects.
func (a *applyCheck) prune(objects []resource.Object) {
	kept := make(map[resource.Key]bool, len(objects))
	for i := range objects {
		o := &objects[i]
		if kept[o.Key] = true; !o.HasLabels(a.change.Prune) {
			a.result.Warnings = append(a.result.Warnings, api.Fault{
				Key: o.String(), Path: "labels", Message: "it does not have the prune labels: omitting it later will not delete it",
			})
		}
	}
	var leave []resource.Object
	for _, o := range a.base.set.WithLabels("", a.change.Prune) {
		if !kept[o.Key] {
			leave = append(leave, o)
		}
	}
	a.remove(leave)
}

// delete adds the deletions that the change names.
func (a *applyCheck) delete() {
	var leave []resource.Object
	for _, k := range a.change.Delete {
		if o, exists := a.base.set.Get(k); exists {
			leave = append(leave, o)
		}
	}
	a.remove(leave)
}

// remove adds the deletions of objects.
func (a *applyCheck) remove(leave []resource.Object) {
	if a.pruned == nil {
		a.pruned = make(map[resource.Key]bool, len(leave))
	}
	for _, o := range referrersFirst(a.base.set, leave) {
		if fault := a.catalog.ownerFault(&o, a.change.Owner); fault != "" {
			a.faults = append(a.faults, o.Fault("", fault, nil))
			continue
		}
		a.pruned[o.Key] = true
		change := resource.Delete(o.Key)
		a.all = append(a.all, change)
		a.plan.add(change, store.Op{Key: store.Key(o.Key)})
		done := api.Change{Kind: o.Kind, Name: o.Name, Action: api.Deleted}
		if a.change.DryRun {
			done.Before = string(codec.EncodeYAML(o))
		}
		a.result.Changes = append(a.result.Changes, done)
	}
}

// referrersFirst orders objects so that each comes before those that it refers
// to, and otherwise keeps their order.
func referrersFirst(set *validate.Set, objects []resource.Object) []resource.Object {
	waiting := make(map[resource.Key]*resource.Object, len(objects))
	for i := range objects {
		waiting[objects[i].Key] = &objects[i]
	}
	out := make([]resource.Object, 0, len(objects))
	var add func(o *resource.Object)
	add = func(o *resource.Object) {
		delete(waiting, o.Key)
		for _, user := range set.Users(o.Key) {
			if u, ok := waiting[user.Key]; ok {
				add(u)
			}
		}
		out = append(out, *o)
	}
	for i := range objects {
		if o, ok := waiting[objects[i].Key]; ok {
			add(o)
		}
	}
	return out
}

// faultsError returns an error that lists all faults; nil: there are none.
func (a *applyCheck) faultsError() error {
	// A reference to a pruned resource has two faults. Only the one about the
	// pruned resource is reported.
	a.faults = slices.DeleteFunc(a.faults, func(f resource.Fault) bool {
		_, kind, ok := strings.Cut(f.Message, "no such ")
		return ok && a.pruned[resource.Key{Kind: kind, Name: f.Value}]
	})
	inUse := len(a.faults) > 0
	for i := range a.faults {
		f := &a.faults[i]
		kind, name, _ := strings.Cut(f.Path, "/")
		if a.pruned[resource.Key{Kind: kind, Name: name}] {
			if len(a.change.Prune) > 0 {
				f.Message += "; prune would delete it"
			}
		} else {
			inUse = false
		}
	}
	all := append(a.outdated, a.faults...)
	if len(all) == 0 {
		return nil
	}
	e := invalid(all)
	if len(a.faults) == 0 || inUse {
		e.Code = api.Refused
	}
	return e
}

// repeated returns the result of a request whose batch applied earlier, at
// index.
func (c *Catalog) repeated(objects []resource.Object, index uint64) *api.ApplyResult {
	_, view := c.InForce()
	result := &api.ApplyResult{Changes: make([]api.Change, 0, len(objects))}
	asked := make(map[store.Key]bool, len(objects))
	for i := range objects {
		k := store.Key(objects[i].Key)
		asked[k] = true
		result.Changes = append(result.Changes, api.Change{Kind: k.Kind, Name: k.Name, Action: actionAt(view, k, index)})
	}
	keys, _ := view.Changed(index - 1) // the pruned ones; unknown for an old index
	for _, k := range keys {
		if !k.Internal() && !c.managed[k.Kind] && !asked[k] && actionAt(view, k, index) == api.Deleted {
			asked[k] = true
			result.Changes = append(result.Changes, api.Change{Kind: k.Kind, Name: k.Name, Action: api.Deleted})
		}
	}
	return result
}

// actionAt returns what the batch at an index did to a resource.
func actionAt(view store.Snapshot, k store.Key, index uint64) string {
	revisions := view.History(k)
	for i, r := range revisions {
		switch {
		case r.Version != index:
		case r.Value == nil:
			return api.Deleted
		case i+1 < len(revisions) && revisions[i+1].Value != nil:
			return api.Configured
		default:
			return api.Created
		}
	}
	return api.Unchanged
}
