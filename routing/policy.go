package routing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"penstock/routing/balance"
	"penstock/routing/hostname"
	"penstock/routing/resource"
	"penstock/routing/split"
)

// policy is what one route specifies for one destination. Connections that it
// sends to another service are balanced there directly: routes whose
// destination is that service do not apply, as in Kuma, where a backend is a
// cluster and not a further hop. So routes cannot form a loop.
type policy struct {
	route        string
	source       resource.TargetRef
	rank         int                    // index of the source's kind in precedence
	requiredTags []tag                  // tags that the source must have
	from         *resource.MeshTCPRoute // the resource with defaults; nil for a MeshHTTPRoute
	shares                              // of a MeshTCPRoute
	rollout      *rollout               // sets the weights of the shares; nil if there is none
	http         *httpPolicy            // of a MeshHTTPRoute; otherwise nil
}

// shares divides connections or requests among backends.
type shares struct {
	refs   []ref
	live   []*backend   // backends of the refs that get a share
	via    []*Via       // of each backend in live
	weight []int        // of each backend in live
	split  *split.Split // of weight; nil for fewer than two backends
}

// ref is one backend reference and its resolution.
type ref struct {
	*resource.BackendRef
	whole   *backend // the whole service at that version; nil if it does not exist
	backend *backend
	skipped string // why it gets no share; "" if it gets one
	closed  string // why connections for it are closed; it keeps its share
}

// Kinds of targetRefs.
const (
	kindMesh              = "Mesh"
	kindMeshSubset        = "MeshSubset"
	kindMeshService       = "MeshService"
	kindMeshServiceSubset = "MeshServiceSubset"
)

// precedence orders the kinds of source, the most specific last.
var precedence = []string{kindMesh, kindMeshSubset, kindMeshService, kindMeshServiceSubset}

// rankOfService is the index in precedence of the first kind that names a
// service.
const rankOfService = 2

// compare orders policies for one destination by precedence: the more specific
// kind of source first, then the source with more tags, then by name.
func (p *policy) compare(q *policy) int {
	return cmp.Or(
		cmp.Compare(q.rank, p.rank),
		cmp.Compare(len(q.source.Tags), len(p.source.Tags)),
		cmp.Compare(p.route, q.route),
	)
}

// putRoute records a route's new resource; a nil spec removes it.
func (c *compiler) putRoute(name string, spec resource.Spec) {
	var before, after []string
	if old, ok := c.routes.Get(name); ok {
		before = destinations(old)
	}
	if r, ok := spec.(*resource.MeshTCPRoute); ok {
		r = r.WithDefaults()
		after = destinations(r)
		c.routes.Set(name, r)
	} else {
		c.routes.Delete(name)
	}
	updateIndex(c.routesTo, name, before, after)
	for _, d := range slices.Concat(before, after) {
		c.dirtyPolicies[d] = true
	}
}

func destinations(r *resource.MeshTCPRoute) []string {
	names := make([]string, len(r.To))
	for i := range r.To {
		names[i] = r.To[i].TargetRef.Name
	}
	return names
}

// makePolicies rebuilds the policies of a destination, and reports whether that
// service exists.
func (c *compiler) makePolicies(destination string) bool {
	s, ok := c.services.Get(destination)
	if !ok {
		return false
	}
	if d, ok := c.gatewayDestinations.Get(destination); ok {
		c.makeGatewayPolicy(s, d)
		return true
	}
	before := byRoute(s.policies)
	var policies []*policy
	for _, name := range indexed(c.routesTo, destination) {
		r, _ := c.routes.Get(name)
		old := before[name]
		if old == nil || !c.upToDate(old, r) {
			i := slices.IndexFunc(r.To, func(to resource.RouteTo) bool { return to.TargetRef.Name == destination })
			old = c.makePolicy(name, r, &r.To[i], old)
		}
		policies = append(policies, old)
	}
	slices.SortFunc(policies, (*policy).compare)
	next := *s
	next.policies, next.chooser = policies, newChooser(policies)
	next.requests = c.makeRequests(destination, s.requests)
	updateIndex(c.backendOf, destination, s.backendNames(), next.backendNames())
	c.services.Set(destination, &next)
	return true
}

func byRoute(policies []*policy) map[string]*policy {
	m := make(map[string]*policy, len(policies))
	for _, p := range policies {
		m[p.route] = p
	}
	return m
}

// upToDate reports whether rebuilding the policy from the route would give the
// same result. So a change of one among a thousand policies of a destination
// rebuilds only that one.
func (c *compiler) upToDate(p *policy, r *resource.MeshTCPRoute) bool {
	if p.from != r || !p.rollout.upToDate(c) {
		return false
	}
	return p.upToDate(c)
}

