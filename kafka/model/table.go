package model

import (
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"

	"penstock/kafka/filter"
	"penstock/routing/hamt"
	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// Config configures New.
type Config struct {
	// Bind is the host of addresses that have none: the node's --bind.
	Bind string
	// Types are the filters that there are.
	Types []filter.Type
	// Defaults names those that each virtual cluster has without naming them,
	// in this order, before all others; one that either cluster names is not
	// added. Nil: ApiVersions and BrokerAddress.
	Defaults []string
	// Log is handed to filters; nil: nowhere.
	Log *slog.Logger
}

// Model holds the Table in force. Readers need no lock; changes must not
// overlap.
type Model struct {
	cfg   Config
	types *filterTypes
	table atomic.Pointer[Table]
	mu    sync.Mutex // held by whoever makes the next table
}

// New makes a model with an empty table.
func New(cfg Config) *Model {
	if cfg.Defaults == nil {
		cfg.Defaults = []string{"ApiVersions", brokerAddress}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	m := &Model{cfg: cfg, types: newTypes(cfg.Types)}
	m.table.Store(&Table{})
	return m
}

// Table returns the table in force.
func (m *Model) Table() *Table { return m.table.Load() }

// Table is one version of everything that routes connections. It is immutable,
// and shares with the version before what has not changed.
type Table struct {
	listeners hamt.Map[*listener]
	ports     hamt.Map[*port] // by name
	virtual   hamt.Map[*Virtual]
	physical  hamt.Map[*Physical]
	states    hamt.Map[*VirtualState] // of virtual clusters, those that cannot be served included

	// users leads from a listener or a physical cluster to virtual clusters, and
	// by discovers to those that have the brokers of a physical one discovered.
	users hamt.Groups[struct{}]
}

const discoveryUse = "discovers"

// Virtual returns a virtual cluster.
func (t *Table) Virtual(name string) (*Virtual, bool) { return t.virtual.Get(name) }

// Virtuals iterates over the virtual clusters, in no order.
func (t *Table) Virtuals() iter.Seq[*Virtual] { return values(&t.virtual) }

// Physical returns a physical cluster.
func (t *Table) Physical(name string) (*Physical, bool) { return t.physical.Get(name) }

// Physicals iterates over the physical clusters, in no order.
func (t *Table) Physicals() iter.Seq[*Physical] { return values(&t.physical) }

// Discovers reports whether a physical cluster has a virtual one with
// discovered brokers.
func (t *Table) Discovers(physical string) bool {
	group := t.users.Group(userOf(discoveryUse, physical))
	for name := range group.All() {
		if _, ok := t.virtual.Get(name); ok {
			return true
		}
	}
	return false
}

// Port is a port that a virtual cluster opens itself, without a Listener.
type Port struct {
	// Name is its listener's: "virtualcluster/NAME:9193".
	Name string
	// Address is where to listen, host:port.
	Address string
	// TLS tells that clients speak TLS there.
	TLS bool
	// Cluster is the virtual cluster's name.
	Cluster string
}

// Listeners iterates over the ports to open besides those of Listener
// resources, in no order.
func (t *Table) Listeners() iter.Seq[Port] {
	return func(yield func(Port) bool) {
		for _, p := range t.ports.All() {
			if !yield(p.Port) {
				return
			}
		}
	}
}

// port is a port with where it leads.
type port struct {
	Port
	entry
}

// listener is one version of a kafka listener.
type listener struct {
	name     string
	spec     *resource.Listener
	plain    *entry                   // whose it is, without TLS
	names    hostname.Matcher[*entry] // exact names and wildcards
	numbered hamt.Map[*entry]         // by pattern
}

// entry is where a name or port leads.
type entry struct {
	cluster *Virtual
	broker  *Broker // nil: that of a number
}

func values[V any](m *hamt.Map[V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range m.All() {
			if !yield(v) {
				return
			}
		}
	}
}

func userOf(kind, name string) string { return kind + "/" + name }
