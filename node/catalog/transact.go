package catalog

import (
	"context"

	"penstock/consensus/store"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/resource/validate"
)

// Transaction is a change of resources that users cannot write, such as the
// state of a rollout.
type Transaction struct {
	// Make returns the changes, and their description for the history, for the
	// content that they will apply to. It may be called again with other content,
	// so it must have no side effects. Without changes nothing is done.
	Make func(get func(resource.Key) (resource.Object, bool)) (changes []resource.Change, what string, err error)
	ID   store.ID   // as in Change
	Note store.Note // as in Change
}

// Transact makes a change of resources that users cannot write, and returns the
// index at which it is in force. No other change applies between the content
// that Make reads and its changes. Errors are those of Apply and of Make.
func (c *Catalog) Transact(ctx context.Context, t Transaction) (index uint64, err error) {
	out, err := c.makeChange(ctx, t.ID, completeNote(t.Note, "update"), func(base *baseline) (*plan, error) {
		changes, what, err := t.Make(base.set.Get)
		if err != nil {
			return nil, err
		}
		p := &plan{note: what}
		for _, ch := range changes {
			op := store.Op{Key: store.Key(ch.Key)}
			if !ch.Delete {
				if op.Value, err = c.seal(op.Key, codec.EncodeWithSecrets(ch.Object)); err != nil {
					return nil, err
				}
			}
			p.add(ch, op)
		}
		next, faults, _ := base.set.With(p.changes)
		if len(faults) > 0 {
			return nil, invalid(faults)
		}
		p.next = next
		return p, nil
	})
	return out.index, err
}

// endRollouts adds to the plan the deletion of the states of all rollouts that
// it ends, in the same batch, and returns these changes. The leader would
// delete them too, but later, and a route created again by then would resume
// its old rollout.
func (p *plan) endRollouts(set *validate.Set) []resource.Change {
	from := len(p.changes)
	for _, k := range set.RolloutsEnded(p.changes) {
		p.add(resource.Delete(k), store.Op{Key: store.Key(k)})
	}
	return p.changes[from:]
}
