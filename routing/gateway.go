package routing

import (
	"slices"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/gateway"
	"penstock/routing/resource"
)

// What comes of the Gateway API stands among what users write: the listeners
// that package gateway makes of a Gateway among the listeners, and each route
// as a service without endpoints whose only policy has the route's backends.
// Their names have a '/', as no name that users give.

// emptyService is the service that stands for a route.
var emptyService = (&resource.Service{}).WithDefaults()

// bindGateways takes what is changed of the Gateway API in.
func (c *compiler) bindGateways() {
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
			c.bound.Delete(name)
			c.dropService(name)
			continue
		}
		c.bound.Set(name, d)
		if _, ok := c.services.Get(name); ok {
			c.dirtyPolicies[name] = true
		} else {
			c.dirtyServices[name] = emptyService
		}
	}
}

// Leaving names the listeners of Gateways that would not be there after some
// changes.
func (t *Table) Leaving(changes []resource.Change) (names []string) {
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

// isBound tells the names of what comes of the Gateway API.
func isBound(name string) bool { return gateway.IsListener(name) }

// makeBound makes the policy of a route's destination.
func (c *compiler) makeBound(s *Service, d *gateway.Destination) {
	p := newPolicy(d.Name, &resource.TargetRef{Kind: kindMesh})
	old := &shares{}
	if len(s.policies) > 0 {
		old = &s.policies[0].shares
	}
	p.shares = c.boundShares(d, old)
	next := *s
	next.policies = []*policy{p}
	next.chooser = newChooser(next.policies)
	link(c.backendOf, d.Name, s.backendNames(), next.backendNames())
	c.services.Set(d.Name, &next)
}

// boundShares makes the shares of a route. Unlike a mesh's, a backend that
// leads nowhere keeps its share.
func (c *compiler) boundShares(d *gateway.Destination, old *shares) (sh shares) {
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
			sh.weight = append(sh.weight, b.Weight)
		}
		sh.refs = append(sh.refs, x)
	}
	if len(sh.live) > 1 {
		sh.split = sh.splitAfter(old)
	}
	return sh
}

// closing is a backend that closes its connections: that of the shares before,
// or a new one.
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
