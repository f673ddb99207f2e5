package routing

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/hamt"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// Discovered has the endpoints that providers found; provider.Directory
// implements it.
type Discovered interface {
	// Lookup returns the endpoints of a reference, sorted by address.
	Lookup(ref provider.Ref) []provider.Found
}

const (
	// Announced is the provider of the endpoints that proxies announce by their
	// streams of discovery. No resource can have the name.
	Announced = "_announced"
	// announcedSource is how it is shown.
	announcedSource = "announced"
)

// sources returns the providers that a service uses: those that it names, and
// its connected proxies if they are endpoints.
func sources(s *resource.Service) []resource.EndpointsFrom {
	if s.Discovery == nil || s.Discovery.Announce == nil {
		return s.EndpointsFrom
	}
	return append(slices.Clip(s.EndpointsFrom), resource.EndpointsFrom{Provider: Announced})
}

// sourceName returns how a provider is shown.
func sourceName(provider string) string {
	if provider == Announced {
		return announcedSource
	}
	return provider
}

// RefOf returns what a service's endpointsFrom names.
func RefOf(service string, from *resource.EndpointsFrom) provider.Ref {
	name := from.Service
	if name == "" {
		name = service
	}
	return provider.Ref{Provider: from.Provider, Query: provider.Query{Service: name, Port: from.Port}}
}

// RefsOf returns what a service uses of providers, in the order of its
// endpointsFrom; the endpoints that proxies announce come last.
func RefsOf(service string, s *resource.Service) []provider.Ref {
	if s == nil {
		return nil
	}
	var refs []provider.Ref
	from := sources(s)
	for i := range from {
		refs = append(refs, RefOf(service, &from[i]))
	}
	return refs
}

// Unresolved returns the addresses of the service's endpoints whose host names
// have no IP address. It must not be changed.
func (s *Service) Unresolved() []string { return s.unresolved }

// foundOf yields what providers found for a service, with the provider's name,
// in the order in which an address that several of them report is used. The name
// is "announced" for the endpoints that proxies announce.
func foundOf(name string, s *resource.Service, d Discovered) iter.Seq2[string, *provider.Found] {
	return func(yield func(string, *provider.Found) bool) {
		all := sources(s)
		for i := range all {
			from := &all[i]
			list := d.Lookup(RefOf(name, from))
			for j := range list {
				if hasTags(list[j].Tags, from.Select) && !yield(sourceName(from.Provider), &list[j]) {
					return
				}
			}
		}
	}
}

// Discovered puts the current endpoints of these references in force.
func (r *Router) Discovered(refs []provider.Ref, now time.Time) Applied {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := newCompiler(&r.cfg, r.table.Load(), now)
	for _, ref := range refs {
		for _, name := range indexed(c.usesRef, refKey(ref)) {
			c.markDirty(name)
		}
	}
	done, _ := c.finish() // addresses cannot fail to compile
	r.table.Store(done.Table)
	return done
}

// refKey is the key of a reference in an index. Names have no such separator.
func refKey(ref provider.Ref) string { return ref.Provider + "\x01" + ref.Service + "\x01" + ref.Port }

