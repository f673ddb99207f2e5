package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/telemetry"
)

// The metrics of the node's history.
var (
	mHistorySeries  = desc("history_series", "Series in the node's history.")
	mHistoryBytes   = desc("history_bytes", "Memory of the node's history, an estimate.")
	mHistoryWindow  = desc("history_window_seconds", "How far back the node's history may go: less than an hour if --history-budget is too small.")
	mHistoryDropped = desc("history_dropped_total", "Values that are not in the node's history because --history-budget is used up.")
)

// History collects the size of the history.
func History(h *telemetry.History) prometheus.Collector {
	return collector(func(to sink) {
		s := h.Stats()
		to.gauge(mHistorySeries, float64(s.Series))
		to.gauge(mHistoryBytes, float64(s.Bytes))
		to.gauge(mHistoryWindow, s.Window.Seconds())
		to.counter(mHistoryDropped, s.Dropped)
	})
}
