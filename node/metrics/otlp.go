package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/otlp"
)

// The metrics of what is sent to OpenTelemetry collectors.
var (
	mOTLPExported = desc("otlp_exported_total", "Spans, log records and data points that a collector took.", "telemetry", "signal")
	mOTLPDropped  = desc("otlp_dropped_total",
		"Spans, log records and data points that a collector did not get: queue_full, unreachable, refused (by it) or stopped (the exporter ended).",
		"telemetry", "signal", "reason")
	mOTLPFailures = desc("otlp_failures_total", "Attempts to send to a collector that failed.", "telemetry", "signal")
	mOTLPQueue    = desc("otlp_queue", "Spans and log records that wait for a collector.", "telemetry", "signal")
	mOTLPUp       = desc("otlp_up", "Whether the last attempt to send to a collector succeeded (1) or not (0).", "telemetry", "signal")
)

// OTLP collects what the exporters have done.
func OTLP(m *otlp.Manager) prometheus.Collector {
	return collector(func(to sink) {
		for _, s := range m.States() {
			signal := s.Signal.String()
			to.counter(mOTLPExported, s.Exported, s.Telemetry, signal)
			for reason, n := range s.Dropped {
				to.counter(mOTLPDropped, n, s.Telemetry, signal, reason.String())
			}
			to.counter(mOTLPFailures, s.Failures, s.Telemetry, signal)
			to.gauge(mOTLPQueue, float64(s.Queued), s.Telemetry, signal)
			to.gauge(mOTLPUp, boolValue(s.Fault == ""), s.Telemetry, signal)
		}
	})
}
