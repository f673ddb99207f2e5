package cluster

import (
	"encoding/json"
	"fmt"
	"time"

	"penstock/consensus"
	"penstock/node/trust"
)

// The kinds of the entries that nodes keep for themselves. Users never see a
// kind that begins with "_".
const (
	kindCluster = "_cluster"
	kindNode    = "_node"
	kindToken   = "_token"
	kindSecret  = "_secret"
)

// The entries of which there is one.
var (
	keyCluster = consensus.Key{Kind: kindCluster, Name: "cluster"}
	keyCA      = consensus.Key{Kind: kindSecret, Name: "ca"}
	keyGossip  = consensus.Key{Kind: kindSecret, Name: "gossip"}
	keyTickets = consensus.Key{Kind: kindSecret, Name: "tickets"}
)

func keyNode(id string) consensus.Key  { return consensus.Key{Kind: kindNode, Name: id} }
func keyToken(id string) consensus.Key { return consensus.Key{Kind: kindToken, Name: id} }

// recordFormat is the format of the entries that are written here. Fields may
// come to them without a new one; a number above this one says that what is
// there must not be passed over.
const recordFormat = 1

// The steps of the gossip key's rotation. Each begins when every node acts on
// the one before; the store alone says which it is, so any leader can go on.
const (
	phaseDone = ""    // one key
	phaseAdd  = "add" // the next one is accepted and not used
	phaseUse  = "use" // the next one is used, the old one accepted
)

// clusterRecord is what a cluster is: the entry _cluster/cluster.
type clusterRecord struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Expect is how many nodes formed the cluster together; 0 where one node
	// founded it, or before that was noted.
	Expect int `json:"expect,omitempty"`
	// CAs are the certificates (DER) that nodes trust, the newest first: it
	// signs. There are others only while the CA is being replaced.
	CAs [][]byte `json:"cas"`
}

// Record is a node as the cluster knows it: the entry _node/ID. It stays for
// a while after the node has left or was removed, so that its certificate is
// not taken any more.
type Record struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	Name   string `json:"name"`
	// Cluster and Gossip are host:port, HTTP too; they are the last that the
	// leader was told.
	Cluster string `json:"cluster"`
	Gossip  string `json:"gossip"`
	HTTP    string `json:"http"`
	Zone    string `json:"zone,omitempty"`
	Version string `json:"version"`
	// Level is what resources the node understands; 0 where it does not say.
	Level int `json:"level,omitempty"`
	// Joined and Left are by the clock of the leader of then. Left is zero
	// while the node is a member.
	Joined time.Time `json:"joined"`
	Left   time.Time `json:"left,omitzero"`
	// Trust is the index of the last change of CAs or gossip keys that the
	// node acts on, Issuer the key ID of the CA that signed its certificate.
	Trust  uint64 `json:"trust"`
	Issuer string `json:"issuer"`
	// Key is the digest of the key that the node joined with: another node
	// cannot take its ID.
	Key string `json:"key"`
	// Last is the life of the data folder that the leader last heard of.
	Last trust.Incarnation `json:"last"`
}

// member tells whether the node has not left.
func (r Record) member() bool { return r.Left.IsZero() }

// gossipSecret is what is sealed in _secret/gossip.
type gossipSecret struct {
	Format int `json:"format"`
	// Keys are AES keys; the first is used, or in phaseUse the second.
	Keys  [][]byte `json:"keys"`
	Phase string   `json:"phase,omitempty"`
}

// ring is the keys with the one that is used first.
func (g gossipSecret) ring() [][]byte {
	if g.Phase == phaseUse && len(g.Keys) > 1 {
		return [][]byte{g.Keys[1], g.Keys[0]}
	}
	return g.Keys
}

// caSecret is what is sealed in _secret/ca.
type caSecret struct {
	Format int    `json:"format"`
	CA     []byte `json:"ca"` // trust.CA.Marshal
}

// ticketSecret is what is sealed in _secret/tickets.
type ticketSecret struct {
	Format int `json:"format"`
	// Keys are of TLS session tickets, the newest first: it encrypts.
	Keys [][]byte `json:"keys"`
}

// formatted is a record that says its format.
type formatted interface {
	clusterRecord | Record | gossipSecret | caSecret | ticketSecret
}

// marshal encodes a record.
func marshal[T formatted](r T) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, bytes and times: there is nothing that could fail
	}
	return b
}

// unmarshal decodes a record of a format that this build understands.
func unmarshal[T formatted](k consensus.Key, b []byte) (r T, err error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return r, fmt.Errorf("%s/%s: %w: %w", k.Kind, k.Name, consensus.ErrFormat, err)
	}
	if head.Format != recordFormat {
		return r, fmt.Errorf("%s/%s: %w: it has format %d, this build knows %d", k.Kind, k.Name, consensus.ErrFormat, head.Format, recordFormat)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s/%s: %w: %w", k.Kind, k.Name, consensus.ErrFormat, err)
	}
	return r, nil
}

// records lists the nodes of a view, those that have left among them. What
// cannot be read is left out: the follower of the store has stopped the node
// for it, or is about to.
func records(v consensus.Snapshot) (all []Record) {
	for e := range v.Kind(kindNode) {
		if r, err := unmarshal[Record](e.Key, e.Value); err == nil {
			all = append(all, r)
		}
	}
	return all
}

// record finds a node by ID.
func record(v consensus.Snapshot, id string) (Record, bool) {
	e, ok := v.Get(keyNode(id))
	if !ok {
		return Record{}, false
	}
	r, err := unmarshal[Record](e.Key, e.Value)
	return r, err == nil
}

// place ties a sealed value to its entry.
func place(k consensus.Key) []byte { return []byte(k.Kind + "\x00" + k.Name) }

// seal encodes and seals a secret for its entry.
func seal[T formatted](ring *trust.Keyring, k consensus.Key, r T) ([]byte, error) {
	return ring.Seal(place(k), marshal(r))
}

// unseal reads a secret of the store; not ok where there is none yet.
func unseal[T formatted](ring *trust.Keyring, v consensus.Snapshot, k consensus.Key) (r T, version uint64, ok bool, err error) {
	e, ok := v.Get(k)
	if !ok {
		return r, 0, false, nil
	}
	plain, err := ring.Open(place(k), e.Value)
	if err != nil {
		return r, 0, false, fmt.Errorf("%s/%s: %w", k.Kind, k.Name, err)
	}
	r, err = unmarshal[T](k, plain)
	return r, e.Version, err == nil, err
}
