package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/svid"
)

var mSourceUsable = desc("certificate_source_usable",
	"Whether the source of a certificate, identity or workloadAPI, gives this node what it can use (1) or not (0).", "certificate", "source")

// Sources collects the state of the certificates that come from SPIFFE.
func Sources(m *svid.Manager) prometheus.Collector {
	return collector(func(to sink) {
		for _, s := range m.State() {
			to.gauge(mSourceUsable, boolValue(s.Fault == nil), s.Name, s.Source)
		}
	})
}
