// Package translate makes what the discovery server serves from the routing
// table: clusters, their endpoints, the listeners and routes of each service's
// proxies, and secrets. It is pure: the same resources give the same snapshot on
// every node, whatever came before.
//
//	b := translate.New(translate.Config{TrustDomain: clusterID, Discovered: directory, ...})
//	snap := b.Update(router.Table(), index) // after each change
//	view := snap.View("web")
//
// What depends on one service alone, such as its cluster and its endpoints, is
// made once for all proxies that see it, at the first request, and kept until the
// service changes. So is the plan of a destination (routing.Plan) with the
// listener and the routes that follow from it: proxies of services that no route
// distinguishes share it.
package translate

import (
	"iter"
	"maps"

	"penstock/node/xds/snapshot"
	"penstock/routing"
	"penstock/routing/hamt"
	"penstock/routing/resource"
)

// Config configures New. Its functions are called by Update alone.
type Config struct {
	// TrustDomain is that of the SPIFFE IDs that services without identities have:
	// the cluster's ID.
	TrustDomain string
	// Discovered has the endpoints of providers. Nil: there are none.
	Discovered routing.Discovered
	// Local reports whether a provider is of scope node: what it finds differs from
	// node to node and is not served. Nil: none is.
	Local func(provider string) bool
	// Certificate returns a Certificate with its private key; nil if there is none,
	// or if this node cannot open it. While the content is the same, so is the
	// pointer. Nil: there are no certificates.
	Certificate func(name string) *resource.Certificate
}

// Builder makes one snapshot after the other. It belongs to one goroutine.
type Builder struct {
	cfg  Config
	last *Snapshot
}

// New returns a builder.
func New(cfg Config) *Builder {
	if cfg.Local == nil {
		cfg.Local = func(string) bool { return false }
	}
	if cfg.Certificate == nil {
		cfg.Certificate = func(string) *resource.Certificate { return nil }
	}
	b := &Builder{cfg: cfg}
	b.last = &Snapshot{builder: b, table: new(routing.Table)}
	return b
}

// Update returns the snapshot of a table, which belongs to an index of the store.
// The cost is that of the difference from the last table: the services that
// changed, and those with a route to them.
func (b *Builder) Update(t *routing.Table, index uint64) snapshot.Snapshot {
	old := b.last
	services, owners := old.services.Edit(), old.owners.Edit()
	uses := maps.Clone(old.certificateUses)
	if uses == nil {
		uses = map[string]int{}
	}
	var changed []*service
	for name := range t.ChangedServices(old.table) {
		before, _ := services.Get(name)
		var after *service
		if s, ok := t.Service(name); ok {
			after = b.service(name, s, before)
			services.Set(name, after)
			changed = append(changed, after)
		} else {
			services.Delete(name)
		}
		updateOwners(owners, name, b.identities(name, before), b.identities(name, after))
		countCertificates(uses, before, -1)
		countCertificates(uses, after, 1)
	}
	next := &Snapshot{
		builder: b, table: t, index: index,
		services: services.Map(), owners: owners.Map(), certificateUses: uses,
		certificates: b.certificates(old, maps.Keys(uses)),
	}
	for _, s := range changed {
		if before, ok := old.services.Get(s.Name()); ok {
			next.keepPlans(s, before)
		}
	}
	b.last = next
	return next
}

// service returns the next version of a service. It keeps what does not change.
func (b *Builder) service(name string, s *routing.Service, before *service) *service {
	next := &service{Service: s, shared: newShared(name, s.Spec(), s.Known(b.cfg.Discovered, b.cfg.Local))}
	if before != nil && before.shared.same(next.shared) {
		next.shared = before.shared
	}
	switch d := s.Spec().Discovery; {
	case d == nil:
	case before != nil && before.audience != nil && before.audience.discovery == d:
		next.audience = before.audience
	default:
		next.audience = newAudience(d)
	}
	return next
}

// keepPlans takes over the plans of the version before as far as they are still
// right, and makes the others again. If the routes distinguish other clients than
// before, none are kept.
func (s *Snapshot) keepPlans(of, before *service) {
	if !samePlansBy(before, of) {
		return
	}
	plans := before.allPlans()
	of.plans = make(map[routing.Client]*plan, len(plans))
	for client, p := range plans {
		if _, exists := s.services.Get(client.Service); !exists && client.Service != "" {
			continue
		}
		if next := s.makePlan(client, of); !next.same(p) {
			p = next
		}
		of.plans[client] = p
	}
}

// countCertificates adds n to the uses of the certificates that the proxies of a
// service may get.
func countCertificates(uses map[string]int, s *service, n int) {
	if s == nil || s.audience == nil {
		return
	}
	for _, name := range s.audience.discovery.Certificates {
		if uses[name] += n; uses[name] == 0 {
			delete(uses, name)
		}
	}
}

// certificates returns the secrets of the certificates that are in use.
func (b *Builder) certificates(old *Snapshot, names iter.Seq[string]) map[string]*certificate {
	all := map[string]*certificate{}
	for name := range names {
		from := b.cfg.Certificate(name)
		if from == nil {
			continue
		}
		if before := old.certificates[name]; before != nil && before.from == from {
			all[name] = before
			continue
		}
		all[name] = &certificate{from: from, secret: encode(snapshot.Secret, name, certificateSecret(name, from))}
	}
	return all
}

// certificate is a Certificate as a secret.
type certificate struct {
	from   *resource.Certificate
	secret *snapshot.Resource
}

// indexed returns the names under a key.
func indexed(m *hamt.Edit[[]string], key string) []string {
	names, _ := m.Get(key)
	return names
}
