package cluster

import (
	"cmp"
	"context"
	"errors"
	"time"

	"penstock/consensus"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// The gossip key is replaced in three steps, each an entry in the store: the
// next key is accepted (add), then used (use), then the only one (done). A step
// waits until the nodes that are up have applied the one before. The store has
// the step and which nodes have applied it, so that any leader can go on.
//
// The CA needs two steps, since the old CA signs the next one's certificate as
// well: nodes accept certificates of both from the start, even before they know
// the next CA. When all have certificates of the next CA, the old one is
// retired.

// errRotating: the previous rotation has not ended.
var errRotating = errors.New("a rotation is under way")

// beginGossip begins a rotation by adding the next gossip key.
func beginGossip(cur record.GossipSecret, key []byte) (record.GossipSecret, error) {
	if cur.Phase != record.PhaseDone || len(cur.Keys) != 1 {
		return cur, errRotating
	}
	return record.GossipSecret{Format: record.Format, Keys: [][]byte{cur.Keys[0], key}, Phase: record.PhaseAdd}, nil
}

// nextGossip returns the step after cur, which is in the store since version;
// waits lists the nodes that have not applied cur. It does not wait for nodes
// that are down: they get the current keys through Raft, which needs no gossip.
func nextGossip(cur record.GossipSecret, version uint64, nodes []record.Node, up func(id string) bool) (next record.GossipSecret, waits []string, ok bool) {
	if cur.Phase == record.PhaseDone || len(cur.Keys) != 2 {
		return cur, nil, false
	}
	for _, r := range nodes {
		if r.Member() && up(r.ID) && r.Trust < version {
			waits = append(waits, r.Name)
		}
	}
	if len(waits) > 0 {
		return cur, waits, false
	}
	next = record.GossipSecret{Format: record.Format}
	if cur.Phase == record.PhaseAdd {
		next.Keys, next.Phase = cur.Keys, record.PhaseUse
	} else {
		next.Keys = cur.Keys[1:]
	}
	return next, nil, true
}

// membersOnOldCA names the members whose certificates are not from the newest
// CA. The old CA is trusted until there are none, since a node that is down
// comes back with a certificate of it. A node that will not come back has to be
// removed.
func membersOnOldCA(newest string, nodes []record.Node) (names []string) {
	for _, r := range nodes {
		if r.Member() && r.Issuer != newest {
			names = append(names, r.Name)
		}
	}
	return names
}

// Rotate begins to replace the CA or the gossip key. The leader drops the old
// one when all nodes have the new one.
func (c *Cluster) Rotate(ctx context.Context, req *api.RotateRequest) (*api.Empty, error) {
	return askLeader(ctx, c, api.MethodRotate, req, c.rotate)
}

func (c *Cluster) rotate(ctx context.Context, req *api.RotateRequest) (*api.Empty, error) {
	snap, err := c.entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	switch req.What {
	case "gossip":
		err = c.rotateGossip(ctx, snap)
	case "ca":
		err = c.rotateCA(ctx, snap)
	default:
		return nil, api.Errorf(api.Invalid, "%.40q: want ca or gossip", req.What)
	}
	if errors.Is(err, errRotating) || errors.Is(err, consensus.ErrVersion) {
		return nil, api.Errorf(api.Refused, "the previous rotation is still under way: not all nodes have the new secret yet")
	}
	notify(c.leadWake)
	return &api.Empty{}, err
}

func (c *Cluster) rotateGossip(ctx context.Context, snap consensus.Snapshot) error {
	cur, version, ok, err := record.Unseal[record.GossipSecret](c.Sealer(), snap, record.KeyGossip)
	if err != nil || !ok {
		return errors.Join(err, errRotating)
	}
	next, err := beginGossip(cur, trust.NewGossipKey())
	if err != nil {
		return err
	}
	value, err := record.Seal(c.Sealer(), record.KeyGossip, next)
	if err != nil {
		return err
	}
	return c.entries.Commit(ctx, cmp.Or(rpc.Caller(ctx).Name, c.Name()), "rotate gossip",
		[]consensus.Op{{Key: record.KeyGossip, Value: value, IfVersion: &version}})
}

func (c *Cluster) rotateCA(ctx context.Context, snap consensus.Snapshot) error {
	s, version, ok, err := record.Unseal[record.CASecret](c.Sealer(), snap, record.KeyCA)
	if err != nil || !ok {
		return errors.Join(err, errRotating)
	}
	ca, err := trust.ParseCA(s.CA)
	if err != nil {
		return err
	}
	if ca.Rotating() {
		return errRotating
	}
	next, err := ca.Next(time.Now())
	if err != nil {
		return err
	}
	return c.entries.PutCA(ctx, snap, next, version, "rotate ca")
}
