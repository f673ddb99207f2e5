package endpoint

import (
	"maps"
	"time"
)

// Mirror copies the health, ejection, pause, slow start and connection counts
// of another group to the endpoints with the same identity. It is for
// simulations on a clone: it does not change the other group.
func (g *Group) Mirror(of *Group, now time.Time) {
	of.mu.Lock()
	members := maps.Clone(of.members)
	of.mu.Unlock()

	g.mu.Lock()
	defer g.mu.Unlock()
	g.usage.word.Store(of.usage.word.Load())
	for id, e := range g.members {
		original := members[id]
		if original == nil {
			continue
		}
		to, from := e.state(), original.state()
		to.usage.word.Store(from.usage.word.Load())
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
	g.ejectedCount.Store(int32(len(g.ejected)))
}
