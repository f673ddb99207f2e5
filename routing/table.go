package routing

import (
	"iter"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/gateway"
	"penstock/routing/hamt"
	"penstock/routing/resource"
)

// Table is one version of everything that decisions are made from. It is
// immutable and may be read from anywhere; what it shares with the version
// before it costs nothing.
type Table struct {
	node         map[string]string // the node's own tags
	listeners    hamt.Map[*Listener]
	hosts        hamt.Map[*resource.Host]
	services     hamt.Map[*Service]
	routes       hamt.Map[*resource.MeshTCPRoute] // defaults filled in
	httpRoutes   hamt.Map[*httpRoute]
	rollouts     hamt.Map[*resource.Rollout] // by the route
	certificates hamt.Map[[]string]          // the names that each is for

	// Who has to be looked at when something changes.
	routesTo     hamt.Map[[]string] // destination -> MeshTCPRoutes that speak of it
	httpRoutesTo hamt.Map[[]string] // destination -> MeshHTTPRoutes that speak of it
	backendOf    hamt.Map[[]string] // service -> destinations with a route to it
	// What comes of the Gateway API.
	gateways *gateway.Model // nil: nothing
	bound    hamt.Map[*gateway.Destination]

	atHost hamt.Map[[]string] // host name -> services with an endpoint there
}

// Service is one version of a service.
type Service struct {
	*serviceState
	spec     *resource.Service // defaults filled in
	whole    *backend
	policies []*policy // MeshTCPRoutes for which it is the destination; the one that wins first
	chooser  chooser   // among them
	requests *requests // by MeshHTTPRoutes; nil: there is none for it
}

// serviceState is what of a service outlives its versions.
type serviceState struct {
	name   string
	group  *endpoint.Group
	budget endpoint.Budget
}

// Name is the resource's name.
func (s *Service) Name() string { return s.name }

// Spec is the resource with its defaults filled in. It must not be changed.
// It is the same pointer until the resource is applied again.
func (s *Service) Spec() *resource.Service { return s.spec }

// Group is the state of all its endpoints; the same in every version.
func (s *Service) Group() *endpoint.Group { return s.group }

// Members lists its endpoints with their weights, in the order of the
// resource. It must not be changed.
func (s *Service) Members() []balance.Member { return s.whole.pool.Members() }

// Uses tells whether connections to the service itself are given to member i.
func (s *Service) Uses(i int, now time.Time) bool { return s.whole.pool.Uses(i, now) }

// Source tells which of its members they are given to.
func (s *Service) Source(now time.Time) balance.Source { return s.whole.pool.Source(now) }

// Retries gives the connections and the retries of the last 10 seconds.
func (s *Service) Retries(now time.Time) (connections, retries int64) { return s.budget.Counts(now) }

// Service finds a service.
func (t *Table) Service(name string) (*Service, bool) { return t.services.Get(name) }

// Services iterates over all services, in no order; routes of the Gateway API
// are none.
func (t *Table) Services() iter.Seq[*Service] {
	return func(yield func(*Service) bool) {
		for name, s := range t.services.All() {
			if !isBound(name) && !yield(s) {
				return
			}
		}
	}
}

// Listener finds a listener, of this node or of others.
func (t *Table) Listener(name string) (*Listener, bool) { return t.listeners.Get(name) }

// Listeners iterates over all listeners, in no order.
func (t *Table) Listeners() iter.Seq[*Listener] { return values(&t.listeners) }

func values[V any](m *hamt.Map[V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range m.All() {
			if !yield(v) {
				return
			}
		}
	}
}

// Hosts iterates over the host names of endpoints, with how often each is to
// be looked up.
func (t *Table) Hosts() iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		for host, users := range t.atHost.All() {
			every := time.Duration(0)
			for _, name := range users {
				if s, ok := t.services.Get(name); ok && (every == 0 || s.spec.Resolve.D() < every) {
					every = s.spec.Resolve.D()
				}
			}
			if !yield(host, every) {
				return
			}
		}
	}
}
