// Package metrics defines the collectors of /metrics. They read the counters of
// the components at each scrape, and for the node's history: so nothing is counted twice, and metrics add no
// cost to the data path. Labels are names from the configuration and words from
// fixed lists, never values from clients.
//
//	m := metrics.New(metrics.Dataplane(d), metrics.Rollouts(d, tracker, driver), ...)
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"penstock/node/telemetry"
)

// Metrics are the metrics of a node.
type Metrics struct {
	// Registry serves /metrics.
	Registry *prometheus.Registry

	own    []collector
	others *prometheus.Registry // of collectors that this package did not make
	known  map[string]*telemetry.Metric
}

// New makes the metrics of these collectors, and those of Go and the process.
func New(all ...prometheus.Collector) *Metrics {
	m := &Metrics{Registry: prometheus.NewRegistry(), others: prometheus.NewRegistry(), known: map[string]*telemetry.Metric{}}
	all = append(all, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Registry.MustRegister(all...)
	for _, c := range all {
		if own, ok := c.(collector); ok {
			m.own = append(m.own, own)
		} else {
			m.others.MustRegister(c)
		}
	}
	return m
}

// metric is a metric of this package: for /metrics, and for the history.
type metric struct {
	desc   *prometheus.Desc
	record telemetry.Metric
}

// desc describes the metric penstock_name. Its history has a value for every ten
// seconds.
func desc(name, help string, labels ...string) *metric {
	name = "penstock_" + name
	return &metric{
		desc:   prometheus.NewDesc(name, help, labels, nil),
		record: telemetry.Metric{Name: name, Labels: labels},
	}
}

// traffic describes a metric of which the history has a value for every second. There
// may be as many series as listeners and services, not as many as endpoints.
func traffic(name, help string, labels ...string) *metric {
	m := desc(name, help, labels...)
	m.record.Fine = true
	return m
}

// buckets describes a histogram with these bounds, in seconds.
func buckets(bounds []float64, name, help string, labels ...string) *metric {
	m := desc(name, help, labels...)
	m.record.Buckets = bounds
	return m
}

// collector sends metrics to a sink: at each scrape, and for the history.
type collector func(to sink)

// Describe sends no descriptors, which makes the collector unchecked: its series
// come and go.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) { c(sink{ch: ch}) }

// sink sends metrics to the channel of a scrape, or to the history.
type sink struct {
	ch   chan<- prometheus.Metric
	pass *telemetry.Pass // nil in a scrape
}

func (s sink) gauge(m *metric, v float64, labels ...string) {
	if s.pass != nil {
		s.pass.Gauge(&m.record, v, labels...)
		return
	}
	s.ch <- prometheus.MustNewConstMetric(m.desc, prometheus.GaugeValue, v, labels...)
}

func (s sink) counter(m *metric, v uint64, labels ...string) {
	if s.pass != nil {
		s.pass.Counter(&m.record, float64(v), labels...)
		return
	}
	s.ch <- prometheus.MustNewConstMetric(m.desc, prometheus.CounterValue, float64(v), labels...)
}

// histogram sends the counts of buckets, one more than the metric's bounds, not added
// up, and the sum of all values in seconds.
func (s sink) histogram(m *metric, counts []uint64, sum float64, labels ...string) {
	if s.pass != nil {
		s.pass.Observed(&m.record, counts, sum, labels...)
		return
	}
	below := make(map[float64]uint64, len(m.record.Buckets))
	total := uint64(0)
	for i, bound := range m.record.Buckets {
		total += counts[i]
		below[bound] = total
	}
	total += counts[len(m.record.Buckets)]
	s.ch <- prometheus.MustNewConstHistogram(m.desc, total, sum, below, labels...)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
