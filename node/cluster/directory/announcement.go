package directory

import (
	"encoding/hex"
	"slices"
	"time"

	"penstock/node/cluster/record"
	"penstock/node/trust"
)

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

// Peer returns where the node is.
func (a Announcement) Peer() Peer {
	return Peer{ID: a.ID, Name: a.Name, Cluster: a.Cluster, Gossip: a.Gossip}
}

// ApplyTo returns the record updated with the announcement. The name stays: it
// has to be free.
func (a Announcement) ApplyTo(r record.Node) record.Node {
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
	Clock int64  `json:"clock,omitempty"`
	Peers []Peer `json:"peers"`
}

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

// Reachable reports whether a candidate has valid addresses and texts of
// bounded length.
func (n Candidate) Reachable() bool {
	p := Peer{ID: n.ID, Name: n.Name, Cluster: n.Cluster, Gossip: n.Gossip}
	return p.Valid() && n.Name != "" && BoundedTexts(n.HTTP, n.Zone, n.Version, n.Last.Instance)
}

// AsMember returns the candidate's record as a member with a certificate of the
// CA.
func (n Candidate) AsMember(joined time.Time, csr trust.Request, ca *trust.CA) record.Node {
	return Announcement{
		Cluster: n.Cluster, Gossip: n.Gossip, HTTP: n.HTTP, Zone: n.Zone, Version: n.Version, Level: n.Level,
		Last: n.Last, Issuer: record.IssuerID(ca),
	}.ApplyTo(record.Node{Format: record.Format, ID: n.ID, Name: n.Name, Joined: joined, Key: hex.EncodeToString(csr.KeyDigest[:])})
}

// MaxTextLen bounds each further text in an announcement, in bytes: the node's
// record keeps them.
const MaxTextLen = 300

// BoundedTexts reports whether all texts are of bounded length.
func BoundedTexts(words ...string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return len(w) > MaxTextLen })
}

// Announcement returns what this node publishes about itself; trusted is the
// index of the last change of CAs or gossip keys that it has applied.
func (d *Directory) Announcement(trusted uint64) Announcement {
	id := d.Entries.Identity()
	return Announcement{
		ID: id.NodeID, Name: id.Name, Cluster: d.Address, Gossip: d.GossipAddress(), HTTP: d.HTTP,
		Zone: d.Zone, Version: d.Version, Level: record.OwnLevel, Last: id.Incarnation(),
		Trust: trusted, Issuer: hex.EncodeToString(id.Leaf().AuthorityKeyId),
	}
}

// OwnCandidate returns this node as a prospective member, with a new
// certificate request.
func (d *Directory) OwnCandidate() (Candidate, error) {
	csr, err := d.Entries.Identity().Request()
	if err != nil {
		return Candidate{}, err
	}
	return d.Candidate(csr), nil
}

// Candidate returns this node as a prospective member.
func (d *Directory) Candidate(csr []byte) Candidate {
	id := d.Entries.Identity()
	n := Candidate{
		ID: id.NodeID, Name: id.Name, Cluster: d.Address, HTTP: d.HTTP,
		Zone: d.Zone, Version: d.Version, Level: record.OwnLevel, Last: id.Incarnation(), CSR: csr,
	}
	n.Gossip = d.PlannedGossip()
	return n
}
