package model

import (
	"maps"
	"slices"
	"strconv"
	"sync/atomic"

	"penstock/kafka/filter"
)

// Life is what of a virtual cluster outlives its versions. Who has a
// connection of it keeps the Life, and looks at Current between two requests.
type Life struct {
	name    string
	current atomic.Pointer[Virtual]
	last    atomic.Pointer[Virtual] // as current, and kept when that is gone
	wanted  *VirtualCluster         // what is to be in force; for the compiler alone

	unlisted unlisted
}

// Name is the resource's name.
func (l *Life) Name() string { return l.name }

// Current is the version in force; nil: the cluster was removed.
func (l *Life) Current() *Virtual { return l.current.Load() }

// Last is the version in force, or the last one that was.
func (l *Life) Last() *Virtual { return l.last.Load() }

// Removed tells that the cluster is gone for good: one that comes later under
// its name is another.
func (l *Life) Removed() bool { return l.current.Load() == nil && l.last.Load() != nil }

// Virtual is one version of a virtual cluster. All but its count of users is
// immutable.
type Virtual struct {
	life      *Life
	raw, spec *VirtualCluster
	physical  *Physical
	brokers   []*Broker
	addresses addresses
	chain     []*shared
	compiled  *filter.Chain
	places    []place // where it is led to

	// refs counts the table, as long as it has this version, and whoever has
	// acquired it; at 0 the filters that no other version has are closed.
	refs atomic.Int64
}

// place is where a version stands in a table, to be taken out again.
type place struct{ listener, name, port string }

// Name is the resource's name.
func (v *Virtual) Name() string { return v.life.name }

// Life is what all versions share.
func (v *Virtual) Life() *Life { return v.life }

// Spec is the resource with its defaults filled in. It must not be changed,
// and is the same pointer until the resource is applied again.
func (v *Virtual) Spec() *VirtualCluster { return v.spec }

// Physical is the version of the physical cluster that it was made with.
func (v *Virtual) Physical() *Physical { return v.physical }

// Brokers lists the brokers that can be known without asking the physical
// cluster: those that are listed, or the bootstrap of those that are discovered.
func (v *Virtual) Brokers() []*Broker { return v.brokers }

// Known is Brokers with those that were discovered, by node id, as far as they
// have a name or port here.
func (v *Virtual) Known() []*Broker {
	if !v.Discovered() {
		return v.brokers
	}
	all := slices.Clone(v.brokers)
	for _, n := range slices.Sorted(maps.Keys(v.physical.life.Brokers())) {
		if v.addresses.has(n) {
			all = append(all, v.node(n))
		}
	}
	return all
}

// Discovered tells that its brokers are those that the physical cluster has.
func (v *Virtual) Discovered() bool { return v.raw.Brokers.Discover != nil }

// Broker finds a broker by its name: that of the resource, "bootstrap", or a
// node id. It is how a connection looks whether its broker is still there.
func (v *Virtual) Broker(name string) (*Broker, bool) {
	for _, b := range v.brokers {
		if b.name == name {
			return b, true
		}
	}
	if !v.Discovered() {
		return nil, false
	}
	n, err := strconv.ParseInt(name, 10, 32)
	if err != nil || strconv.FormatInt(n, 10) != name || !v.addresses.has(int32(n)) {
		return nil, false
	}
	return v.node(int32(n)), true
}

// Acquire keeps the filters of this version open until Release. It fails when
// the version is over already: there is a newer one in the table.
func (v *Virtual) Acquire() bool {
	for {
		n := v.refs.Load()
		if n == 0 {
			return false
		}
		if v.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// Release ends an Acquire. The last one closes filters.
func (v *Virtual) Release() {
	if v.refs.Add(-1) > 0 {
		return
	}
	for _, s := range v.chain {
		s.release()
	}
}

// Link is one filter of a chain.
type Link struct {
	Type   string
	Config filter.Config // with its defaults; must not be changed
	Filter filter.Filter
	// Physical tells that it stands with the physical cluster, Implied that
	// it stands nowhere and is there by default.
	Physical, Implied bool
}

// Chain lists the filters in the order in which requests see them. They are
// valid while the version is acquired.
func (v *Virtual) Chain() []Link {
	links := make([]Link, len(v.chain))
	for i, s := range v.chain {
		links[i] = s.Link
	}
	return links
}

// Compiled is the chain as connections run it; the same pointer for versions
// with the same filters. It is valid while the version is acquired.
func (v *Virtual) Compiled() *filter.Chain { return v.compiled }

// hides tells whether brokers without a virtual address are left out.
func (v *Virtual) hides() bool { return v.spec.UnmappedBrokers == "hide" }

// Filters is Chain without what stands around.
func (v *Virtual) Filters() []filter.Filter {
	filters := make([]filter.Filter, len(v.chain))
	for i, s := range v.chain {
		filters[i] = s.Filter
	}
	return filters
}

// Takes tells whether connections that began with the filters of an older
// version may go on with those of this one, from a frame boundary on: they go
// to the same physical cluster, and there are the same types in the same order,
// each of which can take it.
func (v *Virtual) Takes(older *Virtual) bool {
	if v.physical.life != older.physical.life {
		return false
	}
	return slices.EqualFunc(v.chain, older.chain, func(a, b *shared) bool {
		return a == b || a.Type == b.Type && a.Config.Takes(b.Config)
	})
}

// shared is a filter that versions of a virtual cluster share.
type shared struct {
	Link
	config   any // as written; nil: left out
	physical *PhysicalLife
	hide     bool // see hides
	refs     atomic.Int64
}

func (s *shared) release() {
	if s.refs.Add(-1) == 0 {
		s.Filter.Close()
	}
}

// Broker is one virtual broker.
type Broker struct {
	name        string
	node        int32
	listed      *VirtualBroker  // nil: discovered
	physical    *PhysicalBroker // of one that is listed
	certificate string
}

// NoNode is the node id of brokers of which it is not known.
const NoNode int32 = -1

// bootstrapName is the broker for clients that know none yet.
const bootstrapName = "bootstrap"

// Name is the broker's within its cluster: that of the resource, "bootstrap",
// or the node id of one that is discovered.
func (b *Broker) Name() string { return b.name }

// NodeID is the node id of a broker that is discovered; else NoNode.
func (b *Broker) NodeID() int32 { return b.node }

// Bootstrap tells that any broker of the physical cluster will do.
func (b *Broker) Bootstrap() bool { return b.listed == nil && b.node == NoNode }

// Spec is the broker as it is listed; nil: discovered.
func (b *Broker) Spec() *VirtualBroker { return b.listed }

// Certificate names the Certificate that clients are shown; "": none.
func (b *Broker) Certificate() string { return b.certificate }

// node makes the broker of a node id.
func (v *Virtual) node(n int32) *Broker {
	return &Broker{name: strconv.FormatInt(int64(n), 10), node: n, certificate: v.certificate()}
}

// certificate is that of the whole cluster.
func (v *Virtual) certificate() string {
	if v.spec.TLS == nil {
		return ""
	}
	return v.spec.TLS.CertificateRef
}
