package translate

import (
	"maps"
	"reflect"
	"slices"
	"sync"

	"penstock/node/xds/snapshot"
	"penstock/routing"
	"penstock/routing/hamt"
)

// Snapshot implements snapshot.Snapshot.
type Snapshot struct {
	builder         *Builder
	table           *routing.Table
	index           uint64
	services        hamt.Map[*service]
	owners          hamt.Map[[]string]      // identity -> the services that name it, sorted
	certificateUses map[string]int          // Certificate -> services whose proxies may get it
	certificates    map[string]*certificate // those of certificateUses that exist

	views sync.Map // service's name -> *view
}

var _ snapshot.Snapshot = (*Snapshot)(nil)

// Index implements snapshot.Snapshot.
func (s *Snapshot) Index() uint64 { return s.index }

// View implements snapshot.Snapshot.
func (s *Snapshot) View(name string) snapshot.View {
	if v, ok := s.views.Load(name); ok {
		return v.(*view)
	}
	of, ok := s.services.Get(name)
	if !ok || of.audience == nil {
		return nil
	}
	v, _ := s.views.LoadOrStore(name, &view{snapshot: s, name: name, audience: of.audience})
	return v.(*view)
}

// usable implements routing.Usable.
func (s *Snapshot) usable(service string, tags map[string]string) bool {
	of, ok := s.services.Get(service)
	return ok && of.shared.usable(tags)
}

// cluster returns a cluster for an audience.
func (s *Snapshot) cluster(x *subset, a *audience) *snapshot.Resource {
	if x.name == closedCluster {
		return closed
	}
	of, ok := s.services.Get(x.service)
	if !ok {
		return nil
	}
	t := of.shared.spec.TLS
	return of.shared.cluster(x, t != nil && t.CertificateRef != "" && slices.Contains(a.discovery.Certificates, t.CertificateRef))
}

// assignment returns the endpoints of a cluster.
func (s *Snapshot) assignment(x *subset) *snapshot.Resource {
	of, ok := s.services.Get(x.service)
	if !ok {
		return nil
	}
	return of.shared.assignment(x)
}

// plan returns the plan of clients for a destination.
func (s *Snapshot) plan(client routing.Client, to *service) *plan {
	to.mu.Lock()
	p := to.plans[client]
	to.mu.Unlock()
	if p != nil {
		return p
	}
	made := s.makePlan(client, to)
	to.mu.Lock()
	defer to.mu.Unlock()
	if p := to.plans[client]; p != nil {
		return p // another goroutine was first
	}
	if to.plans == nil {
		to.plans = map[routing.Client]*plan{}
	}
	to.plans[client] = made
	return made
}

// Changed implements snapshot.Snapshot. It compares what was asked for of the
// earlier snapshot: nobody can have anything else of it.
func (s *Snapshot) Changed(since snapshot.Snapshot, t snapshot.Type) (names []string, ok bool) {
	old, ok := since.(*Snapshot)
	if !ok || old.builder != s.builder {
		return nil, false
	}
	d := &difference{old: old, new: s, kind: t, names: map[string]bool{}}
	for name := range s.services.Changed(old.services, func(a, b *service) bool { return a == b }) {
		before, existed := old.services.Get(name)
		after, exists := s.services.Get(name)
		switch {
		case existed && exists:
			if before.audience != after.audience && !sameAudience(before, after) {
				return nil, false
			}
			d.compare(before, after)
		case existed:
			d.addAll(before)
		default:
			d.addAll(after)
		}
	}
	if t == snapshot.Secret {
		d.compareCertificates()
	}
	return slices.Sorted(maps.Keys(d.names)), true
}

// sameAudience reports whether proxies of both versions see the same services
// and certificates in the same way. A version without discovery has no proxies.
func sameAudience(before, after *service) bool {
	if before.audience == nil || after.audience == nil {
		return true
	}
	return before.shared.spec.Protocol == after.shared.spec.Protocol &&
		reflect.DeepEqual(before.audience.discovery, after.audience.discovery)
}

// difference collects the names of resources of a kind that differ.
type difference struct {
	old, new *Snapshot
	kind     snapshot.Type
	names    map[string]bool
}

// addAll adds the names of all resources of a service that only one side has.
func (d *difference) addAll(s *service) {
	name := s.Name()
	switch d.kind {
	case snapshot.Listener:
		d.names[listenerName(name)] = true
		d.names[name] = true
	case snapshot.Secret:
		d.names[caName(name)] = true
	default:
		d.names[name] = true
	}
	for k := range s.shared.allMade() {
		if k.kind == d.kind {
			d.names[k.name] = true
		}
	}
	d.addPlans(s)
}

// samePlansBy reports whether the plans of two versions are those of the same
// groups of clients.
func samePlansBy(a, b *service) bool {
	service, protocol := a.PlansBy()
	otherService, otherProtocol := b.PlansBy()
	return service == otherService && protocol == otherProtocol
}

// addPlans adds whatever a plan for a destination may lead to.
func (d *difference) addPlans(to *service) {
	name := to.Name()
	switch d.kind {
	case snapshot.Listener:
		d.names[listenerName(name)] = true
	case snapshot.Route:
		d.names[name] = true
	case snapshot.Cluster:
		d.names[closedCluster] = true
		fallthrough
	case snapshot.Endpoint:
		for service, tags := range to.Backends() {
			d.names[clusterName(service, tags)] = true
		}
	case snapshot.Secret:
		for service := range to.Backends() {
			d.names[caName(service)] = true
		}
	}
}

// compare adds what differs between two versions of a service.
func (d *difference) compare(before, after *service) {
	if before.shared != after.shared {
		for k, m := range before.shared.allMade() {
			if k.kind == d.kind && !sameResource(m.resource, after.shared.resource(k, &m.of)) {
				d.names[k.name] = true
			}
		}
	}
	if !samePlansBy(before, after) {
		d.addPlans(before)
		d.addPlans(after)
		return
	}
	for client, p := range before.allPlans() {
		next := d.new.plan(client, after)
		if p == next {
			continue
		}
		switch d.kind {
		case snapshot.Cluster, snapshot.Endpoint, snapshot.Secret:
			d.addClusters(p, next)
		case snapshot.Listener:
			for address, r := range p.allListeners() {
				if !sameResource(r, next.listener(address)) {
					d.names[listenerName(before.Name())] = true
				}
			}
		case snapshot.Route:
			if !sameResource(p.routes(), next.routes()) {
				d.names[before.Name()] = true
			}
		}
	}
}

// addClusters adds the clusters, with their endpoints or CAs, that only one of
// two plans has.
func (d *difference) addClusters(a, b *plan) {
	only := func(p, q *plan) {
		for i := range p.clusters {
			x := &p.clusters[i]
			switch {
			case x.name == p.to: // seen in any case
			case x.name == closedCluster && d.kind != snapshot.Cluster:
			case q.find(x.name) != nil:
			case d.kind == snapshot.Secret:
				d.names[caName(x.service)] = true
			default:
				d.names[x.name] = true
			}
		}
	}
	only(a, b)
	only(b, a)
}

func (d *difference) compareCertificates() {
	for name, c := range d.old.certificates {
		if after := d.new.certificates[name]; after == nil || !sameResource(c.secret, after.secret) {
			d.names[name] = true
		}
	}
	for name := range d.new.certificates {
		if d.old.certificates[name] == nil {
			d.names[name] = true
		}
	}
}

func sameResource(a, b *snapshot.Resource) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Version == b.Version
}
