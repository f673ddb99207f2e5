package metrics

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/workload"
)

// The metrics of the certificates that a node holds for services and workloads.
var (
	mHeld         = desc("held_identities", "Workload certificates that this node keeps and renews, by state: valid or missing.", "state")
	mHeldMax      = desc("held_identities_max", "Workload certificates that this node may keep.")
	mHeldExpiry   = desc("held_identity_expiry_seconds", "Time to the first end of a workload certificate that is in use on this node.")
	mHeldRequests = desc("held_identity_requests_total", "Workload certificates that this node requested, by result: issued or failed.", "result")
	mSPIFFEConns  = desc("spiffe_connections", "Connections to --spiffe-socket.")
	mSPIFFE       = desc("spiffe_streams", "Calls of the SPIFFE Workload API in progress.")
	mSPIFFESent   = desc("spiffe_messages_total", "Messages with certificates or trust bundles sent to workloads.")
	mSPIFFENone   = desc("spiffe_refused_total", "Calls and connections refused: no_identity or too_many.", "reason")
)

// Workloads collects what a node holds, and what it hands out; held is nil with
// --dev, served without --spiffe-socket.
func Workloads(held *workload.Source, served *workload.API) prometheus.Collector {
	return collector(func(to sink) {
		if held != nil {
			s := held.Stats()
			to.gauge(mHeld, float64(s.Held-s.Missing), "valid")
			to.gauge(mHeld, float64(s.Missing), "missing")
			to.gauge(mHeldMax, float64(s.Max))
			to.counter(mHeldRequests, s.Issued, "issued")
			to.counter(mHeldRequests, s.Failures, "failed")
			remaining := math.Inf(1)
			if s.Remaining >= 0 {
				remaining = s.Remaining.Seconds()
			}
			to.gauge(mHeldExpiry, remaining)
		}
		if served != nil {
			s := served.Stats()
			to.gauge(mSPIFFEConns, float64(s.Connections))
			to.gauge(mSPIFFE, float64(s.Streams))
			to.counter(mSPIFFESent, s.Sent)
			to.counter(mSPIFFENone, s.Denied, "no_identity")
			to.counter(mSPIFFENone, s.Refused, "too_many")
		}
	})
}
