// Package record has the entries of the store that describe the cluster itself:
// the cluster, its nodes, its tokens and its sealed secrets. They have kinds
// that begin with "_". The package encodes and decodes them, and refuses formats
// that this build does not know. Store reads and commits them; who may change
// which, and when, is the business of its callers.
package record

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"penstock/consensus/store"
	"penstock/node/trust"
)

// The kinds of internal entries. Users never see a kind that begins with "_".
const (
	KindCluster = "_cluster"
	KindNode    = "_node"
	KindToken   = "_token"
	KindSecret  = "_secret"
)

// The entries that exist once.
var (
	KeyCluster = store.Key{Kind: KindCluster, Name: "cluster"}
	KeyCA      = store.Key{Kind: KindSecret, Name: "ca"}
	KeyGossip  = store.Key{Kind: KindSecret, Name: "gossip"}
	KeyTickets = store.Key{Kind: KindSecret, Name: "tickets"}
)

// NodeKey returns the key of a node, by ID.
func NodeKey(id string) store.Key { return store.Key{Kind: KindNode, Name: id} }

// TokenKey returns the key of a token, by ID.
func TokenKey(id string) store.Key { return store.Key{Kind: KindToken, Name: id} }

// Format is the format of the entries that are written here. Fields may be
// added without a new format; an entry of a higher format must not be skipped.
const Format = 1

// The steps of the gossip key's rotation. Each begins when every node that is
// up has applied the one before. The store has the current step, so that any
// leader can go on.
const (
	PhaseDone = ""    // one key
	PhaseAdd  = "add" // the next key is accepted but not used
	PhaseUse  = "use" // the next key is used, the old one accepted
)

