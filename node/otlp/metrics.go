package otlp

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdkresource "go.opentelemetry.io/otel/sdk/resource"
)

// maxPoints bounds the data points of a request: collectors refuse messages over 4 MiB.
const maxPoints = 4000

// reporter sends the metrics of the node at each interval.
type reporter struct {
	*sender
	interval time.Duration
	gather   func() prometheus.Gatherer
	to       sdkmetric.Exporter
	node     *sdkresource.Resource
	done     chan struct{} // closed when run has ended
}

func newReporter(s *sender, interval time.Duration, gather func() prometheus.Gatherer, to sdkmetric.Exporter, node *sdkresource.Resource) *reporter {
	s.queued = func() int { return 0 }
	s.limit = min(s.limit, interval) // the next report has newer values
	return &reporter{sender: s, interval: interval, gather: gather, to: to, node: node, done: make(chan struct{})}
}

// run reports at each interval until stop is closed, and then once more.
func (r *reporter) run(ctx context.Context) {
	defer close(r.done)
	ticker := time.NewTicker(r.interval)
	defer ticker.Stop()
	for {
		r.report(ctx)
		select {
		case <-ticker.C:
		case <-r.stop:
			r.report(ctx)
			return
		}
	}
}

// report gathers and sends the metrics, in parts.
func (r *reporter) report(ctx context.Context) {
	from := bridge.NewMetricProducer(bridge.WithGatherer(r.gather()))
	scopes, err := from.Produce(ctx)
	if err != nil {
		r.note("cannot gather metrics: " + err.Error())
		return
	}
	for _, part := range split(scopes, maxPoints) {
		if r.ended {
			r.counts.drop(Stopped, part.points)
			continue
		}
		data := &metricdata.ResourceMetrics{Resource: r.node, ScopeMetrics: part.scopes}
		r.deliver(ctx, part.points, func(ctx context.Context) error { return r.to.Export(ctx, data) })
	}
}

// part is what one request holds.
type part struct {
	scopes []metricdata.ScopeMetrics
	points int
}

// split divides metrics into parts of at most so many data points.
func split(scopes []metricdata.ScopeMetrics, most int) []part {
	var parts []part
	for _, scope := range scopes {
		now := part{scopes: []metricdata.ScopeMetrics{{Scope: scope.Scope}}}
		for _, metric := range scope.Metrics {
			for begin, total := 0, points(metric.Data); begin < total; {
				end := min(total, begin+most-now.points)
				one := metric
				one.Data = slice(metric.Data, begin, end)
				now.scopes[0].Metrics = append(now.scopes[0].Metrics, one)
				now.points += end - begin
				begin = end
				if now.points == most {
					parts = append(parts, now)
					now = part{scopes: []metricdata.ScopeMetrics{{Scope: scope.Scope}}}
				}
			}
		}
		if now.points > 0 {
			parts = append(parts, now)
		}
	}
	return parts
}

// points returns the number of data points.
func points(data metricdata.Aggregation) int {
	switch d := data.(type) {
	case metricdata.Gauge[float64]:
		return len(d.DataPoints)
	case metricdata.Sum[float64]:
		return len(d.DataPoints)
	case metricdata.Histogram[float64]:
		return len(d.DataPoints)
	case metricdata.ExponentialHistogram[float64]:
		return len(d.DataPoints)
	case metricdata.Summary:
		return len(d.DataPoints)
	}
	return 0
}

// slice returns some of the data points.
func slice(data metricdata.Aggregation, begin, end int) metricdata.Aggregation {
	switch d := data.(type) {
	case metricdata.Gauge[float64]:
		d.DataPoints = d.DataPoints[begin:end]
		return d
	case metricdata.Sum[float64]:
		d.DataPoints = d.DataPoints[begin:end]
		return d
	case metricdata.Histogram[float64]:
		d.DataPoints = d.DataPoints[begin:end]
		return d
	case metricdata.ExponentialHistogram[float64]:
		d.DataPoints = d.DataPoints[begin:end]
		return d
	case metricdata.Summary:
		d.DataPoints = d.DataPoints[begin:end]
		return d
	}
	return data
}
