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

// Identity is a node's identity. It starts with an ID and a key, in no cluster;
// Join adds the rest. An Identity is immutable: methods that change it return a
// new one, to be saved and used in its place.
type Identity struct {
	NodeID    string // created and kept with the data folder
	ClusterID string // "": in no cluster yet
	Name      string // name for people
	// Starts is how often the data folder was used; Start increments it. A folder
	// that was copied, or restored from a backup, falls behind.
	Starts uint64
	// Instance is random in each process, and never saved.
	Instance string
	// Notes are the problems that LoadIdentity has fixed, for the log.
	Notes []string

	key  *ecdsa.PrivateKey
	leaf *x509.Certificate   // nil: in no cluster yet
	cas  []*x509.Certificate // the bundle, newest first
	ring *Keyring

	tlsCert tls.Certificate // leaf, then the bundle
	roots   *x509.CertPool  // the self-signed certificates of the bundle
	domain  string          // the trust domain that the bundle names
}

// NewIdentity returns the identity of a new node, in no cluster.
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

// Joined reports whether the node is in a cluster; false for a nil Identity.
func (id *Identity) Joined() bool { return id != nil && id.ClusterID != "" }

// Request returns a certificate request for the node's key.
func (id *Identity) Request() ([]byte, error) { return NewRequest(id.key, id.NodeID, id.Name) }

// KeyDigest returns the digest that the receiver of Request has as
// Request.KeyDigest.
func (id *Identity) KeyDigest() [32]byte {
	spki, err := x509.MarshalPKIXPublicKey(&id.key.PublicKey)
	if err != nil {
		panic(err) // keys from newKey and parsePEM always marshal
	}
	return sha256.Sum256(spki)
}

// Join returns the identity as a member of a cluster, with its certificate, the
// cluster's CA bundle, and the sealing keys.
func (id *Identity) Join(clusterID string, leaf []byte, bundle [][]byte, ring *Keyring) (*Identity, error) {
	if id.Joined() && id.ClusterID != clusterID {
		return nil, fmt.Errorf("%w: node %s is in cluster %s, not %s", ErrForeignFolder, id.NodeID, id.ClusterID, clusterID)
	}
	next := *id
	next.ClusterID, next.ring = clusterID, ring
	return next.withCertificate(id.key, leaf, bundle)
}

// Renewed returns the identity with another certificate. key is the key that
// the certificate is for; nil: the current one.
func (id *Identity) Renewed(key crypto.Signer, leaf []byte, bundle [][]byte) (*Identity, error) {
	if !id.Joined() {
		return nil, ErrNoCluster
	}
	if key == nil {
		key = id.key
	}
	next := *id
	return next.withCertificate(key, leaf, bundle)
}

// WithBundle returns the identity with another CA bundle, newest first, under
// which its own certificate must still be valid.
func (id *Identity) WithBundle(bundle [][]byte) (*Identity, error) {
	if !id.Joined() {
		return nil, ErrNoCluster
	}
	next := *id
	return next.withCertificate(id.key, id.leaf.Raw, bundle)
}

// WithKeyring returns the identity with other sealing keys.
func (id *Identity) WithKeyring(ring *Keyring) (*Identity, error) {
	if !id.Joined() {
		return nil, ErrNoCluster
	}
	next := *id
	next.ring = ring
	return next.withCertificate(id.key, id.leaf.Raw, id.Bundle())
}

// WithName returns the identity under another name. The certificate gets it
// when it is renewed.
func (id *Identity) WithName(name string) (*Identity, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	next := *id
	next.Name = name
	return &next, nil
}

// withCertificate sets key, certificate and bundle of an identity, which must
// be a copy, and checks their consistency.
func (id *Identity) withCertificate(key crypto.Signer, leafDER []byte, bundle [][]byte) (*Identity, error) {
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
		return nil, fmt.Errorf("%w: unsupported key type %T", ErrCertificate, key)
	}
	id.key, id.leaf, id.cas = ec, leaf, cas
	return id, id.validate()
}

