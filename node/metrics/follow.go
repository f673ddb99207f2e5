package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/follow"
)

var mFilesUsable = desc("followed_files_usable",
	"Whether the files of a resource, or of --http-cert and --http-ca, can be used as they are on this node (1) or not (0).", "resource")

// Files collects the state of the files that the node follows.
func Files(m *follow.Manager) prometheus.Collector {
	return collector(func(to sink) {
		for _, f := range m.State() {
			to.gauge(mFilesUsable, boolValue(f.Err == nil), f.Name)
		}
	})
}
