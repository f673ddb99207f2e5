package ops

import (
	"context"

	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/node/dataplane"
	"penstock/routing"
)

// decisions has the methods that explain the routing decisions of this node.
type decisions struct {
	peers   *Peers
	data    *dataplane.Dataplane
	catalog *catalog.Catalog
	status  *status
}

func (d *decisions) register(s *admin.Server) {
	admin.Handle(s, admin.MethodEffective, admin.RoleReader, d.effective)
	admin.Handle(s, admin.MethodSimulate, admin.RoleReader, d.simulate)
	admin.Handle(s, admin.MethodExplain, admin.RoleReader, d.explainHere)
}

// effective lists which policies apply to which sources on this node.
func (d *decisions) effective(ctx context.Context, r *admin.EffectiveRequest) (*admin.EffectiveResult, error) {
	if !r.Stale {
		if err := d.peers.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := admin.LargeResponse(ctx); err != nil {
		return nil, err
	}
	if r.Limit < 0 || r.After.Sources < 0 {
		return nil, admin.Errorf(admin.Invalid, "invalid limit %d or number of sources %d: want 0 or more", r.Limit, r.After.Sources)
	}
	q := routing.EffectiveQuery{Destination: r.Destination, All: r.All, After: r.After, Limit: r.Limit}
	if q.Limit == 0 || q.Limit > admin.MaxEffective {
		q.Limit = admin.MaxEffective
	}
	result := &admin.EffectiveResult{Node: d.peers.self.Name}
	result.Destinations, result.More = d.data.Router.Table().Effective(&q)
	switch {
	case r.Destination != "" && len(result.Destinations) == 0:
		return nil, admin.Errorf(admin.NotFound, "there is no Service %q, and no policy for it", r.Destination)
	case result.Destinations == nil:
		result.Destinations = []routing.Effective{}
	}
	return result, nil
}
