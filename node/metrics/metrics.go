// Package metrics defines the collectors of /metrics. They read the counters of
// the components at each scrape: so nothing is counted twice, and metrics add no
// cost to the data path. Labels are names from the configuration and words from
// fixed lists, never values from clients.
//
//	registry := metrics.NewRegistry(metrics.Dataplane(d), metrics.Rollouts(d, tracker, driver), ...)
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry makes a registry of these collectors and those of Go and the
// process.
func NewRegistry(all ...prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(all...)
	return r
}

// desc describes the metric penstock_name.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("penstock_"+name, help, labels, nil)
}

// collector sends metrics to a sink at each scrape.
type collector func(to sink)

// Describe sends no descriptors, which makes the collector unchecked: its series
// come and go.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) { c(sink{ch}) }

// sink sends metrics to the channel of a scrape.
type sink struct{ ch chan<- prometheus.Metric }

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sink) counter(d *prometheus.Desc, v uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func boolValue(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
