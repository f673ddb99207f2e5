package ops

import (
	"context"
	"fmt"

	"penstock/node/api"
	"penstock/routing"
	"penstock/routing/limit"
	"penstock/routing/resource"
)

// limits tells what the rate limits do on the requested node.
func (d *decisions) limits(ctx context.Context, r *api.LimitsRequest) (*api.Limits, error) {
	if passed, err := d.peers.Forward(ctx, r.Node); passed {
		return nil, err
	}
	result := &api.Limits{Node: d.peers.self.Name, Limits: []api.LimitUse{}}
	for l, spec := range d.data.RateLimits() {
		if r.Limit == "" || r.Limit == l.Name() {
			result.Limits = append(result.Limits, limitUse(l, spec))
		}
	}
	if r.Limit != "" && len(result.Limits) == 0 {
		return nil, api.Errorf(api.NotFound, "there is no RateLimit %q", r.Limit)
	}
	return result, nil
}

func limitUse(l *limit.Limit, spec *resource.RateLimit) api.LimitUse {
	c := l.Counts()
	use := api.LimitUse{Limit: l.Name(), By: spec.By, Keys: c.Keys, MaxKeys: spec.MaxKeys, Overflows: c.Overflows}
	for _, d := range limit.Dimensions {
		if l.Has(d) {
			use.Of = append(use.Of, api.DimensionUse{
				Of: d.String(), Allowed: c.Allowed[d], Refused: c.Refused[d], Queued: c.Queued[d], Paced: c.Paced[d],
			})
		}
	}
	if spec.Concurrent != nil {
		use.Of = append(use.Of, api.DimensionUse{Of: "concurrent", Refused: c.Concurrent})
	}
	for _, u := range l.Fullest(api.MaxFullest, routing.LimitClock()) {
		of := u.Of.String()
		if u.Concurrent {
			of = "concurrent"
		}
		use.Fullest = append(use.Fullest, api.BudgetUse{Key: u.Key.String(), Of: of, Used: 100 * u.Used, Wait: u.Wait})
	}
	return use
}

// limitWarnings warns of rate limits that have no room for another key.
func (q *status) limitWarnings() (list []string) {
	for l, spec := range q.data.RateLimits() {
		if keys := l.Counts().Keys; spec.By != "all" && keys >= spec.MaxKeys {
			list = append(list, fmt.Sprintf("node %s: RateLimit %s has %d keys, as many as its maxKeys: further ones share one budget; raise it, or use shorter prefixes",
				q.peers.self.Name, l.Name(), keys))
		}
	}
	return list
}
