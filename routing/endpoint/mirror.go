package endpoint

import (
	"maps"
	"time"
)

// Mirror gives the endpoints the health, the ejection, the pause and the
// connections that those of the same identity in another group have at that
// time. It is for a group that
// stands in for that one, to find out what would be: nothing in the other
// group is changed.
func (g *Group) Mirror(of *Group, now time.Time) {
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
		if until := from.pausedUntil.Load(); until > Stamp(now) {
			to.pausedUntil.Store(until)
		}
		if until := from.ejectedUntil.Load(); until != 0 {
			to.ejectedUntil.Store(until)
			g.ejected = append(g.ejected, e)
		}
	}
	g.out.Store(int32(len(g.ejected)))
}
