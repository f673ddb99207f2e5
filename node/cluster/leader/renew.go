package leader

import (
	"context"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// RenewRequest requests the caller's next certificate from the leader.
type RenewRequest struct {
	CSR []byte `json:"csr"`
}

// RenewResult is the next certificate with the current CAs.
type RenewResult struct {
	CAs         [][]byte `json:"cas"`
	Certificate []byte   `json:"certificate"`
}

// Renew issues another node's next certificate, on the leader.
func (l *Leader) Renew(ctx context.Context, req *RenewRequest) (*RenewResult, error) {
	return l.Issue(ctx, rpc.Caller(ctx).Node, req.CSR)
}

// Issue signs a certificate for a member, on the leader.
func (l *Leader) Issue(ctx context.Context, id string, csr []byte) (*RenewResult, error) {
	snap, err := l.Entries.Current(ctx)
	if err != nil {
		return nil, err
	}
	return l.Sign(snap, id, csr)
}

// Sign signs a certificate for a member according to a snapshot.
func (l *Leader) Sign(snap store.Snapshot, id string, csr []byte) (*RenewResult, error) {
	r, ok := record.FindNode(snap, id)
	if !ok || !r.Member() {
		return nil, api.Errorf(api.Forbidden, "node %.40q is not a member of this cluster", id)
	}
	req, err := trust.CheckRequest(csr)
	if err != nil || req.NodeID != id {
		return nil, api.Errorf(api.Invalid, "invalid certificate request from node %.40q", id)
	}
	ca, err := l.Entries.Signer(snap)
	if err != nil {
		return nil, err
	}
	leaf, err := ca.Issue(req.Public, id, r.Name, time.Now())
	if err != nil {
		return nil, err
	}
	return &RenewResult{CAs: ca.Bundle(), Certificate: leaf}, nil
}
