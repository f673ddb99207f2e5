package leader

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"syscall"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/record"
	"penstock/node/trust"
)

// MethodAdmit has the leader admit a node whose token another node has verified:
// AdmitRequest -> AdmitResult.
const MethodAdmit = "cluster.admit"

// AdmitRequest is a candidate whose token has been verified.
type AdmitRequest struct {
	Node  directory.Candidate `json:"node"`
	Token string              `json:"token"` // the name, for the log
}

// AdmitResult is the leader's part of bootstrap.JoinResult.
type AdmitResult struct {
	CAs         [][]byte         `json:"cas"`
	Certificate []byte           `json:"certificate"`
	Gossip      [][]byte         `json:"gossip"`
	Peers       []directory.Peer `json:"peers"`
}

// maxNodes bounds the records of nodes, including those of nodes that have
// left.
const maxNodes = 2000

// Admit makes a node a member, on the leader. It only writes the record;
// Raft's configuration follows when the node is up. A repeated request of the
// same node succeeds again.
func (l *Leader) Admit(ctx context.Context, req *AdmitRequest) (*AdmitResult, error) {
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
	l.records.Lock()
	defer l.records.Unlock()
	snap, err := l.Entries.Current(ctx)
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
	ops, err := l.claimName(ctx, snap, next)
	if err != nil {
		return nil, err
	}
	ca, err := l.Entries.Signer(snap)
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(csr.Public, n.ID, n.Name, time.Now())
	if err != nil {
		return nil, err
	}
	keys, err := l.Directory.GossipKeys()
	if err != nil {
		return nil, err
	}
	next = n.AsMember(next.Joined, csr, ca)
	ops = append(ops, record.PutNode(snap, next))
	if err := l.Entries.Commit(ctx, l.Entries.Identity().Name, "join with "+req.Token, ops); err != nil {
		if errors.Is(err, store.ErrVersion) {
			return nil, api.Errorf(api.Unavailable, "the members have just changed: try again")
		}
		return nil, err
	}
	l.Log.Info("node admitted", "node", n.Name, "id", n.ID, "at", n.Cluster, "token", req.Token)
	// The address counts as reported until the node announces it: before it has
	// this answer, the node accepts no member's certificate.
	l.Directory.Book.AddReported(directory.Peer{ID: n.ID, Name: n.Name, Cluster: n.Cluster, Gossip: n.Gossip})
	l.Directory.Pool.Drop(n.ID)
	l.Wake()
	return &AdmitResult{CAs: ca.Bundle(), Certificate: leaf, Gossip: keys, Peers: l.Directory.Known()}, nil
}

// claimName makes sure that no other member holds a node's name. If the holder
// is gone, its machine was set up anew, and claimName returns the op that ends
// its membership.
func (l *Leader) claimName(ctx context.Context, snap store.Snapshot, next record.Node) ([]store.Op, error) {
	holder, taken := findNameHolder(record.Nodes(snap), next.Name, next.ID)
	if !taken {
		return nil, nil
	}
	entry := l.Directory.GossipEntries()[holder.ID]
	if holder.ID == l.Directory.ID() || l.Directory.Answers(ctx, holder.ID) {
		return nil, api.Errorf(api.Refused, "a node named %s is up at %s; choose another --name", holder.Name, holder.Cluster)
	}
	if entry.State == directory.StateUp {
		return nil, api.Errorf(api.Unavailable,
			"a node named %s was up at %s a moment ago; its name becomes free once it is known to be down", holder.Name, holder.Cluster)
	}
	l.Log.Warn("a new node replaces one of the same name that is down", "name", holder.Name, "old", holder.ID, "new", next.ID)
	holder.Left = time.Now().UTC()
	return []store.Op{record.PutNode(snap, holder)}, nil
}

// DetectCopy returns, on the leader, why the announcing folder is not that of
// the node in the record: where that node still runs, or which start the folder
// repeats; "": it is. An error means that this cannot be decided now, since the
// node does not answer where gossip reports it as up.
func (l *Leader) DetectCopy(ctx context.Context, r record.Node, a directory.Announcement) (string, error) {
	if r.Last.Instance == "" || r.Last.Instance == a.Last.Instance {
		return "", nil
	}
	if r.Cluster != a.Cluster {
		other, err := l.Directory.Locate(ctx, r.ID, []string{r.Cluster})
		switch {
		case err == nil && other.Last.Instance != a.Last.Instance:
			return "node " + r.Name + " runs at " + r.Cluster, nil
		case err != nil && !errors.Is(err, syscall.ECONNREFUSED) && l.Directory.GossipEntries()[r.ID].IsUpAt(r.Cluster):
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

// RecordAnnouncement updates the record of the announced node, on the leader.
func (l *Leader) RecordAnnouncement(ctx context.Context, a directory.Announcement, res *directory.AnnounceResult) error {
	l.records.Lock()
	defer l.records.Unlock()
	snap := l.Entries.Snapshot()
	for {
		r, ok := record.FindNode(snap, a.ID)
		switch {
		case !ok:
			// The record precedes the certificate, so this node left so long
			// ago that its record was deleted.
			if snap, err := l.Entries.Current(ctx); err == nil {
				_, known := record.FindNode(snap, a.ID)
				res.Removed = !known
			}
			return nil
		case !r.Member():
			res.Removed = l.Directory.Departed(a.ID)
			return nil
		}
		if r.Last != a.Last {
			at, err := l.DetectCopy(ctx, r, a)
			if err != nil {
				return err
			}
			if at != "" {
				l.Log.Warn("refused a copy of a node's data folder", "node", r.Name, "why", at)
				res.Copied = at
				return nil
			}
		}
		if a.Relayed {
			a.Level = max(a.Level, r.Level) // a relay of the first release drops the level
		}
		next := a.ApplyTo(r)
		next.Name = cmp.Or(a.Name, r.Name)
		if holder, taken := findNameHolder(record.Nodes(snap), next.Name, r.ID); taken {
			l.Log.Warn("refused a node's new name: another node has it", "node", r.Name, "wants", a.Name, "holder", holder.ID)
			next.Name = r.Name
		}
		res.Name = next.Name
		if next == r {
			return nil
		}
		err := l.Entries.Commit(ctx, l.Entries.Identity().Name, "announce", []store.Op{record.PutNode(snap, next)})
		if !errors.Is(err, store.ErrVersion) {
			return err
		}
		if snap, err = l.Entries.Current(ctx); err != nil { // the record has changed since
			return err
		}
	}
}

// findNameHolder finds the member that has a name, apart from the node with the
// ID but.
func findNameHolder(nodes []record.Node, name, but string) (record.Node, bool) {
	for _, r := range nodes {
		if r.Member() && r.Name == name && r.ID != but {
			return r, true
		}
	}
	return record.Node{}, false
}
