package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/xds"
)

// The metrics of the discovery server.
var (
	mXDSConnections = desc("xds_connections", "Connections of the discovery server.")
	mXDSStreams     = desc("xds_streams", "Streams of the discovery server.")
	mXDSSnapshots   = desc("xds_snapshots_total", "Snapshots that the discovery server has served.")
	mXDSResponses   = desc("xds_responses_total", "Responses of the discovery server, by type of resources.", "type")
	mXDSRequests    = desc("xds_requests_total",
		"Requests of discovery clients, by type of resources and meaning: ack, nack, subscribe or stale.", "type", "meaning")
	mXDSRefused = desc("xds_refused_total",
		"Connections, streams and requests that the discovery server refused, by reason.", "reason")
	mXDSDelayed = desc("xds_delayed_requests_total", "Requests of discovery clients that waited, because they came too fast.")
	mXDSStalled = desc("xds_stalled_total", "Connections of discovery clients closed because they did not read a response in time.")
	mXDSUnknown = desc("xds_unknown_requests_total", "Requests of discovery clients for types of resources that are not served.")
)

// XDS collects the counters of the discovery server.
func XDS(s *xds.Server) []prometheus.Collector {
	return []prometheus.Collector{collector(func(to sink) { collectXDS(s, to) }), s.PushDurations()}
}

func collectXDS(s *xds.Server, to sink) {
	c := s.Counts()
	to.gauge(mXDSConnections, float64(c.Connections))
	to.gauge(mXDSStreams, float64(c.Streams))
	to.counter(mXDSSnapshots, c.Snapshots)
	for _, r := range c.Responses {
		to.counter(mXDSResponses, r.Count, r.Type)
	}
	for _, r := range c.Requests {
		to.counter(mXDSRequests, r.Count, r.Type, r.Meaning)
	}
	for _, r := range c.Refused {
		to.counter(mXDSRefused, r.Count, r.Reason)
	}
	to.counter(mXDSDelayed, c.Delayed)
	to.counter(mXDSStalled, c.Stalled)
	to.counter(mXDSUnknown, c.Unknown)
}
