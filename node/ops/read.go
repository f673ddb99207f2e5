package ops

import (
	"context"

	"penstock/node/admin"
	"penstock/node/catalog"
)

// reader has the methods that read resources. Any node answers them, once it has
// caught up with the leader.
type reader struct {
	peers   *Peers
	catalog *catalog.Catalog
}

func (q *reader) register(s *admin.Server) {
	admin.Handle(s, admin.MethodGet, admin.RoleReader, q.get)
	admin.HandleStream(s, admin.MethodWatch, admin.RoleReader, q.watch)
	admin.Handle(s, admin.MethodHistory, admin.RoleReader, q.history)
	admin.HandleStream(s, admin.MethodSave, admin.RoleAdmin, q.saveSnapshot)
}

func (q *reader) get(ctx context.Context, r *admin.GetRequest) (*admin.GetResult, error) {
	if !r.Stale {
		if err := q.peers.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := admin.LargeResponse(ctx); err != nil {
		return nil, err
	}
	return q.catalog.Get(r)
}

func (q *reader) history(ctx context.Context, r *admin.HistoryRequest) (*admin.HistoryResult, error) {
	if !r.Stale {
		if err := q.peers.ReadBarrier(ctx); err != nil {
			return nil, err
		}
	}
	if err := admin.LargeResponse(ctx); err != nil {
		return nil, err
	}
	return q.catalog.History(r.Kind, r.Name)
}

func (q *reader) watch(ctx context.Context, r *admin.WatchRequest, send func(*admin.WatchItem) error) error {
	if err := admin.LargeResponse(ctx); err != nil {
		return err
	}
	return q.catalog.Watch(ctx, r.Kind, r.Name, send)
}
