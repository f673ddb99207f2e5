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

// policy is what one route says about one destination. What it sends to another
// service is balanced there at once: the routes that have that service as
// their destination do not apply to it, as in Kuma, where a backend is a
// cluster and no further hop. So routes cannot go in circles.
type policy struct {
	route   string
	source  resource.TargetRef
	rank    int                    // of the kind of source, in precedence
	wants   []tag                  // of the source
	from    *resource.MeshTCPRoute // what it was made of, defaults filled in; nil: http is
	shares                         // of a MeshTCPRoute
	rollout *rollout               // that gives the shares their weights; nil: none
	http    *httpPolicy            // of a MeshHTTPRoute; nil: it is none
}

// shares divides what a rule is for among its backends.
type shares struct {
	refs   []ref
	live   []*backend   // of the refs that lead somewhere, and have a weight
	weight []int        // of each of them
	split  *split.Split // of them; nil where there are less than two
}

// ref is one backend reference, with why it gets nothing where that is so.
type ref struct {
	*resource.BackendRef
	whole   *backend // of the service as it was found; nil: there was none
	backend *backend
	skipped string
	closed  string // why connections for it are closed; it keeps its share
}

// The kinds of targetRefs.
const (
	kindMesh              = "Mesh"
	kindMeshSubset        = "MeshSubset"
	kindMeshService       = "MeshService"
	kindMeshServiceSubset = "MeshServiceSubset"
)

// precedence orders the kinds of source; the later is the more specific.
var precedence = []string{kindMesh, kindMeshSubset, kindMeshService, kindMeshServiceSubset}

// rankOfService is the place in precedence from which on kinds name a service.
const rankOfService = 2

// compare orders policies for one destination: the one that wins first. The
// more specific source wins, among subsets the one with more tags, and then
// the name that comes first.
func (p *policy) compare(q *policy) int {
	return cmp.Or(
		cmp.Compare(q.rank, p.rank),
		cmp.Compare(len(q.source.Tags), len(p.source.Tags)),
		cmp.Compare(p.route, q.route),
	)
}

// putRoute takes a route's new resource in; nil: it is gone.
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
	link(c.routesTo, name, before, after)
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

// makePolicies makes the policies of a destination, and tells whether there is
// such a service.
func (c *compiler) makePolicies(destination string) bool {
	s, ok := c.services.Get(destination)
	if !ok {
		return false
	}
	if d, ok := c.bound.Get(destination); ok {
		c.makeBound(s, d)
		return true
	}
	before := byRoute(s.policies)
	var policies []*policy
	for _, name := range list(c.routesTo, destination) {
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
	link(c.backendOf, destination, s.backendNames(), next.backendNames())
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

// upToDate tells whether a policy is what would be made of the route now. One
// of a thousand for a destination changes without the others being made anew.
func (c *compiler) upToDate(p *policy, r *resource.MeshTCPRoute) bool {
	if p.from != r || !p.rollout.upToDate(c) {
		return false
	}
	return p.upToDate(c)
}

// upToDate tells whether the services that the shares lead to are what they were.
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

// unlinkPolicies forgets that a destination that goes has routes.
func (c *compiler) unlinkPolicies(s *Service) {
	link(c.backendOf, s.name, s.backendNames(), nil)
}

// backendNames are the services that the policies of a destination lead to.
func (s *Service) backendNames() []string {
	names := map[string]bool{}
	add := func(sh *shares) {
		for i := range sh.refs {
			names[sh.refs[i].Name] = true
		}
	}
	for _, p := range s.policies {
		add(&p.shares)
	}
	if s.requests != nil {
		for _, p := range s.requests.policies {
			for i := range p.http.shares {
				add(&p.http.shares[i])
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func newPolicy(route string, source *resource.TargetRef) *policy {
	return &policy{route: route, source: *source, rank: slices.Index(precedence, source.Kind), wants: wants(source)}
}

func (c *compiler) makePolicy(name string, r *resource.MeshTCPRoute, to *resource.RouteTo, old *policy) *policy {
	p := newPolicy(name, r.TargetRef)
	p.from = r
	var before *shares
	if old != nil {
		before = &old.shares
	}
	p.rollout = c.rolloutOf(name, r, old)
	p.shares = c.makeShares(p.rollout.backendRefs(to.Rules[0].Default.BackendRefs), before)
	p.rollout.count(&p.shares)
	return p
}

// makeShares makes the shares of backends, which go on where the old ones are;
// nil: there are none.
func (c *compiler) makeShares(refs []resource.BackendRef, old *shares) (sh shares) {
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
			sh.weight = append(sh.weight, *x.Weight)
		}
		sh.refs = append(sh.refs, x)
	}
	if len(sh.live) > 1 {
		sh.split = sh.splitAfter(old)
	}
	return sh
}

// resolveRef finds the backend of a ref, or why it gets nothing. What has no
// endpoint leads nowhere; one whose endpoints are all unhealthy does not, and
// keeps its share: who sends a tenth to a broken version is to see it.
//
// Two refs may name one subset, and each has its own turns: the second goes on
// where the second of them was. before are the refs above this one.
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
		if x.backend.is(r.Name, r.Tags) {
			list = append(list, x.backend)
		}
	}
	return list
}

// splitAfter takes the old split over where parts and weights are the
// same, and otherwise goes on where it was.
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

// nowhere is the turn of shares that lead nowhere.
const nowhere = -1

// turn gives the place in live of the next turn. To peek leaves it there.
func (sh *shares) turn(peek bool) int {
	switch {
	case sh.split == nil:
		return len(sh.live) - 1 // the only one, or nowhere
	case peek:
		return sh.split.Peek()
	}
	return sh.split.Next()
}

// hash is what Maglev goes by for a connection to the backend. Where there is
// no server name it is the client's address, as without hashOn.
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
