package catalog

import (
	"bytes"

	"penstock/consensus"
	"penstock/routing/resource"
)

// arrival is a change of this node on its way through the store: when it comes
// back as it went, the objects and the set that were checked act, and nothing
// of them is read or made again.
type arrival struct {
	from, to *resource.Set
	ops      map[consensus.Key]expected
}

// expected is one step of an arrival.
type expected struct {
	change resource.Change
	value  []byte // as stored; nil: a delete
}

// expect adds a step, which is to be committed.
func (a *arrival) expect(change resource.Change, op consensus.Op) {
	if a.ops == nil {
		a.ops = map[consensus.Key]expected{}
	}
	a.ops[op.Key] = expected{change, op.Value}
}

// find gives the change that led to a stored value; nil: to none.
func (a *arrival) find(k consensus.Key, value []byte) (resource.Change, bool) {
	if a == nil {
		return resource.Change{}, false
	}
	x, ok := a.ops[k]
	if !ok || (x.value == nil) != (value == nil) || !bytes.Equal(x.value, value) {
		return resource.Change{}, false
	}
	return x.change, true
}

// whole tells whether that many steps found among as many changes of a set are
// all of the arrival, so that its set is the next one.
func (a *arrival) whole(set *resource.Set, found, changes int) bool {
	return a != nil && a.from == set && found == changes && found == len(a.ops)
}

// inForce is an object as it is kept: without what only serves the faults of
// the file it came from.
func inForce(o resource.Object) resource.Object {
	return resource.Object{Key: o.Key, Spec: o.Spec, Labels: o.Labels}
}
