package ops

import (
	"context"
	"slices"
	"time"

	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/node/cluster"
)

// Peers are the nodes of a cluster as one of them sees the others.
type Peers struct {
	self    Self
	cluster *cluster.Cluster // nil: with --dev there are no others
	catalog *catalog.Catalog
}

// leads tells whether this node decides now.
func (p *Peers) leads() bool {
	return p.cluster == nil || p.cluster.Store().Leadership().Ready
}

// Alone says why nothing can be decided now; "": all is well.
func (p *Peers) Alone() string {
	if p.cluster == nil {
		return ""
	}
	return p.cluster.Alone()
}

// Elsewhere passes a request on to the node that it is meant for, unless that
// is this one.
func (p *Peers) Elsewhere(ctx context.Context, node string) (passed bool, err error) {
	if node == "" || node == p.self.Name || node == p.self.ID {
		return false, nil
	}
	if p.cluster == nil {
		return true, admin.Errorf(admin.NotFound, "there is no node %q; this one is %q", node, p.self.Name)
	}
	c, err := p.cluster.Client(ctx, node)
	if err != nil {
		return true, err
	}
	return true, admin.Pass(ctx, c)
}

// Current waits until this node acts on everything that was answered before,
// wherever it was asked for.
func (p *Peers) Current(ctx context.Context) error {
	if p.cluster == nil {
		return nil
	}
	index, err := p.cluster.Read(ctx)
	if err != nil {
		if why := p.cluster.Alone(); why != "" {
			return admin.Errorf(admin.NoLeader, "%s; --stale shows what this node has", why)
		}
		return err
	}
	return p.catalog.Await(ctx, index)
}

// others are the members that are up, without this one.
func (p *Peers) others() []cluster.Member {
	if p.cluster == nil {
		return nil
	}
	return slices.DeleteFunc(p.cluster.Members(), func(m cluster.Member) bool { return m.Self || !m.Up() })
}

// lookAgain is how often it is looked whether a node is still up.
const lookAgain = 500 * time.Millisecond

// whileUp calls down when a node is not up any more, and returns then, or when
// ctx ends.
func (p *Peers) whileUp(ctx context.Context, id string, down func()) {
	tick := time.NewTicker(lookAgain)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !slices.ContainsFunc(p.others(), func(m cluster.Member) bool { return m.ID == id }) {
				down()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// atLeader makes do run where the cluster is led from: here, or there by
// passing the request on.
func atLeader[Req, Resp any](p *Peers, do func(context.Context, *Req) (*Resp, error)) func(context.Context, *Req) (*Resp, error) {
	if p.cluster == nil {
		return do
	}
	return cluster.OnLeader(p.cluster, do)
}
