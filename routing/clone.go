package routing

import (
	"time"

	"penstock/routing/hamt"
)

// clone makes a router of its own that is where the table is now: the same
// resources, and copies of what outlives tables, such as the place in each
// split, the turns of balancers, health and counts of connections. What is
// done with it is not seen by the table, nor by its endpoints.
func (t *Table) clone(hosts Hosts, now time.Time) *Router {
	r := &Router{cfg: Config{NodeTags: t.node, Hosts: hosts}}
	// Listeners, names and routes are never changed, and may be shared.
	base := *t
	base.services = hamt.Map[*Service]{}
	base.backendOf, base.atHost = hamt.Map[[]string]{}, hamt.Map[[]string]{}
	c := newCompiler(&r.cfg, &base, now)
	c.like = t
	for name, s := range t.services.All() {
		c.dirtyServices[name] = s.spec
	}
	done, _ := c.finish() // all of it was compiled before
	r.table.Store(done.Table)
	return r
}
