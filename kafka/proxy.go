package kafka

import (
	"crypto/tls"
	"iter"
	"log/slog"
	"net/netip"
	"time"

	"penstock/kafka/discover"
	"penstock/kafka/filter"
	"penstock/kafka/filter/apiversions"
	"penstock/kafka/filter/authorize"
	"penstock/kafka/filter/brokeraddress"
	"penstock/kafka/filter/multitenant"
	"penstock/kafka/filter/topicmetrics"
	"penstock/kafka/model"
	"penstock/kafka/session"
	"penstock/netio"
	"penstock/routing"
	"penstock/routing/resource"
)

// Types returns the types of filters in this build.
func Types() []filter.Type {
	return []filter.Type{apiversions.Type(), brokeraddress.Type(), multitenant.Type, topicmetrics.Type()}
}

// Kinds returns the kinds of resources that this package adds.
func Kinds() []resource.Kind { return model.Kinds(Types()) }

// Config configures New. Its functions may be called from any goroutine. Route
// calls some of them on loops, so none may block.
type Config struct {
	// Bind is the host of addresses that name none.
	Bind string
	// Hosts resolves host names of brokers. If it is nil, such brokers have no
	// addresses.
	Hosts routing.Hosts
	// Meter returns the counters of connections from a listener to a virtual
	// cluster.
	Meter func(listener, cluster string) *netio.Meter
	// ClientTLS returns the TLS configuration for connections to a broker at
	// host. It verifies the host unless t names another; with "" it verifies
	// what the dialer says.
	ClientTLS func(physicalCluster, host string, t *model.PhysicalTLS) *tls.Config
	// AcceptClient reports whether a virtual cluster accepts a client whose handshake
	// is over. If it is nil, all are accepted.
	AcceptClient func(v *model.Virtual, state *tls.ConnectionState) bool
	// Identify fills in what the node knows of a client: its identity and its tags. If
	// it is nil, clients have none.
	Identify func(c *netio.Conn, client *filter.Client)
	// Permit returns OK if a client may connect to a virtual cluster, otherwise the
	// plan and the reason with which it is closed. If it is nil, all may.
	Permit func(c *netio.Conn, v *model.Virtual) (netio.Plan, netio.Reason)
	// Limiter returns what limits the requests of a client of a virtual cluster. If it is
	// nil, nothing does.
	Limiter func(c *netio.Conn, cluster string, client *filter.Client) Limiter
	// LimitsTopics reports whether limiters may limit the bytes of a virtual cluster's
	// topics. It is called for each request. If it is nil, none does.
	LimitsTopics func(cluster string) bool
	// Denied is told of each denial of a request by a permission, also of those that
	// only count. It is called on loops and must not block. It may be nil.
	Denied func(cluster string, d *authorize.Denial)
	// Connected is told of each connection that a broker has taken, and Exchanged of each
	// Produce and Fetch that has ended. They are called on loops and must not block. They
	// may be nil.
	Connected func(c *netio.Conn, p *Connection)
	Exchanged func(c *netio.Conn, p *Connection, e session.Exchange)
	// HostsChanged is called when the hosts to resolve may have changed.
	HostsChanged func()
	// Loops is the number of event loops; each has counters of its own.
	Loops int
	Log   *slog.Logger
}

// Limiter limits the requests of one client, and the bytes of topics.
type Limiter interface {
	session.Limiter
	filter.TopicLimiter
}

// Proxy is the Kafka part of a node. Calls of Apply must not overlap; all other
// methods may be called from any goroutine.
type Proxy struct {
	cfg            Config
	model          *model.Model
	watches        watches
	upstreams      upstreams
	clusters       clusters
	unmapped       unmappedLog
	permissions    permissions
	brokersChanged chan struct{} // holds one: some brokers have changed
	discoveryWait  time.Duration // maxDiscoveryWait, or what a test sets before the first connection
	resolveWait    time.Duration // maxResolveWait, likewise
	closing        chan struct{} // closed by Close
	done           chan struct{} // closed when handleBrokersChanged has returned
}

