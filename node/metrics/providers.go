package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/providers"
)

// The metrics of endpoint providers, on the node that runs them.
var (
	mProviderEndpoints = desc("provider_endpoints", "Endpoints of a provider that are in force, over all of its services.", "provider")
	mProviderUnused    = desc("provider_unused_endpoints",
		"Endpoints of a provider's last answers that are left out, because they are invalid or over the limit.", "provider")
	mProviderStale = desc("provider_stale_services", "Services of a provider whose last attempt failed, or that have no answer yet.", "provider")
	mProviderAge   = desc("provider_answer_age_seconds", "Age of the oldest last answer among a provider's services.", "provider")
	mProviderHeld  = desc("provider_held_services",
		"Services of a provider whose removals are held back, because they would remove most of the endpoints.", "provider")
	mProviderAnswers  = desc("provider_answers_total", "Answers of a provider, by result.", "provider", "result")
	mAnnounced        = desc("announced_endpoints", "Endpoints that proxies connected to this node have announced.")
	mAnnouncedRefused = desc("announced_endpoints_refused_total",
		"Proxies that are not used as endpoints, because their address is invalid or this node has too many.")
	mProviderChanges = desc("provider_changes_total", "Endpoints of a provider that were added, changed or removed.", "provider")
)

// Providers collects the state of the endpoint providers that run on this node.
func Providers(p *providers.Providers) prometheus.Collector {
	return collector(func(to sink) { collectProviders(p, to) })
}

func collectProviders(p *providers.Providers, to sink) {
	announced, refused := p.Announced()
	to.gauge(mAnnounced, float64(announced))
	to.counter(mAnnouncedRefused, refused)
	now := time.Now()
	for _, s := range p.Status() {
		endpoints, unused, stale, held, age := 0, 0, 0, 0, time.Duration(0)
		for i := range s.Queries {
			q := &s.Queries[i]
			endpoints += q.Endpoints
			unused += q.Unused
			if q.Stale {
				stale++
			}
			if !q.HeldSince.IsZero() {
				held++
			}
			if !q.Answered.IsZero() {
				age = max(age, now.Sub(q.Answered))
			}
		}
		to.gauge(mProviderEndpoints, float64(endpoints), s.Name)
		to.gauge(mProviderUnused, float64(unused), s.Name)
		to.gauge(mProviderStale, float64(stale), s.Name)
		to.gauge(mProviderAge, age.Seconds(), s.Name)
		to.gauge(mProviderHeld, float64(held), s.Name)
		to.counter(mProviderAnswers, s.Answers, s.Name, "ok")
		to.counter(mProviderAnswers, s.Failures, s.Name, "failed")
		to.counter(mProviderChanges, s.Changes, s.Name)
	}
}
