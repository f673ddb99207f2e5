package hamt

import "iter"

// Changed iterates over the keys whose values differ between two versions, in no
// particular order, at a cost proportional to what differs: parts that the
// versions share are skipped. equal compares the values of a key that has both.
func (m Map[V]) Changed(old Map[V], equal func(a, b V) bool) iter.Seq[string] {
	return func(yield func(string) bool) {
		d := differ[V]{m: &m, old: &old, equal: equal, yield: yield}
		switch {
		case m.root == nil || old.root == nil || m.seed != old.seed:
			_ = d.entries(m.root, old.root)
		default:
			_ = d.nodes(m.root, old.root, 0)
		}
	}
}

type differ[V any] struct {
	m, old *Map[V]
	equal  func(a, b V) bool
	yield  func(string) bool
}

// nodes compares two nodes at the same place. It returns false to stop.
func (d *differ[V]) nodes(a, b *node[V], shift uint) bool {
	if a == b {
		return true
	}
	if shift >= hashBits {
		return d.entries(a, b)
	}
	for slots := a.here | a.below | b.here | b.below; slots != 0; slots &= slots - 1 {
		bit := slots & -slots
		x, y := a.part(bit), b.part(bit)
		if x.below&y.below != 0 {
			if !d.nodes(x.nodes[0], y.nodes[0], shift+slotBits) {
				return false
			}
		} else if !d.entries(&x, &y) {
			return false
		}
	}
	return true
}

// part returns a node that has one slot of n.
func (n *node[V]) part(bit uint64) node[V] {
	p := node[V]{here: n.here & bit, below: n.below & bit}
	if p.here != 0 {
		i := index(n.here, bit)
		p.entries = n.entries[i : i+1]
	}
	if p.below != 0 {
		i := index(n.below, bit)
		p.nodes = n.nodes[i : i+1]
	}
	return p
}

// entries compares everything below two nodes, either of which may be nil, entry
// by entry. It returns false to stop.
func (d *differ[V]) entries(a, b *node[V]) bool {
	if a != nil {
		differs := func(key string, v V) bool {
			if was, ok := d.old.Get(key); ok && d.equal(v, was) {
				return true
			}
			return d.yield(key)
		}
		if !a.each(differs) {
			return false
		}
	}
	if b == nil {
		return true
	}
	return b.each(func(key string, _ V) bool {
		_, ok := d.m.Get(key)
		return ok || d.yield(key)
	})
}
