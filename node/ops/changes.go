package ops

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/dataplane"
	"penstock/node/kinds"
	"penstock/node/rpc"
	"penstock/routing/resource"
)

// note records the caller for the history.
func note(ctx context.Context) store.Note {
	return store.Note{Who: rpc.Caller(ctx).Name}
}

// batchID decodes the ID of a request; empty is allowed.
func batchID(b []byte) (id store.ID, err error) {
	if len(b) != 0 && len(b) != len(id) {
		return id, api.Errorf(api.Invalid, "an ID of %d bytes, want %d or none", len(b), len(id))
	}
	copy(id[:], b)
	return id, nil
}

// changes has the methods that change resources. They run on the leader.
type changes struct {
	peers   *Peers
	data    *dataplane.Dataplane
	catalog *catalog.Catalog
	counter *prometheus.CounterVec // by result
	uploads uploads
}

func (c *changes) register(s *rpc.Server) {
	rpc.Handle(s, api.MethodApply, api.RoleAdmin, atLeader(c.peers, c.apply), rpc.Changing())
	rpc.Handle(s, api.MethodDelete, api.RoleAdmin, atLeader(c.peers, c.delete), rpc.Changing())
	rpc.Handle(s, api.MethodRollback, api.RoleAdmin, atLeader(c.peers, c.rollback), rpc.Changing())
	rpc.Handle(s, api.MethodRestore, api.RoleAdmin, atLeader(c.peers, c.restoreSnapshot), rpc.Changing())
	rpc.Handle(s, api.MethodAwait, api.RoleNode, c.await)
}

func (c *changes) apply(ctx context.Context, r *api.ApplyRequest) (*api.ApplyResult, error) {
	id, err := batchID(r.ID)
	if err != nil {
		return nil, err
	}
	objects, err := c.catalog.Decode(r.Documents)
	if err != nil {
		return nil, err
	}
	result, err := c.catalog.Apply(ctx, catalog.Change{Objects: objects, Prune: r.Prune, DryRun: r.DryRun, ID: id, Note: note(ctx)})
	c.count(err, r.DryRun)
	if err == nil {
		result.Warnings = slices.Concat(r.Warnings, result.Warnings, c.maxFrameWarnings(objects))
		result.Warnings = append(result.Warnings, c.unplacedWarnings(objects)...)
		result.Warnings = append(result.Warnings, clearWarnings(objects)...)
	}
	if err == nil && !r.DryRun {
		c.awaitResult(ctx, result, r.Wait)
	}
	return result, err
}

// awaitResult waits for the change to take effect on the other nodes, and adds their
// warnings to the result.
func (c *changes) awaitResult(ctx context.Context, result *api.ApplyResult, wait api.Wait) {
	reached, warnings := c.awaitNodes(ctx, result.Index, wait, result.Changes)
	result.Reached, result.Warnings = reached, append(result.Warnings, warnings...)
}

// awaitNodes waits for the changes of an index to take effect on the other nodes. It
// returns the warnings that any such change may have.
func (c *changes) awaitNodes(ctx context.Context, index uint64, wait api.Wait, changes []api.Change) (api.Reached, []api.Fault) {
	reached, warnings := c.awaitIndex(ctx, index, wait, changes)
	if c.peers.cluster != nil { // a --dev node has nothing on disk
		warnings = append(warnings, singleVoterWarning(c.peers.self.Name, c.peers.cluster.Store().Leadership().Voters, changes)...)
	}
	return reached, warnings
}

// singleVoterWarning warns that a change is durable on one node only, if the cluster has a
// single voter.
func singleVoterWarning(name string, voters int, changes []api.Change) []api.Fault {
	changed := slices.ContainsFunc(changes, func(c api.Change) bool { return c.Action != api.Unchanged })
	if voters > 1 || !changed {
		return nil
	}
	return []api.Fault{{
		Key: "node " + name, Message: "this change is durable on its disk only, until two more voters have joined",
	}}
}

func (c *changes) rollback(ctx context.Context, r *api.RollbackRequest) (*api.ApplyResult, error) {
	if err := refuseReadOnlyKind(r.Kind); err != nil {
		return nil, err
	}
	id, err := batchID(r.ID)
	if err != nil {
		return nil, err
	}
	result, err := c.catalog.Rollback(ctx, catalog.Target{Kind: r.Kind, Name: r.Name, Version: r.Version, ID: id, Note: note(ctx)})
	c.count(err, false)
	if err == nil {
		c.awaitResult(ctx, result, r.Wait)
	}
	return result, err
}

func (c *changes) delete(ctx context.Context, r *api.DeleteRequest) (*api.DeleteResult, error) {
	if err := refuseReadOnlyKind(r.Kind); err != nil {
		return nil, err
	}
	id, err := batchID(r.ID)
	if err != nil {
		return nil, err
	}
	result, err := c.catalog.Delete(ctx, catalog.Target{Kind: r.Kind, Name: r.Name, Version: r.Version, ID: id, Note: note(ctx)})
	c.count(err, false)
	if err == nil {
		reached, warnings := c.awaitNodes(ctx, result.Index, r.Wait, []api.Change{{Kind: result.Kind, Name: result.Name, Action: api.Deleted}})
		result.Reached, result.Warnings = reached, append(result.Warnings, warnings...)
	}
	return result, err
}

// count counts the result of a change request.
func (c *changes) count(err error, dryRun bool) {
	switch {
	case dryRun:
	case err != nil:
		c.counter.WithLabelValues("refused").Inc()
	default:
		c.counter.WithLabelValues("done").Inc()
	}
}

// refuseReadOnlyKind returns an error for a kind that only Penstock itself writes.
func refuseReadOnlyKind(kind string) error {
	k, err := resource.FindKind(kinds.All(), kind)
	if err == nil && k.ReadOnly != "" {
		return api.Errorf(api.Refused, "%s %s", k.Name, k.ReadOnly)
	}
	return nil
}
