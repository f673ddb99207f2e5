package node

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/audit"
	"penstock/node/cluster"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/directory"
	"penstock/node/rpc"
)

// openCluster joins, bootstraps or resumes the node's cluster; with --dev it only
// makes a store in memory. It returns once the node is in its cluster, or with
// the error of ctx.
func (n *Node) openCluster(ctx context.Context, set *listenerSet) error {
	if n.cfg.Dev {
		n.store = store.NewMemory(store.Limits{})
		n.joinAudit()
		return nil
	}
	c, err := cluster.Open(ctx, cluster.Config{
		Dir: n.cfg.DataDir, Name: n.cfg.Name, Version: n.cfg.Version, Zone: n.cfg.Zone,
		Listener: set.cluster, Gossip: n.cfg.Gossip, Advertise: n.cfg.Advertise, HTTP: n.httpAddr,
		Init: n.cfg.Init, Expect: n.cfg.Expect, Join: n.cfg.Join, Token: n.cfg.Token, TrustDomain: n.cfg.TrustDomain,
		TokenTTL: n.cfg.TokenTTL, Rejoin: n.cfg.Rejoin,
		Voters: n.cfg.Voters, ReplaceAfter: n.cfg.DeadVoterAfter, ForgetAfter: n.cfg.ForgetAfter,
		Log: n.log, Facts: n.facts, Tickets: n.setTicketKeys, Stop: n.fail, Waits: n.setWaiting, Audit: n.recordAct, Acts: n.audit,
		IdentitiesRevoked: n.closeRevoked, TokensChanged: n.endStreams,
	})
	set.cluster = nil // owned by the cluster now
	if err != nil {
		return err
	}
	n.cluster, n.store, n.id = c, c.Store(), c.ID()
	n.cfg.Name = c.Name() // a node keeps the name that it joined with
	n.joinAudit()
	if line := c.JoinCommand(); line != "" {
		n.cfg.Announce(line)
	}
	return nil
}

// awaitContent waits, on a node that is new to its cluster, until everything committed
// before has taken effect: the node has no older configuration to serve with, and
// must not report ready without one.
func (n *Node) awaitContent(ctx context.Context) error {
	if !n.cluster.New() {
		return nil
	}
	for logged := false; ; logged = true {
		err := n.ops.Peers.ReadBarrier(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !logged {
			n.log.Warn("cannot read the cluster's content yet; waiting for it", "error", err)
		}
		n.setWaiting(bootstrap.Waiting{
			ID: n.id, Name: n.cfg.Name, State: n.state.String(), Why: fmt.Sprintf("waiting for the cluster's content: %v", err),
		})
		select { // ReadBarrier has waited already, so a second is enough
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// catchUp waits until this node has applied what its cluster had committed when it
// started.
func (n *Node) catchUp() {
	for n.ops.Peers.ReadBarrier(n.ctx) != nil {
		select { // ReadBarrier has waited already
		case <-time.After(time.Second):
		case <-n.ctx.Done():
			return
		}
	}
	n.caughtUp.Store(true)
}

// facts returns what this node gossips about itself.
func (n *Node) facts() directory.Facts {
	if !n.componentsReady.Load() {
		return directory.Facts{Phase: n.state.String()}
	}
	_, view := n.catalog.InForce()
	return directory.Facts{
		Phase: n.state.String(), Connections: int64(n.data.Engine.Stats().Connections), AppliedIndex: view.Index(), Hints: n.data.HealthGossip(),
	}
}

// authenticate returns the principal that a token belongs to.
func (n *Node) authenticate(ctx context.Context, token string) (api.Principal, error) {
	if n.cluster == nil {
		return api.Principal{}, api.Errorf(api.Unauthenticated, "a node with --dev has no tokens")
	}
	return n.cluster.Tokens.Authenticate(ctx, token)
}

// closeRevoked closes the connections of clients whose certificate was revoked, and
// gives up certificates that this node holds. There are none before the data plane exists.
func (n *Node) closeRevoked() {
	if n.componentsReady.Load() {
		n.data.CloseRevoked()
		n.identities.Recheck()
	}
}

// handOverLeadership transfers the leadership, if this node has it, to another node: this
// one is about to drain or to end.
func (n *Node) handOverLeadership() {
	if n.cluster == nil {
		return
	}
	n.background.Go(func() {
		ctx, cancel := context.WithTimeout(n.ctx, handOverTimeout)
		defer cancel()
		n.cluster.HandOver(ctx)
	})
}

// handOverTimeout bounds the wait for another node to take the leadership.
const handOverTimeout = 3 * time.Second

// joinAudit gives the audit log the store.
func (n *Node) joinAudit() {
	c := audit.Cluster{
		Node: n.cfg.Name, Store: n.store, Leads: n.leads,
		ToLeader: func(ctx context.Context, acts *api.AuditActs) error {
			_, err := n.audit.Add(ctx, acts)
			return err
		},
	}
	if n.cluster != nil {
		c.ToLeader = func(ctx context.Context, acts *api.AuditActs) error {
			return n.cluster.RecordActs(ctx, acts, n.audit.Add)
		}
	}
	n.audit.Join(c)
}

// leads reports whether this node's store accepts batches.
func (n *Node) leads() bool { return n.cluster == nil || n.cluster.Store().Leadership().Ready }

// recordAct logs who changed what, and records it in the audit log.
func (n *Node) recordAct(e rpc.Event) {
	args := []any{
		"who", cmp.Or(e.Principal.Name, "unknown"), "role", cmp.Or(string(e.Principal.Role), "none"),
		"method", e.Method, "what", e.Summary, "from", e.Peer,
	}
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
	n.audit.Record(e)
}
