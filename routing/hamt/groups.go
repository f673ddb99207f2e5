package hamt

import "iter"

// Groups is one version of a map of maps: values by group and key. Creating the
// next version costs time proportional to the change, whatever the size of the
// group. The zero value is empty.
type Groups[V any] struct {
	groups Map[Map[V]] // no group is empty
	n      int         // number of values in all groups
}

// Len returns the number of values in all groups.
func (g *Groups[V]) Len() int { return g.n }

// Group returns one group, or an empty map if it does not exist.
func (g *Groups[V]) Group(group string) Map[V] {
	m, _ := g.groups.Get(group)
	return m
}

// Get returns a value.
func (g *Groups[V]) Get(group, key string) (V, bool) {
	m, _ := g.groups.Get(group)
	return m.Get(key)
}

// All iterates over the groups in no particular order.
func (g *Groups[V]) All() iter.Seq2[string, Map[V]] { return g.groups.All() }

// Edit starts a new version. The receiver does not change.
func (g Groups[V]) Edit() *GroupsEdit[V] {
	return &GroupsEdit[V]{groups: g.groups.Edit(), open: map[string]*Edit[V]{}, n: g.n}
}

// GroupsEdit is a version of Groups under construction, for one goroutine.
type GroupsEdit[V any] struct {
	groups *Edit[Map[V]]
	open   map[string]*Edit[V] // groups read or changed so far
	n      int
}

// Groups returns the current version. The edit may continue afterwards.
func (e *GroupsEdit[V]) Groups() Groups[V] {
	for name, group := range e.open {
		if group.Len() > 0 {
			e.groups.Set(name, group.Map())
		} else {
			e.groups.Delete(name)
		}
	}
	return Groups[V]{e.groups.Map(), e.n}
}

func (e *GroupsEdit[V]) group(name string) *Edit[V] {
	group, ok := e.open[name]
	if !ok {
		m, _ := e.groups.Get(name)
		group = m.Edit()
		e.open[name] = group
	}
	return group
}

// Get returns a value.
func (e *GroupsEdit[V]) Get(group, key string) (V, bool) { return e.group(group).Get(key) }

// Set sets the value of a key in a group.
func (e *GroupsEdit[V]) Set(group, key string, value V) {
	g := e.group(group)
	before := g.Len()
	g.Set(key, value)
	e.n += g.Len() - before
}

// Delete removes a key from a group and reports whether it existed.
func (e *GroupsEdit[V]) Delete(group, key string) bool {
	there := e.group(group).Delete(key)
	if there {
		e.n--
	}
	return there
}
