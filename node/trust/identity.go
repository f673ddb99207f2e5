package trust

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// Identity is who a node is. It begins with an ID and a key, in no cluster;
// Join gives it the rest. An Identity does not change: what would change it
// gives another one, to be saved and put in its place.
type Identity struct {
	NodeID    string // minted with the data folder, and kept with it
	ClusterID string // "": in no cluster yet
	Name      string // what people call the node
	// Starts is how often the data folder was put to use: Start counts it. A
	// folder that was copied or brought back from a backup falls behind.
	Starts uint64
	// Instance is random in each process, and saved nowhere.
	Instance string
	// Notes are what LoadIdentity put right, for the log.
	Notes []string

	key  *ecdsa.PrivateKey
	leaf *x509.Certificate   // nil: in no cluster yet
	cas  []*x509.Certificate // the bundle, the newest first
	ring *Keyring

	made  tls.Certificate // leaf, then the bundle
	roots *x509.CertPool  // of the bundle, those that signed themselves
}

// NewIdentity makes a node that is in no cluster.
func NewIdentity(name string) (*Identity, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	return &Identity{NodeID: NewNodeID(), Name: name, Instance: randomHex(8), key: key}, nil
}

// Joined tells whether the node is in a cluster. The nil Identity is in none.
func (id *Identity) Joined() bool { return id != nil && id.ClusterID != "" }

// Request asks for a certificate for the key that the node has.
func (id *Identity) Request() ([]byte, error) { return NewRequest(id.key, id.NodeID, id.Name) }

// KeyDigest is what Request.KeyDigest is at the other end.
func (id *Identity) KeyDigest() [32]byte {
	spki, err := x509.MarshalPKIXPublicKey(&id.key.PublicKey)
	if err != nil {
		panic(err) // never of a key that newKey made or parsePEM took
	}
	return sha256.Sum256(spki)
}

// Join gives the identity in a cluster: with its certificate, what the cluster
// trusts, and the keys that it seals with.
func (id *Identity) Join(clusterID string, leaf []byte, bundle [][]byte, ring *Keyring) (*Identity, error) {
	if id.Joined() && id.ClusterID != clusterID {
		return nil, fmt.Errorf("%w: node %s is in cluster %s, not %s", ErrForeign, id.NodeID, id.ClusterID, clusterID)
	}
	next := *id
	next.ClusterID, next.ring = clusterID, ring
	return next.with(id.key, leaf, bundle)
}

// Renewed gives the identity with another certificate, for the key that was
// asked for (NewKey, NewRequest) or, where key is nil, the one that it has.
func (id *Identity) Renewed(key crypto.Signer, leaf []byte, bundle [][]byte) (*Identity, error) {
	if !id.Joined() {
		return nil, ErrNoCluster
	}
	if key == nil {
		key = id.key
	}
	next := *id
	return next.with(key, leaf, bundle)
}

// WithBundle gives the identity that trusts these CA certificates, the newest
// first. Its own must still hold under them.
func (id *Identity) WithBundle(bundle [][]byte) (*Identity, error) {
	if !id.Joined() {
		return nil, ErrNoCluster
	}
	next := *id
	return next.with(id.key, id.leaf.Raw, bundle)
}

// WithKeyring gives the identity with other sealing keys.
func (id *Identity) WithKeyring(ring *Keyring) (*Identity, error) {
	if !id.Joined() {
		return nil, ErrNoCluster
	}
	next := *id
	next.ring = ring
	return next.with(id.key, id.leaf.Raw, id.Bundle())
}

// WithName gives the identity under another name; certificates follow when
// they are renewed.
func (id *Identity) WithName(name string) (*Identity, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	next := *id
	next.Name = name
	return &next, nil
}

// with completes an identity, its own copy, and checks that all of it fits.
func (id *Identity) with(key crypto.Signer, leafDER []byte, bundle [][]byte) (*Identity, error) {
	leaf, err := parseCert(leafDER)
	if err != nil {
		return nil, err
	}
	cas, err := parseCerts(bundle)
	if err != nil {
		return nil, err
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("%w: a key of type %T", ErrCertificate, key)
	}
	id.key, id.leaf, id.cas = ec, leaf, cas
	return id, id.complete()
}

