package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
	"penstock/node/cluster"
)

// openCluster makes the node one of a cluster; with --dev it stays by itself.
// It returns when the node knows its cluster, which may take as long as it
// takes to find it.
func (n *Node) openCluster(ctx context.Context, d *listenerSet) error {
	if n.cfg.Dev {
		n.store = consensus.NewMemory(consensus.Limits{})
		return nil
	}
	c, err := cluster.Open(ctx, cluster.Config{
		Dir: n.cfg.DataDir, Name: n.cfg.Name, Version: n.cfg.Version, Zone: n.cfg.Zone,
		Listener: d.cluster, Gossip: n.cfg.Gossip, Advertise: n.cfg.Advertise, HTTP: n.httpAddr,
		Init: n.cfg.Init, Expect: n.cfg.Expect, Join: n.cfg.Join, Token: n.cfg.Token,
		Voters: n.cfg.Voters, ReplaceAfter: n.cfg.DeadVoterAfter, ForgetAfter: n.cfg.ForgetAfter,
		Log: n.log, Facts: n.facts, Tickets: n.tickets.SetKeys, Stop: n.fail, Waits: n.wait, Audit: audit(n.log),
	})
	d.cluster = nil // it is the cluster's now
	if err != nil {
		return err
	}
	n.cluster, n.store, n.id = c, c.Store(), c.ID()
	n.cfg.Name = c.Name() // a node keeps the name that it joined with
	if line := c.JoinCommand(); line != "" {
		n.cfg.Announce(line)
	}
	return nil
}

// receive waits, on a node that is new to its cluster, until it acts on what
// was agreed before: it has no older content to serve traffic by, and must not
// say that it is ready without any.
func (n *Node) receive(ctx context.Context) error {
	if !n.cluster.New() {
		return nil
	}
	for told := false; ; told = true {
		err := n.ops.Peers.Current(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !told {
			n.log.Warn("the cluster's content is not there yet; this node waits for it", "error", err)
		}
		n.wait(cluster.Waiting{ID: n.id, Name: n.cfg.Name, State: n.state.String(), Why: fmt.Sprintf("waiting for the cluster's content: %v", err)})
		select { // the error has taken its time as well
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// facts are what this node tells all others.
func (n *Node) facts() cluster.Facts {
	if !n.made.Load() {
		return cluster.Facts{Phase: n.state.String()}
	}
	_, view := n.catalog.InForce()
	return cluster.Facts{
		Phase: n.state.String(), Connections: int64(n.data.Engine.Stats().Connections), AppliedIndex: view.Index(), Hints: n.data.Hints(),
	}
}

// authenticate finds out whose token that is.
func (n *Node) authenticate(ctx context.Context, token string) (admin.Principal, error) {
	if n.cluster == nil {
		return admin.Principal{}, admin.Errorf(admin.Unauthenticated, "a node with --dev knows no tokens")
	}
	return n.cluster.Authenticate(ctx, token)
}

// handOver lets another node lead, if this one does: it is about to get less
// to do, or to end.
func (n *Node) handOver() {
	if n.cluster == nil {
		return
	}
	n.background.Go(func() {
		ctx, cancel := context.WithTimeout(n.alive, handOverPatience)
		defer cancel()
		n.cluster.HandOver(ctx)
	})
}

// handOverPatience bounds the wait for another node to lead.
const handOverPatience = 3 * time.Second

// audit logs who changed what.
func audit(log *slog.Logger) func(admin.Event) {
	return func(e admin.Event) {
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
		log.Info("audit", args...)
	}
}