func refKeys(service string, s *resource.Service) []string {
	var keys []string
	for _, ref := range RefsOf(service, s) {
		keys = append(keys, refKey(ref))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// found collects the endpoints of a service.
type found struct {
	compiler *compiler
	set      []endpoint.Spec
	shares   []share
	hosts    []string // names that are resolved
	// unresolved are the endpoints whose names have no address.
	unresolved []string
	places     map[string]int // address -> its first place in set; nil: no address can be there twice
}

// share is what an endpoint gets: its weight within a level of balance.
type share struct{ weight, level int }

// levelOf returns the level of an endpoint that a service lists.
func levelOf(e *resource.Endpoint) int {
	if e.Backup {
		return balance.Backup + e.Priority
	}
	return e.Priority
}

// endpoints lists a service's endpoints with their weights, and the host names
// among them: those of its own first, then those that its providers found. A
// host name expands to its current addresses, each with the whole weight.
//
// An address of several providers counts once, as the first one has it, and
// takes no connections if any of them says that it is terminating.
func (c *compiler) endpoints(name string, s *resource.Service) *found {
	f := &found{compiler: c, set: make([]endpoint.Spec, 0, len(s.Endpoints)), shares: make([]share, 0, len(s.Endpoints))}
	from := sources(s)
	if len(from) > 1 || len(from) == 1 && len(s.Endpoints) > 0 {
		f.places = map[string]int{}
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		at, _ := parseAddress(e.Address) // putService has checked it
		f.add(endpoint.Spec{Address: e.Address, Tags: e.Tags}, at, share{*e.Weight, levelOf(e)})
	}
	if c.cfg.Discovered != nil {
		for i := range from {
			f.addFrom(&from[i], c.cfg.Discovered.Lookup(RefOf(name, &from[i])))
		}
	}
	slices.Sort(f.hosts)
	f.hosts = slices.Compact(f.hosts)
	return f
}

// add adds an endpoint with all of its addresses.
func (f *found) add(spec endpoint.Spec, at address, sh share) {
	if f.places != nil {
		if _, known := f.places[spec.Address]; !known {
			f.places[spec.Address] = len(f.set)
		}
	}
	if at.host == "" {
		if spec.Unix = at.unix; at.unix == "" {
			spec.Addr = netip.AddrPortFrom(at.addr, at.port)
		}
		f.set, f.shares = append(f.set, spec), append(f.shares, sh)
		return
	}
	f.hosts = append(f.hosts, at.host)
	var addrs []netip.Addr
	if f.compiler.cfg.Hosts != nil {
		addrs, _ = f.compiler.cfg.Hosts.Lookup(at.host)
	}
	if n := len(f.unresolved); len(addrs) == 0 && (n == 0 || f.unresolved[n-1] != spec.Address) {
		f.unresolved = append(f.unresolved, strings.Clone(spec.Address))
	}
	for _, addr := range addrs {
		spec.Addr = netip.AddrPortFrom(addr, at.port)
		f.set, f.shares = append(f.set, spec), append(f.shares, sh)
	}
}

// addFrom adds the endpoints that a provider found. One that takes no new
// connections has no weight: it keeps its connections and its state.
func (f *found) addFrom(from *resource.EndpointsFrom, list []provider.Found) {
	f.set, f.shares = slices.Grow(f.set, len(list)), slices.Grow(f.shares, len(list))
	for i := range list {
		e := &list[i]
		if !hasTags(e.Tags, from.Select) {
			continue
		}
		if place, known := f.places[e.Address]; known {
			if e.State == provider.Terminating {
				f.close(place, e.Address)
			}
			continue
		}
		at := address{addr: e.Addr.Addr(), port: e.Addr.Port()}
		if !e.Addr.IsValid() {
			at, _ = parseAddress(e.Address) // the provider has checked it
		}
		weight := e.Weight
		if e.State != provider.Ready {
			weight = 0
		}
		f.add(endpoint.Spec{Address: e.Address, Tags: withTags(e.Tags, from.Tags)}, at, share{weight, e.Priority})
	}
}

// close takes the weight from an endpoint, all of whose addresses begin at a
// place.
func (f *found) close(place int, address string) {
	for i := place; i < len(f.set) && f.set[i].Address == address; i++ {
		f.shares[i].weight = 0
	}
}

// withTags returns tags with others added, which win.
func withTags(tags, others map[string]string) map[string]string {
	if len(others) == 0 {
		return tags
	}
	all := make(map[string]string, len(tags)+len(others))
	maps.Copy(all, tags)
	maps.Copy(all, others)
	return all
}

// updateSorted is updateIndex for a name whose keys before and after may be
// equal, which is the usual case.
func updateSorted(m *hamt.Edit[[]string], name string, before, after []string) (changed bool) {
	if slices.Equal(before, after) {
		return false
	}
	updateIndex(m, name, before, after)
	return true
}
