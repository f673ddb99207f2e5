package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"penstock/consensus"
	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// maxNodes bounds the records of nodes, including those of nodes that have
// left.
const maxNodes = 2000

// handleJoin admits a node that proves that it knows a token. Any node serves
// it: the proof is bound to the connection and has to be checked here. The
// leader does the rest.
func (c *Cluster) handleJoin(ctx context.Context, req *bootstrap.JoinRequest) (*bootstrap.JoinResult, error) {
	key, token, err := c.Tokens.VerifyProof(ctx, req.TokenID, req.Proof)
	if err != nil {
		return nil, err
	}
	rpc.Showed(ctx, api.Principal{Name: token.Name, Role: api.RoleJoin, TokenID: token.ID})
	rpc.Summarize(ctx, "node %q (%.40s) at %s, with the token %q", req.Node.Name, req.Node.ID, req.Node.Cluster, token.Name)
	proof, err := trust.Prove(key, trust.Acceptor, rpc.TLS(ctx))
	if err != nil {
		return nil, err
	}
	res, err := leader.Ask(ctx, c.requests, methodAdmit, &admitRequest{Node: req.Node, Token: token.Name}, c.handleAdmit)
	if err != nil {
		return nil, err
	}
	own := c.Directory.Own()
	others := slices.DeleteFunc(res.Peers, func(p directory.Peer) bool { return p.ID == own.ID || p.ID == req.Node.ID })
	peers := append([]directory.Peer{own}, others...)
	return &bootstrap.JoinResult{
		Proof: proof, Cluster: c.ClusterID(), CAs: res.CAs, Certificate: res.Certificate,
		Keyring: c.Sealer().Marshal(), Gossip: res.Gossip, Peers: peers[:min(len(peers), directory.MaxPeers)],
	}, nil
}

// handleAdmit makes a node a member, on the leader. It only writes the record;
// Raft's configuration follows when the node is up. A repeated request of the
// same node succeeds again.
func (c *Cluster) handleAdmit(ctx context.Context, req *admitRequest) (*admitResult, error) {
	n := req.Node
	csr, err := trust.CheckRequest(n.CSR)
	if err == nil && (csr.NodeID != n.ID || csr.Name != n.Name) {
		err = fmt.Errorf("it is for node %.40q, name %.80q", csr.NodeID, csr.Name)
	}
	if err != nil {
		return nil, api.Errorf(api.Invalid, "invalid certificate request of node %.40q, name %.80q: %v", n.ID, n.Name, err)
	}
	if !n.Reachable() {
		return nil, api.Errorf(api.Invalid, "node %.40q, name %.80q, address %.80q: invalid, or no address that others can reach: "+
			"check --cluster and --advertise", n.ID, n.Name, n.Cluster)
	}
	c.recordsMu.Lock()
	defer c.recordsMu.Unlock()
	snap, err := c.entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	next := record.Node{Format: record.Format, ID: n.ID, Name: n.Name, Joined: time.Now().UTC(), Key: hex.EncodeToString(csr.KeyDigest[:])}
	if old, ok := record.FindNode(snap, n.ID); ok {
		switch {
		case old.Key != next.Key:
			return nil, api.Errorf(api.Refused, "the ID %s belongs to another node", n.ID)
		case !old.Member():
			return nil, api.Errorf(api.Refused, "this node has left the cluster or was removed: "+
				"start it with an empty data folder to join as a new one")
		}
		next.Joined = old.Joined
	} else if len(record.Nodes(snap)) >= maxNodes {
		return nil, api.Errorf(api.Refused, "the cluster has records of %d nodes, including former members; the limit is %d",
			maxNodes, maxNodes)
	}
	ops, err := c.claimName(ctx, snap, next)
	if err != nil {
		return nil, err
	}
	ca, err := c.entries.Signer(snap)
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(csr.Public, n.ID, n.Name, time.Now())
	if err != nil {
		return nil, err
	}
	keys, err := c.Directory.GossipKeys()
	if err != nil {
		return nil, err
	}
	next = n.AsMember(next.Joined, csr, ca)
	ops = append(ops, record.PutNode(snap, next))
	if err := c.entries.Commit(ctx, c.Name(), "join with "+req.Token, ops); err != nil {
		if errors.Is(err, consensus.ErrVersion) {
			return nil, api.Errorf(api.Unavailable, "the members have just changed: try again")
		}
		return nil, err
	}
	c.log.Info("node admitted", "node", n.Name, "id", n.ID, "at", n.Cluster, "token", req.Token)
	// The address counts as reported until the node announces it: before it has
	// this answer, the node accepts no member's certificate.
	c.Directory.Book.AddReported(directory.Peer{ID: n.ID, Name: n.Name, Cluster: n.Cluster, Gossip: n.Gossip})
	c.Directory.Pool.Drop(n.ID)
	notify(c.leadWake)
	return &admitResult{CAs: ca.Bundle(), Certificate: leaf, Gossip: keys, Peers: c.Directory.Known()}, nil
}

