package catalog

import (
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Preview checks a change against the resources in force here, as Apply would,
// and returns what it would change. It changes nothing and needs no leader. Its
// errors are Apply's.
func (c *Catalog) Preview(change Change) ([]resource.Change, error) {
	if faults := validate.Labels(change.Prune); len(faults) > 0 {
		return nil, api.Errorf(api.Invalid, "prune: %s", faults[0])
	}
	change.DryRun = true
	s := c.snapshot()
	a := &applyCheck{catalog: c, base: &baseline{set: s.set, view: s.view, unread: s.unread}, change: &change, result: &api.ApplyResult{}}
	if _, err := a.check(); err != nil {
		return nil, err
	}
	return a.plan.changes, nil
}
