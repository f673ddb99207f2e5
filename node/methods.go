package node

import (
	"cmp"
	"context"
	"runtime"
	"slices"
	"strings"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/routing/gateway"
)

// newAdmin makes the server of the admin methods. What each does is told by
// the types of package admin.
func newAdmin(n *Node) *admin.Server {
	cfg := admin.Config{Logger: n.log, Authenticate: n.authenticate, Audit: n.audit}
	if n.cluster != nil {
		cfg.Check = n.cluster.Check
	}
	s := admin.NewServer(cfg)
	// Changes: the leader checks and decides.
	admin.Handle(s, admin.MethodApply, admin.RoleAdmin, atLeader(n, n.apply), admin.Changing())
	admin.Handle(s, admin.MethodDelete, admin.RoleAdmin, atLeader(n, n.delete), admin.Changing())
	admin.Handle(s, admin.MethodRollback, admin.RoleAdmin, atLeader(n, n.rollback), admin.Changing())
	admin.Handle(s, admin.MethodRestore, admin.RoleAdmin, atLeader(n, n.restoreSnapshot), admin.Changing())
	// Questions: the node asked answers, once it has what the leader has.
	admin.Handle(s, admin.MethodGet, admin.RoleReader, n.get)
	admin.HandleStream(s, admin.MethodWatch, admin.RoleReader, n.watch)
	admin.Handle(s, admin.MethodHistory, admin.RoleReader, n.history)
	admin.HandleStream(s, admin.MethodSave, admin.RoleAdmin, n.saveSnapshot)
	admin.Handle(s, admin.MethodStatus, admin.RoleReader, func(ctx context.Context, _ *admin.Empty) (*admin.Status, error) {
		if err := admin.LargeResponse(ctx); err != nil {
			return nil, err
		}
		return n.status(ctx), nil
	})
	admin.Handle(s, admin.MethodMembers, admin.RoleReader, func(ctx context.Context, _ *admin.Empty) (*admin.Members, error) {
		return n.members(ctx), nil
	})
	admin.Handle(s, admin.MethodVersion, admin.RoleReader, func(context.Context, *admin.Empty) (*admin.Version, error) {
		return n.version(), nil
	})
	n.registerPolicies(s)
	n.registerRollouts(s)
	// What concerns one node: that one does it.
	admin.Handle(s, admin.MethodExplain, admin.RoleReader, n.explainHere)
	admin.HandleStream(s, admin.MethodTop, admin.RoleReader, n.top)
	admin.Handle(s, admin.MethodDrain, admin.RoleOperator, n.drainMethod, admin.Changing())
	admin.Handle(s, admin.MethodLeave, admin.RoleAdmin, n.leave, admin.Changing())
	admin.Handle(s, admin.MethodLeaving, admin.RoleAdmin, n.leaving)
	// What nodes ask one another.
	admin.Handle(s, admin.MethodAwait, admin.RoleNode, n.await)
	admin.Handle(s, admin.MethodReport, admin.RoleNode, func(context.Context, *admin.Empty) (*admin.Report, error) {
		return n.report(), nil
	})
	if n.cluster != nil {
		n.cluster.Register(s)
	}
	return s
}

// audit logs who changed what.
func (n *Node) audit(e admin.Event) {
	args := []any{"who", cmp.Or(e.Principal.Name, "unknown"), "role", cmp.Or(string(e.Principal.Role), "none"), "method", e.Method, "what", e.Summary, "from", e.Peer}
	if e.Principal.TokenID != "" {
		args = append(args, "token", e.Principal.TokenID) // names are not unique
	}
	if e.Via != "" {
		args = append(args, "via", e.Via)
	}
	if e.Err != nil {
		args = append(args, "refused", e.Err)
	}
	n.log.Info("audit", args...)
}

// note says for the history who asks.
func note(ctx context.Context) consensus.Note {
	return consensus.Note{Who: admin.Caller(ctx).Name}
}

// batchID is the ID that a request brings.
func batchID(b []byte) (id consensus.ID, err error) {
	if len(b) != 0 && len(b) != len(id) {
		return id, admin.Errorf(admin.Invalid, "an ID of %d bytes, want %d or none", len(b), len(id))
	}
	copy(id[:], b)
	return id, nil
}

