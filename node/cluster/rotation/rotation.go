// Package rotation replaces a cluster's secrets, which are entries of its store:
// the CA, the key of gossip and the keys of TLS session tickets.
//
// The gossip key is replaced in three steps, each an entry in the store: the
// next key is accepted (add), then used (use), then the only one (done). A step
// waits until the nodes that are up have applied the one before. The store has
// the step and which nodes have applied it, so that any leader can go on.
//
// The CA needs two steps, since the old CA signs the next one's certificate as
// well: nodes accept certificates of both from the start, even before they know
// the next CA. When all have certificates of the next CA, the old one is
// retired.
package rotation

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// ticketsEvery is the age at which the newest session ticket key is replaced.
const ticketsEvery = 24 * time.Hour

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
func nextGossip(cur record.GossipSecret, version uint64, nodes []record.Node, up func(id string) bool) (
	next record.GossipSecret, waits []string, ok bool,
) {
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

// NextTickets puts a new key before the others, and drops the oldest beyond
// maxTickets.
func NextTickets(cur record.TicketSecret) record.TicketSecret {
	k := trust.NewTicketKey()
	keys := append([][]byte{k[:]}, cur.Keys...)
	return record.TicketSecret{Format: record.Format, Keys: keys[:min(len(keys), maxTickets)]}
}

// maxTickets is the number of session ticket keys: tickets of the day before
// yesterday can still be decrypted.
const maxTickets = 3

// Begin begins to replace the CA or the gossip key, on the leader. The old one is
// dropped when all nodes have the new one.
func Begin(ctx context.Context, entries record.Store, req *api.RotateRequest) (*api.Empty, error) {
	snap, err := entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	switch req.What {
	case "gossip":
		err = rotateGossip(ctx, entries, snap)
	case "ca":
		err = rotateCA(ctx, entries, snap)
	default:
		return nil, api.Errorf(api.Invalid, "%.40q: want ca or gossip", req.What)
	}
	if errors.Is(err, errRotating) || errors.Is(err, store.ErrVersion) {
		return nil, api.Errorf(api.Refused, "the previous rotation is still under way: not all nodes have the new secret yet")
	}
	return &api.Empty{}, err
}

func rotateGossip(ctx context.Context, entries record.Store, snap store.Snapshot) error {
	cur, version, ok, err := record.Unseal[record.GossipSecret](entries.Sealer(), snap, record.KeyGossip)
	if err != nil || !ok {
		return errors.Join(err, errRotating)
	}
	next, err := beginGossip(cur, trust.NewGossipKey())
	if err != nil {
		return err
	}
	value, err := record.Seal(entries.Sealer(), record.KeyGossip, next)
	if err != nil {
		return err
	}
	return entries.Commit(ctx, cmp.Or(rpc.Caller(ctx).Name, entries.Identity().Name), "rotate gossip",
		[]store.Op{{Key: record.KeyGossip, Value: value, IfVersion: &version}})
}

func rotateCA(ctx context.Context, entries record.Store, snap store.Snapshot) error {
	s, version, ok, err := record.Unseal[record.CASecret](entries.Sealer(), snap, record.KeyCA)
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
	return entries.PutCA(ctx, snap, next, version, "rotate ca")
}

// Steps takes the steps that are due, on the leader. A new leader begins with new
// Steps.
type Steps struct {
	Entries record.Store
	Log     *slog.Logger

	// tickets is the version of the ticket keys that this leader has seen,
	// ticketsAt since when, by its own clock.
	tickets   uint64
	ticketsAt time.Time
}

// AdvanceGossipKey takes the next step of the gossip key's rotation when it is
// due.
func (s *Steps) AdvanceGossipKey(ctx context.Context, nodes []record.Node, up func(id string) bool) error {
	snap := s.Entries.Snapshot()
	cur, version, ok, err := record.Unseal[record.GossipSecret](s.Entries.Sealer(), snap, record.KeyGossip)
	if err != nil || !ok {
		return err
	}
	next, _, ok := nextGossip(cur, version, nodes, up)
	if !ok {
		return nil
	}
	value, err := record.Seal(s.Entries.Sealer(), record.KeyGossip, next)
	if err != nil {
		return err
	}
	s.Log.Info("gossip key rotation: next step", "step", next.Phase)
	return s.Entries.Commit(ctx, s.Entries.Identity().Name, "rotate gossip",
		[]store.Op{{Key: record.KeyGossip, Value: value, IfVersion: &version}})
}

// RetireOldCA retires the old CA once no member's certificate is signed by it any
// more; waits names the members for which it stays.
func (s *Steps) RetireOldCA(ctx context.Context, nodes []record.Node) (waits []string, err error) {
	if len(s.Entries.Identity().Bundle()) == 1 {
		return nil, nil // there is no old CA
	}
	snap := s.Entries.Snapshot()
	secret, version, ok, err := record.Unseal[record.CASecret](s.Entries.Sealer(), snap, record.KeyCA)
	if err != nil || !ok {
		return nil, err
	}
	ca, err := trust.ParseCA(secret.CA)
	if err != nil || !ca.Rotating() {
		return nil, err
	}
	if waits = membersOnOldCA(record.IssuerID(ca), nodes); len(waits) > 0 {
		return waits, nil
	}
	s.Log.Info("the old CA is no longer trusted")
	return nil, s.Entries.PutCA(ctx, snap, ca.Retire(), version, "retire the old CA")
}

// RotateTickets adds a session ticket key once a day. The leader measures the
// day by its own clock as well as by the entry's time, since clocks jump.
func (s *Steps) RotateTickets(ctx context.Context) error {
	snap := s.Entries.Snapshot()
	cur, version, ok, err := record.Unseal[record.TicketSecret](s.Entries.Sealer(), snap, record.KeyTickets)
	if err != nil {
		return err
	}
	now := time.Now()
	if ok && version != s.tickets {
		s.tickets, s.ticketsAt = version, now
	}
	if e, _ := snap.Get(record.KeyTickets); ok {
		age, watched := now.Sub(e.At), now.Sub(s.ticketsAt)
		if watched < ticketsEvery && (age < ticketsEvery || watched < ticketsEvery/24) {
			return nil
		}
	}
	value, err := record.Seal(s.Entries.Sealer(), record.KeyTickets, NextTickets(cur))
	if err != nil {
		return err
	}
	return s.Entries.Commit(ctx, s.Entries.Identity().Name, "rotate tickets",
		[]store.Op{{Key: record.KeyTickets, Value: value, IfVersion: &version}})
}
