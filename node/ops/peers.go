package ops

import (
	"context"
	"slices"
	"time"

	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/cluster"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
)

// Peers gives the methods access to the other nodes of the cluster.
type Peers struct {
	self    Self
	cluster *cluster.Cluster // nil: with --dev there are no others
	catalog *catalog.Catalog
}

// leads reports whether this node is the leader and ready to commit.
func (p *Peers) leads() bool {
	return p.cluster == nil || p.cluster.Store().Leadership().Ready
}

// ReadOnlyReason returns why no change can be committed now; "": it can.
func (p *Peers) ReadOnlyReason() string {
	if p.cluster == nil {
		return ""
	}
	return p.cluster.Directory.Alone()
}

// Forward forwards the current request to a node, by name or ID, unless that is
// "" or this one. If passed is true, the handler must return err and no result of
// its own.
func (p *Peers) Forward(ctx context.Context, node string) (passed bool, err error) {
	if node == "" || node == p.self.Name || node == p.self.ID {
		return false, nil
	}
	if p.cluster == nil {
		return true, api.Errorf(api.NotFound, "there is no node %q; this one is %q", node, p.self.Name)
	}
	c, err := p.cluster.Directory.Client(ctx, node)
	if err != nil {
		return true, err
	}
	return true, rpc.Pass(ctx, c)
}

// ReadBarrier waits until every change that any node has acknowledged before the call
// is in force on this node (a linearizable read).
func (p *Peers) ReadBarrier(ctx context.Context) error {
	if p.cluster == nil {
		return nil
	}
	index, err := p.cluster.Read(ctx)
	if err != nil {
		if why := p.cluster.Directory.Alone(); why != "" {
			return api.Errorf(api.NoLeader, "%s; --stale shows what this node has", why)
		}
		return err
	}
	return p.catalog.Await(ctx, index)
}

// members returns the members, this node among them.
func (p *Peers) members() []directory.Member {
	if p.cluster == nil {
		self := directory.Member{Self: true}
		self.ID, self.Name = p.self.ID, p.self.Name
		return []directory.Member{self}
	}
	return p.cluster.Directory.Members()
}

// others returns the members that are up, without this node.
func (p *Peers) others() []directory.Member {
	if p.cluster == nil {
		return nil
	}
	return slices.DeleteFunc(p.cluster.Directory.Members(), func(m directory.Member) bool { return m.Self || !m.Up() })
}

// upCheckInterval is the interval at which whileUp checks the node.
const upCheckInterval = 500 * time.Millisecond

// whileUp waits until the node is not up any more, calls down and returns. It also
// returns when ctx ends.
func (p *Peers) whileUp(ctx context.Context, id string, down func()) {
	tick := time.NewTicker(upCheckInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !slices.ContainsFunc(p.others(), func(m directory.Member) bool { return m.ID == id }) {
				down()
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// atLeader wraps do so that it runs on the leader: here if this node leads,
// otherwise by forwarding the request.
func atLeader[Req, Resp any](p *Peers, do func(context.Context, *Req) (*Resp, error)) func(context.Context, *Req) (*Resp, error) {
	if p.cluster == nil {
		return do
	}
	return cluster.OnLeader(p.cluster, do)
}
