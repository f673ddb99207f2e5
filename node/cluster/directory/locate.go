package directory

import (
	"context"
	"fmt"
	"time"

	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// MethodLocate reports where a node is and which process runs as it:
// LocateRequest -> LocateResult.
const MethodLocate = "cluster.where"

// CallTimeout bounds a small request between nodes.
const CallTimeout = 2 * time.Second

// maxAsked bounds the peers that CheckNotRunning asks.
const maxAsked = 8

// LocateRequest names the node to locate by ID; "": the node that answers.
type LocateRequest struct {
	ID string `json:"id,omitempty"`
}

// LocateResult is what the answering node knows about that node.
type LocateResult struct {
	Peer Peer              `json:"peer"`
	Last trust.Incarnation `json:"last"` // zero: not known
	Up   bool              `json:"up"`
}

// Answers reports whether the node with that ID can be reached now.
func (d *Directory) Answers(ctx context.Context, id string) bool {
	_, err := d.Locate(ctx, id, d.Addresses(id))
	return err == nil
}

// Locate queries the node with that ID, at the first of the addresses that
// answers, for its current process.
func (d *Directory) Locate(ctx context.Context, id string, addrs []string) (*LocateResult, error) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout/2)
	defer cancel()
	config := rpc.DialConfig{TLS: trust.ClientConfig(d.Entries.Identity, id)}
	client, err := dialAny(ctx, addrs, config.Dial)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return rpc.Call[LocateResult](ctx, client, MethodLocate, &LocateRequest{})
}

// HandleLocate returns where a node is, as seen from this one.
func (d *Directory) HandleLocate(_ context.Context, req *LocateRequest) (*LocateResult, error) {
	if req.ID == "" || req.ID == d.ID() {
		return &LocateResult{Peer: d.Own(), Last: d.Entries.Identity().Incarnation(), Up: true}, nil
	}
	res := &LocateResult{Peer: Peer{ID: req.ID}}
	if r, ok := record.FindNode(d.Entries.Snapshot(), req.ID); ok {
		res.Peer, res.Last = Peer{ID: r.ID, Name: r.Name, Cluster: r.Cluster, Gossip: r.Gossip}, r.Last
	}
	if s, ok := d.GossipEntries()[req.ID]; ok {
		res.Peer, res.Up = s.Peer, s.State == StateUp
	}
	return res, nil
}

// CheckNotRunning refuses to start if this folder's node already runs at
// another address: it gets the addresses at which the peers see the node, and
// checks whether it answers there.
func (d *Directory) CheckNotRunning(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout/2)
	defer cancel()
	peers := d.Book.All()
	found := make(chan string, maxAsked)
	peers = peers[:min(len(peers), maxAsked)]
	for _, p := range peers {
		go func() { found <- d.runningAt(ctx, p) }()
	}
	for range peers {
		if at := <-found; at != "" {
			return fmt.Errorf("%w: node %s runs at %s: stop it first; a second node needs its own data folder", ErrCopied, d.ID(), at)
		}
	}
	return nil
}

// runningAt gets the address at which a peer sees this node, and returns it if
// another process of this node answers there.
func (d *Directory) runningAt(ctx context.Context, p Peer) string {
	config := rpc.DialConfig{TLS: trust.ClientConfig(d.Entries.Identity, p.ID)}
	client, err := config.Dial(ctx, p.Cluster)
	if err != nil {
		return ""
	}
	defer client.Close()
	res, err := rpc.Call[LocateResult](ctx, client, MethodLocate, &LocateRequest{ID: d.ID()})
	if err != nil || res.Peer.Cluster == "" || res.Peer.Cluster == d.Address {
		return ""
	}
	other, err := d.Locate(ctx, d.ID(), []string{res.Peer.Cluster})
	if err != nil || other.Last.Instance == d.Entries.Identity().Instance {
		return ""
	}
	return res.Peer.Cluster
}
