package ops

import (
	"context"

	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/rpc"
)

// reader has the methods that read resources. Any node answers them, once it has
// caught up with the leader.
type reader struct {
	peers   *Peers
	catalog *catalog.Catalog
}

func (q *reader) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodGet, api.RoleReader, q.get)
	rpc.HandleStream(s, api.MethodWatch, api.RoleReader, q.watch)
	rpc.Handle(s, api.MethodHistory, api.RoleReader, q.history)
	rpc.HandleStream(s, api.MethodSave, api.RoleAdmin, q.saveSnapshot, rpc.Audited())
}

func (q *reader) get(ctx context.Context, r *api.GetRequest) (*api.GetResult, error) {
	if !r.Stale {
		if err := q.peers.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	return q.catalog.Get(r)
}

func (q *reader) history(ctx context.Context, r *api.HistoryRequest) (*api.HistoryResult, error) {
	if !r.Stale {
		if err := q.peers.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := rpc.LargeResponse(ctx); err != nil {
		return nil, err
	}
	return q.catalog.History(r.Kind, r.Name)
}

func (q *reader) watch(ctx context.Context, r *api.WatchRequest, send func(*api.WatchItem) error) error {
	if err := rpc.LargeResponse(ctx); err != nil {
		return err
	}
	return q.catalog.Watch(ctx, r.Kind, r.Name, send)
}
