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
		Help:    "Time until a response was sent to a client after there was something new for it, or it asked for more.",
		Buckets: []float64{.001, .003, .01, .03, .1, .3, 1, 3, 10, 30},
	})}
}

func (s *stats) refuse(why refusal) { s.refused[why].Add(1) }

// Counts are the counters of a server.
type Counts struct {
	Connections, Streams int
	Snapshots            uint64
	Requests             []Count // by type and meaning
	Responses            []Count // by type
	Refused              []Count // by reason
	// Delayed are requests that waited for RequestRate, Stalled connections closed
	// by SendTimeout, and Unknown requests for types that are not served.
	Delayed, Stalled, Unknown uint64
}

// Count is one counter. What it does not count by is "".
type Count struct {
	Type, Meaning, Reason string
	Count                 uint64
}

// Counts returns the counters.
func (s *Server) Counts() Counts {
	c := Counts{
		Snapshots: s.stats.snapshots.Load(), Delayed: s.stats.delayed.Load(), Stalled: s.stats.stalled.Load(),
		Unknown: s.stats.unknown.Load(),
	}
	s.mu.Lock()
	c.Connections, c.Streams = len(s.conns), len(s.clients)
	s.mu.Unlock()
	for t := range snapshot.Types {
		c.Responses = append(c.Responses, Count{Type: t.String(), Count: s.stats.responses[t].Load()})
		for result, meaning := range results {
			c.Requests = append(c.Requests, Count{Type: t.String(), Meaning: meaning, Count: s.stats.requests[result][t].Load()})
		}
	}
	for why, reason := range refusalNames {
		c.Refused = append(c.Refused, Count{Reason: reason, Count: s.stats.refused[why].Load()})
	}
	return c
}

// PushDurations is the time from a new snapshot until a response with it was
// sent.
func (s *Server) PushDurations() prometheus.Collector { return s.stats.pushes }
