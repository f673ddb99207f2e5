package node

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"penstock/node/dataplane"
	"penstock/node/kinds"
	"penstock/routing/endpoint"
)

// desc describes a metric.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("penstock_"+name, help, labels, nil)
}

// The metrics that are read off the rooms at each scrape. Labels are names
// from the configuration and words from fixed lists, nothing that clients say.
var (
	mConnectionsTotal = desc("connections_total", "Connections that ended, by how (docs/reasons.md); service is empty where none was found.", "listener", "service", "result")
	mConnections      = desc("connections", "Connections with a service now.", "listener", "service")
	mRoutedTotal      = desc("routed_connections_total", "Connections that were sent to a service.", "listener", "service")
	mBytesTotal       = desc("bytes_total", "Bytes relayed: in from clients, out from endpoints.", "listener", "service", "direction")

	mAccepted      = desc("accepted_connections", "Connections accepted and not ended, those without a service included.")
	mLoop          = desc("loop_connections", "The same, on each event loop.", "loop")
	mPending       = desc("pending_bytes", "Bytes that the kernel has not taken yet.")
	mBudget        = desc("memory_budget_bytes", "Memory budget for connections that are not relayed yet, Kafka frames and headers of HTTP requests.")
	mBudgetUsed    = desc("memory_budget_used_bytes", "What of it is in use.")
	mEvictions     = desc("evictions_total", "Connections and requests that were ended to make room for others (docs/settings.md#shares): budget is memory, handshakes or requests.", "budget", "listener")
	mHandshakes    = desc("handshakes", "TLS handshakes under way.")
	mRefusedTotal  = desc("refused_connections_total", "Connections that a limit turned away.", "reason")
	mRestsTotal    = desc("accept_rests_total", "Times that accepting rested for want of descriptors or memory.")
	mListenerUp    = desc("listener_up", "1 where the listener listens, 0 where its address cannot be bound.", "listener")
	mHealthy       = desc("endpoint_healthy", "1 where the endpoint is healthy or not checked, 0 where it is unhealthy.", "service", "endpoint")
	mEjected       = desc("endpoint_ejected", "1 where the endpoint is ejected.", "service", "endpoint")
	mEndpointState = desc("endpoint_state", "1 for the state that the endpoint is in.", "service", "endpoint", "state")
	mEndpointConns = desc("endpoint_connections", "Connections at the endpoint, those being established included.", "service", "endpoint")

	mPorts     = desc("source_ports", "Local ports that there are for connections to one endpoint address of the service.", "service")
	mPortsUsed = desc("source_ports_used", "Those of them in use towards the address that has most; without TIME_WAIT.", "service")
	mTimeWait  = desc("time_wait_connections", "Connections of the network namespace in TIME_WAIT, wherever they led.")

	mResources    = desc("resources", "Resources in force.", "kind")
	mIndex        = desc("configuration_index", "Index of the change that was last brought to act.")
	mReady        = desc("ready", "1 where the node should get traffic.")
	mState        = desc("state", "1 for the phase that the node is in.", "state")
	mAccessLost   = desc("access_log_dropped_total", "Lines of the access log that were not written.")
	mBuild        = desc("build_info", "1, with the version of the build.", "version")
	mStartSeconds = desc("start_time_seconds", "When the node started, in seconds since 1970.")
)

// collector reads the rooms at each scrape: nothing is counted twice, and the
// data path pays for nothing that it would not count anyway.
type collector struct{ n *Node }

// newRegistry has everything that /metrics tells.
func newRegistry(n *Node) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{n}, n.changes,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(n.data.Histograms()...)
	return r
}

// Describe leaves the collector unchecked: its labels come and go.
func (collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	c.flows(gauge, count)
	c.refusals(count)
	c.engine(gauge, count)
	c.endpoints(gauge)
	c.ports(gauge)
	c.node(gauge, count)
	c.cluster(gauge, count)
	c.kafka(ch, gauge, count)
	c.rollouts(gauge, count)
}

type (
	gaugeFunc func(d *prometheus.Desc, v float64, labels ...string)
	countFunc func(d *prometheus.Desc, v uint64, labels ...string)
)

func (c collector) flows(gauge gaugeFunc, count countFunc) {
	for _, f := range c.n.data.Flows() {
		if f.Service() != "" {
			counts := f.Counts()
			gauge(mConnections, float64(counts.Active), f.Listener(), f.Service())
			count(mRoutedTotal, counts.Connections, f.Listener(), f.Service())
			count(mBytesTotal, counts.BytesIn, f.Listener(), f.Service(), "in")
			count(mBytesTotal, counts.BytesOut, f.Listener(), f.Service(), "out")
		}
		requests(f, gauge, count)
		for reason, v := range f.Ended() {
			count(mConnectionsTotal, v, f.Listener(), f.Service(), string(reason))
		}
	}
}

func (c collector) engine(gauge gaugeFunc, count countFunc) {
	s := c.n.data.Engine.Stats()
	gauge(mAccepted, float64(s.Connections))
	for i, v := range s.PerLoop {
		gauge(mLoop, float64(v), itoa(i))
	}
	gauge(mPending, float64(s.Pending))
	gauge(mBudget, float64(s.Budget))
	gauge(mBudgetUsed, float64(s.BudgetUsed))
	gauge(mHandshakes, float64(s.Handshakes))
	for reason, v := range s.Refused {
		count(mRefusedTotal, v, string(reason))
	}
	count(mRestsTotal, s.AcceptRests)
	requests := c.n.data.EvictedRequests()
	for _, l := range c.n.data.Engine.Listeners() {
		gauge(mListenerUp, truth(l.Err == nil), l.Name)
		count(mEvictions, s.Evicted[l.Name], "memory", l.Name)
		count(mEvictions, s.EvictedHandshakes[l.Name], "handshakes", l.Name)
		count(mEvictions, requests[l.Name], "requests", l.Name)
	}
}

// endpoints tells of every endpoint. Two addresses of one host name are told
// apart by what they resolve to.
func (c collector) endpoints(gauge gaugeFunc) {
	now := time.Now()
	for svc := range c.n.data.Router.Table().Services() {
		g := svc.Group()
		seen := map[string]bool{}
		for _, e := range g.Endpoints() {
			name := dataplane.EndpointName(e)
			if seen[name] {
				continue // the same address twice, with different tags
			}
			seen[name] = true
			gauge(mHealthy, truth(e.Health() != endpoint.Unhealthy), g.Service(), name)
			gauge(mEjected, truth(e.Ejected(now)), g.Service(), name)
			gauge(mEndpointState, 1, g.Service(), name, string(g.Condition(e, now).State))
			gauge(mEndpointConns, float64(e.Active()), g.Service(), name)
		}
	}
}

func (c collector) node(gauge gaugeFunc, count countFunc) {
	n := c.n
	set, view := n.catalog.InForce()
	for _, k := range kinds.All() {
		gauge(mResources, float64(set.Count(k.Name)), k.Name)
	}
	gauge(mIndex, float64(view.Index()))
	gauge(mReady, truth(n.notReady() == ""))
	now := n.state.String()
	for _, phase := range phases {
		gauge(mState, truth(phase == now), phase)
	}
	if n.access != nil {
		count(mAccessLost, n.access.Dropped())
	}
	gauge(mBuild, 1, n.cfg.Version)
	gauge(mStartSeconds, float64(n.started.UnixMilli())/1000)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
