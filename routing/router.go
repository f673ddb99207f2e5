package routing

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"penstock/routing/endpoint"
	"penstock/routing/limit"
	"penstock/routing/resource"
)

// Hosts resolves host names; discovery.Resolver implements it.
type Hosts interface {
	// Lookup returns the last known addresses, in the implementation's order.
	Lookup(host string) ([]netip.Addr, bool)
}

// Config configures NewRouter.
type Config struct {
	// NodeTags are this node's tags, part of every connection's source.
	NodeTags map[string]string
	// Hosts resolves endpoints given by name. With nil they have no addresses.
	Hosts Hosts
	// Discovered has the endpoints of providers. With nil there are none.
	Discovered Discovered
	// Observe, if set, receives ejections and changes of health. It runs on the
	// goroutine that caused them and must not block.
	Observe func(endpoint.Event)
	// LimitPlace returns this node's place among those that share the budgets of rate
	// limits with scope cluster. With nil it is alone.
	LimitPlace func() limit.Place

	isolated bool // a clone, which shares no state that it would change
}

// Router holds the table in force. Any goroutine may make decisions, without a
// lock; changes are serialized.
type Router struct {
	cfg   Config
	table atomic.Pointer[Table]
	mu    sync.Mutex // held while the next table is built
}

// NewRouter returns a router with an empty table.
func NewRouter(cfg Config) *Router {
	r := &Router{cfg: cfg}
	r.table.Store(&Table{node: cfg.NodeTags, discovered: cfg.Discovered})
	return r
}

// Table returns the table in force.
func (r *Router) Table() *Table { return r.table.Load() }

// Decide makes a decision with the table in force.
func (r *Router) Decide(in *Input) (Decision, Reason) { return r.table.Load().Decide(in) }

// Explain describes a decision with the table in force.
func (r *Router) Explain(in *Input, now time.Time) Explanation {
	return r.table.Load().Explain(in, now)
}

// Applied is the result of a change.
type Applied struct {
	Table *Table
	// Listeners and Services are the sorted names of those that were added,
	// changed or removed. A listener of which only Hosts changed is not included:
	// its socket stays as it is.
	Listeners, Services []string
	// Hosts reports that the host names to resolve, or the interval, may have
	// changed.
	Hosts bool
}

// Apply puts a set of changes in force atomically. A resource that does not
// compile (validation admits none) is treated as deleted, so that no part of it
// stays in force, and the error names it.
func (r *Router) Apply(changes []resource.Change, now time.Time) (Applied, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := newCompiler(&r.cfg, r.table.Load(), now)
	for i := range changes {
		c.change(&changes[i])
	}
	done, err := c.finish()
	r.table.Store(done.Table)
	return done, err
}

// Resolved puts the current addresses of these host names in force.
func (r *Router) Resolved(hosts []string, now time.Time) Applied {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := newCompiler(&r.cfg, r.table.Load(), now)
	for _, host := range hosts {
		for _, name := range indexed(c.atHost, host) {
			c.markDirty(name)
		}
	}
	done, _ := c.finish() // addresses cannot fail to compile
	r.table.Store(done.Table)
	return done
}