// Cluster describes the cluster: the entry _cluster/cluster.
type Cluster struct {
	Format  int       `json:"format"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	// Expect is how many nodes formed the cluster together; 0 if one node
	// founded it, or if the record is older than this field.
	Expect int `json:"expect,omitempty"`
	// CAs are the certificates (DER) that nodes trust, the newest first, which
	// signs. There is more than one only while the CA is being replaced.
	CAs [][]byte `json:"cas"`
}

// Node is a node as the cluster knows it: the entry _node/ID. It is kept for
// a while after the node has left or was removed, so that its certificate is
// refused.
type Node struct {
	Format int    `json:"format"`
	ID     string `json:"id"`
	Name   string `json:"name"`
	// Cluster, Gossip and HTTP are host:port, as last announced to the leader.
	Cluster string `json:"cluster"`
	Gossip  string `json:"gossip"`
	HTTP    string `json:"http"`
	Zone    string `json:"zone,omitempty"`
	Version string `json:"version"`
	// Level says which resources the node understands; 0 if it announces none.
	Level int `json:"level,omitempty"`
	// Joined and Left are by the clock of the leader at the time. Left is zero
	// while the node is a member.
	Joined time.Time `json:"joined"`
	Left   time.Time `json:"left,omitzero"`
	// Trust is the index of the last change of CAs or gossip keys that the node
	// has applied, Issuer the key ID of the CA that signed its certificate.
	Trust  uint64 `json:"trust"`
	Issuer string `json:"issuer"`
	// Key is the digest of the key that the node joined with: no other node can
	// take its ID.
	Key string `json:"key"`
	// Last is the incarnation of the data folder that the leader last accepted.
	Last trust.Incarnation `json:"last"`
}

// Member reports whether the node has not left.
func (r Node) Member() bool { return r.Left.IsZero() }

// GossipSecret is the plaintext of _secret/gossip.
type GossipSecret struct {
	Format int `json:"format"`
	// Keys are AES keys; the first is used, or in PhaseUse the second.
	Keys  [][]byte `json:"keys"`
	Phase string   `json:"phase,omitempty"`
}

// Ring returns the keys, the one in use first.
func (g GossipSecret) Ring() [][]byte {
	if g.Phase == PhaseUse && len(g.Keys) > 1 {
		return [][]byte{g.Keys[1], g.Keys[0]}
	}
	return g.Keys
}

// CASecret is the plaintext of _secret/ca.
type CASecret struct {
	Format int    `json:"format"`
	CA     []byte `json:"ca"` // trust.CA.Marshal
}

// TicketSecret is the plaintext of _secret/tickets.
type TicketSecret struct {
	Format int `json:"format"`
	// Keys are TLS session ticket keys, the newest first, which encrypts.
	Keys [][]byte `json:"keys"`
}

// formatted is a record with a format number.
type formatted interface {
	Cluster | Node | GossipSecret | CASecret | TicketSecret | Identity
}

// Marshal encodes a
func Marshal[T formatted](r T) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // cannot happen: the fields are strings, numbers, bytes and times
	}
	return b
}

// Unmarshal decodes a record, and refuses formats that this build does not
// know.
func Unmarshal[T formatted](k store.Key, b []byte) (r T, err error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return r, fmt.Errorf("%s/%s: %w: %w", k.Kind, k.Name, store.ErrFormat, err)
	}
	if head.Format != Format {
		return r, fmt.Errorf("%s/%s: %w: format %d, this build supports %d", k.Kind, k.Name, store.ErrFormat, head.Format, Format)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s/%s: %w: %w", k.Kind, k.Name, store.ErrFormat, err)
	}
	return r, nil
}

// Nodes lists the node records of a snapshot, including those of nodes that
// have left. It skips records that cannot be decoded: the node stops because of
// them (node/cluster/follow.go).
func Nodes(v store.Snapshot) (all []Node) {
	for e := range v.Kind(KindNode) {
		if r, err := Unmarshal[Node](e.Key, e.Value); err == nil {
			all = append(all, r)
		}
	}
	return all
}

// FindNode finds a node's record by ID.
func FindNode(v store.Snapshot, id string) (Node, bool) {
	e, ok := v.Get(NodeKey(id))
	if !ok {
		return Node{}, false
	}
	r, err := Unmarshal[Node](e.Key, e.Value)
	return r, err == nil
}

// sealContext returns the data that ties a sealed value to its entry.
func sealContext(k store.Key) []byte { return []byte(k.Kind + "\x00" + k.Name) }

// Seal encodes and seals a secret for its entry.
func Seal[T formatted](ring *trust.Keyring, k store.Key, r T) ([]byte, error) {
	return ring.Seal(sealContext(k), Marshal(r))
}

// Unseal reads a secret from a snapshot; not ok if there is none yet.
func Unseal[T formatted](ring *trust.Keyring, v store.Snapshot, k store.Key) (r T, version uint64, ok bool, err error) {
	e, ok := v.Get(k)
	if !ok {
		return r, 0, false, nil
	}
	plain, err := ring.Open(sealContext(k), e.Value)
	if err != nil {
		return r, 0, false, fmt.Errorf("%s/%s: %w", k.Kind, k.Name, err)
	}
	r, err = Unmarshal[T](k, plain)
	return r, e.Version, err == nil, err
}

// Changed lists the keys of a kind that changed in a snapshot after an index.
// If the snapshot does not reach back that far, it lists all keys of the kind.
func Changed(v store.Snapshot, after uint64, kind string) (keys []store.Key) {
	changed, known := v.Changed(after)
	if !known {
		for e := range v.Kind(kind) {
			keys = append(keys, e.Key)
		}
		if len(keys) == 0 {
			keys = append(keys, store.Key{Kind: kind}) // they may have been deleted
		}
		return keys
	}
	for _, k := range changed {
		if k.Kind == kind {
			keys = append(keys, k)
		}
	}
	return keys
}

// TicketKeys returns the keys as TLS takes them.
func (t TicketSecret) TicketKeys() (keys [][32]byte) {
	for _, k := range t.Keys {
		if len(k) == 32 {
			keys = append(keys, [32]byte(k))
		}
	}
	return keys
}

// IssuerID returns the Node.Issuer of certificates that the CA signs.
func IssuerID(ca *trust.CA) string { return hex.EncodeToString(ca.Certificate().SubjectKeyId) }
