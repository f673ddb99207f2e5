package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/expiry"
)

var (
	mCertExpiry = desc("certificate_expiry_timestamp_seconds",
		"When a certificate that this node presents expires, or a CA by which it verifies its peers, by role: certificate or ca.",
		"resource", "role")
	mCertProblem = desc("certificate_problem",
		"Whether such a certificate or CA has expired, expires soon or is not valid yet (1) or not (0).", "resource", "role")
)

// Expiry collects how long certificates are valid.
func Expiry(t *expiry.Tracker) prometheus.Collector {
	return collector(func(to sink) {
		for _, s := range t.State(time.Now()) {
			to.gauge(mCertExpiry, unixSeconds(s.Until), s.Resource, string(s.Role))
			to.gauge(mCertProblem, boolValue(s.Trouble != expiry.None), s.Resource, string(s.Role))
		}
	})
}
