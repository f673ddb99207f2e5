package ops

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/dataplane"
	"penstock/node/rpc"
	"penstock/routing"
	"penstock/routing/resource"
	"penstock/routing/resource/codec"
)

// permissionKinds are the kinds of the resources by which permissions decide.
var permissionKinds = []string{resource.KindPermission, resource.KindMesh, "Listener"}

// revoked counts the connections of this node that a change would close.
func (d *decisions) revoked(ctx context.Context, r *api.RevokedRequest) (*api.Revoked, error) {
	objects, err := d.catalog.Decode(r.Documents)
	if err != nil {
		return nil, err
	}
	changes := make([]resource.Change, 0, len(objects))
	for _, o := range objects {
		changes = append(changes, resource.Put(o))
	}
	for kind, names := range r.Deleted {
		for _, name := range names {
			changes = append(changes, resource.Delete(resource.Key{Kind: kind, Name: name}))
		}
	}
	for i := range changes {
		if !slices.Contains(permissionKinds, changes[i].Kind) {
			return nil, api.Errorf(api.Invalid, "permissions do not depend on %s", changes[i].Key)
		}
	}
	table := d.data.Router.Table()
	whatIf, err := table.WhatIf(changes, d.data.Resolver, time.Now())
	if err != nil {
		return nil, api.Errorf(api.Invalid, "%v", err)
	}
	n, err := d.data.CountRevoked(ctx, table, whatIf.After(), whatIf.ChangedListeners())
	return &api.Revoked{Connections: n}, err
}

// summarizeRevoked adds to the result how many established connections of all nodes
// the change would close. It waits for them for reportTimeout.
func (d *decisions) summarizeRevoked(
	ctx context.Context, changes []resource.Change, table *routing.Table, w *routing.WhatIf, result *api.SimulateResult,
) {
	if !dataplane.MayRevoke(table, w.After(), w.ChangedListeners()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	var others []directory.Member
	if d.peers.cluster != nil {
		others = slices.DeleteFunc(d.peers.cluster.Directory.Members(), func(m directory.Member) bool { return m.Self })
	}
	counts := make([]int64, len(others))
	var asked sync.WaitGroup
	request := revokedRequest(changes)
	for i, m := range others {
		asked.Go(func() { counts[i] = d.revokedAt(ctx, m, request) })
	}
	var missing []string
	total, err := d.data.CountRevoked(ctx, table, w.After(), w.ChangedListeners())
	if err != nil {
		missing = append(missing, d.peers.self.Name)
	}
	asked.Wait()
	for i, n := range counts {
		if n < 0 {
			missing = append(missing, others[i].Name)
			continue
		}
		total += n
	}
	if total > 0 || len(missing) > 0 {
		result.Words = append(result.Words, fmt.Sprintf("permissions: %d established connections would be closed", total))
		result.Counted = withMissing(result.Counted, len(others)+1, missing)
	}
}

// revokedAt asks another node; -1: it has not answered.
func (d *decisions) revokedAt(ctx context.Context, m directory.Member, r *api.RevokedRequest) int64 {
	if !m.Up() {
		return -1
	}
	c, err := d.peers.cluster.Directory.Client(ctx, m.ID)
	if err != nil {
		return -1
	}
	answer, err := rpc.Call[api.Revoked](ctx, c, api.MethodRevoked, r)
	if err != nil { // among others from a node of an earlier version
		return -1
	}
	return answer.Connections
}

// revokedRequest has those of the changes by which permissions decide.
func revokedRequest(changes []resource.Change) *api.RevokedRequest {
	r := &api.RevokedRequest{Deleted: map[string][]string{}}
	for i := range changes {
		switch ch := &changes[i]; {
		case !slices.Contains(permissionKinds, ch.Kind):
		case ch.Delete:
			r.Deleted[ch.Kind] = append(r.Deleted[ch.Kind], ch.Name)
		default:
			r.Documents = append(r.Documents, codec.EncodeWithSecrets(ch.Object))
		}
	}
	return r
}

// withMissing adds nodes that did not answer to those that did not answer another
// question. It returns nil if this node is the only one and has answered.
func withMissing(c *api.Counted, nodes int, missing []string) *api.Counted {
	if nodes == 1 && len(missing) == 0 {
		return c
	}
	all := &api.Counted{Of: nodes}
	if c != nil {
		all.Missing = slices.Clone(c.Missing)
	}
	for _, name := range missing {
		if !slices.Contains(all.Missing, name) {
			all.Missing = append(all.Missing, name)
		}
	}
	slices.Sort(all.Missing)
	all.Nodes = nodes - len(all.Missing)
	return all
}
