package cluster

import (
	"encoding/json"
	"fmt"
	"time"

	"penstock/consensus/store"
	"penstock/node/trust"
)

// The kinds of internal entries. Users never see a kind that begins with "_".
const (
	kindCluster = "_cluster"
	kindNode    = "_node"
	kindToken   = "_token"
	kindSecret  = "_secret"
)

// The entries that exist once.
var (
	keyCluster = store.Key{Kind: kindCluster, Name: "cluster"}
	keyCA      = store.Key{Kind: kindSecret, Name: "ca"}
	keyGossip  = store.Key{Kind: kindSecret, Name: "gossip"}
	keyTickets = store.Key{Kind: kindSecret, Name: "tickets"}
)

func keyNode(id string) store.Key  { return store.Key{Kind: kindNode, Name: id} }
func keyToken(id string) store.Key { return store.Key{Kind: kindToken, Name: id} }

// recordFormat is the format of the entries that are written here. Fields may
// be added without a new format; an entry of a higher format must not be
// skipped.
const recordFormat = 1

// The steps of the gossip key's rotation. Each begins when every node that is
// up has applied the one before. The store has the current step, so that any
// leader can go on.
const (
	phaseDone = ""    // one key
	phaseAdd  = "add" // the next key is accepted but not used
	phaseUse  = "use" // the next key is used, the old one accepted
)

// clusterRecord describes the cluster: the entry _cluster/cluster.
type clusterRecord struct {
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

// Record is a node as the cluster knows it: the entry _node/ID. It is kept for
// a while after the node has left or was removed, so that its certificate is
// refused.
type Record struct {
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

// member reports whether the node has not left.
func (r Record) member() bool { return r.Left.IsZero() }

// gossipSecret is the plaintext of _secret/gossip.
type gossipSecret struct {
	Format int `json:"format"`
	// Keys are AES keys; the first is used, or in phaseUse the second.
	Keys  [][]byte `json:"keys"`
	Phase string   `json:"phase,omitempty"`
}

// ring returns the keys, the one in use first.
func (g gossipSecret) ring() [][]byte {
	if g.Phase == phaseUse && len(g.Keys) > 1 {
		return [][]byte{g.Keys[1], g.Keys[0]}
	}
	return g.Keys
}

// caSecret is the plaintext of _secret/ca.
type caSecret struct {
	Format int    `json:"format"`
	CA     []byte `json:"ca"` // trust.CA.Marshal
}

// ticketSecret is the plaintext of _secret/tickets.
type ticketSecret struct {
	Format int `json:"format"`
	// Keys are TLS session ticket keys, the newest first, which encrypts.
	Keys [][]byte `json:"keys"`
}

// formatted is a record with a format number.
type formatted interface {
	clusterRecord | Record | gossipSecret | caSecret | ticketSecret
}

// marshal encodes a record.
func marshal[T formatted](r T) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // cannot happen: the fields are strings, numbers, bytes and times
	}
	return b
}

// unmarshal decodes a record, and refuses formats that this build does not
// know.
func unmarshal[T formatted](k store.Key, b []byte) (r T, err error) {
	var head struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return r, fmt.Errorf("%s/%s: %w: %w", k.Kind, k.Name, store.ErrFormat, err)
	}
	if head.Format != recordFormat {
		return r, fmt.Errorf("%s/%s: %w: format %d, this build supports %d", k.Kind, k.Name, store.ErrFormat, head.Format, recordFormat)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%s/%s: %w: %w", k.Kind, k.Name, store.ErrFormat, err)
	}
	return r, nil
}

// records lists the node records of a snapshot, including those of nodes that
// have left. It skips records that cannot be decoded: follow stops the node
// because of them.
func records(v store.Snapshot) (all []Record) {
	for e := range v.Kind(kindNode) {
		if r, err := unmarshal[Record](e.Key, e.Value); err == nil {
			all = append(all, r)
		}
	}
	return all
}

// record finds a node's record by ID.
func record(v store.Snapshot, id string) (Record, bool) {
	e, ok := v.Get(keyNode(id))
	if !ok {
		return Record{}, false
	}
	r, err := unmarshal[Record](e.Key, e.Value)
	return r, err == nil
}

// sealContext returns the data that ties a sealed value to its entry.
func sealContext(k store.Key) []byte { return []byte(k.Kind + "\x00" + k.Name) }

// seal encodes and seals a secret for its entry.
func seal[T formatted](ring *trust.Keyring, k store.Key, r T) ([]byte, error) {
	return ring.Seal(sealContext(k), marshal(r))
}

// unseal reads a secret from a snapshot; not ok if there is none yet.
func unseal[T formatted](ring *trust.Keyring, v store.Snapshot, k store.Key) (r T, version uint64, ok bool, err error) {
	e, ok := v.Get(k)
	if !ok {
		return r, 0, false, nil
	}
	plain, err := ring.Open(sealContext(k), e.Value)
	if err != nil {
		return r, 0, false, fmt.Errorf("%s/%s: %w", k.Kind, k.Name, err)
	}
	r, err = unmarshal[T](k, plain)
	return r, e.Version, err == nil, err
}
