package ops

import (
	"context"
	"time"

	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/routing"
)

// topology describes services and the routes between them.
func (d *decisions) topology(ctx context.Context, r *api.TopologyRequest) (*api.TopologyResult, error) {
	if !r.Stale {
		if err := d.peers.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	q := routing.TopologyQuery{Service: r.Service, ServicesOnly: r.ServicesOnly, Limit: api.MaxTopology}
	topology, ok := d.data.Router.Table().Topology(&q, time.Now())
	if !ok {
		return nil, api.Errorf(api.NotFound, "Service/%s does not exist", r.Service)
	}
	return &api.TopologyResult{Node: d.peers.self.Name, Topology: topology}, nil
}