// New returns a Proxy without clusters.
func New(cfg Config) *Proxy {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.HostsChanged == nil {
		cfg.HostsChanged = func() {}
	}
	r := &Proxy{
		cfg:           cfg,
		discoveryWait: maxDiscoveryWait,
		resolveWait:   maxResolveWait,
		model:         model.New(model.Config{Bind: cfg.Bind, Types: Types(), Log: cfg.Log}),
		upstreams:     upstreams{hosts: cfg.Hosts, tls: cfg.ClientTLS, meter: cfg.Meter, profiles: map[profileKey]*netio.Profile{}},
	}
	r.clusters.init(cfg.Loops, r.newGuard)
	r.brokersChanged, r.closing, r.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	r.watches = watches{log: cfg.Log, tls: cfg.ClientTLS, m: map[string]watch{}, brokersChanged: func(string) { r.signalBrokersChanged() }}
	go r.handleBrokersChanged()
	return r
}

// newGuard makes the filter of permissions of a virtual cluster.
func (r *Proxy) newGuard(s *stats) *authorize.Filter {
	return authorize.New(authorize.Config{
		Rules: func() *authorize.Rules { return r.permissions.of(s.name) },
		Denied: func(d *authorize.Denial) {
			s.recordDenial(r.cfg.Log, d)
			if r.cfg.Denied != nil {
				r.cfg.Denied(s.name, d)
			}
		},
	})
}

// signalBrokersChanged signals that brokers have changed. It never blocks.
func (r *Proxy) signalBrokersChanged() {
	select {
	case r.brokersChanged <- struct{}{}:
	default:
	}
}

// handleBrokersChanged acts on that signal in a goroutine of its own, since those who
// signal may be loops.
func (r *Proxy) handleBrokersChanged() {
	defer close(r.done)
	for {
		select {
		case <-r.brokersChanged:
			r.cfg.HostsChanged()
			r.logUnmapped(r.Table().Virtuals())
		case <-r.closing:
			return
		}
	}
}

// Close stops discovery. The engine ends the connections.
func (r *Proxy) Close() {
	r.watches.close()
	close(r.closing)
	<-r.done
}

// Table returns the table in force.
func (r *Proxy) Table() *model.Table { return r.model.Table() }

// Apply puts changes in force. Changes of other packages' kinds belong among
// them: listeners and certificates matter here too. ports reports whether Ports
// has changed.
func (r *Proxy) Apply(changes []resource.Change) (ports bool, err error) {
	// First, so that no connection to a new cluster is without its permissions.
	r.permissions.apply(changes)
	done, err := r.model.Apply(changes)
	r.upstreams.dropProfiles()
	touched := map[string]bool{}
	for _, name := range done.Physical {
		touched[name] = true
	}
	for _, name := range done.Virtual {
		if v, ok := done.Table.Virtual(name); ok {
			touched[v.Physical().Name()] = true
		}
	}
	for _, state := range done.Removed {
		if last := state.Last(); last != nil { // nil: it could never be served
			touched[last.Physical().Name()] = true
		}
	}
	for name := range touched {
		p, _ := done.Table.Physical(name)
		if p != nil {
			p.State().OnLearned(r.signalBrokersChanged)
		}
		r.watches.update(name, p, p != nil && done.Table.Discovers(name))
	}
	r.trackUnmapped(done)
	r.drainConnections(done)
	return len(done.Opened)+len(done.Closed) > 0, err
}

// Hosts iterates over the host names to resolve and how often to do so. IP
// addresses are left out; some names come twice.
func (r *Proxy) Hosts() iter.Seq2[string, time.Duration] {
	return func(yield func(string, time.Duration) bool) {
		for p := range r.model.Table().Physicals() {
			for host := range p.Hosts() {
				if _, err := netip.ParseAddr(host); err != nil && !yield(host, resolveEvery) {
					return
				}
			}
		}
	}
}

// resolveEvery is how often the names of brokers are looked up.
const resolveEvery = 10 * time.Second

// DiscoveryStatus returns the state of discovery of a physical cluster; false: its
// brokers are not discovered.
func (r *Proxy) DiscoveryStatus(physical string) (discover.Status, bool) {
	return r.watches.status(physical)
}
