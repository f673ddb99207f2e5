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
func (c *Cluster) handleJoin(ctx context.Context, req *JoinRequest) (*JoinResult, error) {
	key, token, err := c.tokens.VerifyProof(ctx, req.TokenID, req.Proof)
	if err != nil {
		return nil, err
	}
	rpc.Showed(ctx, api.Principal{Name: token.Name, Role: api.RoleJoin, TokenID: token.ID})
	rpc.Summarize(ctx, "node %q (%.40s) at %s, with the token %q", req.Node.Name, req.Node.ID, req.Node.Cluster, token.Name)
	proof, err := trust.Prove(key, trust.Acceptor, rpc.TLS(ctx))
	if err != nil {
		return nil, err
	}
	res, err := askLeader(ctx, c, methodAdmit, &admitRequest{Node: req.Node, Token: token.Name}, c.handleAdmit)
	if err != nil {
		return nil, err
	}
	own := Peer{ID: c.ID(), Name: c.Name(), Cluster: c.Address(), Gossip: c.GossipAddress()}
	peers := append([]Peer{own}, slices.DeleteFunc(res.Peers, func(p Peer) bool { return p.ID == own.ID || p.ID == req.Node.ID })...)
	return &JoinResult{
		Proof: proof, Cluster: c.ClusterID(), CAs: res.CAs, Certificate: res.Certificate,
		Keyring: c.Sealer().Marshal(), Gossip: res.Gossip, Peers: peers[:min(len(peers), maxPeers)],
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
	if !n.reachable() {
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
	keys, err := c.gossipKeys()
	if err != nil {
		return nil, err
	}
	next = n.asMember(next.Joined, csr, ca)
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
	c.addressBook.addReported(Peer{ID: n.ID, Name: n.Name, Cluster: n.Cluster, Gossip: n.Gossip})
	c.pool.Drop(n.ID)
	notify(c.leadWake)
	return &admitResult{CAs: ca.Bundle(), Certificate: leaf, Gossip: keys, Peers: c.known()}, nil
}

// reachable reports whether a candidate has valid addresses and texts of
// bounded length.
func (n Candidate) reachable() bool {
	p := Peer{ID: n.ID, Name: n.Name, Cluster: n.Cluster, Gossip: n.Gossip}
	return p.valid() && n.Name != "" && boundedTexts(n.HTTP, n.Zone, n.Version, n.Last.Instance)
}

// asMember returns the candidate's record as a member with a certificate of the
// CA.
func (n Candidate) asMember(joined time.Time, csr trust.Request, ca *trust.CA) record.Node {
	return Announcement{
		Cluster: n.Cluster, Gossip: n.Gossip, HTTP: n.HTTP, Zone: n.Zone, Version: n.Version, Level: n.Level,
		Last: n.Last, Issuer: record.IssuerID(ca),
	}.applyTo(record.Node{Format: record.Format, ID: n.ID, Name: n.Name, Joined: joined, Key: hex.EncodeToString(csr.KeyDigest[:])})
}

// claimName makes sure that no other member holds a node's name. If the holder
// is gone, its machine was set up anew, and claimName returns the op that ends
// its membership.
func (c *Cluster) claimName(ctx context.Context, snap consensus.Snapshot, next record.Node) ([]consensus.Op, error) {
	holder, taken := findNameHolder(record.Nodes(snap), next.Name, next.ID)
	if !taken {
		return nil, nil
	}
	entry := c.gossipEntries()[holder.ID]
	if holder.ID == c.ID() || c.answers(ctx, holder.ID) {
		return nil, api.Errorf(api.Refused, "a node named %s is up at %s; choose another --name", holder.Name, holder.Cluster)
	}
	if entry.state == StateUp {
		return nil, api.Errorf(api.Unavailable,
			"a node named %s was up at %s a moment ago; its name becomes free once it is known to be down", holder.Name, holder.Cluster)
	}
	c.log.Warn("a new node replaces one of the same name that is down", "name", holder.Name, "old", holder.ID, "new", next.ID)
	holder.Left = time.Now().UTC()
	return []consensus.Op{record.PutNode(snap, holder)}, nil
}

// answers reports whether the node with that ID can be reached now.
func (c *Cluster) answers(ctx context.Context, id string) bool {
	_, err := c.locate(ctx, id, c.addresses(id))
	return err == nil
}

// locate queries the node with that ID, at the first of the addresses that
// answers, for its current process.
func (c *Cluster) locate(ctx context.Context, id string, addrs []string) (*locateResult, error) {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout/2)
	defer cancel()
	config := rpc.DialConfig{TLS: trust.ClientConfig(c.id.Load, id)}
	client, err := dialAny(ctx, addrs, config.Dial)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return rpc.Call[locateResult](ctx, client, methodLocate, &locateRequest{})
}

// handleLocate returns where a node is, as seen from this one.
func (c *Cluster) handleLocate(_ context.Context, req *locateRequest) (*locateResult, error) {
	if req.ID == "" || req.ID == c.ID() {
		own := Peer{ID: c.ID(), Name: c.Name(), Cluster: c.Address(), Gossip: c.GossipAddress()}
		return &locateResult{Peer: own, Last: c.id.Load().Incarnation(), Up: true}, nil
	}
	res := &locateResult{Peer: Peer{ID: req.ID}}
	if r, ok := record.FindNode(c.Store().Snapshot(), req.ID); ok {
		res.Peer, res.Last = Peer{ID: r.ID, Name: r.Name, Cluster: r.Cluster, Gossip: r.Gossip}, r.Last
	}
	if s, ok := c.gossipEntries()[req.ID]; ok {
		res.Peer, res.Up = s.peer, s.state == StateUp
	}
	return res, nil
}

// checkNotRunning refuses to start if this folder's node already runs at
// another address: it gets the addresses at which the peers see the node, and
// checks whether it answers there.
func (c *Cluster) checkNotRunning(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout/2)
	defer cancel()
	peers := c.addressBook.all()
	found := make(chan string, maxParallelCalls)
	peers = peers[:min(len(peers), maxParallelCalls)]
	for _, p := range peers {
		go func() { found <- c.runningAt(ctx, p) }()
	}
	for range peers {
		if at := <-found; at != "" {
			return fmt.Errorf("%w: node %s runs at %s: stop it first; a second node needs its own data folder", ErrCopied, c.ID(), at)
		}
	}
	return nil
}

