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

// policy is what one MeshTCPRoute says about one destination. A connection
// that it sends to another service is balanced there at once: the routes that
// have that service as their destination do not apply to it, as in Kuma, where
// a backend is a cluster and no further hop. So routes cannot go in circles.
type policy struct {
	route  string
	from   *resource.MeshTCPRoute // what it was made of, defaults filled in
	source resource.TargetRef
	rank   int   // of the kind of source, in precedence
	wants  []tag // of the source
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
	before := make(map[string]*policy, len(s.policies))
	for _, p := range s.policies {
		before[p.route] = p
	}
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
	link(c.backendOf, destination, backendNames(s.policies), backendNames(policies))
	next := *s
	next.policies, next.chooser = policies, newChooser(policies)
	c.services.Set(destination, &next)
	return true
}

// upToDate tells whether a policy is what would be made of the route now. One
// of a thousand for a destination changes without the others being made anew.
func (c *compiler) upToDate(p *policy, r *resource.MeshTCPRoute) bool {
	if p.from != r {
		return false
	}
	for i := range p.refs {
		var whole *backend
		if s, ok := c.services.Get(p.refs[i].Name); ok {
			whole = s.whole
		}
		if whole != p.refs[i].whole {
			return false
		}
	}
	return true
}

// unlinkPolicies forgets that a destination that goes has routes.
func (c *compiler) unlinkPolicies(s *Service) {
	link(c.backendOf, s.name, backendNames(s.policies), nil)
}

func backendNames(policies []*policy) []string {
	names := map[string]bool{}
	for _, p := range policies {
		for i := range p.refs {
			names[p.refs[i].Name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

func (c *compiler) makePolicy(name string, r *resource.MeshTCPRoute, to *resource.RouteTo, old *policy) *policy {
	p := &policy{route: name, from: r, source: *r.TargetRef, rank: slices.Index(precedence, r.TargetRef.Kind), wants: wants(r.TargetRef)}
	if old == nil {
		old = &policy{}
	}
	refs := to.Rules[0].Default.BackendRefs
	for i := range refs {
		x := ref{BackendRef: &refs[i]}
		if s, ok := c.services.Get(x.Name); ok {
			x.whole = s.whole
		}
		x.backend, x.skipped = c.resolveRef(x.BackendRef, old)
		if x.skipped == "" {
			p.live = append(p.live, x.backend)
			p.weight = append(p.weight, *x.Weight)
		}
		p.refs = append(p.refs, x)
	}
	if len(p.live) > 1 {
		p.split = p.splitAfter(old)
	}
	return p
}

// resolveRef finds the backend of a ref, or why it gets nothing. What has no
// endpoint leads nowhere; one whose endpoints are all unhealthy does not, and
// keeps its share: who sends a tenth to a broken version is to see it.
func (c *compiler) resolveRef(r *resource.BackendRef, old *policy) (*backend, string) {
	s, ok := c.services.Get(r.Name)
	if !ok {
		return nil, fmt.Sprintf("there is no service %q", r.Name)
	}
	b := s.whole
	if r.Kind == kindMeshServiceSubset {
		i := slices.IndexFunc(old.refs, func(x ref) bool { return x.backend.is(r.Name, r.Tags) })
		var before *backend
		if i >= 0 {
			before = old.refs[i].backend
		}
		b = c.subset(s, r.Tags, before)
	}
	switch {
	case *r.Weight == 0:
		return b, "its weight is 0"
	case b.pool.Empty():
		return b, "it has no endpoint"
	}
	return b, ""
}

// splitAfter takes the old policy's split over where parts and weights are the
// same, and otherwise goes on where it was.
func (p *policy) splitAfter(old *policy) *split.Split {
	if old.split == nil {
		return split.New(p.weight, 0)
	}
	same := func(a, b *backend) bool { return a.life == b.life && maps.Equal(a.tags, b.tags) }
	if slices.Equal(p.weight, old.weight) && slices.EqualFunc(p.live, old.live, same) {
		return old.split
	}
	return split.New(p.weight, old.split.Phase())
}

// nowhere is the turn of a policy that leads nowhere.
const nowhere = -1

// turn gives the place in live of the next turn. To peek leaves it there.
func (p *policy) turn(peek bool) int {
	switch {
	case p.split == nil:
		return len(p.live) - 1 // the only one, or nowhere
	case peek:
		return p.split.Peek()
	}
	return p.split.Next()
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
