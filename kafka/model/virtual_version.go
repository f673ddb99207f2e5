package model

import (
	"maps"
	"slices"
	"strconv"
	"sync/atomic"

	"penstock/kafka/filter"
)

// VirtualState is the state of a virtual cluster that outlives its versions. A
// connection keeps it, and checks Current between two requests.
type VirtualState struct {
	name    string
	current atomic.Pointer[Virtual]
	last    atomic.Pointer[Virtual] // as current, and kept when that is gone
	desired *VirtualCluster         // what is to be in force; for the compiler alone

	unlisted unlisted
}

// Name returns the name of the resource.
func (l *VirtualState) Name() string { return l.name }

// Current returns the version in force, or nil if the cluster was removed.
func (l *VirtualState) Current() *Virtual { return l.current.Load() }

// Last returns the version in force, or the last one that was.
func (l *VirtualState) Last() *Virtual { return l.last.Load() }

// Removed reports whether the cluster was removed. A later one of the same name
// has a state of its own.
func (l *VirtualState) Removed() bool { return l.current.Load() == nil && l.last.Load() != nil }

// Virtual is one version of a virtual cluster. It is immutable but for the
// count of its users.
type Virtual struct {
	state     *VirtualState
	raw, spec *VirtualCluster
	physical  *Physical
	brokers   []*Broker
	addresses addresses
	chain     []*sharedFilter
	compiled  *filter.Chain
	bindings  []binding // where it is led to

	// refs counts the table, as long as it has this version, and whoever has
	// acquired it; at 0 the filters that no other version has are closed.
	refs atomic.Int64
}

// binding is where a version stands in a table, so that it can be removed.
type binding struct{ listener, name, port string }

// Name returns the name of the resource.
func (v *Virtual) Name() string { return v.state.name }

// State returns the state that all versions share.
func (v *Virtual) State() *VirtualState { return v.state }

// Spec returns the resource with defaults filled in. It must not be changed,
// and is the same pointer until the resource is applied again.
func (v *Virtual) Spec() *VirtualCluster { return v.spec }

// Physical returns the version of the physical cluster that it was compiled
// with.
func (v *Virtual) Physical() *Physical { return v.physical }

// Brokers lists the brokers that are known without discovery: the listed ones,
// or the bootstrap.
func (v *Virtual) Brokers() []*Broker { return v.brokers }

// Known lists Brokers and the discovered ones that have a name or port here,
// sorted by node id.
func (v *Virtual) Known() []*Broker {
	if !v.Discovered() {
		return v.brokers
	}
	all := slices.Clone(v.brokers)
	for _, n := range slices.Sorted(maps.Keys(v.physical.state.Brokers())) {
		if v.addresses.has(n) {
			all = append(all, v.node(n))
		}
	}
	return all
}

// Discovered reports whether its brokers are discovered rather than listed.
func (v *Virtual) Discovered() bool { return v.raw.Brokers.Discover != nil }

// Broker finds a broker by name: that of the resource, "bootstrap", or a node
// id. A connection uses it to check that its broker still exists.
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

// Acquire keeps the filters of this version open until Release. It returns
// false if a newer version has replaced this one and it is over.
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

// Release ends an Acquire. The last one closes the filters.
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

// Compiled returns the chain that connections run. Versions with the same
// filters have the same one. It is valid while the version is acquired.
func (v *Virtual) Compiled() *filter.Chain { return v.compiled }

// hides reports whether brokers without a virtual address are left out.
func (v *Virtual) hides() bool { return v.spec.UnmappedBrokers == "hide" }

// Filters returns the filters of Chain.
func (v *Virtual) Filters() []filter.Filter {
	filters := make([]filter.Filter, len(v.chain))
	for i, s := range v.chain {
		filters[i] = s.Filter
	}
	return filters
}

// Accepts reports whether connections that began with an older version may go on
// with the filters of this one, from a request on: the physical cluster is the
// same, and so are the types of filters and their order, and each filter
// accepts the change.
func (v *Virtual) Accepts(older *Virtual) bool {
	if v.physical.state != older.physical.state {
		return false
	}
	return slices.EqualFunc(v.chain, older.chain, func(a, b *sharedFilter) bool {
		return a == b || a.Type == b.Type && a.Config.Accepts(b.Config)
	})
}

// sharedFilter is a filter that versions of a virtual cluster share.
type sharedFilter struct {
	Link
	config   any // as written; nil: left out
	physical *PhysicalState
	hide     bool // see hides
	refs     atomic.Int64
}

func (s *sharedFilter) release() {
	if s.refs.Add(-1) == 0 {
		s.Filter.Close()
	}
}

// Broker is a virtual broker.
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

// Name returns the name of the broker in its cluster: that of the resource,
// "bootstrap", or the node id of a discovered one.
func (b *Broker) Name() string { return b.name }

// NodeID returns the node id of a discovered broker, or NoNode.
func (b *Broker) NodeID() int32 { return b.node }

// Bootstrap reports whether any broker of the physical cluster will do.
func (b *Broker) Bootstrap() bool { return b.listed == nil && b.node == NoNode }

// Spec returns the listed broker, or nil if it is discovered.
func (b *Broker) Spec() *VirtualBroker { return b.listed }

// Certificate names the Certificate that clients are shown, or "".
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