// claimName makes sure that no other member holds a node's name. If the holder
// is gone, its machine was set up anew, and claimName returns the op that ends
// its membership.
func (c *Cluster) claimName(ctx context.Context, snap consensus.Snapshot, next record.Node) ([]consensus.Op, error) {
	holder, taken := findNameHolder(record.Nodes(snap), next.Name, next.ID)
	if !taken {
		return nil, nil
	}
	entry := c.Directory.GossipEntries()[holder.ID]
	if holder.ID == c.ID() || c.Directory.Answers(ctx, holder.ID) {
		return nil, api.Errorf(api.Refused, "a node named %s is up at %s; choose another --name", holder.Name, holder.Cluster)
	}
	if entry.State == directory.StateUp {
		return nil, api.Errorf(api.Unavailable,
			"a node named %s was up at %s a moment ago; its name becomes free once it is known to be down", holder.Name, holder.Cluster)
	}
	c.log.Warn("a new node replaces one of the same name that is down", "name", holder.Name, "old", holder.ID, "new", next.ID)
	holder.Left = time.Now().UTC()
	return []consensus.Op{record.PutNode(snap, holder)}, nil
}

// detectCopy returns, on the leader, why the announcing folder is not that of
// the node in the record: where that node still runs, or which start the folder
// repeats; "": it is. An error means that this cannot be decided now, since the
// node does not answer where gossip reports it as up.
func (c *Cluster) detectCopy(ctx context.Context, r record.Node, a directory.Announcement) (string, error) {
	if r.Last.Instance == "" || r.Last.Instance == a.Last.Instance {
		return "", nil
	}
	if r.Cluster != a.Cluster {
		other, err := c.Directory.Locate(ctx, r.ID, []string{r.Cluster})
		switch {
		case err == nil && other.Last.Instance != a.Last.Instance:
			return "node " + r.Name + " runs at " + r.Cluster, nil
		case err != nil && !errors.Is(err, syscall.ECONNREFUSED) && c.Directory.GossipEntries()[r.ID].IsUpAt(r.Cluster):
			return "", api.Errorf(api.Busy, "node %s is up at %s but does not answer: its move to %s cannot be confirmed yet",
				r.Name, r.Cluster, a.Cluster)
		}
	}
	return incarnationMismatch(r, a), nil
}

// incarnationMismatch returns why an announcing folder is not the one in the
// record, by the count of its starts; "": it may be.
func incarnationMismatch(r record.Node, a directory.Announcement) string {
	if err := a.Last.Follows(r.Last); err != nil {
		return err.Error()
	}
	return ""
}

// handleForm answers a node of --expect that there is a cluster already.
func (c *Cluster) handleForm(ctx context.Context, req *bootstrap.FormRequest) (*bootstrap.FormResult, error) {
	cs := rpc.TLS(ctx)
	key, _, err := c.Tokens.VerifyProof(ctx, req.TokenID, req.Proof)
	if err != nil {
		return nil, err
	}
	proof, err := trust.Prove(key, trust.Acceptor, cs)
	if err != nil {
		return nil, err
	}
	renounced, err := bootstrap.LoadRenounced(c.cfg.Dir)
	if err != nil {
		return nil, err
	}
	return &bootstrap.FormResult{Proof: proof, View: bootstrap.FormView{
		ID: c.ID(), Name: c.Name(), Addr: c.Directory.Address, Expect: c.cfg.Expect, Formed: true, Cluster: c.ClusterID(), Renounced: renounced,
	}}, nil
}
