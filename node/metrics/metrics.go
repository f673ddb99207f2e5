// Package metrics is what /metrics tells: collectors that read the rooms at each
// scrape. So nothing is counted twice, and the data path pays for nothing that
// it would not count anyway. Labels are names from the configuration and words
// from fixed lists, nothing that clients say.
//
//	registry := metrics.NewRegistry(metrics.Dataplane(d), metrics.Rollouts(d, tracker, driver), ...)
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry has what these collectors tell, and what Go and the process do.
func NewRegistry(all ...prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(all...)
	return r
}

// desc describes a metric.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("penstock_"+name, help, labels, nil)
}

// collector tells some metrics at each scrape.
type collector func(to sink)

// Describe leaves the collector unchecked: its labels come and go.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) { c(sink{ch}) }

// sink is where metrics go.
type sink struct{ ch chan<- prometheus.Metric }

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sink) count(d *prometheus.Desc, v uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
