package catalog

import (
	"penstock/node/admin"
	"penstock/routing/resource"
)

// Preview checks a change against the resources in force here, as Apply would,
// and returns what it would change. It changes nothing and needs no leader. Its
// errors are Apply's.
func (c *Catalog) Preview(change Change) ([]resource.Change, error) {
	if faults := resource.LabelFaults(change.Prune); len(faults) > 0 {
		return nil, admin.Errorf(admin.Invalid, "prune: %s", faults[0])
	}
	change.DryRun = true
	s := c.shot()
	a := &applying{catalog: c, now: &content{set: s.set, view: s.view, unread: s.unread}, change: &change, result: &admin.ApplyResult{}}
	if _, err := a.check(); err != nil {
		return nil, err
	}
	return a.plan.changes, nil
}
