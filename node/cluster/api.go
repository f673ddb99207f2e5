package cluster

import "penstock/node/trust"

// What travels between nodes. The methods that users see are in package admin.

// The methods that only nodes call, besides those of package admin.
const (
	// methodAdmit: admitRequest -> admitResult. A node that has checked a
	// joining node's token asks the leader to take that node in.
	methodAdmit = "cluster.admit"
	// methodWhere: whereRequest -> whereResult. Who is there?
	methodWhere = "cluster.where"
	// methodDepart: departRequest -> Empty. A node that leaves asks the
	// leader to take it out.
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
	Level   int    `json:"level,omitempty"` // Record's
	// Last is the life of the data folder that asks.
	Last trust.Incarnation `json:"last"`
	// CSR asks for the node's certificate (PKCS #10, DER).
	CSR []byte `json:"csr"`
}

// JoinRequest asks any node of a cluster to become a member.
type JoinRequest struct {
	TokenID string `json:"tokenID"`
	// Proof shows that the sender knows the token's secret, on this
	// connection alone.
	Proof []byte    `json:"proof"`
	Node  Candidate `json:"node"`
}

// JoinResult makes a node a member. It goes only to who has proven to know a
// token.
type JoinResult struct {
	// Proof shows the same of the answering node.
	Proof   []byte `json:"proof"`
	Cluster string `json:"cluster"` // the ID
	// CAs, the certificates that nodes' come from, and the node's own, DER.
	CAs         [][]byte `json:"cas"`
	Certificate []byte   `json:"certificate"`
	// Keyring is what secrets in the store are sealed with.
	Keyring []byte `json:"keyring"`
	// Gossip has the gossip keys, the one in use first.
	Gossip [][]byte `json:"gossip"`
	Peers  []Peer   `json:"peers"`
}

// admitRequest is a candidate whose token is good.
type admitRequest struct {
	Node  Candidate `json:"node"`
	Token string    `json:"token"` // the name, for the log
}

// admitResult is the leader's part of JoinResult.
type admitResult struct {
	CAs         [][]byte `json:"cas"`
	Certificate []byte   `json:"certificate"`
	Gossip      [][]byte `json:"gossip"`
	Peers       []Peer   `json:"peers"`
}

// Announcement says where a node is and what it acts on.
type Announcement struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Cluster string `json:"cluster"`
	Gossip  string `json:"gossip"`
	HTTP    string `json:"http"`
	Zone    string `json:"zone,omitempty"`
	Version string `json:"version"`
	Level   int    `json:"level,omitempty"` // Record's
	// Last is the life of the data folder.
	Last trust.Incarnation `json:"last"`
	// Trust and Issuer are Record's.
	Trust  uint64 `json:"trust"`
	Issuer string `json:"issuer"`
	// Relayed: it comes from another node than it tells of.
	Relayed bool `json:"relayed,omitempty"`
}

func (a Announcement) peer() Peer {
	return Peer{ID: a.ID, Name: a.Name, Cluster: a.Cluster, Gossip: a.Gossip}
}

// onto is a record with what was announced. The name stays: it has to be free.
func (a Announcement) onto(r Record) Record {
	r.Cluster, r.HTTP, r.Zone, r.Version = a.Cluster, a.HTTP, a.Zone, a.Version
	if a.Gossip != "" {
		r.Gossip = a.Gossip
	}
	r.Level, r.Trust, r.Issuer, r.Last = a.Level, a.Trust, a.Issuer, a.Last
	return r
}

// AnnounceResult is what the other side knows.
type AnnounceResult struct {
	// Removed: the sender is no member any more.
	Removed bool `json:"removed,omitempty"`
	// Voters, with Removed, are the IDs of those that vote without the sender.
	Voters []string `json:"voters,omitempty"`
	// Copied, when not empty, says where the node runs that the sender is a
	// copy of.
	Copied string `json:"copied,omitempty"`
	// Name is the one that the cluster knows the sender by; "": not said.
	Name string `json:"name,omitempty"`
	// Leader is the ID of the leader, "" where it is not known.
	Leader string `json:"leader,omitempty"`
	// Clock is the leader's, in milliseconds since 1970; 0: it is not the
	// leader that answers, or one of a version that does not say.
	Clock int64  `json:"clock,omitempty"`
	Peers []Peer `json:"peers"`
}

// RenewRequest asks the leader for the caller's next certificate.
type RenewRequest struct {
	CSR []byte `json:"csr"`
}

// RenewResult is the next certificate with the CAs of now.
type RenewResult struct {
	CAs         [][]byte `json:"cas"`
	Certificate []byte   `json:"certificate"`
}

// whereRequest asks what a node knows of an ID; "": of itself.
type whereRequest struct {
	ID string `json:"id,omitempty"`
}

// whereResult is where that node is.
type whereResult struct {
	Peer Peer              `json:"peer"`
	Last trust.Incarnation `json:"last"` // zero: not known
	Up   bool              `json:"up"`
}

// departRequest takes the caller out of the cluster.
type departRequest struct {
	ID string `json:"id"`
}