func (n *Node) apply(ctx context.Context, r *admin.ApplyRequest) (*admin.ApplyResult, error) {
	id, err := batchID(r.ID)
	if err != nil {
		return nil, err
	}
	objects, err := n.catalog.Decode(r.Documents)
	if err != nil {
		return nil, err
	}
	result, err := n.catalog.Apply(ctx, catalog.Change{Objects: objects, Prune: r.Prune, DryRun: r.DryRun, ID: id, Note: note(ctx)})
	n.countChange(err, r.DryRun)
	if err == nil {
		result.Warnings = slices.Concat(r.Warnings, result.Warnings, n.crowding(objects))
		result.Warnings = append(result.Warnings, n.unplaced(objects)...)
	}
	if err == nil && !r.DryRun {
		n.spread(ctx, result, r.Wait)
	}
	return result, err
}

// spread waits for the other nodes to act on a result, and adds what they say.
func (n *Node) spread(ctx context.Context, result *admin.ApplyResult, wait admin.Wait) {
	var warnings []admin.Fault
	result.Reached, warnings = n.reach(ctx, result.Index, wait, result.Changes)
	result.Warnings = append(result.Warnings, warnings...)
	if n.cluster != nil { // a --dev node keeps nothing on a disk
		result.Warnings = append(result.Warnings, oneDisk(n.cfg.Name, n.cluster.Store().Leadership().Voters, result.Changes)...)
	}
}

// oneDisk warns that changes are on the disk of one node alone: the only one
// that votes.
func oneDisk(name string, voters int, changes []admin.Change) []admin.Fault {
	changed := slices.ContainsFunc(changes, func(c admin.Change) bool { return c.Action != admin.Unchanged })
	if voters > 1 || !changed {
		return nil
	}
	return []admin.Fault{{Key: "node " + name, Message: "only its disk is sure to hold this change, until two more nodes have joined and vote"}}
}

func (n *Node) rollback(ctx context.Context, r *admin.RollbackRequest) (*admin.ApplyResult, error) {
	if err := ownByLeader(r.Kind); err != nil {
		return nil, err
	}
	id, err := batchID(r.ID)
	if err != nil {
		return nil, err
	}
	result, err := n.catalog.Rollback(ctx, catalog.Target{Kind: r.Kind, Name: r.Name, Version: r.Version, ID: id, Note: note(ctx)})
	n.countChange(err, false)
	if err == nil {
		n.spread(ctx, result, r.Wait)
	}
	return result, err
}

func (n *Node) delete(ctx context.Context, r *admin.DeleteRequest) (*admin.DeleteResult, error) {
	if err := ownByLeader(r.Kind); err != nil {
		return nil, err
	}
	id, err := batchID(r.ID)
	if err != nil {
		return nil, err
	}
	result, err := n.catalog.Delete(ctx, catalog.Target{Kind: r.Kind, Name: r.Name, Version: r.Version, ID: id, Note: note(ctx)})
	n.countChange(err, false)
	if err == nil {
		result.Reached, _ = n.reach(ctx, result.Index, r.Wait, nil)
	}
	return result, err
}

func (n *Node) get(ctx context.Context, r *admin.GetRequest) (*admin.GetResult, error) {
	if !r.Stale {
		if err := n.current(ctx); err != nil {
			return nil, err
		}
	}
	if err := admin.LargeResponse(ctx); err != nil {
		return nil, err
	}
	return n.catalog.Get(r)
}

func (n *Node) history(ctx context.Context, r *admin.HistoryRequest) (*admin.HistoryResult, error) {
	if !r.Stale {
		if err := n.current(ctx); err != nil {
			return nil, err
		}
	}
	if err := admin.LargeResponse(ctx); err != nil {
		return nil, err
	}
	return n.catalog.History(r.Kind, r.Name)
}

func (n *Node) watch(ctx context.Context, r *admin.WatchRequest, send func(*admin.WatchItem) error) error {
	if err := admin.LargeResponse(ctx); err != nil {
		return err
	}
	return n.catalog.Watch(ctx, r.Kind, r.Name, send)
}

// deaf warns of the listeners among some that do not listen here.
func (n *Node) deaf(listeners []string) (warnings []admin.Fault) {
	if len(listeners) == 0 {
		return nil
	}
	for _, l := range n.data.Engine.Listeners() {
		if l.Err == nil || !slices.Contains(listeners, l.Name) {
			continue
		}
		f := admin.Fault{
			Key: "Listener/" + l.Name, Path: "spec.address",
			Message: "does not listen on node " + n.cfg.Name + ", and is tried again: " + l.Err.Error(),
		}
		if of, at, ok := strings.Cut(l.Name, "/"); ok { // it comes of a Gateway
			f.Key, f.Path, f.Value = gateway.KindGateway+"/"+of, "spec.listeners", at
		}
		warnings = append(warnings, f)
	}
	return warnings
}

func (n *Node) version() *admin.Version {
	return &admin.Version{Version: n.cfg.Version, Go: runtime.Version()}
}