// upToDate reports whether the services of the shares are unchanged.
func (sh *shares) upToDate(c *compiler) bool {
	for i := range sh.refs {
		var whole *backend
		if s, ok := c.services.Get(sh.refs[i].Name); ok {
			whole = s.whole
		}
		if whole != sh.refs[i].whole {
			return false
		}
	}
	return true
}

// unindexPolicies removes the links from backends to a deleted destination.
func (c *compiler) unindexPolicies(s *Service) {
	updateIndex(c.backendOf, s.name, s.backendNames(), nil)
}

// backendNames returns the services that a destination's policies refer to,
// sorted.
func (s *Service) backendNames() []string {
	names := map[string]bool{}
	for name := range s.Backends() {
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func newPolicy(route string, source *resource.TargetRef) *policy {
	return &policy{route: route, source: *source, rank: slices.Index(precedence, source.Kind), requiredTags: requiredTags(source)}
}

func (c *compiler) makePolicy(name string, r *resource.MeshTCPRoute, to *resource.RouteTo, old *policy) *policy {
	p := newPolicy(name, r.TargetRef)
	p.from = r
	var before *shares
	if old != nil {
		before = &old.shares
	}
	p.rollout = c.rolloutOf(name, r, old)
	p.shares = c.makeShares("MeshTCPRoute/"+name, p.rollout.backendRefs(to.Rules[0].Default.BackendRefs), before)
	p.rollout.attachCounter(&p.shares)
	return p
}

// makeShares builds the shares of a route that continue the state of the old ones, if any.
func (c *compiler) makeShares(route string, refs []resource.BackendRef, old *shares) (sh shares) {
	if old == nil {
		old = &shares{}
	}
	for i := range refs {
		x := ref{BackendRef: &refs[i]}
		if s, ok := c.services.Get(x.Name); ok {
			x.whole = s.whole
		}
		x.backend, x.skipped = c.resolveRef(x.BackendRef, sh.refs, old)
		if x.skipped == "" {
			sh.live = append(sh.live, x.backend)
			sh.via = append(sh.via, &Via{route, tagList(x.subsetTags())})
			sh.weight = append(sh.weight, *x.Weight)
		}
		sh.refs = append(sh.refs, x)
	}
	if len(sh.live) > 1 {
		sh.split = sh.splitAfter(old)
	}
	return sh
}

// resolveRef returns the backend of a ref, and why it gets no share, if so. A
// backend without endpoints gets none. One whose endpoints are all unhealthy
// keeps its share: a broken version with a tenth of the traffic has to show.
//
// Several refs may name the same subset, each with its own balancer state: the
// n-th continues the state of the n-th old one. before are the refs above this
// one.
func (c *compiler) resolveRef(r *resource.BackendRef, before []ref, old *shares) (*backend, string) {
	s, ok := c.services.Get(r.Name)
	if !ok {
		return nil, fmt.Sprintf("there is no service %q", r.Name)
	}
	b := s.whole
	if r.Kind == kindMeshServiceSubset {
		var was *backend
		if list, n := subsets(old.refs, r), len(subsets(before, r)); n < len(list) {
			was = list[n]
		}
		b = c.subset(s, r.Tags, was)
	}
	switch {
	case *r.Weight == 0:
		return b, "its weight is 0"
	case b.pool.Empty():
		return b, "it has no endpoint"
	}
	return b, ""
}

// subsets returns the backends of the refs that name the subset of r, in order.
func subsets(refs []ref, r *resource.BackendRef) (list []*backend) {
	for _, x := range refs {
		if x.backend.isSubset(r.Name, r.Tags) {
			list = append(list, x.backend)
		}
	}
	return list
}

// splitAfter returns the old split if backends and weights are unchanged,
// otherwise a new one that continues at the old one's phase.
func (sh *shares) splitAfter(old *shares) *split.Split {
	if old.split == nil {
		return split.New(sh.weight, 0)
	}
	same := func(a, b *backend) bool { return a.serviceState == b.serviceState && maps.Equal(a.tags, b.tags) }
	if slices.Equal(sh.weight, old.weight) && slices.EqualFunc(sh.live, old.live, same) {
		return old.split
	}
	return split.New(sh.weight, old.split.Phase())
}

// noTurn is the turn of shares without a backend.
const noTurn = -1

// turn returns the index in live of the next turn. With peek the split does not
// advance.
func (sh *shares) turn(peek bool) int {
	switch {
	case sh.split == nil:
		return len(sh.live) - 1 // the only one, or noTurn
	case peek:
		return sh.split.Peek()
	}
	return sh.split.Next()
}

// hash returns Maglev's key of a connection. Without a server name that is the
// client's address, as without hashOn.
func (b *backend) hash(in *Input) uint64 {
	if b.pool.Config().Policy != balance.Maglev {
		return 0
	}
	if b.spec.Balancing.HashOn == "serverName" && in.HasServerName {
		if name, ok := hostname.CheckSNI(in.ServerName); ok {
			return balance.Hash(name)
		}
	}
	return hashAddr(in.Client)
}
