package routing

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// backend is a set of endpoints to balance over: all endpoints of a service, or
// a subset by tags.
type backend struct {
	*serviceState
	tags map[string]string // nil: all endpoints
	spec *resource.Service // settings for its endpoints
	pool *balance.Pool
	// closed is why connections to it are closed; "" if they are not.
	closed string
	// outcomes counts connections if this is the new backend of a rollout.
	outcomes *outcomeCounter
}

// putService records a service's new resource; a nil spec removes it.
func (c *compiler) putService(name string, spec resource.Spec) error {
	s, ok := spec.(*resource.Service)
	if !ok {
		c.dropService(name)
		if spec != nil {
			return fmt.Errorf("spec has type %T", spec)
		}
		return nil
	}
	if err := checkEndpoints(s); err != nil {
		c.dropService(name)
		return err
	}
	c.dirtyServices[name] = s.WithDefaults()
	return nil
}

// markDirty schedules a service for a rebuild from its current resource.
func (c *compiler) markDirty(name string) {
	if s, ok := c.services.Get(name); ok && c.dirtyServices[name] == nil {
		c.dirtyServices[name] = s.spec
	}
}

func (c *compiler) dropService(name string) {
	if s, ok := c.services.Get(name); ok {
		c.hostsChanged = updateSorted(c.atHost, name, s.hosts, nil) || c.hostsChanged
		updateSorted(c.usesRef, name, refKeys(name, s.spec), nil)
		c.unindexPolicies(s)
		c.services.Delete(name)
	}
	c.dirtyServices[name] = nil
}

// makeService builds a service's next version, without its policies.
func (c *compiler) makeService(name string, spec *resource.Service) {
	if spec == nil {
		return // dropService has removed it
	}
	old, known := c.services.Get(name)
	twin := c.original(name)
	s := &Service{spec: spec}
	var before *resource.Service
	var hosts []string
	var pool *balance.Pool
	if known {
		s.serviceState, s.policies, s.chooser, s.requests = old.serviceState, old.policies, old.chooser, old.requests
		before, hosts, pool = old.spec, old.hosts, old.whole.pool
	} else {
		s.serviceState = newServiceState(name, c.cfg.Observe)
		if twin != nil {
			s.policies, s.requests, pool = twin.policies, twin.requests, twin.whole.pool // whose state the new ones continue
		}
	}
	found := c.endpoints(name, spec)
	s.hosts, s.unresolved = found.hosts, found.unresolved
	c.hostsChanged = updateSorted(c.atHost, name, hosts, s.hosts) || c.hostsChanged
	if before != spec {
		c.hostsChanged = c.hostsChanged || len(s.hosts) > 0 && before != nil && before.Resolve != spec.Resolve
		updateSorted(c.usesRef, name, refKeys(name, before), refKeys(name, spec))
		s.group.Configure(ejection(spec.Ejection), c.now)
		s.setBreaker(spec.CircuitBreaker)
	}
	members := make([]balance.Member, len(found.set))
	for i, e := range s.group.Update(found.set, c.now) {
		members[i] = balance.Member{Endpoint: e, Weight: found.shares[i].weight, Level: found.shares[i].level}
	}
	if twin != nil {
		s.group.Mirror(twin.group, c.now)
	}
	s.whole = &backend{serviceState: s.serviceState, spec: spec, pool: balance.New(c.balancing(spec), members, pool)}
	s.queue.setLatest(s.whole, c.now)
	c.services.Set(name, s)
}

// newServiceState returns the state of a new service. A change of an endpoint may
// give a slot to those who wait.
func newServiceState(name string, observe func(endpoint.Event)) *serviceState {
	s := &serviceState{name: name}
	s.group = endpoint.NewGroup(name, func(ev endpoint.Event) {
		if observe != nil {
			observe(ev)
		}
		s.queue.serve(ev.At)
	})
	return s
}

// original returns the service of which a clone's new service is a copy, or nil.
func (c *compiler) original(name string) *Service {
	if c.cloned == nil {
		return nil
	}
	s, _ := c.cloned.services.Get(name)
	return s
}

func ejection(e *resource.Ejection) *endpoint.Ejection {
	if e == nil {
		return nil
	}
	return &endpoint.Ejection{Failures: e.Failures, Window: e.Window.D(), Duration: e.Duration.D(), MaxShare: *e.MaxShare}
}

func (c *compiler) balancing(s *resource.Service) balance.Config {
	b := &s.Balancing
	policy, _ := balance.ParsePolicy(b.Policy)
	return balance.Config{
		Policy:    policy,
		SlowStart: b.SlowStart.D(),
		ZoneTag:   b.Zone, Zone: c.cfg.NodeTags[b.Zone], ZoneMinHealthy: *b.ZoneMinHealthy,
		MatchTag: b.MatchTag, MatchValue: c.cfg.NodeTags[b.MatchTag],
		MinHealthy: *b.MinHealthy,
		Panic:      s.AllUnhealthy == "panic",
	}
}

// subset returns the backend of the endpoints of s that have the tags.
func (c *compiler) subset(s *Service, tags map[string]string, old *backend) *backend {
	var members []balance.Member
	for _, m := range s.Members() {
		if hasTags(m.Tags, tags) {
			members = append(members, m)
		}
	}
	var pool *balance.Pool
	if old != nil {
		pool = old.pool
	}
	return &backend{serviceState: s.serviceState, tags: tags, spec: s.spec, pool: balance.New(c.balancing(s.spec), members, pool)}
}

// mismatch says why balancing.matchTag excludes an endpoint with these tags.
func (b *backend) mismatch(tags map[string]string) string {
	cfg := b.pool.Config()
	if v, ok := tags[cfg.MatchTag]; ok {
		return fmt.Sprintf("its tag %s=%s differs from this node's, %s (balancing.matchTag)", cfg.MatchTag, v, cfg.MatchValue)
	}
	return fmt.Sprintf("it has no tag %s, which is %s on this node (balancing.matchTag)", cfg.MatchTag, cfg.MatchValue)
}

// hasTags reports whether tags include all of want.
func hasTags(tags, want map[string]string) bool {
	for k, v := range want {
		if got, ok := tags[k]; !ok || got != v {
			return false
		}
	}
	return true
}

func (b *backend) isSubset(name string, tags map[string]string) bool {
	return b != nil && b.name == name && maps.Equal(b.tags, tags)
}

func checkEndpoints(s *resource.Service) error {
	for i := range s.Endpoints {
		if _, err := parseAddress(s.Endpoints[i].Address); err != nil {
			return fmt.Errorf("endpoints[%d]: %w", i, err)
		}
	}
	return nil
}

// address is an endpoint's parsed address: a host name or IP address with a
// port, or a unix socket.
type address struct {
	host string
	addr netip.Addr
	port uint16
	unix string
}

func parseAddress(s string) (address, error) {
	if path, ok := strings.CutPrefix(s, "unix:"); ok {
		return address{unix: path}, nil
	}
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return address{}, err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return address{}, fmt.Errorf("port of %q: %w", s, err)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return address{addr: addr.Unmap(), port: uint16(n)}, nil
	}
	return address{host: strings.ToLower(host), port: uint16(n)}, nil
}
