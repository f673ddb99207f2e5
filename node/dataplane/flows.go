package dataplane

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	kafkasession "penstock/kafka/session"
	"penstock/mysql/session"
	"penstock/netio"
	"penstock/routing"
	"penstock/routing/hamt"
)

// reasons lists all reasons for which a connection can end. The index of a reason
// is its index in Flow.ended.
var reasons = slices.Concat([]netio.Reason{
	netio.ClientFIN, netio.UpstreamFIN, netio.ClientReset, netio.UpstreamReset,
	netio.ConnectRefused, netio.ConnectTimeout, netio.ConnectError, netio.UpstreamTLS,
	netio.IdleTimeout, netio.HalfClosedTimeout, netio.MaxAge,
	netio.BadProxyHeader, netio.ProxyTimeout,
	netio.BadHello, netio.HelloTooLong, netio.HelloTimeout,
	netio.HandshakeFailed, netio.HandshakeNoCertificate, netio.HandshakeBadCertificate,
	netio.HandshakeRefused, netio.HandshakeTimeout, netio.ClientGone,
	netio.LimitConnections, netio.LimitPerSource, netio.LimitRate,
	netio.LimitMemory, netio.LimitHandshakes, netio.LimitFiles, netio.LimitPorts,
	RateLimited, netio.Drained, netio.Shutdown, netio.ClosedByOperator, netio.EndpointRemoved,
	netio.IdentityRevoked, netio.PermissionDenied, netio.PermissionRevoked, netio.Internal,
	netio.MeshBadHeader, netio.MeshHeaderTimeout, netio.MeshHeaderTooLong, MeshUnavailable, netio.TLSRequired,
	netio.Reason(routing.NoListener), netio.Reason(routing.NoServerName), netio.Reason(routing.BadServerName),
	netio.Reason(routing.NoCertificate), netio.Reason(routing.NoRoute), netio.Reason(routing.NoBackend),
	netio.Reason(routing.OriginateConflict),
	netio.Reason(routing.NoEndpoint), netio.Reason(routing.NoHealthyEndpoint), netio.Reason(routing.RetriesExhausted),
	netio.Reason(routing.Overflow), netio.Reason(routing.QueueTimeout),
}, kafkasession.Reasons, session.Reasons)

// maxReasons is the size of the arrays of counters, at least the number of reasons.
const maxReasons = 80

// reasonIndex maps each reason to its index in reasons.
var reasonIndex = func() map[netio.Reason]int {
	m := make(map[netio.Reason]int, len(reasons))
	for i, r := range reasons {
		m[r] = i
	}
	return m
}()

// Flow holds the counters of the traffic from one listener to one service. It
// survives changes of both. Loops update it without locks.
type Flow struct {
	listener, service string // service is "" for connections that reached none
	meter             *netio.Meter
	connectDuration   prometheus.Observer // of the service: time until an endpoint accepted a connection
	ended             [maxReasons]atomic.Uint64
	requests          requestCounts       // HTTP requests that were routed individually
	once              sync.Once           // sets requestDuration
	requestDuration   prometheus.Observer // duration of requests, of the service
	// path has the connection settings of the version of the service that was
	// used last.
	path atomic.Pointer[path]
}

// Listener returns the name of the listener.
func (f *Flow) Listener() string { return f.listener }

// Service returns the name of the service; "" for connections that reached none.
func (f *Flow) Service() string { return f.service }

// Counts returns the counters of connections that have a service.
func (f *Flow) Counts() netio.Counts { return f.meter.Counts() }

// Ended yields the number of ended connections by reason, without reasons that
// have none.
func (f *Flow) Ended() iter.Seq2[netio.Reason, uint64] {
	return func(yield func(netio.Reason, uint64) bool) {
		for i := range reasons {
			if v := f.ended[i].Load(); v > 0 && !yield(reasons[i], v) {
				return
			}
		}
	}
}

