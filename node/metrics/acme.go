package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/acme"
)

// The metrics of certificates that an authority issues. All but the first are the
// same on every node.
var (
	mACMEOrders = desc("acme_orders_total",
		"Attempts to obtain a certificate that ended on this node, which led, by result: ok or failed.", "certificate", "result")
	mACMEFailures = desc("acme_failures", "Attempts to obtain a certificate that failed in a row; 0: the last one succeeded.", "certificate")
	mACMEExpiry   = desc("acme_expiry_timestamp_seconds", "When the certificate that is served expires; 0: none was issued yet.", "certificate")
	mACMERenewal  = desc("acme_renewal_timestamp_seconds", "When the certificate that is served is to be renewed; 0: none was issued yet.", "certificate")
)

// ACME collects the state of certificates that an authority issues.
func ACME(m *acme.Manager) prometheus.Collector {
	return collector(func(to sink) {
		for label, n := range m.Orders() {
			to.counter(mACMEOrders, n, label.Certificate, label.Result)
		}
		for _, s := range m.Status(time.Now()) {
			to.gauge(mACMEFailures, float64(s.Failures), s.Name)
			to.gauge(mACMEExpiry, unixSeconds(s.NotAfter), s.Name)
			to.gauge(mACMERenewal, unixSeconds(s.Renewal), s.Name)
		}
	})
}

// unixSeconds returns a time for Prometheus; 0: the zero time.
func unixSeconds(at time.Time) float64 {
	if at.IsZero() {
		return 0
	}
	return float64(at.Unix())
}
