package smi

import (
	"fmt"

	"penstock/routing/resource"
)

// Check looks at the splits of one input together. One that leads back to its
// own root over others is refused: nobody can say where such connections
// belong. One that leads to the root of another is warned of: Penstock takes
// one hop, as SMI does, and does not split them again.
func Check(objects []resource.Object) (faults resource.Faults, warnings resource.Warnings) {
	g := graph{splits: map[string][]split{}, order: map[string]int{}, low: map[string]int{}, circle: map[string]int{}}
	for i := range objects {
		if s, ok := splitOf(&objects[i]); ok {
			g.splits[s.root] = append(g.splits[s.root], s)
		}
	}
	for i := range objects {
		s, ok := splitOf(&objects[i])
		if !ok {
			continue
		}
		g.visit(s.root)
		for j, name := range s.backends {
			next := g.splits[name]
			if len(next) == 0 || name == s.root || len(faults) >= resource.MaxFaults || len(warnings) >= resource.MaxFaults {
				continue
			}
			g.visit(name)
			path, other := resource.Item("spec.to[0].rules[0].default.backendRefs", j)+".name", next[0].object
			where := fmt.Sprintf("is the root of the split %s at %s:%d", other.Key, other.File, other.Line)
			fault := s.object.Fault(path, "", name)
			if g.circle[name] == g.circle[s.root] {
				fault.Message = where + ", which leads back to " + s.root + ": splits must not go in circles"
				faults = append(faults, fault)
			} else {
				fault.Message = where + ", by which these connections are not split again"
				warnings = append(warnings, fault)
			}
		}
	}
	return faults, warnings
}

// split is a route that was a TrafficSplit.
type split struct {
	object   *resource.Object
	root     string
	backends []string
}

func splitOf(o *resource.Object) (split, bool) {
	r, ok := o.Spec.(*resource.MeshTCPRoute)
	if !ok || o.Labels[resource.LabelFormat] != resource.FormatSMI || len(r.To) != 1 || len(r.To[0].Rules) != 1 {
		return split{}, false
	}
	s := split{object: o, root: r.To[0].TargetRef.Name}
	for _, b := range r.To[0].Rules[0].Default.BackendRefs {
		s.backends = append(s.backends, b.Name)
	}
	return s, true
}

// graph finds the circles among roots: the strongly connected components, by
// Tarjan's algorithm.
type graph struct {
	splits map[string][]split // by root
	order  map[string]int     // when a root was visited first, from 1
	low    map[string]int     // the earliest root that it leads back to
	stack  []string
	circle map[string]int // the component of a root, from 1
}

func (g *graph) visit(root string) {
	if g.order[root] != 0 {
		return
	}
	g.order[root] = len(g.order) + 1
	g.low[root] = g.order[root]
	g.stack = append(g.stack, root)
	for _, s := range g.splits[root] {
		for _, next := range s.backends {
			if len(g.splits[next]) == 0 {
				continue
			}
			g.visit(next)
			if g.circle[next] == 0 {
				g.low[root] = min(g.low[root], g.low[next])
			}
		}
	}
	if g.low[root] != g.order[root] {
		return
	}
	for member := ""; member != root; {
		member = g.stack[len(g.stack)-1]
		g.stack = g.stack[:len(g.stack)-1]
		g.circle[member] = g.order[root]
	}
}
