package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/quota"
)

// The metrics of rate limits with scope cluster.
var (
	mQuotaKeys    = desc("rate_limit_cluster_keys", "Budgets with scope cluster that have demand on this node.")
	mQuotaUnasked = desc("rate_limit_cluster_unreported_keys",
		"Budgets with scope cluster and demand on this node beyond the limit of a report: they have the share of an idle node.")
	mQuotaLeases  = desc("rate_limit_leases", "Leases of shares that this node holds.")
	mQuotaReports = desc("rate_limit_reports_total", "Reports of demand to the leader, by result.", "result")
	mQuotaAge     = desc("rate_limit_report_age_seconds", "Time since this node sent the last report that was answered; 0 without limits of scope cluster.")
	mQuotaExpired = desc("rate_limit_leases_expired_total", "Times that this node's leases ended for want of an answer.")
	mQuotaFloor   = desc("rate_limit_floor", "1 while rate limits with scope cluster use their floor, for want of a leader.")
	mQuotaBudgets = desc("rate_limit_leased_budgets", "Budgets that this node divides as the leader.")
	mQuotaGiven   = desc("rate_limit_leases_given_total", "Leases of shares that this node has given as the leader.")
)

// Quota collects the shares that a node holds, and those that it gives as the leader;
// leader is nil with --dev.
func Quota(node *quota.Driver, leader *quota.Leader) prometheus.Collector {
	return collector(func(to sink) {
		s := node.Status()
		to.gauge(mQuotaKeys, float64(s.Keys))
		to.gauge(mQuotaUnasked, float64(s.Unleased))
		to.gauge(mQuotaLeases, float64(s.Leases))
		to.counter(mQuotaReports, s.Reports, "answered")
		to.counter(mQuotaReports, s.Failed, "failed")
		to.counter(mQuotaExpired, s.Expired)
		to.gauge(mQuotaFloor, boolValue(s.Floor))
		age, led := 0.0, quota.LeaderStatus{}
		if s.Limits > 0 && leader != nil {
			age = s.Age.Seconds()
		}
		if leader != nil {
			led = leader.Status()
		}
		to.gauge(mQuotaAge, age)
		to.gauge(mQuotaBudgets, float64(led.Budgets))
		to.counter(mQuotaGiven, led.Given)
	})
}
