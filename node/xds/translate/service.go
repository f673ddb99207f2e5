package translate

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"

	"penstock/node/xds/snapshot"
	"penstock/routing"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// service is one version of a service with what was made of it.
type service struct {
	*routing.Service
	shared   *shared
	audience *audience // nil: the service has no discovery

	mu    sync.Mutex
	plans map[routing.Client]*plan // for those who reach the service; guarded by mu
}

// allPlans returns a copy of plans.
func (s *service) allPlans() map[routing.Client]*plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.plans)
}

// audience is what the proxies of a service may see.
type audience struct {
	discovery *resource.Discovery
	all       bool              // every service
	addresses map[string]string // upstream -> where the proxies listen for it; "": nowhere
}

func newAudience(d *resource.Discovery) *audience {
	a := &audience{discovery: d, addresses: make(map[string]string, len(d.Upstreams))}
	for i := range d.Upstreams {
		if u := &d.Upstreams[i]; u.Service == resource.EveryService {
			a.all = true
		} else {
			a.addresses[u.Service] = u.Address
		}
	}
	return a
}

// reaches reports whether a service is an upstream.
func (a *audience) reaches(service string) bool {
	_, named := a.addresses[service]
	return a.all || named
}

// shared makes the resources that depend on a service's name, settings and
// endpoints alone: its clusters, their endpoints and the CA of those, and the
// listener of gRPC clients.
type shared struct {
	name      string
	spec      *resource.Service // defaults filled in
	endpoints []routing.Known
	byName    bool // some endpoint is a host name, which proxies resolve

	mu   sync.Mutex
	made map[sharedKey]made // guarded by mu
}

// made is a resource that was made of a subset.
type made struct {
	of       subset
	resource *snapshot.Resource // nil: there is none
}

// sharedKey names a resource of a service. The name decides the tags.
type sharedKey struct {
	kind snapshot.Type
	name string
	// certificate: the cluster presents the service's client certificate.
	certificate bool
}

func newShared(name string, spec *resource.Service, endpoints []routing.Known) *shared {
	return &shared{
		name: name, spec: spec, endpoints: endpoints,
		byName: slices.ContainsFunc(endpoints, func(e routing.Known) bool { return isHostName(e.Address) }),
		made:   map[sharedKey]made{},
	}
}

// same reports whether both make the same resources.
func (sh *shared) same(other *shared) bool {
	return sh.spec == other.spec && slices.EqualFunc(sh.endpoints, other.endpoints, func(a, b routing.Known) bool {
		return a.Address == b.Address && a.Weight == b.Weight && a.State == b.State && maps.Equal(a.Tags, b.Tags)
	})
}

// usable reports whether an endpoint with these tags takes connections.
func (sh *shared) usable(tags map[string]string) bool {
	return slices.ContainsFunc(sh.endpoints, func(e routing.Known) bool {
		return e.Weight > 0 && e.State == provider.Ready && hasTags(e.Tags, tags)
	})
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

// subset names a cluster: a service, or the endpoints of it that have some tags.
type subset struct {
	name    string // of the cluster
	service string
	tags    map[string]string
}

func subsetOf(service string, tags map[string]string) subset {
	return subset{clusterName(service, tags), service, tags}
}

// clusterName returns the name of a service's cluster, SERVICE or
// SERVICE?k=v&k2=v2 with the tags sorted and escaped as in a query.
func clusterName(service string, tags map[string]string) string {
	if len(tags) == 0 {
		return service
	}
	var b strings.Builder
	b.WriteString(service)
	mark := byte('?')
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		b.WriteByte(mark)
		b.WriteString(url.QueryEscape(k) + "=" + url.QueryEscape(tags[k]))
		mark = '&'
	}
	return b.String()
}

// cluster returns a cluster, with or without the client certificate of the
// service.
func (sh *shared) cluster(x *subset, certificate bool) *snapshot.Resource {
	return sh.resource(sharedKey{snapshot.Cluster, x.name, certificate}, x)
}

// assignment returns the endpoints of a cluster; nil if the cluster has them
// itself, because some are host names.
func (sh *shared) assignment(x *subset) *snapshot.Resource {
	return sh.resource(sharedKey{kind: snapshot.Endpoint, name: x.name}, x)
}

// ca returns the CA of the endpoints as a secret; nil if the service names none.
func (sh *shared) ca() *snapshot.Resource {
	return sh.resource(sharedKey{kind: snapshot.Secret, name: caName(sh.name)}, &subset{})
}

// apiListener returns the listener of gRPC clients.
func (sh *shared) apiListener() *snapshot.Resource {
	return sh.resource(sharedKey{kind: snapshot.Listener, name: sh.name}, &subset{})
}

// resource returns a resource, which is made once.
func (sh *shared) resource(k sharedKey, x *subset) *snapshot.Resource {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	m, ok := sh.made[k]
	if !ok {
		m = made{*x, sh.makeResource(k, x)}
		sh.made[k] = m
	}
	return m.resource
}

// allMade returns a copy of made.
func (sh *shared) allMade() map[sharedKey]made {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return maps.Clone(sh.made)
}

func (sh *shared) makeResource(k sharedKey, x *subset) *snapshot.Resource {
	switch k.kind {
	case snapshot.Cluster:
		return encode(k.kind, k.name, sh.makeCluster(x, k.certificate))
	case snapshot.Endpoint:
		if sh.byName {
			return nil
		}
		return encode(k.kind, k.name, sh.makeAssignment(x))
	case snapshot.Listener:
		return encode(k.kind, k.name, makeAPIListener(k.name))
	default:
		if sh.spec.TLS == nil || sh.spec.TLS.CA == "" {
			return nil
		}
		return encode(k.kind, k.name, caSecret(k.name, sh.spec.TLS.CA))
	}
}
