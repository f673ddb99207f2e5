package quota

import (
	"cmp"
	"slices"
	"time"

	"penstock/node/api"
	"penstock/routing/limit"
)

// list lists the budgets of a limit, or of all with name "", at most most; all is how
// many there are.
func (a *Allocator) list(now time.Duration, name string, most int) (list []api.BudgetShares, all int) {
	for key, s := range a.budgets {
		if name != "" && key.Limit != name {
			continue
		}
		b := api.BudgetShares{Limit: key.Limit, Dimension: limit.Dimension(key.Dimension).String(), Key: key.Text, Budget: s.budget.Rate}
		for id, n := range a.nodes {
			if h := s.find(n); h != nil {
				b.Shares = append(b.Shares, api.Share{Node: id, Want: h.want, Share: h.share, Left: clip(n.at + LeaseTime - now)})
			}
		}
		if len(b.Shares) == 0 {
			continue
		}
		slices.SortFunc(b.Shares, func(a, b api.Share) int { return cmp.Compare(a.Node, b.Node) })
		all++
		list = append(list, b)
	}
	slices.SortFunc(list, func(a, b api.BudgetShares) int {
		return cmp.Or(cmp.Compare(a.Limit, b.Limit), cmp.Compare(a.Dimension, b.Dimension), cmp.Compare(a.Key, b.Key))
	})
	return list[:min(len(list), most)], all
}

func clip(d time.Duration) time.Duration { return max(d, 0) }
