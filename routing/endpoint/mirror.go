package endpoint

import "maps"

// Mirror gives the endpoints the health, the ejection and the connections that
// those of the same identity in another group have now. It is for a group that
// stands in for that one, to find out what would be: nothing in the other
// group is changed.
func (g *Group) Mirror(of *Group) {
	of.mu.Lock()
	members := maps.Clone(of.members)
	of.mu.Unlock()

	g.mu.Lock()
	defer g.mu.Unlock()
	for id, e := range g.members {
		twin := members[id]
		if twin == nil {
			continue
		}
		to, from := e.state(), twin.state()
		to.active.Store(from.active.Load())
		to.health.Store(from.health.Load())
		to.usableSince.Store(from.usableSince.Load())
		if until := from.ejectedUntil.Load(); until != 0 {
			to.ejectedUntil.Store(until)
			g.ejected = append(g.ejected, e)
		}
	}
	g.out.Store(int32(len(g.ejected)))
}
