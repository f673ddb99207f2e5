package metrics

import (
	dto "github.com/prometheus/client_model/go"

	"penstock/node/telemetry"
)

// Record records all metrics in a pass of the history.
func (m *Metrics) Record(p *telemetry.Pass) {
	to := sink{pass: p}
	for _, c := range m.own {
		c(to)
	}
	if p.Wants(new(telemetry.Metric)) { // those of others are not recorded each second
		m.recordOthers(p)
	}
}

// recordOthers records the metrics of collectors of other packages.
func (m *Metrics) recordOthers(p *telemetry.Pass) {
	families, _ := m.others.Gather() // an error leaves out the metrics that have it
	for _, f := range families {
		for _, one := range f.GetMetric() {
			m.recordOther(p, f, one)
		}
	}
}

func (m *Metrics) recordOther(p *telemetry.Pass, f *dto.MetricFamily, one *dto.Metric) {
	known := m.known[f.GetName()]
	if known == nil {
		known = &telemetry.Metric{Name: f.GetName()}
		for _, l := range one.GetLabel() {
			known.Labels = append(known.Labels, l.GetName())
		}
		for _, b := range one.GetHistogram().GetBucket() {
			known.Buckets = append(known.Buckets, b.GetUpperBound())
		}
		m.known[f.GetName()] = known
	}
	labels := make([]string, len(one.GetLabel()))
	for i, l := range one.GetLabel() {
		labels[i] = l.GetValue()
	}
	switch {
	case one.GetCounter() != nil:
		p.Counter(known, one.GetCounter().GetValue(), labels...)
	case one.GetGauge() != nil:
		p.Gauge(known, one.GetGauge().GetValue(), labels...)
	case one.GetHistogram() != nil:
		h := one.GetHistogram()
		counts, below := make([]uint64, len(known.Buckets)+1), uint64(0)
		for i, b := range h.GetBucket() {
			counts[i] = b.GetCumulativeCount() - below
			below = b.GetCumulativeCount()
		}
		counts[len(known.Buckets)] = h.GetSampleCount() - below
		p.Observed(known, counts, h.GetSampleSum(), labels...)
	}
}
