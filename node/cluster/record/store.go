package record

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/node/trust"
)

// Store reads and changes the entries through this node's replica.
type Store struct {
	Replica  func() *replica.Replica // nil until the node is in a cluster
	Identity func() *trust.Identity  // the node's own
	Audit    Auditor                 // nil: none
}

// Auditor records who did what, in the same batches as the changes.
type Auditor interface {
	// Ops returns the operations to add to a batch, for the request in ctx.
	Ops(ctx context.Context, changes func() string) []store.Op
	// Done is called once such a batch was applied.
	Done(ctx context.Context)
}

// Snapshot returns the store's latest snapshot.
func (s Store) Snapshot() store.Snapshot { return s.Replica().Snapshot() }

// Sealer returns the keyring that seals and opens values with the cluster's
// key.
func (s Store) Sealer() *trust.Keyring { return s.Identity().Keyring() }

// Commit commits a change of internal entries, on the leader.
func (s Store) Commit(ctx context.Context, who, what string, ops []store.Op) error {
	if s.Audit != nil {
		ops = slices.Concat(ops, s.Audit.Ops(ctx, nil))
	}
	b := &store.Batch{Ops: ops, Note: store.Note{Who: who, What: what, At: time.Now().UTC()}}
	_, _ = rand.Read(b.ID[:]) // never fails
	_, err := s.Replica().Commit(ctx, b)
	if err == nil && s.Audit != nil {
		s.Audit.Done(ctx)
	}
	return err
}

// Current returns a snapshot with everything that was agreed before the call,
// on the leader.
func (s Store) Current(ctx context.Context) (store.Snapshot, error) {
	index, err := s.Replica().ReadIndex(ctx)
	if err != nil {
		return store.Snapshot{}, err
	}
	return s.WaitIndex(ctx, index)
}

// WaitIndex waits for a snapshot of at least an index.
func (s Store) WaitIndex(ctx context.Context, index uint64) (store.Snapshot, error) {
	if snap := s.Snapshot(); snap.Index() >= index {
		return snap, nil
	}
	return s.Replica().Wait(ctx, index-1)
}

// Signer returns the current CA with its key.
func (s Store) Signer(snap store.Snapshot) (*trust.CA, error) {
	secret, _, ok, err := Unseal[CASecret](s.Sealer(), snap, KeyCA)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, errors.New("this node does not have the CA yet")
	}
	return trust.ParseCA(secret.CA)
}

// PutCA puts a CA in force together with the certificates that nodes trust.
func (s Store) PutCA(ctx context.Context, snap store.Snapshot, ca *trust.CA, version uint64, what string) error {
	e, ok := snap.Get(KeyCluster)
	if !ok {
		return errors.New("this node does not have the cluster's record yet")
	}
	r, err := Unmarshal[Cluster](KeyCluster, e.Value)
	if err != nil {
		return err
	}
	r.CAs = ca.Bundle()
	text, err := ca.Marshal()
	if err != nil {
		return err
	}
	value, err := Seal(s.Sealer(), KeyCA, CASecret{Format: Format, CA: text})
	if err != nil {
		return err
	}
	return s.Commit(ctx, s.Identity().Name, what, []store.Op{
		{Key: KeyCA, Value: value, IfVersion: &version},
		{Key: KeyCluster, Value: Marshal(r), IfVersion: &e.Version},
	})
}

// PutNode writes a record, on condition that it has not changed since the
// snapshot.
func PutNode(snap store.Snapshot, r Node) store.Op {
	e, _ := snap.Get(NodeKey(r.ID))
	return store.Op{Key: NodeKey(r.ID), Value: Marshal(r), IfVersion: &e.Version}
}