// runningAt gets the address at which a peer sees this node, and returns it if
// another process of this node answers there.
func (c *Cluster) runningAt(ctx context.Context, p Peer) string {
	config := rpc.DialConfig{TLS: trust.ClientConfig(c.id.Load, p.ID)}
	client, err := config.Dial(ctx, p.Cluster)
	if err != nil {
		return ""
	}
	defer client.Close()
	res, err := rpc.Call[locateResult](ctx, client, methodLocate, &locateRequest{ID: c.ID()})
	if err != nil || res.Peer.Cluster == "" || res.Peer.Cluster == c.Address() {
		return ""
	}
	other, err := c.locate(ctx, c.ID(), []string{res.Peer.Cluster})
	if err != nil || other.Last.Instance == c.Instance() {
		return ""
	}
	return res.Peer.Cluster
}

// detectCopy returns, on the leader, why the announcing folder is not that of
// the node in the record: where that node still runs, or which start the folder
// repeats; "": it is. An error means that this cannot be decided now, since the
// node does not answer where gossip reports it as up.
func (c *Cluster) detectCopy(ctx context.Context, r record.Node, a Announcement) (string, error) {
	if r.Last.Instance == "" || r.Last.Instance == a.Last.Instance {
		return "", nil
	}
	if r.Cluster != a.Cluster {
		other, err := c.locate(ctx, r.ID, []string{r.Cluster})
		switch {
		case err == nil && other.Last.Instance != a.Last.Instance:
			return "node " + r.Name + " runs at " + r.Cluster, nil
		case err != nil && !errors.Is(err, syscall.ECONNREFUSED) && c.gossipEntries()[r.ID].isUpAt(r.Cluster):
			return "", api.Errorf(api.Busy, "node %s is up at %s but does not answer: its move to %s cannot be confirmed yet",
				r.Name, r.Cluster, a.Cluster)
		}
	}
	return incarnationMismatch(r, a), nil
}

// incarnationMismatch returns why an announcing folder is not the one in the
// record, by the count of its starts; "": it may be.
func incarnationMismatch(r record.Node, a Announcement) string {
	if err := a.Last.Follows(r.Last); err != nil {
		return err.Error()
	}
	return ""
}
