package catalog

import (
	"context"

	"penstock/consensus"
	"penstock/routing/resource"
)

// Keeping is a change of resources that users do not write, such as how far a
// rollout has come.
type Keeping struct {
	// Make gives the changes, and what to call them in the history, by the
	// content that they will act upon. It may be called again with other
	// content, and changes nothing else; no changes: there is nothing to do.
	Make func(get func(resource.Key) (resource.Object, bool)) (changes []resource.Change, what string, err error)
	ID   consensus.ID   // Change.ID's
	Note consensus.Note // Change.Note's
}

// Keep makes a change of resources that users do not write, and returns the
// index at which it acts. Nobody can come between what Make has seen and what
// it does. Its errors are Apply's, and those of Make.
func (c *Catalog) Keep(ctx context.Context, k Keeping) (index uint64, err error) {
	out, err := c.change(ctx, k.ID, noted(k.Note, "keep"), func(now *content) (*plan, error) {
		changes, what, err := k.Make(now.set.Get)
		if err != nil {
			return nil, err
		}
		p := &plan{what: what}
		for _, ch := range changes {
			op := consensus.Op{Key: consensus.Key(ch.Key)}
			if !ch.Delete {
				if op.Value, err = c.seal(op.Key, resource.EncodeWithSecrets(ch.Object)); err != nil {
					return nil, err
				}
			}
			p.do(ch, op)
		}
		next, faults, _ := now.set.With(p.changes)
		if len(faults) > 0 {
			return nil, invalid(faults)
		}
		p.next = next
		return p, nil
	})
	return out.index, err
}

// endRollouts has the plan delete what is noted of rollouts that it ends, in the
// same batch, and returns that. The leader would clear it up as well, but later,
// and a route that is there again by then would go on where it was.
func (p *plan) endRollouts(set *resource.Set) []resource.Change {
	from := len(p.changes)
	for _, k := range set.RolloutsEnded(p.changes) {
		p.do(resource.Delete(k), consensus.Op{Key: consensus.Key(k)})
	}
	return p.changes[from:]
}
