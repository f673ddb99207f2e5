package hamt

import "iter"

// Groups is one version of a map of maps: values by a group and a key in it.
// The next version costs the size of the change, whatever the size of the
// group. The zero value is empty.
type Groups[V any] struct {
	groups Map[Map[V]] // none is empty
	n      int         // values in all of them
}

// Len is the number of values in all groups.
func (g *Groups[V]) Len() int { return g.n }

// Group gives one group, empty where there is none.
func (g *Groups[V]) Group(group string) Map[V] {
	m, _ := g.groups.Get(group)
	return m
}

// Get finds a value.
func (g *Groups[V]) Get(group, key string) (V, bool) {
	m, _ := g.groups.Get(group)
	return m.Get(key)
}

// All iterates over the groups in no order.
func (g *Groups[V]) All() iter.Seq2[string, Map[V]] { return g.groups.All() }

// Edit begins a new version. The groups themselves stay as they are.
func (g Groups[V]) Edit() *GroupsEdit[V] {
	return &GroupsEdit[V]{groups: g.groups.Edit(), open: map[string]*Edit[V]{}, n: g.n}
}

// GroupsEdit is a version of Groups in the making, for one goroutine.
type GroupsEdit[V any] struct {
	groups *Edit[Map[V]]
	open   map[string]*Edit[V] // those that are looked at or changed
	n      int
}

// Groups gives the version as it is now. The edit may go on from there.
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

// Get finds a value.
func (e *GroupsEdit[V]) Get(group, key string) (V, bool) { return e.group(group).Get(key) }

// Set gives a key of a group its value.
func (e *GroupsEdit[V]) Set(group, key string, value V) {
	g := e.group(group)
	before := g.Len()
	g.Set(key, value)
	e.n += g.Len() - before
}

// Delete removes a key of a group and tells whether it was there.
func (e *GroupsEdit[V]) Delete(group, key string) bool {
	there := e.group(group).Delete(key)
	if there {
		e.n--
	}
	return there
}
