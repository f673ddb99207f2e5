package cluster

import (
	"penstock/node/cluster/directory"
	"penstock/node/cluster/record"
	"penstock/node/trust"
)

// This file has the messages between nodes. Package admin has the methods for
// users.

// Methods that only nodes call, in addition to those of package api.
const (
	// methodAdmit: admitRequest -> admitResult. A node that has verified a
	// joining node's token has the leader admit that node.
	methodAdmit = "cluster.admit"
	// methodDepart: departRequest -> Empty. A node that leaves has the leader
	// take it out.
	methodDepart = "cluster.depart"
)

// Candidate is a node that wants to become a member.
type Candidate struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
	Gossip  string `json:"gossip"` // "": not known yet
	HTTP    string `json:"http"`
	Zone    string `json:"zone,omitempty"`
	Version string `json:"version"`
	Level   int    `json:"level,omitempty"` // see record.Node
	// Last is the incarnation of the data folder that joins.
	Last trust.Incarnation `json:"last"`
	// CSR is the request for the node's certificate (PKCS #10, DER).
	CSR []byte `json:"csr"`
}

// JoinRequest asks any node of a cluster to admit the sender as a member.
type JoinRequest struct {
	TokenID string `json:"tokenID"`
	// Proof proves that the sender knows the token's secret, and is valid on
	// this connection alone.
	Proof []byte    `json:"proof"`
	Node  Candidate `json:"node"`
}

// JoinResult makes a node a member. It is sent only to a node that has proven
// that it knows a token.
type JoinResult struct {
	// Proof proves that the answering node knows the token.
	Proof   []byte `json:"proof"`
	Cluster string `json:"cluster"` // the ID
	// CAs are the CA certificates, Certificate is the node's own; DER.
	CAs         [][]byte `json:"cas"`
	Certificate []byte   `json:"certificate"`
	// Keyring seals the secrets in the store.
	Keyring []byte `json:"keyring"`
	// Gossip holds the gossip keys, the one in use first.
	Gossip [][]byte         `json:"gossip"`
	Peers  []directory.Peer `json:"peers"`
}

// admitRequest is a candidate whose token has been verified.
type admitRequest struct {
	Node  Candidate `json:"node"`
	Token string    `json:"token"` // the name, for the log
}

// admitResult is the leader's part of JoinResult.
type admitResult struct {
	CAs         [][]byte         `json:"cas"`
	Certificate []byte           `json:"certificate"`
	Gossip      [][]byte         `json:"gossip"`
	Peers       []directory.Peer `json:"peers"`
}

// Announcement says where a node is and which CAs and gossip keys it acts on.
type Announcement struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
	Gossip  string `json:"gossip"`
	HTTP    string `json:"http"`
	Zone    string `json:"zone,omitempty"`
	Version string `json:"version"`
	Level   int    `json:"level,omitempty"` // see record.Node
	// Last is the incarnation of the data folder.
	Last trust.Incarnation `json:"last"`
	// Trust and Issuer are those of record.Node.
	Trust  uint64 `json:"trust"`
	Issuer string `json:"issuer"`
	// Relayed: the sender is not the announced node.
	Relayed bool `json:"relayed,omitempty"`
}

func (a Announcement) peer() directory.Peer {
	return directory.Peer{ID: a.ID, Name: a.Name, Cluster: a.Cluster, Gossip: a.Gossip}
}

// applyTo returns the record updated with the announcement. The name stays: it
// has to be free.
func (a Announcement) applyTo(r record.Node) record.Node {
	r.Cluster, r.HTTP, r.Zone, r.Version = a.Cluster, a.HTTP, a.Zone, a.Version
	if a.Gossip != "" {
		r.Gossip = a.Gossip
	}
	r.Level, r.Trust, r.Issuer, r.Last = a.Level, a.Trust, a.Issuer, a.Last
	return r
}

// AnnounceResult is the answer to an announcement.
type AnnounceResult struct {
	// Removed: the announced node is no longer a member.
	Removed bool `json:"removed,omitempty"`
	// Voters, with Removed, are the IDs of the voters that remain.
	Voters []string `json:"voters,omitempty"`
	// Copied, if not empty, says why the announced node counts as a copy: where
	// the original runs, or which start it repeats.
	Copied string `json:"copied,omitempty"`
	// Name is the announced node's name in the cluster; "": not said.
	Name string `json:"name,omitempty"`
	// Leader is the ID of the leader; "" if none is known.
	Leader string `json:"leader,omitempty"`
	// Clock is the leader's time, in milliseconds since 1970; 0 if the answer
	// is not from the leader, or from a version that does not send it.
	Clock int64            `json:"clock,omitempty"`
	Peers []directory.Peer `json:"peers"`
}

// RenewRequest requests the caller's next certificate from the leader.
type RenewRequest struct {
	CSR []byte `json:"csr"`
}

// RenewResult is the next certificate with the current CAs.
type RenewResult struct {
	CAs         [][]byte `json:"cas"`
	Certificate []byte   `json:"certificate"`
}

// departRequest takes the caller out of the cluster.
type departRequest struct {
	ID string `json:"id"`
}
