package routing

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// Hosts knows the addresses of host names; discovery.Resolver is one.
type Hosts interface {
	// Lookup gives the last known addresses, in an order of their own.
	Lookup(host string) ([]netip.Addr, bool)
}

// Config is for NewRouter.
type Config struct {
	// NodeTags are this node's, part of every connection's source.
	NodeTags map[string]string
	// Hosts resolves endpoints given by name; nil: those have no addresses.
	Hosts Hosts
	// Observe is told of ejections and of changes of health; nil: nobody is.
	// It is called on the goroutine that brought them about and must not block.
	Observe func(endpoint.Event)
}

// Router holds the table that is in force. Decisions are taken from anywhere,
// without a lock; changes come one after the other.
type Router struct {
	cfg   Config
	table atomic.Pointer[Table]
	mu    sync.Mutex // held by whoever makes the next table
}

// NewRouter makes a router with an empty table.
func NewRouter(cfg Config) *Router {
	r := &Router{cfg: cfg}
	r.table.Store(&Table{node: cfg.NodeTags})
	return r
}

// Table is the one in force.
func (r *Router) Table() *Table { return r.table.Load() }

// Decide takes a decision on the table in force.
func (r *Router) Decide(in *Input) (Decision, Reason) { return r.table.Load().Decide(in) }

// Explain tells how a decision would be taken on the table in force.
func (r *Router) Explain(in *Input, now time.Time) Explanation {
	return r.table.Load().Explain(in, now)
}

// Applied is what a change has led to.
type Applied struct {
	Table *Table
	// Listeners and Services are the names of those that are new, other than
	// before, or gone, each once. A listener that only has other Hosts is not
	// among them: whoever opens sockets need not know.
	Listeners, Services []string
	// Hosts tells that the host names to resolve, or how often, may be others
	// than before.
	Hosts bool
}

// Apply puts a set of changes in force, all at once. A resource that cannot be
// compiled (validation lets none through) is left out as if it were deleted,
// so that nothing falls through to what is left of it, and the error names it.
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

// Resolved puts the present addresses of these host names in force.
func (r *Router) Resolved(hosts []string, now time.Time) Applied {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := newCompiler(&r.cfg, r.table.Load(), now)
	for _, host := range hosts {
		for _, name := range list(c.atHost, host) {
			c.dirty(name)
		}
	}
	done, _ := c.finish() // addresses have no faults
	r.table.Store(done.Table)
	return done
}
