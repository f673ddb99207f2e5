package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/accesslog"
	"penstock/node/catalog"
	"penstock/node/kinds"
	"penstock/node/lifecycle"
	"penstock/node/logs"
)

// The metrics of the node itself.
var (
	mResources    = desc("resources", "Resources in effect.", "kind")
	mIndex        = desc("configuration_index", "Index of the latest change in effect.")
	mReady        = desc("ready", "1 if the node should get traffic.")
	mState        = desc("state", "1 for the node's current phase.", "state")
	mAccessLost   = desc("access_log_dropped_total", "Lines of the access log that a sink did not write; all: that none got.", "sink")
	mAccessLines  = desc("access_log_lines_total", "Lines of the access log that a sink has written.", "sink")
	mAccessErrors = desc("access_log_errors_total", "Attempts of a sink to write that failed.", "sink")
	mAccessQueue  = desc("access_log_queue_bytes", "Bytes that wait for a sink of the access log.", "sink")
	mLogBytes     = desc("log_memory_bytes", "Memory of the last lines of the logs.", "ring")
	mLogLines     = desc("log_memory_lines", "Lines in it.", "ring")
	mLogForgotten = desc("log_forgotten_total", "Lines that made room in it for later ones.", "ring")
	mBuild        = desc("build_info", "1, with the version of the build.", "version")
	mStartSeconds = desc("start_time_seconds", "When the node started, in seconds since 1970.")
	mSynced       = desc("resources_synced", "1 if the files of --resources are in effect, "+
		"0 if they have faults, were refused or could not be applied yet. Only with --resources-mode sync.")
	mUnreadable = desc("unreadable_resources", "Resources that this node has no key for; their previous version stays in effect.")
)

// Readiness reports why a node should get no traffic; "": it should.
type Readiness interface{ NotReady() string }

// Node collects the node's phase, readiness, build and start time.
func Node(version string, started time.Time, state *lifecycle.State, ready Readiness) prometheus.Collector {
	return collector(func(to sink) {
		to.gauge(mReady, boolValue(ready.NotReady() == ""))
		now := state.String()
		for _, phase := range lifecycle.Phases {
			to.gauge(mState, boolValue(phase == now), phase)
		}
		to.gauge(mBuild, 1, version)
		to.gauge(mStartSeconds, float64(started.UnixMilli())/1000)
	})
}

// Catalog collects the resources in force by kind, the index of the configuration,
// and the number of unreadable resources.
func Catalog(c *catalog.Catalog) prometheus.Collector {
	return collector(func(to sink) {
		set, view := c.InForce()
		for _, k := range kinds.All() {
			to.gauge(mResources, float64(set.Count(k.Name)), k.Name)
		}
		to.gauge(mIndex, float64(view.Index()))
		to.gauge(mUnreadable, float64(len(c.Unreadable())))
	})
}

// ResourceFiles collects whether the resources of the node's files are in force.
func ResourceFiles(synced *atomic.Bool) prometheus.Collector {
	return collector(func(to sink) { to.gauge(mSynced, boolValue(synced.Load())) })
}

// AccessLog collects the counts of the sinks of the access log.
func AccessLog(l *accesslog.Log) prometheus.Collector {
	return collector(func(to sink) {
		to.counter(mAccessLost, l.Lost(), "all")
		for _, s := range l.Sinks() {
			to.counter(mAccessLost, s.Dropped, s.Sink)
			to.counter(mAccessLines, s.Written, s.Sink)
			to.counter(mAccessErrors, s.Errors, s.Sink)
			to.gauge(mAccessQueue, float64(s.Queued), s.Sink)
		}
	})
}

// Logs collects the counts of the last lines in memory.
func Logs(l *logs.Logs) prometheus.Collector {
	return collector(func(to sink) {
		for i, s := range l.Stats() {
			ring := logs.Ring(i).String()
			to.gauge(mLogBytes, float64(s.Bytes), ring)
			to.gauge(mLogLines, float64(s.Lines), ring)
			to.counter(mLogForgotten, s.Forgotten, ring)
		}
	})
}

// Changes makes the counter of requested changes, by result.
func Changes() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "penstock_configuration_changes_total", Help: "Changes requested at this node: done or refused.",
	}, []string{"result"})
}