// end counts the end of a connection.
func (f *Flow) end(why netio.Reason) {
	if i, ok := reasonIndex[why]; ok { // always: TestEveryReasonIsCounted
		f.ended[i].Add(1)
	}
}

// flows holds the flows since start whose listener and service still exist, or
// that still have connections. The first connection makes its flow, so the
// configuration bounds their number; clients cannot raise it.
type flows struct {
	loops           int
	connectDuration *prometheus.HistogramVec // by service
	requestDuration *prometheus.HistogramVec // requests, by service

	m  atomic.Pointer[hamt.Map[*listenerFlows]]
	mu sync.Mutex // held to change m or the map of a listener
}

// listenerFlows holds the flows of one listener, by service.
type listenerFlows struct {
	m atomic.Pointer[hamt.Map[*Flow]]
}

func newFlows(loops int) *flows {
	fs := &flows{loops: loops, connectDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "penstock_connect_duration_seconds",
		Help:    "Time to connect to the endpoint that accepted the connection, including TLS.",
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"service"}), requestDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "penstock_http_request_duration_seconds",
		Help:    "Time from a request's header to the end of its response.",
		Buckets: requestBuckets,
	}, []string{"service"})}
	fs.m.Store(new(hamt.Map[*listenerFlows]))
	return fs
}

// get returns the flow of a listener and a service, and makes it if necessary.
func (fs *flows) get(listener, service string) *Flow {
	if lf, ok := fs.m.Load().Get(listener); ok {
		if f, ok := lf.m.Load().Get(service); ok {
			return f
		}
	}
	return fs.add(listener, service)
}

func (fs *flows) add(listener, service string) *Flow {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	lf, ok := fs.m.Load().Get(listener)
	if !ok {
		lf = new(listenerFlows)
		lf.m.Store(new(hamt.Map[*Flow]))
		edit := fs.m.Load().Edit()
		edit.Set(listener, lf)
		next := edit.Map()
		fs.m.Store(&next)
	}
	f, ok := lf.m.Load().Get(service)
	if ok {
		return f
	}
	f = &Flow{listener: listener, service: service, meter: netio.NewMeter(listener, service, fs.loops)}
	if service != "" {
		f.connectDuration = fs.connectDuration.WithLabelValues(service)
	}
	edit := lf.m.Load().Edit()
	edit.Set(service, f)
	next := edit.Map()
	lf.m.Store(&next)
	return f
}

// all returns the flows, sorted by listener and service.
func (fs *flows) all() []*Flow {
	var list []*Flow
	for _, lf := range fs.m.Load().All() {
		for _, f := range lf.m.Load().All() {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b *Flow) int {
		return cmp.Or(cmp.Compare(a.listener, b.listener), cmp.Compare(a.service, b.service))
	})
	return list
}

// prune removes flows whose listener or service is gone: their series would stay
// for ever. It reports whether some must wait for their connections to end.
func (fs *flows) prune(listenerExists, serviceExists func(name string) bool) (again bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	outer := fs.m.Load().Edit()
	gone := map[string]bool{} // services; false: a remaining flow still uses its series
	for listener, lf := range fs.m.Load().All() {
		inner := lf.m.Load().Edit()
		left := 0
		for service, f := range lf.m.Load().All() {
			switch {
			case listenerExists(listener) && (service == "" || serviceExists(service)):
				left++
			case f.meter.Counts().Active > 0 || f.requests.active.Load() > 0:
				left++
				again = true
				gone[service] = false
			default:
				inner.Delete(service)
				if _, counts := gone[service]; !counts && !serviceExists(service) {
					gone[service] = true
				}
			}
		}
		next := inner.Map()
		lf.m.Store(&next)
		if left == 0 {
			outer.Delete(listener)
		}
	}
	next := outer.Map()
	fs.m.Store(&next)
	for service, is := range gone {
		if is {
			fs.connectDuration.DeleteLabelValues(service)
			fs.requestDuration.DeleteLabelValues(service)
		}
	}
	return again
}
