package catalog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/routing/resource"
)

// Change is a set of creations, updates and deletions, applied all or none.
type Change struct {
	// Objects are created or updated.
	Objects []resource.Object
	// Prune, if not empty, deletes the resources that have all of these labels and
	// are not among Objects.
	Prune map[string]string
	// DryRun reports what would change and changes nothing.
	DryRun bool
	// ID makes it safe to repeat a request whose result was lost. A change that
	// was applied is not applied again; the result is reconstructed from the
	// history. A resource that the history has forgotten, or that the request did
	// not change, is "unchanged"; warnings are not repeated. A request that
	// applied nothing, because there was nothing to do or it was refused, is not
	// remembered.
	ID consensus.ID
	// Note is the history entry. Without What it is "apply", without At now.
	Note consensus.Note
}

// Apply creates, updates and deletes resources, all of them or none, and
// returns once the change is in force here. The error is an *admin.Error if the
// change was refused. It wraps consensus.ErrNotLeader if another node leads and
// nothing was done, and consensus.ErrUnknown if the outcome is unknown.
func (c *Catalog) Apply(ctx context.Context, change Change) (*admin.ApplyResult, error) {
	if faults := resource.LabelFaults(change.Prune); len(faults) > 0 {
		e := admin.Errorf(admin.Invalid, "prune: %s", faults[0])
		e.Details = faults[1:]
		return nil, e
	}
	id := change.ID
	if change.DryRun {
		id = consensus.ID{}
	}
	var result *admin.ApplyResult
	out, err := c.change(ctx, id, noted(change.Note, "apply"), func(now *content) (*plan, error) {
		a := &applying{catalog: c, now: now, change: &change, result: &admin.ApplyResult{Changes: make([]admin.Change, 0, len(change.Objects))}}
		result = a.result
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

// applying is the check of one change.
type applying struct {
	catalog *Catalog
	now     *content
	change  *Change
	result  *admin.ApplyResult

	all      []resource.Change // checked together, including unchanged objects
	plan     plan
	faults   resource.Faults
	outdated resource.Faults // conflicts with the versions that the writer read
	pruned   map[resource.Key]bool
	created  string // creation timestamp of new objects; "": not chosen yet
}

func (a *applying) check() (*plan, error) {
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
	a.all = append(a.all, a.plan.endRollouts(a.now.set)...)
	next, wrong, warnings := a.now.set.With(a.all)
	a.faults = append(append(a.faults, wrong...), resource.Admit(admitted, time.Now())...)
	if err := a.refuse(); err != nil {
		return nil, err
	}
	a.result.Warnings = append(a.result.Warnings, faultsOf(warnings)...)
	if a.change.DryRun {
		return &plan{}, nil
	}
	a.plan.next = next
	return &a.plan, nil
}

// admits calls Config.Admit.
func (c *Catalog) admits(o resource.Object) error {
	if c.cfg.Admit == nil {
		return nil
	}
	return c.cfg.Admit(o)
}

// put checks one object and returns it as it will be stored.
func (a *applying) put(given *resource.Object) (resource.Object, error) {
	stored, exists, known := a.now.get(given.Key)
	// The fields that locate an object in its file are left out: the sender has
	// them.
	o, wrong := resource.FillHidden(resource.Object{Key: given.Key, Spec: given.Spec, Labels: given.Labels}, stored)
	a.faults = append(a.faults, wrong...)
	if exists && known {
		a.checkOrigin(&o, &stored)
	}
	a.keepAge(&o, &stored)
	done := admin.Change{Kind: o.Kind, Name: o.Name, Action: admin.Created}
	switch {
	case exists && known && resource.Equal(o, stored):
		done.Action = admin.Unchanged
	case exists:
		done.Action = admin.Configured
	}
	change := resource.Put(o)
	a.all = append(a.all, change)
	if done.Action != admin.Unchanged {
		if err := a.catalog.admits(o); err != nil {
			return o, err
		}
		if err := a.checkVersion(&o, given.Version); err != nil {
			return o, err
		}
		value, err := a.catalog.seal(consensus.Key(o.Key), resource.EncodeWithSecrets(o))
		if err != nil {
			return o, err
		}
		a.plan.do(change, consensus.Op{Key: consensus.Key(o.Key), Value: value})
		if a.change.DryRun {
			if exists && known {
				done.Before = string(resource.EncodeYAML(stored))
			}
			done.After = string(resource.EncodeYAML(o))
		}
	}
	a.result.Changes = append(a.result.Changes, done)
	return o, nil
}

// checkVersion reports a conflict if the writer read another version of the
// object than the stored one.
func (a *applying) checkVersion(o *resource.Object, version uint64) error {
	if version == 0 {
		return nil
	}
	fault, err := a.now.versionFault(o.Key, version)
	if fault != "" {
		a.outdated = append(a.outdated, o.Fault("version", fault, version))
	}
	return err
}

// versionFault returns the conflict between a version that a writer read and
// the stored one; "": none.
func (n *content) versionFault(k resource.Key, version uint64) (string, error) {
	e, exists := n.view.Get(consensus.Key(k))
	switch {
	case exists && e.Version == version && n.touched(k):
		return "", errAgain // decide once the pending change is in force
	case !exists && n.touched(k):
		return "", errAgain
	case !exists:
		return "there is no such resource; leave version out to create it", nil
	case e.Version != version:
		return fmt.Sprintf("someone changed it since, it is at version %d: get it again", e.Version), nil
	}
	return "", nil
}

// prune adds the deletions of resources that have the labels and are not among
// the objects.
func (a *applying) prune(objects []resource.Object) {
	kept := make(map[resource.Key]bool, len(objects))
	for i := range objects {
		o := &objects[i]
		if kept[o.Key] = true; !o.HasLabels(a.change.Prune) {
			a.result.Warnings = append(a.result.Warnings, admin.Fault{
				Key: o.String(), Path: "labels", Message: "it has not the labels that prune goes by: it will stay when it is left out",
			})
		}
	}
	var leave []resource.Object
	for _, o := range a.now.set.WithLabels("", a.change.Prune) {
		if !kept[o.Key] {
			leave = append(leave, o)
		}
	}
	a.pruned = make(map[resource.Key]bool, len(leave))
	for _, o := range usersFirst(a.now.set, leave) {
		a.pruned[o.Key] = true
		change := resource.Delete(o.Key)
		a.all = append(a.all, change)
		a.plan.do(change, consensus.Op{Key: consensus.Key(o.Key)})
		done := admin.Change{Kind: o.Kind, Name: o.Name, Action: admin.Deleted}
		if a.change.DryRun {
			done.Before = string(resource.EncodeYAML(o))
		}
		a.result.Changes = append(a.result.Changes, done)
	}
}

// usersFirst orders objects so that each comes before those that it refers to,
// and otherwise keeps their order.
func usersFirst(set *resource.Set, objects []resource.Object) []resource.Object {
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

// refuse returns an error that lists all faults; nil: there are none.
func (a *applying) refuse() error {
	// A reference to a pruned resource has two faults. Only the one about the
	// pruned resource is reported.
	a.faults = slices.DeleteFunc(a.faults, func(f resource.Fault) bool {
		kind, ok := strings.CutPrefix(f.Message, "there is no such ")
		return ok && a.pruned[resource.Key{Kind: kind, Name: f.Value}]
	})
	inUse := len(a.faults) > 0
	for i := range a.faults {
		f := &a.faults[i]
		kind, name, _ := strings.Cut(f.Path, "/")
		if a.pruned[resource.Key{Kind: kind, Name: name}] {
			f.Message += "; prune would delete it"
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
		e.Code = admin.Refused
	}
	return e
}

// repeated returns the result of a request whose batch applied earlier, at
// index.
func (c *Catalog) repeated(objects []resource.Object, index uint64) *admin.ApplyResult {
	_, view := c.InForce()
	result := &admin.ApplyResult{Changes: make([]admin.Change, 0, len(objects))}
	asked := make(map[consensus.Key]bool, len(objects))
	for i := range objects {
		k := consensus.Key(objects[i].Key)
		asked[k] = true
		result.Changes = append(result.Changes, admin.Change{Kind: k.Kind, Name: k.Name, Action: actionAt(view, k, index)})
	}
	keys, _ := view.Changed(index - 1) // the pruned ones; unknown for an old index
	for _, k := range keys {
		if !k.Internal() && !c.kept[k.Kind] && !asked[k] && actionAt(view, k, index) == admin.Deleted {
			asked[k] = true
			result.Changes = append(result.Changes, admin.Change{Kind: k.Kind, Name: k.Name, Action: admin.Deleted})
		}
	}
	return result
}

// actionAt returns what the batch at an index did to a resource.
func actionAt(view consensus.Snapshot, k consensus.Key, index uint64) string {
	revisions := view.History(k)
	for i, r := range revisions {
		switch {
		case r.Version != index:
		case r.Value == nil:
			return admin.Deleted
		case i+1 < len(revisions) && revisions[i+1].Value != nil:
			return admin.Configured
		default:
			return admin.Created
		}
	}
	return admin.Unchanged
}
