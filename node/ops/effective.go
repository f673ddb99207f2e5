package ops

import (
	"context"

	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/dataplane"
	"penstock/node/rpc"
	"penstock/routing"
)

// decisions has the methods that explain the routing decisions of this node.
type decisions struct {
	peers   *Peers
	data    *dataplane.Dataplane
	catalog *catalog.Catalog
	status  *status
}

func (d *decisions) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodEffective, api.RoleReader, d.effective)
	rpc.Handle(s, api.MethodTopology, api.RoleReader, d.topology)
	rpc.Handle(s, api.MethodSimulate, api.RoleReader, d.simulate)
	rpc.Handle(s, api.MethodRevoked, api.RoleNode, d.revoked)
	rpc.Handle(s, api.MethodLimits, api.RoleReader, d.limits)
	rpc.Handle(s, api.MethodPermissions, api.RoleReader, d.permissions)
	rpc.Handle(s, api.MethodExplain, api.RoleReader, d.explainHere)
}

// effective lists which policies apply to which sources on this node.
func (d *decisions) effective(ctx context.Context, r *api.EffectiveRequest) (*api.EffectiveResult, error) {
	if !r.Stale {
		if err := d.peers.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	if r.Limit < 0 || r.After.Sources < 0 {
		return nil, api.Errorf(api.Invalid, "invalid limit %d or number of sources %d: want 0 or more", r.Limit, r.After.Sources)
	}
	q := routing.EffectiveQuery{Destination: r.Destination, All: r.All, After: r.After, Limit: r.Limit}
	if q.Limit == 0 || q.Limit > api.MaxEffective {
		q.Limit = api.MaxEffective
	}
	result := &api.EffectiveResult{Node: d.peers.self.Name}
	result.Destinations, result.More = d.data.Router.Table().Effective(&q)
	switch {
	case r.Destination != "" && len(result.Destinations) == 0:
		return nil, api.Errorf(api.NotFound, "there is no Service %q, and no policy for it", r.Destination)
	case result.Destinations == nil:
		result.Destinations = []routing.Effective{}
	}
	return result, nil
}
