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
	"penstock/kafka/filter/brokeraddress"
	"penstock/kafka/filter/multitenant"
	"penstock/kafka/filter/topicmetrics"
	"penstock/kafka/model"
	"penstock/netio"
	"penstock/routing"
	"penstock/routing/resource"
)

// Types are the filters that this build has.
func Types() []filter.Type {
	return []filter.Type{apiversions.Type(), brokeraddress.Type(), multitenant.Type, topicmetrics.Type()}
}

// Kinds are the kinds of resources that this room adds.
func Kinds() []resource.Kind { return model.Kinds(Types()) }

// Config is for New. The functions may be called from anywhere, those that a
// Route needs from the loops: they must not block.
type Config struct {
	// Bind is the host of addresses that have none.
	Bind string
	// Hosts resolves brokers given by name; nil: those have no addresses.
	Hosts routing.Hosts
	// Meter counts the connections from a listener to a virtual cluster.
	Meter func(listener, cluster string) *netio.Meter
	// ClientTLS is TLS towards a broker at a host. It verifies the host
	// unless t says another name; "": whatever the dialer says.
	ClientTLS func(physicalCluster, host string, t *model.PhysicalTLS) *tls.Config
	// LetsIn tells whether a client that has done its handshake is one that
	// the virtual cluster lets in; nil: all of them.
	LetsIn func(v *model.Virtual, state *tls.ConnectionState) bool
	// Follow tells that the hosts to resolve may be others than before.
	Follow func()
	// Loops is the number of the engine's loops, for counters.
	Loops int
	Log   *slog.Logger
}

// Proxy is Kafka's part of a node. Apply comes one at a time; everything else
// may be called from anywhere.
type Proxy struct {
	cfg       Config
	model     *model.Model
	watches   watches
	upstreams upstreams
	clusters  clusters
	unplaced  unplaced
	moved     chan struct{} // holds one: some brokers are others than before
	lookups   time.Duration // maxSearch, or what a test sets before the first connection
	lookup    time.Duration // maxLookup, likewise
	over      chan struct{} // closed by Close
	done      chan struct{} // closed when nobody listens to moved any more
}

// New makes a room with no clusters.
func New(cfg Config) *Proxy {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Follow == nil {
		cfg.Follow = func() {}
	}
	r := &Proxy{
		cfg:       cfg,
		lookups:   maxSearch,
		lookup:    maxLookup,
		model:     model.New(model.Config{Bind: cfg.Bind, Types: Types(), Log: cfg.Log}),
		upstreams: upstreams{hosts: cfg.Hosts, tls: cfg.ClientTLS, meter: cfg.Meter, profiles: map[profileKey]*netio.Profile{}},
	}
	r.clusters.init(cfg.Loops)
	r.moved, r.over, r.done = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	r.watches = watches{log: cfg.Log, tls: cfg.ClientTLS, m: map[string]watch{}, moved: func(string) { r.note() }}
	go r.tell()
	return r
}

// note notes that brokers are others than before; it never waits.
func (r *Proxy) note() {
	select {
	case r.moved <- struct{}{}:
	default:
	}
}

// tell tells of it, apart from those who find out: these may be loops.
func (r *Proxy) tell() {
	defer close(r.done)
	for {
		select {
		case <-r.moved:
			r.cfg.Follow()
			r.logUnplaced(r.Table().Virtuals())
		case <-r.over:
			return
		}
	}
}

// Close ends what runs: the looks at physical clusters. Connections are the
// engine's to end.
func (r *Proxy) Close() {
	r.watches.close()
	close(r.over)
	<-r.done
}

// Table is the one in force.
func (r *Proxy) Table() *model.Table { return r.model.Table() }

// Apply puts changes in force, those of other rooms' kinds included: which
// listeners are kafka's, and which certificates are other ones, is to be known
// here too. It tells whether Ports are others than before.
func (r *Proxy) Apply(changes []resource.Change) (ports bool, err error) {
	done, err := r.model.Apply(changes)
	r.upstreams.forget()
	touched := map[string]bool{}
	for _, name := range done.Physical {
		touched[name] = true
	}
	for _, name := range done.Virtual {
		if v, ok := done.Table.Virtual(name); ok {
			touched[v.Physical().Name()] = true
		}
	}
	for _, life := range done.Removed {
		if last := life.Last(); last != nil { // nil: it could never be served
			touched[last.Physical().Name()] = true
		}
	}
	for name := range touched {
		p, _ := done.Table.Physical(name)
		if p != nil {
			p.Life().OnMeet(r.note)
		}
		r.watches.follow(name, p, p != nil && done.Table.Discovers(name))
	}
	r.noteUnplaced(done)
	r.drainConnections(done)
	return len(done.Opened)+len(done.Closed) > 0, err
}

// Hosts iterates over the host names to resolve, with how often; IP addresses
// are not among them, some names are twice.
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

// Watched tells how the looking at the brokers of a physical cluster goes;
// false: nobody needs to look.
func (r *Proxy) Watched(physical string) (discover.Status, bool) { return r.watches.status(physical) }
