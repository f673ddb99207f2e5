package validate

import "penstock/routing/resource"

// Routes converted from SMI TrafficSplits. Such splits do not nest: one that
// leads back to its own root through others is refused, because the destination
// of those connections is undefined; one that leads to the root of another gets
// a warning. Penstock takes one hop in any case.

// splitRoot returns the service that a route splits if it was a TrafficSplit,
// or "".
func splitRoot(m *member) string {
	if m == nil {
		return ""
	}
	r, ok := m.Spec.(*resource.MeshTCPRoute)
	if !ok || m.Labels[resource.LabelFormat] != resource.FormatSMI || len(r.To) != 1 || len(r.To[0].Rules) != 1 {
		return ""
	}
	return r.To[0].TargetRef.Name
}

// checkSplit reports backends of a split that are roots of other splits.
func (c *checker) checkSplit(m *member, r *resource.MeshTCPRoute) {
	root := splitRoot(m)
	if root == "" {
		return
	}
	if c.splits == nil {
		c.splits = &splitGraph{
			set: c.set, order: map[string]int{}, low: map[string]int{}, component: map[string]int{}, splitByRoot: map[string]*member{},
		}
	}
	c.splits.visit(root)
	for i, b := range r.To[0].Rules[0].Default.BackendRefs {
		other := c.splits.splitOf(b.Name)
		if other == nil || b.Name == root {
			continue
		}
		path := resource.Item("spec.to[0].rules[0].default.backendRefs", i) + ".name"
		if c.splits.component[b.Name] == c.splits.component[root] {
			c.fault(
				&m.Object, path,
				"is the root of the split "+withPlace(other)+", which leads back to "+root+": splits must not form a cycle",
				b.Name,
			)
		} else {
			c.warn(&m.Object, path, "is the root of the split "+withPlace(other)+", which does not split these connections again", b.Name)
		}
	}
}

// splitGraph finds cycles among roots: the strongly connected components that
// are reachable from the visited roots, by Tarjan's algorithm. Each root is
// visited once.
type splitGraph struct {
	set         *Set
	order       map[string]int // when a root was first visited, from 1
	low         map[string]int // the earliest root that it leads back to
	stack       []string
	component   map[string]int     // the component of a root, from 1
	splitByRoot map[string]*member // results of splitOf
}

// splitOf returns the first split of a root; nil if no split has that root.
func (s *splitGraph) splitOf(root string) *member {
	m, known := s.splitByRoot[root]
	if !known {
		m = s.set.first(s.set.splits.Group(root))
		s.splitByRoot[root] = m
	}
	return m
}

func (s *splitGraph) visit(root string) {
	if s.order[root] != 0 {
		return
	}
	s.order[root] = len(s.order) + 1
	s.low[root] = s.order[root]
	s.stack = append(s.stack, root)
	group := s.set.splits.Group(root)
	for key := range group.All() {
		for _, b := range s.set.member(userKey(key)).Spec.(*resource.MeshTCPRoute).To[0].Rules[0].Default.BackendRefs {
			if s.splitOf(b.Name) == nil {
				continue
			}
			s.visit(b.Name)
			if s.component[b.Name] == 0 {
				s.low[root] = min(s.low[root], s.low[b.Name])
			}
		}
	}
	if s.low[root] != s.order[root] {
		return
	}
	for member := ""; member != root; {
		member = s.stack[len(s.stack)-1]
		s.stack = s.stack[:len(s.stack)-1]
		s.component[member] = s.order[root]
	}
}
