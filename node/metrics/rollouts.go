package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/rollout"
	"penstock/routing"
)

// The metrics of rollouts.
var (
	mRollouts      = desc("rollouts", "Rollouts, by phase.", "phase")
	mRolloutWeight = desc("rollout_weight_percent", "Current weight of the new backend of a route's rollout, in percent.", "route")
	mRolloutTally  = desc("rollout_connects_total",
		"Connects to the new backend of a route's rollout from this node, by result; one that is reset early also counts as ok.",
		"route", "result")
	mRolloutChanges = desc("rollout_changes_total",
		"Rollout changes that this node has made as the leader, by the resulting phase.", "phase")
)

// Rollouts collects the progress of rollouts, and the changes that driver has made
// on this node.
func Rollouts(router *routing.Router, tracker *rollout.Tracker, driver *rollout.Driver) prometheus.Collector {
	return collector(func(to sink) { rollouts(router.Table(), tracker, driver, to) })
}

func rollouts(table *routing.Table, tracker *rollout.Tracker, driver *rollout.Driver, to sink) {
	now := time.Now()
	phases := map[string]int{}
	for _, item := range tracker.All(now) {
		if item.Route == nil {
			continue
		}
		s := item.Effective()
		phases[s.Phase]++
		to.gauge(mRolloutWeight, float64(s.Weight), item.Name)
		if t, ok := table.RolloutCounts(item.Name, now); ok {
			to.counter(mRolloutTally, t.Connects-min(t.Connects, t.Failed), item.Name, "ok")
			to.counter(mRolloutTally, t.Failed, item.Name, "failed")
			to.counter(mRolloutTally, t.Resets, item.Name, "reset")
		}
	}
	moves := driver.Changes()
	for _, phase := range rollout.Phases {
		to.gauge(mRollouts, float64(phases[phase]), phase)
		to.counter(mRolloutChanges, moves[phase], phase)
	}
}
