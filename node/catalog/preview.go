package catalog

import (
	"penstock/node/api"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Preview checks a change against the resources in force here, as Apply would,
// and returns what it would change, and its warnings. It changes nothing and needs no
// leader. Its errors are Apply's.
func (c *Catalog) Preview(change Change) ([]resource.Change, []api.Fault, error) {
	if faults := validate.Labels(change.Prune); len(faults) > 0 {
		return nil, nil, api.Errorf(api.Invalid, "prune: %s", faults[0])
	}
	change.DryRun = true
	s := c.snapshot()
	a := &applyCheck{catalog: c, base: &baseline{set: s.set, view: s.view, unread: s.unread}, change: &change, result: &api.ApplyResult{}}
	if _, err := a.check(); err != nil {
		return nil, nil, err
	}
	return a.plan.changes, a.result.Warnings, nil
}
