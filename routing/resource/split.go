package resource

// Routes that were a TrafficSplit of SMI. Such splits are not hierarchical:
// one that leads back to its own root over others is refused, because nobody
// can say where those connections belong; one that leads to the root of another
// is warned of. Penstock takes one hop in any case.

// rootOf is the service that a route splits, if it was a TrafficSplit.
func rootOf(m *member) string {
	if m == nil {
		return ""
	}
	r, ok := m.Spec.(*MeshTCPRoute)
	if !ok || m.Labels[LabelFormat] != FormatSMI || len(r.To) != 1 || len(r.To[0].Rules) != 1 {
		return ""
	}
	return r.To[0].TargetRef.Name
}

// checkSplit looks at where a split leads.
func (c *checker) checkSplit(m *member, r *MeshTCPRoute) {
	root := rootOf(m)
	if root == "" {
		return
	}
	if c.splits == nil {
		c.splits = &splits{set: c.set, order: map[string]int{}, low: map[string]int{}, circle: map[string]int{}, first: map[string]*member{}}
	}
	c.splits.visit(root)
	for i, b := range r.To[0].Rules[0].Default.BackendRefs {
		other := c.splits.of(b.Name)
		if other == nil || b.Name == root {
			continue
		}
		path := item("spec.to[0].rules[0].default.backendRefs", i) + ".name"
		if c.splits.circle[b.Name] == c.splits.circle[root] {
			c.fault(&m.Object, path, "is the root of the split "+withPlace(other)+", which leads back to "+root+": splits must not go in circles", b.Name)
		} else {
			c.warn(&m.Object, path, "is the root of the split "+withPlace(other)+", by which these connections are not split again", b.Name)
		}
	}
}

// splits finds the circles among roots, from those on that are asked about:
// the strongly connected components, by Tarjan's algorithm. Each root is
// visited once.
type splits struct {
	set    *Set
	order  map[string]int // when a root was visited first, from 1
	low    map[string]int // the earliest root that it leads back to
	stack  []string
	circle map[string]int     // the component of a root, from 1
	first  map[string]*member // what of found
}

// of finds the first split of a root; nil: it is none.
func (s *splits) of(root string) *member {
	m, known := s.first[root]
	if !known {
		m = s.set.first(s.set.splits.Group(root))
		s.first[root] = m
	}
	return m
}

func (s *splits) visit(root string) {
	if s.order[root] != 0 {
		return
	}
	s.order[root] = len(s.order) + 1
	s.low[root] = s.order[root]
	s.stack = append(s.stack, root)
	group := s.set.splits.Group(root)
	for key := range group.All() {
		for _, b := range s.set.member(userKey(key)).Spec.(*MeshTCPRoute).To[0].Rules[0].Default.BackendRefs {
			if s.of(b.Name) == nil {
				continue
			}
			s.visit(b.Name)
			if s.circle[b.Name] == 0 {
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
		s.circle[member] = s.order[root]
	}
}
