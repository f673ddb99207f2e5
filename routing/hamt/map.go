// Package hamt implements an immutable map. Creating the next version costs
// time and memory proportional to the change, because versions share their
// common parts: changing one name in a table of 100,000 takes microseconds, and
// ten versions take hardly more memory than one. Reads of any version need no
// lock.
//
// It is a hash trie with 64-way nodes. Each map has its own hash seed, so that
// an attacker who chooses the keys cannot make them collide.
//
//	edit := old.Edit()
//	edit.Set("a.example", rule)
//	new := edit.Map()
package hamt

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
)

// Map is one version. The zero value is empty and ready to use.
type Map[V any] struct {
	root *node[V]
	n    int
	seed maphash.Seed // set once root is not nil
}

// node holds entries and child nodes, each packed in the order of their slots.
// Below the last bits of the hash a node holds keys with equal hashes in no
// particular order, without slots.
type node[V any] struct {
	here, below uint64 // slots with an entry, with a child; disjoint
	entries     []entry[V]
	nodes       []*node[V]
	owner       *owner // the edit that may change the node in place
}

type entry[V any] struct {
	hash  uint64
	key   string
	value V
}

// owner is an edit's identity; it has a size so that each has its own address.
type owner struct{ _ byte }

const (
	slotBits = 6
	hashBits = 64
)

// slot returns the bit of a hash's slot in a node at that depth.
func slot(hash uint64, shift uint) uint64 { return 1 << (hash >> shift & (1<<slotBits - 1)) }

// index returns the index of a slot in a packed slice.
func index(slots, bit uint64) int { return bits.OnesCount64(slots & (bit - 1)) }

// Len returns the number of keys.
func (m *Map[V]) Len() int { return m.n }

// Get returns the value of a key.
func (m *Map[V]) Get(key string) (V, bool) {
	if m.root == nil {
		var none V
		return none, false
	}
	if e := m.root.find(maphash.String(m.seed, key), key); e != nil {
		return e.value, true
	}
	var none V
	return none, false
}

func (n *node[V]) find(hash uint64, key string) *entry[V] {
	for shift := uint(0); shift < hashBits; shift += slotBits {
		bit := slot(hash, shift)
		if n.here&bit != 0 {
			if e := &n.entries[index(n.here, bit)]; e.hash == hash && e.key == key {
				return e
			}
			return nil
		}
		if n.below&bit == 0 {
			return nil
		}
		n = n.nodes[index(n.below, bit)]
	}
	for i := range n.entries {
		if n.entries[i].key == key {
			return &n.entries[i]
		}
	}
	return nil
}

// All iterates over keys and values in no particular order.
func (m *Map[V]) All() iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		if m.root != nil {
			m.root.each(yield)
		}
	}
}

func (n *node[V]) each(yield func(string, V) bool) bool {
	for i := range n.entries {
		if !yield(n.entries[i].key, n.entries[i].value) {
			return false
		}
	}
	for _, child := range n.nodes {
		if !child.each(yield) {
			return false
		}
	}
	return true
}

// Edit starts a new version. The receiver does not change.
func (m Map[V]) Edit() *Edit[V] {
	if m.root == nil {
		m.seed = maphash.MakeSeed()
	}
	return &Edit[V]{m: m, owner: new(owner)}
}

// Edit is a version under construction, for one goroutine. It changes the nodes
// that it created in place, so that building a large map causes no garbage.
type Edit[V any] struct {
	m     Map[V]
	owner *owner
}

// Map returns the current version. The edit may continue afterwards.
func (e *Edit[V]) Map() Map[V] {
	e.owner = new(owner) // the existing nodes are shared from now on
	return e.m
}

// Len returns the number of keys.
func (e *Edit[V]) Len() int { return e.m.n }

// Get returns the value of a key.
func (e *Edit[V]) Get(key string) (V, bool) { return e.m.Get(key) }

// Set sets the value of a key.
func (e *Edit[V]) Set(key string, value V) {
	e.set(entry[V]{maphash.String(e.m.seed, key), key, value})
}

func (e *Edit[V]) set(item entry[V]) {
	if e.m.root == nil {
		e.m.root = &node[V]{owner: e.owner}
	}
	var added bool
	e.m.root, added = e.with(e.m.root, item, 0)
	if added {
		e.m.n++
	}
}

// Delete removes a key and reports whether it existed.
func (e *Edit[V]) Delete(key string) bool {
	return e.m.root != nil && e.delete(maphash.String(e.m.seed, key), key)
}

func (e *Edit[V]) delete(hash uint64, key string) bool {
	if e.m.root.find(hash, key) == nil {
		return false
	}
	e.m.root = e.without(e.m.root, hash, key, 0)
	e.m.n--
	return true
}

// own returns a node that may be changed in place: n or a copy.
func (e *Edit[V]) own(n *node[V]) *node[V] {
	if n.owner == e.owner {
		return n
	}
	return &node[V]{
		here: n.here, below: n.below,
		entries: slices.Clone(n.entries), nodes: slices.Clone(n.nodes),
		owner: e.owner,
	}
}

// with returns the node plus the entry, and whether its key is new.
func (e *Edit[V]) with(n *node[V], item entry[V], shift uint) (*node[V], bool) {
	n = e.own(n)
	if shift >= hashBits {
		for i := range n.entries {
			if n.entries[i].key == item.key {
				n.entries[i] = item
				return n, false
			}
		}
		n.entries = append(n.entries, item)
		return n, true
	}
	bit := slot(item.hash, shift)
	switch {
	case n.below&bit != 0:
		i := index(n.below, bit)
		child, added := e.with(n.nodes[i], item, shift+slotBits)
		n.nodes[i] = child
		return n, added
	case n.here&bit == 0:
		n.entries = slices.Insert(n.entries, index(n.here, bit), item)
		n.here |= bit
		return n, true
	}
	i := index(n.here, bit)
	there := n.entries[i]
	if there.hash == item.hash && there.key == item.key {
		n.entries[i] = item
		return n, false
	}
	// Both keys have this slot: move them to a child.
	child, _ := e.with(&node[V]{owner: e.owner}, there, shift+slotBits)
	child, _ = e.with(child, item, shift+slotBits)
	n.entries = slices.Delete(n.entries, i, i+1)
	n.here &^= bit
	n.nodes = slices.Insert(n.nodes, index(n.below, bit), child)
	n.below |= bit
	return n, true
}

// without returns the node minus an existing key; nil for a root that becomes
// empty. A node with a single remaining entry is replaced by that entry in its
// parent, so that the shape of a map depends on its keys and not on its
// history.
func (e *Edit[V]) without(n *node[V], hash uint64, key string, shift uint) *node[V] {
	n = e.own(n)
	if shift >= hashBits {
		n.entries = slices.DeleteFunc(n.entries, func(x entry[V]) bool { return x.key == key })
		return n
	}
	bit := slot(hash, shift)
	if n.here&bit != 0 {
		i := index(n.here, bit)
		n.entries = slices.Delete(n.entries, i, i+1)
		n.here &^= bit
	} else {
		i := index(n.below, bit)
		child := e.without(n.nodes[i], hash, key, shift+slotBits)
		n.nodes[i] = child
		if len(child.nodes) == 0 && len(child.entries) == 1 {
			n.nodes = slices.Delete(n.nodes, i, i+1)
			n.below &^= bit
			n.entries = slices.Insert(n.entries, index(n.here, bit), child.entries[0])
			n.here |= bit
		}
	}
	if shift == 0 && n.here|n.below == 0 {
		return nil
	}
	return n
}
