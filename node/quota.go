package node

import (
	"context"

	"penstock/node/api"
	"penstock/node/cluster"
	"penstock/node/cluster/record"
	"penstock/node/quota"
	"penstock/node/rpc"
	"penstock/routing"
)

// openQuota makes what divides rate limits with scope cluster among the nodes.
func (n *Node) openQuota() {
	cfg := quota.Config{Self: n.id, Limits: n.data.RateLimits, Clock: routing.LimitClock, Log: n.log}
	if n.cluster != nil {
		n.leases = quota.NewLeader(quota.LeaderConfig{
			Limits: n.data.RateLimits, Members: n.cluster.Directory.MemberIDs,
			Term: func() (uint64, bool) {
				l := n.cluster.Store().Leadership()
				return l.Term, l.Ready
			},
			Changes: func() <-chan struct{} { return n.cluster.Store().Changes() },
			Verify: func(ctx context.Context) error {
				_, err := n.cluster.Store().ReadIndex(ctx)
				return err
			},
		})
		cfg.Members, cfg.Ask = n.cluster.Directory.MemberIDs, n.askForShares
	}
	n.shares = quota.New(cfg)
}

// askForShares has the leader answer a report. It does not wait for a leader: the next
// report is sent soon.
func (n *Node) askForShares(ctx context.Context, r *quota.Report) (*quota.Answer, error) {
	leader, _, self := n.cluster.Leader()
	switch {
	case leader == "":
		return nil, api.Errorf(api.NoLeader, "no leader is known")
	case self:
		return n.leases.Report(ctx, n.id, r)
	}
	client, err := n.cluster.Directory.Pool.Get(ctx, leader)
	if err != nil {
		return nil, err
	}
	return rpc.Call[quota.Answer](ctx, client, api.MethodDemand, r)
}

// registerQuota adds the methods of shares to a server.
func (n *Node) registerQuota(s *rpc.Server) {
	rpc.Handle(s, api.MethodDemand, api.RoleNode, func(ctx context.Context, r *quota.Report) (*quota.Answer, error) {
		return n.leases.Report(ctx, rpc.Caller(ctx).Node, r)
	})
	rpc.Handle(s, api.MethodShares, api.RoleReader, cluster.OnLeader(n.cluster, n.listShares))
}

// listShares lists the shares of all nodes, on the leader.
func (n *Node) listShares(_ context.Context, r *api.SharesRequest) (*api.Shares, error) {
	list, err := n.leases.Shares(r.Limit)
	if err != nil {
		return nil, err
	}
	view := n.cluster.Store().Snapshot()
	for i := range list.Budgets {
		shares := list.Budgets[i].Shares
		for j := range shares {
			if known, ok := record.FindNode(view, shares[j].Node); ok {
				shares[j].Node = known.Name
			}
		}
	}
	return list, nil
}
