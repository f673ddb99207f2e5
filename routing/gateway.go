package routing

import (
	"slices"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// Gateway API resources become ordinary table entries: each listener that
// package gateway derives from a Gateway is a listener, and each route is a
// service without endpoints whose only policy has the route's backends. Their
// names contain a '/', which names of other resources cannot.

// emptyService is the service that represents a route.
var emptyService = (&resource.Service{}).WithDefaults()

// applyGateways applies the changed Gateway API resources.
func (c *compiler) applyGateways() {
	if c.gateways == nil {
		c.gateways = &gateway.Model{}
	}
	model, changed := c.gateways.With(c.gatewayChanges)
	c.gateways = model
	for name, l := range changed.Listeners {
		c.dirtyListeners[name] = l
	}
	for name, d := range changed.Destinations {
		if d == nil {
			c.gatewayDestinations.Delete(name)
			c.dropService(name)
			continue
		}
		c.gatewayDestinations.Set(name, d)
		if _, ok := c.services.Get(name); ok {
			c.dirtyPolicies[name] = true
		} else {
			c.dirtyServices[name] = emptyService
		}
	}
}

// RemovedListeners returns the listeners of Gateways that the changes would remove.
func (t *Table) RemovedListeners(changes []resource.Change) (names []string) {
	var of []resource.Change
	for i := range changes {
		if changes[i].Kind == gateway.KindGateway {
			of = append(of, changes[i])
		}
	}
	if t.gateways == nil || len(of) == 0 {
		return nil
	}
	_, changed := t.gateways.With(of)
	for name, l := range changed.Listeners {
		if l == nil {
			names = append(names, name)
		}
	}
	return names
}

// isGatewayName reports whether a name stems from the Gateway API.
func isGatewayName(name string) bool { return gateway.IsListener(name) }

// makeGatewayPolicy builds the policy of a route's destination.
func (c *compiler) makeGatewayPolicy(s *Service, d *gateway.Destination) {
	p := newPolicy(d.Name, &resource.TargetRef{Kind: kindMesh})
	old := &shares{}
	if len(s.policies) > 0 {
		old = &s.policies[0].shares
	}
	p.shares = c.gatewayShares(d, old)
	next := *s
	next.policies = []*policy{p}
	next.chooser = newChooser(next.policies)
	updateIndex(c.backendOf, d.Name, s.backendNames(), next.backendNames())
	c.services.Set(d.Name, &next)
}

// gatewayShares builds the shares of a route. Unlike in a mesh, a backend without
// endpoints keeps its share.
func (c *compiler) gatewayShares(d *gateway.Destination, old *shares) (sh shares) {
	via := &Via{Route: d.Name}
	for i := range d.Backends {
		b := &d.Backends[i]
		x := ref{BackendRef: &resource.BackendRef{Kind: kindMeshService, Name: b.Service, Weight: &b.Weight}}
		s, ok := c.services.Get(b.Service)
		if ok {
			x.whole, x.backend = s.whole, s.whole
		}
		x.closed = b.Closed
		switch {
		case x.closed != "":
		case !ok:
			x.closed = "there is no Service " + b.Service
		case s.whole.pool.Empty():
			x.closed = "it has no endpoint"
		}
		if x.closed != "" && (!ok || b.Closed != "") {
			x.backend = closing(b.Service, x.closed, old)
		}
		if b.Weight == 0 {
			x.skipped, x.closed = "its weight is 0", ""
		} else {
			sh.live = append(sh.live, x.backend)
			sh.via = append(sh.via, via)
			sh.weight = append(sh.weight, b.Weight)
		}
		sh.refs = append(sh.refs, x)
	}
	if len(sh.live) > 1 {
		sh.split = sh.splitAfter(old)
	}
	return sh
}

// closing returns a backend that closes its connections: the same one as in the
// old shares, if there is one.
func closing(name, why string, old *shares) *backend {
	i := slices.IndexFunc(old.refs, func(x ref) bool { return x.backend != nil && x.backend.name == name && x.backend.closed == why })
	if i >= 0 {
		return old.refs[i].backend
	}
	return &backend{
		serviceState: &serviceState{name: name, group: endpoint.NewGroup(name, nil)}, spec: emptyService, closed: why,
		pool: balance.New(balance.Config{}, nil, nil),
	}
}
