package xds

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/xds/snapshot"
	"penstock/node/xds/stream"
)

// refusal is why a connection, a stream or a request is refused.
type refusal int

const (
	refusedConnections refusal = iota
	refusedStreams
	refusedPerIdentity
	refusedIdentity
	refusedNames
	refusals
)

var refusalNames = [refusals]string{"connections", "streams", "identity_streams", "identity", "names"}

// results are the words for stream.Result.
var results = [...]string{stream.Subscribed: "subscribe", stream.Accepted: "ack", stream.Rejected: "nack", stream.Stale: "stale"}

// stats are the counters of a server.
type stats struct {
	snapshots atomic.Uint64
	requests  [len(results)][snapshot.Types]atomic.Uint64
	responses [snapshot.Types]atomic.Uint64
	refused   [refusals]atomic.Uint64
	delayed   atomic.Uint64 // requests that waited for RequestRate
	stalled   atomic.Uint64 // connections closed by SendTimeout
	unknown   atomic.Uint64 // requests for types that are not served
	pushes    prometheus.Histogram
}

func newStats() *stats {
	return &stats{pushes: prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "penstock_xds_push_duration_seconds",
		Help:    "Time from a new snapshot until a response with it was sent to a client.",
		Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30},
	})}
}

func (s *stats) refuse(why refusal) { s.refused[why].Add(1) }
