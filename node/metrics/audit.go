package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/audit"
)

// The metrics of the audit log.
var (
	mAuditEntries = desc("audit_entries", "Entries of the audit log about what was done, the same on every node, by ring: resources, issued, logins or cluster.", "ring")
	mAuditLines   = desc("audit_lines", "Lines of the audit log about what this node refused and denied.")
	mAuditDropped = desc("audit_dropped_total",
		"Acts of this node that could not be recorded in the audit log, and lines about what it refused and denied that made room for others.")
)

// Audit collects the size of the audit log.
func Audit(l *audit.Log) prometheus.Collector {
	return collector(func(to sink) {
		s := l.Stats()
		for ring, n := range s.Entries {
			to.gauge(mAuditEntries, float64(n), ring)
		}
		to.gauge(mAuditLines, float64(s.Kept))
		to.counter(mAuditDropped, s.Dropped)
	})
}
