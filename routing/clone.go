package routing

import (
	"time"

	"penstock/routing/hamt"
)

// clone returns a separate router with the table's resources and a copy of the
// state that outlives tables: positions in splits, turns of balancers, health
// and connection counts. Nothing done to the clone affects the table or its
// endpoints.
func (t *Table) clone(hosts Hosts, now time.Time) *Router {
	r := &Router{cfg: Config{NodeTags: t.node, Hosts: hosts, Discovered: t.discovered, isolated: true}}
	// Listeners, names and routes are immutable and can be shared.
	base := *t
	base.services = hamt.Map[*Service]{}
	base.backendOf, base.atHost, base.usesRef = hamt.Map[[]string]{}, hamt.Map[[]string]{}, hamt.Map[[]string]{}
	c := newCompiler(&r.cfg, &base, now)
	c.cloned = t
	for name, s := range t.services.All() {
		c.dirtyServices[name] = s.spec
	}
	done, _ := c.finish() // every resource has compiled before
	r.table.Store(done.Table)
	return r
}
