package translate

import (
	"slices"
	"strings"
	"sync"

	"penstock/node/xds/snapshot"
	"penstock/routing/resource"
)

// view is what the proxies of one service see of a snapshot.
type view struct {
	snapshot *Snapshot
	name     string
	audience *audience

	all [snapshot.Types]struct {
		once sync.Once
		list []*snapshot.Resource
	}
}

var _ snapshot.View = (*view)(nil)

// Service implements snapshot.View.
func (v *view) Service() string { return v.name }

// Announce implements snapshot.View.
func (v *view) Announce() *resource.Announce { return v.audience.discovery.Announce }

// Get implements snapshot.View. The listener of a gRPC client and the routes
// behind it have the name of the service.
func (v *view) Get(t snapshot.Type, name string) *snapshot.Resource {
	switch t {
	case snapshot.Cluster:
		if name == closedCluster {
			return v.closes()
		}
		if x := v.subset(name); x != nil {
			return v.snapshot.cluster(x, v.audience)
		}
	case snapshot.Endpoint:
		if x := v.subset(name); x != nil {
			return v.snapshot.assignment(x)
		}
	case snapshot.Listener:
		if upstream, ok := strings.CutPrefix(name, listenerPrefix); ok {
			return v.listener(upstream)
		}
		if s := v.upstream(name); s != nil {
			return s.shared.apiListener()
		}
	case snapshot.Route:
		if p := v.plan(name); p != nil {
			return p.routes()
		}
	case snapshot.Secret:
		return v.secret(name)
	}
	return nil
}

// All implements snapshot.View.
func (v *view) All(t snapshot.Type) []*snapshot.Resource {
	all := &v.all[t]
	all.once.Do(func() {
		all.list = v.collect(t)
		slices.SortFunc(all.list, func(a, b *snapshot.Resource) int { return strings.Compare(a.Name, b.Name) })
	})
	return all.list
}

func (v *view) collect(t snapshot.Type) (list []*snapshot.Resource) {
	add := func(r *snapshot.Resource) {
		if r != nil {
			list = append(list, r)
		}
	}
	switch t {
	case snapshot.Cluster:
		for _, x := range v.subsets() {
			add(v.snapshot.cluster(x, v.audience))
		}
	case snapshot.Endpoint:
		for _, x := range v.subsets() {
			add(v.snapshot.assignment(x))
		}
	case snapshot.Listener:
		for name := range v.audience.addresses {
			add(v.listener(name))
		}
	case snapshot.Route:
		for name, address := range v.audience.addresses {
			if s := v.upstream(name); s != nil && address != "" && speaksHTTP(s) {
				add(v.plan(name).routes())
			}
		}
	case snapshot.Secret:
		for _, name := range v.audience.discovery.Certificates {
			add(v.secret(name))
		}
		seen := map[string]bool{}
		for _, x := range v.subsets() {
			if name := caName(x.service); !seen[name] {
				seen[name] = true
				add(v.secret(name))
			}
		}
	}
	return list
}

// upstream returns a service that the proxies may reach; nil if it does not exist
// or is none.
func (v *view) upstream(name string) *service {
	if !v.audience.reaches(name) {
		return nil
	}
	s, _ := v.snapshot.services.Get(name)
	return s
}

// plan returns the plan of the proxies for an upstream, or nil.
func (v *view) plan(upstream string) *plan {
	to := v.upstream(upstream)
	if to == nil {
		return nil
	}
	return v.snapshot.plan(v.snapshot.table.Client(v.name, upstream), to)
}

// listener returns the listener for an upstream; nil without an address.
func (v *view) listener(upstream string) *snapshot.Resource {
	address := v.audience.addresses[upstream]
	if address == "" {
		return nil
	}
	if p := v.plan(upstream); p != nil {
		return p.listener(address)
	}
	return nil
}

// subset returns the cluster with a name, if the proxies may see it: it belongs
// to an upstream, or a route of an upstream leads to it.
func (v *view) subset(name string) *subset {
	if v.upstream(name) != nil {
		return &subset{name: name, service: name}
	}
	service, _, _ := strings.Cut(name, "?")
	for _, to := range v.snapshot.table.RoutedTo(service) {
		if p := v.plan(to); p != nil {
			if x := p.find(name); x != nil {
				return x
			}
		}
	}
	return nil
}

// closes returns the cluster without endpoints; nil if nothing leads there.
func (v *view) closes() *snapshot.Resource {
	if slices.Contains(v.All(snapshot.Cluster), closed) {
		return closed
	}
	return nil
}

// subsets returns all clusters that the proxies see, each once.
func (v *view) subsets() map[string]*subset {
	all := map[string]*subset{}
	add := func(upstream string) {
		p := v.plan(upstream)
		if p == nil {
			return
		}
		all[upstream] = &subset{name: upstream, service: upstream}
		for i := range p.clusters {
			all[p.clusters[i].name] = &p.clusters[i]
		}
	}
	if v.audience.all {
		for name := range v.snapshot.services.All() {
			add(name)
		}
		return all
	}
	for name := range v.audience.addresses {
		add(name)
	}
	return all
}

// secret returns a certificate that the proxies may get, or the CA of a service
// that they see.
func (v *view) secret(name string) *snapshot.Resource {
	if of, ok := strings.CutPrefix(name, caPrefix); ok {
		if s, exists := v.snapshot.services.Get(of); exists && v.sees(of) {
			return s.shared.ca()
		}
		return nil
	}
	if !slices.Contains(v.audience.discovery.Certificates, name) {
		return nil
	}
	if c := v.snapshot.certificates[name]; c != nil {
		return c.secret
	}
	return nil
}

// sees reports whether the proxies see any cluster of a service.
func (v *view) sees(service string) bool {
	if v.audience.reaches(service) {
		return true
	}
	for _, to := range v.snapshot.table.RoutedTo(service) {
		if p := v.plan(to); p != nil && slices.ContainsFunc(p.clusters, func(x subset) bool { return x.service == service }) {
			return true
		}
	}
	return false
}
