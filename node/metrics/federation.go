package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/federation"
	"penstock/node/trust"
)

// The metrics of trust bundles.
var (
	mBundleAuthorities = desc("trust_bundle_authorities",
		"Certificate authorities of a trust bundle in force on this node; cluster is the cluster's own.", "bundle")
	mBundleExpiry = desc("trust_bundle_expiry_seconds",
		"Time to the end of the last authority of a trust bundle; 0: nobody is accepted by it.", "bundle")
	mBundleSequence = desc("trust_bundle_sequence", "Sequence number of a trust bundle, where it has one.", "bundle")
	mBundleAge      = desc("trust_bundle_age_seconds", "Time since a trust bundle was last fetched; on the leader.", "bundle")
	mBundleFetches  = desc("trust_bundle_fetches_total", "Fetches of trust bundles by this node, by result: ok or failed.", "bundle", "result")
	mBundleServed   = desc("trust_bundle_served_total", "Times that this node served the cluster's own trust bundle.")
)

// Federation collects the trust bundles; own serves the cluster's.
func Federation(bundles *trust.Bundles, m *federation.Manager, own *federation.Endpoint) prometheus.Collector {
	return collector(func(to sink) {
		now := time.Now()
		set, _ := bundles.Current()
		for _, name := range set.Names() {
			b := set.Get(name)
			to.gauge(mBundleAuthorities, float64(len(b.Authorities)), name)
			to.gauge(mBundleExpiry, max(0, b.Expires().Sub(now).Seconds()), name)
		}
		for _, s := range m.Status() {
			if s.Sequence != nil {
				to.gauge(mBundleSequence, float64(*s.Sequence), s.Name)
			}
			if set.Get(s.Name) == nil {
				to.gauge(mBundleAuthorities, 0, s.Name)
				to.gauge(mBundleExpiry, 0, s.Name)
			}
			if !s.Fetched.IsZero() {
				to.gauge(mBundleAge, now.Sub(s.Fetched).Seconds(), s.Name)
			}
		}
		for count, n := range m.Fetches() {
			to.counter(mBundleFetches, n, count.Bundle, count.Result)
		}
		to.counter(mBundleServed, own.Served())
	})
}