// validate checks that key, certificate, bundle and names match, and derives
// the values for TLS. It does not check dates: a wrong clock may be corrected
// later, and an expired certificate can be renewed.
func (id *Identity) validate() error {
	if id.ring == nil {
		return fmt.Errorf("%w: node %s has no keyring", ErrKeyring, id.NodeID)
	}
	clusterID, domain, err := checkBundle(id.cas)
	if err != nil {
		return err
	}
	if clusterID != id.ClusterID {
		return fmt.Errorf("%w: the CA belongs to cluster %s, the node to %s", ErrCertificate, clusterID, id.ClusterID)
	}
	if !id.key.PublicKey.Equal(id.leaf.PublicKey) {
		return fmt.Errorf("%w: the key does not match the certificate", ErrCertificate)
	}
	if id.domain != "" && id.domain != domain {
		return fmt.Errorf("%w: the CA's trust domain is %s, the node's %s", ErrCertificate, domain, id.domain)
	}
	id.domain = domain
	id.roots = x509.NewCertPool()
	id.tlsCert = tls.Certificate{Certificate: [][]byte{id.leaf.Raw}, PrivateKey: id.key, Leaf: id.leaf}
	signed := false
	for _, ca := range id.cas {
		id.tlsCert.Certificate = append(id.tlsCert.Certificate, ca.Raw)
		if selfSigned(ca) {
			id.roots.AddCert(ca)
		}
		signed = signed || id.leaf.CheckSignatureFrom(ca) == nil
	}
	if !signed {
		return fmt.Errorf("%w: the node's certificate was not signed by the CA", ErrCertificate)
	}
	if _, err := checkNodeName(id.leaf, id.ClusterID, id.NodeID); err != nil {
		return fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	return nil
}

// Certificate returns the chain that the node presents: its own certificate,
// then the bundle. It is zero in no cluster.
func (id *Identity) Certificate() tls.Certificate { return id.tlsCert }

// Leaf returns the node's own certificate; nil in no cluster.
func (id *Identity) Leaf() *x509.Certificate { return id.leaf }

// CAs returns the root CAs by which the node verifies others; nil in no
// cluster.
func (id *Identity) CAs() *x509.CertPool { return id.roots }

// Bundle returns the CA certificates as DER, newest first.
func (id *Identity) Bundle() [][]byte {
	var ders [][]byte
	for _, ca := range id.cas {
		ders = append(ders, ca.Raw)
	}
	return ders
}

// CADigests returns the digests by which tokens identify the CAs, newest first.
func (id *Identity) CADigests() [][32]byte {
	var digests [][32]byte
	for _, ca := range id.cas {
		if selfSigned(ca) {
			digests = append(digests, Digest(ca))
		}
	}
	return digests
}

// TrustDomain returns the SPIFFE trust domain of the cluster's workloads, which never
// changes; "" in no cluster. Whatever names it gets it from here, or from the CA.
func (id *Identity) TrustDomain() string { return id.domain }

// Keyring returns the keys that seal values; nil in no cluster.
func (id *Identity) Keyring() *Keyring { return id.ring }

// Expires returns the expiry of the node's certificate; zero in no cluster.
func (id *Identity) Expires() time.Time {
	if !id.Joined() {
		return time.Time{}
	}
	return id.leaf.NotAfter
}

// ValidAt reports whether the node's certificate is valid at now, by its dates.
func (id *Identity) ValidAt(now time.Time) bool {
	return id.Joined() && !now.Before(id.leaf.NotBefore) && !now.After(id.leaf.NotAfter)
}

// NewerThan reports whether the node's newest CA certificate is not in the
// bundle and not older than the newest one there.
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

// NeedsRenewal reports whether to renew the certificate: it is not valid now,
// less than a third of its lifetime is left, or the newest CA did not sign it.
func (id *Identity) NeedsRenewal(now time.Time) bool {
	if !id.Joined() {
		return false
	}
	life := id.leaf.NotAfter.Sub(id.leaf.NotBefore)
	return !id.ValidAt(now) || now.After(id.leaf.NotAfter.Add(-life/3)) || !bytes.Equal(id.leaf.AuthorityKeyId, id.cas[0].SubjectKeyId)
}

// Incarnation identifies one process's use of a data folder.
type Incarnation struct {
	Starts   uint64 `json:"starts"`
	Instance string `json:"instance"`
}

// ErrCopied means that two data folders, or two states of one, claim the same
// node ID.
var ErrCopied = errors.New("the data folder is a copy, or was restored from an older state")

// Incarnation returns this process's incarnation.
func (id *Identity) Incarnation() Incarnation { return Incarnation{id.Starts, id.Instance} }

// Follows returns nil if a node last seen as one incarnation may now be this
// one: the same, or a later start of the same folder. A copy of a folder, or
// one restored from a backup, has not counted further than the original.
func (i Incarnation) Follows(last Incarnation) error {
	if i == last || i.Starts > last.Starts {
		return nil
	}
	return fmt.Errorf("%w: start %d, after start %d was seen", ErrCopied, i.Starts, last.Starts)
}

// String names the node.
func (id *Identity) String() string {
	switch {
	case id == nil:
		return "no node"
	case id.Joined():
		return "node " + id.NodeID + " of cluster " + id.ClusterID
	}
	return "node " + id.NodeID + " in no cluster"
}

// Format names the node, and hides its keys.
func (id *Identity) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, id.String()) }

// LogValue names the node, and hides its keys.
func (id *Identity) LogValue() slog.Value { return slog.StringValue(id.String()) }
