package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/events"
)

// The metrics of the streams of /v1/events.
var (
	mEventStreams = desc("event_streams", "Open streams of /v1/events: the pages of the dashboard, and others.")
	mEventFeeds   = desc("event_feeds", "Topics with different parameters that are computed for the streams of /v1/events.")
	mEventEnded   = desc("event_streams_ended_total",
		"Streams of /v1/events that ended, by reason: client, slow, session, draining, stopping, or too_many for those that were refused.", "reason")
)

// Events collects the streams of /v1/events.
func Events(h *events.Hub) prometheus.Collector {
	return collector(func(to sink) {
		s := h.Stats()
		to.gauge(mEventStreams, float64(s.Streams))
		to.gauge(mEventFeeds, float64(s.Feeds))
		for reason, n := range s.Ended {
			to.counter(mEventEnded, n, reason)
		}
	})
}
