package routing

import (
	"iter"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/gateway"
	"penstock/routing/hamt"
	"penstock/routing/permit"
	"penstock/routing/resource"
)

// Table is one version of everything that decisions depend on. It is immutable,
// safe for concurrent use, and shares unchanged parts with the version before.
type Table struct {
	node         map[string]string // the node's own tags
	discovered   Discovered        // for clones; nil: no providers
	listeners    hamt.Map[*Listener]
	hosts        hamt.Map[*resource.Host]
	services     hamt.Map[*Service]
	routes       hamt.Map[*resource.MeshTCPRoute] // defaults filled in
	httpRoutes   hamt.Map[*httpRoute]
	rollouts     hamt.Map[*resource.Rollout] // by route
	certificates hamt.Map[[]string]          // names that each covers

	// Reverse indexes: the objects to rebuild after a change.
	routesTo     hamt.Map[[]string] // destination -> its MeshTCPRoutes
	httpRoutesTo hamt.Map[[]string] // destination -> its MeshHTTPRoutes
	backendOf    hamt.Map[[]string] // service -> destinations with a route to it
	// Derived from the Gateway API.
	gateways            *gateway.Model // nil in the first, empty table
	gatewayDestinations hamt.Map[*gateway.Destination]
	permits             *permit.Index // nil in the first, empty table
	isClone             bool          // decisions are not counted
	limits              *rateLimits   // nil: none

	atHost  hamt.Map[[]string] // host name -> services with an endpoint there
	usesRef hamt.Map[[]string] // provider's answer -> services with endpoints from it
}

// Service is one version of a service.
type Service struct {
	*serviceState
	spec  *resource.Service // defaults filled in
	hosts []string          // host names of its endpoints, sorted
	// unresolved are the addresses of endpoints whose host names have no address.
	unresolved []string
	whole      *backend
	policies   []*policy // MeshTCPRoutes of which it is the destination, in order of precedence
	chooser    chooser   // of policies
	requests   *requests // MeshHTTPRoutes of which it is the destination; nil if there are none
}

// serviceState is the part of a service that outlives its versions.
type serviceState struct {
	name   string
	group  *endpoint.Group
	budget endpoint.Budget
	queue  queue
}

// Name returns the resource's name.
func (s *Service) Name() string { return s.name }

// Spec returns the resource with defaults filled in. It must not be changed.
// The pointer stays the same until the resource is applied again.
func (s *Service) Spec() *resource.Service { return s.spec }

// Group returns the state of all endpoints, which every version shares.
func (s *Service) Group() *endpoint.Group { return s.group }

// Members returns the endpoints with their weights, in the resource's order. It
// must not be changed.
func (s *Service) Members() []balance.Member { return s.whole.pool.Members() }

// Uses reports whether member i gets connections to the whole service.
func (s *Service) Uses(i int, now time.Time) bool { return s.whole.pool.Uses(i, now) }

// Mismatch says why balancing.matchTag excludes member i on this node; "": it does not.
func (s *Service) Mismatch(i int) string {
	if s.whole.pool.Matches(i) {
		return ""
	}
	return s.whole.mismatch(s.Members()[i].Tags)
}

// LevelShare returns the fraction of these connections that the members of member
// i's priority get together; 1 if all have the same.
func (s *Service) LevelShare(i int, now time.Time) float64 { return s.whole.pool.LevelShare(i, now) }

// Source says which members get these connections.
func (s *Service) Source(now time.Time) balance.Source { return s.whole.pool.Source(now) }

// Retries returns the number of connections and retries of the last 10 seconds.
func (s *Service) Retries(now time.Time) (connections, retries int64) { return s.budget.Counts(now) }

// Service returns the service with a name.
func (t *Table) Service(name string) (*Service, bool) { return t.services.Get(name) }

// Services iterates over all services in no particular order, without those
// that represent Gateway API routes.
func (t *Table) Services() iter.Seq[*Service] {
	return func(yield func(*Service) bool) {
		for name, s := range t.services.All() {
			if !isGatewayName(name) && !yield(s) {
				return
			}
		}
	}
}

// Listener returns the listener with a name; it may be one of other nodes.
func (t *Table) Listener(name string) (*Listener, bool) { return t.listeners.Get(name) }

// Listeners iterates over all listeners in no particular order.
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

// Hosts iterates over the host names of endpoints, with the lookup interval of
// each.
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
