package cluster

import (
	"penstock/node/cluster/directory"
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

// admitRequest is a candidate whose token has been verified.
type admitRequest struct {
	Node  directory.Candidate `json:"node"`
	Token string              `json:"token"` // the name, for the log
}

// admitResult is the leader's part of bootstrap.JoinResult.
type admitResult struct {
	CAs         [][]byte         `json:"cas"`
	Certificate []byte           `json:"certificate"`
	Gossip      [][]byte         `json:"gossip"`
	Peers       []directory.Peer `json:"peers"`
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