// complete checks that key, certificate, bundle and names belong together, and
// makes what TLS needs. Dates are not checked: a clock may be wrong now and
// right later, and an expired certificate can be renewed.
func (id *Identity) complete() error {
	if id.ring == nil {
		return fmt.Errorf("%w: node %s has none", ErrKeyring, id.NodeID)
	}
	clusterID, err := checkBundle(id.cas)
	if err != nil {
		return err
	}
	if clusterID != id.ClusterID {
		return fmt.Errorf("%w: the CA is of cluster %s, the node of %s", ErrCertificate, clusterID, id.ClusterID)
	}
	if !id.key.PublicKey.Equal(id.leaf.PublicKey) {
		return fmt.Errorf("%w: the key does not belong to the certificate", ErrCertificate)
	}
	id.roots = x509.NewCertPool()
	id.made = tls.Certificate{Certificate: [][]byte{id.leaf.Raw}, PrivateKey: id.key, Leaf: id.leaf}
	signed := false
	for _, ca := range id.cas {
		id.made.Certificate = append(id.made.Certificate, ca.Raw)
		if selfSigned(ca) {
			id.roots.AddCert(ca)
		}
		signed = signed || id.leaf.CheckSignatureFrom(ca) == nil
	}
	if !signed {
		return fmt.Errorf("%w: the node's certificate was not signed by the CA", ErrCertificate)
	}
	if _, err := checkNode(id.leaf, id.ClusterID, id.NodeID); err != nil {
		return fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	return nil
}

// Certificate is what the node shows: its own, then the bundle. Zero where it
// is in no cluster.
func (id *Identity) Certificate() tls.Certificate { return id.made }

// Leaf is the node's own certificate; nil where it is in no cluster.
func (id *Identity) Leaf() *x509.Certificate { return id.leaf }

// CAs are those that the node trusts, to verify others by; nil where it is in
// no cluster.
func (id *Identity) CAs() *x509.CertPool { return id.roots }

// Bundle is the CA certificates as DER, the newest first.
func (id *Identity) Bundle() [][]byte {
	var ders [][]byte
	for _, ca := range id.cas {
		ders = append(ders, ca.Raw)
	}
	return ders
}

// CADigests are what tokens name the CAs by, the newest first.
func (id *Identity) CADigests() [][32]byte {
	var digests [][32]byte
	for _, ca := range id.cas {
		if selfSigned(ca) {
			digests = append(digests, Digest(ca))
		}
	}
	return digests
}

// Keyring is what values are sealed with; nil where it is in no cluster.
func (id *Identity) Keyring() *Keyring { return id.ring }

// Expires is when the node's certificate ends; zero where it is in no cluster.
func (id *Identity) Expires() time.Time {
	if !id.Joined() {
		return time.Time{}
	}
	return id.leaf.NotAfter
}

// Holds tells whether others whose clocks are right take the node's
// certificate, as far as dates go.
func (id *Identity) Holds(now time.Time) bool {
	return id.Joined() && !now.Before(id.leaf.NotBefore) && !now.After(id.leaf.NotAfter)
}

// NewerThan tells whether the CA that the node trusts follows the ones of a
// bundle: it is none of them.
func (id *Identity) NewerThan(bundle [][]byte) bool {
	cas, err := parseCerts(bundle)
	if err != nil || len(cas) == 0 || !id.Joined() {
		return false
	}
	for _, ca := range cas {
		if ca.Equal(id.cas[0]) {
			return false
		}
	}
	return !id.cas[0].NotBefore.Before(cas[0].NotBefore)
}

// NeedsRenewal tells whether it is time for another certificate: it does not
// hold now, a third of its life is left, or the CA that signed it is not the
// newest any more.
func (id *Identity) NeedsRenewal(now time.Time) bool {
	if !id.Joined() {
		return false
	}
	life := id.leaf.NotAfter.Sub(id.leaf.NotBefore)
	return !id.Holds(now) || now.After(id.leaf.NotAfter.Add(-life/3)) || !bytes.Equal(id.leaf.AuthorityKeyId, id.cas[0].SubjectKeyId)
}

// Incarnation is which life of a data folder a process leads.
type Incarnation struct {
	Starts   uint64 `json:"starts"`
	Instance string `json:"instance"`
}

// ErrCopied means that two data folders, or two states of one, claim the same node ID.
var ErrCopied = errors.New("the data folder is a copy, or was brought back from an older state")

// Incarnation is this process's.
func (id *Identity) Incarnation() Incarnation { return Incarnation{id.Starts, id.Instance} }

// Follows tells whether a node that was last seen as one incarnation may be
// this one now: the same, or a later start of the same folder. A copy of a
// folder, and one from a backup, has counted no further than the original.
func (i Incarnation) Follows(last Incarnation) error {
	if i == last || i.Starts > last.Starts {
		return nil
	}
	return fmt.Errorf("%w: its start %d follows start %d", ErrCopied, i.Starts, last.Starts)
}

// String names the node.
func (id *Identity) String() string {
	switch {
	case id == nil:
		return "no node"
	case id.Joined():
		return "node " + id.NodeID + " of cluster " + id.ClusterID
	}
	return "node " + id.NodeID + " of no cluster"
}

// Format names the node, and hides its keys.
func (id *Identity) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, id.String()) }

// LogValue names the node, and hides its keys.
func (id *Identity) LogValue() slog.Value { return slog.StringValue(id.String()) }
