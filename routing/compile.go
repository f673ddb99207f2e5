package routing

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"penstock/routing/gateway"
	"penstock/routing/hamt"
	"penstock/routing/permit"
	"penstock/routing/resource"
)

// compiler builds the next table from the current one. It first records all
// changes, and then rebuilds what they affect: services, the policies that lead
// to these services, and listeners.
type compiler struct {
	cfg    *Config
	now    time.Time
	old    *Table
	cloned *Table // of a clone: the source of the state of new services; otherwise nil

	listeners           *hamt.Edit[*Listener]
	hosts               *hamt.Edit[*resource.Host]
	services            *hamt.Edit[*Service]
	routes              *hamt.Edit[*resource.MeshTCPRoute]
	httpRoutes          *hamt.Edit[*httpRoute]
	rollouts            *hamt.Edit[*resource.Rollout]
	certificates        *hamt.Edit[[]string]
	routesTo            *hamt.Edit[[]string]
	httpRoutesTo        *hamt.Edit[[]string]
	backendOf           *hamt.Edit[[]string]
	atHost              *hamt.Edit[[]string]
	usesRef             *hamt.Edit[[]string]
	gatewayDestinations *hamt.Edit[*gateway.Destination]
	gateways            *gateway.Model // nil before the first change
	permits             *permit.Index

	dirtyServices     map[string]*resource.Service  // new resource, or nil if it was deleted
	dirtyPolicies     map[string]bool               // by destination
	dirtyListeners    map[string]*resource.Listener // new resource, or nil if it was deleted
	dirtyHosts        map[string]*resource.Host     // the resource in force before, or nil
	hostOrder         []string                      // keys of dirtyHosts in the order of the changes
	dirtyCertificates map[string]bool
	gatewayChanges    []resource.Change
	rateLimits        map[string]*resource.RateLimit // with defaults, or nil if it was deleted
	hostsChanged      bool                           // the set of host names to resolve, or their interval, may have changed
	faults            []error
}

func newCompiler(cfg *Config, old *Table, now time.Time) *compiler {
	return &compiler{
		cfg: cfg, now: now, old: old,
		listeners: old.listeners.Edit(), hosts: old.hosts.Edit(), services: old.services.Edit(),
		routes: old.routes.Edit(), httpRoutes: old.httpRoutes.Edit(), rollouts: old.rollouts.Edit(), certificates: old.certificates.Edit(),
		routesTo: old.routesTo.Edit(), httpRoutesTo: old.httpRoutesTo.Edit(), backendOf: old.backendOf.Edit(), atHost: old.atHost.Edit(), usesRef: old.usesRef.Edit(),
		gatewayDestinations: old.gatewayDestinations.Edit(), gateways: old.gateways,
		permits:       old.permissions(),
		dirtyServices: map[string]*resource.Service{}, dirtyPolicies: map[string]bool{},
		dirtyListeners: map[string]*resource.Listener{}, dirtyHosts: map[string]*resource.Host{}, dirtyCertificates: map[string]bool{},
	}
}

// change records one change.
func (c *compiler) change(ch *resource.Change) {
	spec := ch.Spec
	if ch.Delete {
		spec = nil
	}
	var err error
	switch ch.Kind {
	case "Service":
		err = c.putService(ch.Name, spec)
	case "MeshTCPRoute":
		c.putRoute(ch.Name, spec)
	case "MeshHTTPRoute":
		err = c.putHTTPRoute(ch.Name, spec)
	case resource.KindRollout:
		c.putRollout(ch.Name, spec)
	case "Certificate":
		err = c.putCertificate(ch.Name, spec)
	case "Listener":
		err = c.putListener(ch.Name, spec)
	case resource.KindRateLimit:
		err = c.putRateLimit(ch.Name, spec)
	case "Host":
		err = c.putHost(ch.Name, spec)
	case resource.KindPermission:
		c.putPermission(ch.Name, spec)
	case resource.KindMesh:
		c.putMesh(spec)
	case gateway.KindGateway, gateway.KindTCPRoute, gateway.KindTLSRoute, gateway.KindGrant:
		c.gatewayChanges = append(c.gatewayChanges, *ch)
	}
	if err != nil {
		c.leaveOut(ch.Key, err)
	}
}

// leaveOut records that a resource is left out, and why.
func (c *compiler) leaveOut(k resource.Key, err error) {
	c.faults = append(c.faults, fmt.Errorf("%s is left out: %w", k, err))
}

// finish rebuilds what the changes affect and returns the next table.
func (c *compiler) finish() (Applied, error) {
	var done Applied
	c.applyGateways()
	for name, spec := range c.dirtyServices {
		c.makeService(name, spec)
		c.dirtyPolicies[name] = true
		for _, destination := range indexed(c.backendOf, name) {
			c.dirtyPolicies[destination] = true
		}
		done.Services = append(done.Services, name)
	}
	for destination := range c.dirtyPolicies {
		if c.makePolicies(destination) {
			done.Services = append(done.Services, destination)
		}
	}
	c.makeListeners()
	done.Listeners = slices.AppendSeq(c.certificateUsers(), maps.Keys(c.dirtyListeners))
	for _, name := range done.Listeners {
		if l, ok := c.listeners.Get(name); ok && c.hasOtherCertificates(l) {
			c.listeners.Set(name, c.withCertificates(l))
		}
	}
	done.Hosts = c.hostsChanged // makeService may have set it
	slices.Sort(done.Services)
	done.Services = slices.Compact(done.Services)
	slices.Sort(done.Listeners)
	done.Listeners = slices.Compact(done.Listeners)
	done.Table = &Table{
		node: c.cfg.NodeTags, discovered: c.cfg.Discovered,
		listeners: c.listeners.Map(), hosts: c.hosts.Map(), services: c.services.Map(),
		routes: c.routes.Map(), httpRoutes: c.httpRoutes.Map(), rollouts: c.rollouts.Map(), certificates: c.certificates.Map(),
		routesTo: c.routesTo.Map(), httpRoutesTo: c.httpRoutesTo.Map(), backendOf: c.backendOf.Map(), atHost: c.atHost.Map(), usesRef: c.usesRef.Map(),
		gatewayDestinations: c.gatewayDestinations.Map(), gateways: c.gateways, limits: c.makeRateLimits(),
		permits: c.permits, isClone: c.cloned != nil || c.old.isClone,
	}
	return done, errors.Join(c.faults...)
}

// indexed returns the names under a key.
func indexed(m *hamt.Edit[[]string], key string) []string {
	names, _ := m.Get(key)
	return names
}

// updateIndex adds a name under each key in after and removes it from the keys that
// are only in before.
func updateIndex(m *hamt.Edit[[]string], name string, before, after []string) {
	for _, key := range before {
		if slices.Contains(after, key) {
			continue
		}
		names := indexed(m, key)
		i, found := slices.BinarySearch(names, name)
		switch {
		case !found:
		case len(names) == 1:
			m.Delete(key)
		default:
			m.Set(key, slices.Delete(slices.Clone(names), i, i+1))
		}
	}
	for _, key := range after {
		names := indexed(m, key)
		if i, found := slices.BinarySearch(names, name); !found {
			m.Set(key, slices.Insert(slices.Clip(names), i, name))
		}
	}
}
