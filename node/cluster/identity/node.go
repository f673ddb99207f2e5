package identity

import (
	"cmp"
	"context"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
)

// reservedOfNodes are the first segments that not even a node gets: a node presents
// the identities of services, but those of nodes and discovery servers are made in
// another way.
var reservedOfNodes = []string{"xds", "penstock"}

// BundlePath is the path of the identity by which nodes serve the trust bundle to other
// trust domains. It is the only reserved one that they get here.
const BundlePath = "/penstock/bundle"

// IssueForNode issues a certificate to a node that holds the identity itself, for
// its own connections or for a workload beside it; on the leader. Unless the request
// says otherwise it is refused with api.Forbidden while a revoked certificate of the
// ID is recorded: the revocation would have no effect if the next renewal undid it.
func (g *Registry) IssueForNode(ctx context.Context, req *api.IdentityRequest) (*api.IdentityIssued, error) {
	issued, err := g.issueForNode(ctx, req)
	g.tally(err)
	return issued, err
}

func (g *Registry) issueForNode(ctx context.Context, req *api.IdentityRequest) (*api.IdentityIssued, error) {
	reserved := reservedOfNodes
	if req.ID == BundlePath {
		reserved = nil
	}
	id, err := g.parse(req.ID, reserved)
	if err != nil {
		return nil, err
	}
	by := cmp.Or(rpc.Caller(ctx).Name, g.Entries.Identity().Name)
	return g.mint(ctx, id, by, req, func(snap store.Snapshot) error {
		if serial, ok := g.revokedOf(snap, id.String()); ok && !req.Reissue {
			return api.Errorf(api.Forbidden, "the certificate %s of %s was revoked: there is no other for it "+
				"as long as penstock identity list has that one, unless its WorkloadIdentity says onRevoke: reissue", serial, id)
		}
		return nil
	})
}

// revokedOf returns the serial number of a revoked certificate of an ID that a
// snapshot still has. It reads the entries that Follow has not seen yet.
func (g *Registry) revokedOf(snap store.Snapshot, id string) (serial string, ok bool) {
	g.mu.RLock()
	followed := g.followed
	for s, of := range g.revoked {
		if of != id {
			continue
		}
		if _, recorded := snap.Get(record.IdentityKey(s)); recorded {
			serial, ok = s, true
		}
	}
	g.mu.RUnlock()
	if ok || followed >= snap.Index() {
		return serial, ok
	}
	for _, k := range record.Changed(snap, followed, record.KindIdentity) {
		e, found := snap.Get(k)
		if !found {
			continue
		}
		if r, err := record.Unmarshal[record.Identity](k, e.Value); err == nil && r.ID == id && !r.Revoked.IsZero() {
			return r.Serial, true
		}
	}
	return "", false
}
