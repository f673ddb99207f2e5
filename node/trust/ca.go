package trust

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/url"
	"time"
)

// Errors of certificates and keys.
var (
	// ErrCertificate: a certificate or key is unusable.
	ErrCertificate = errors.New("unusable certificate or key")
	// ErrRotating: too many generations of the CA are in use at once.
	ErrRotating = errors.New("earlier CA rotations are not finished")
)

// The lifetimes of certificates.
const (
	caLifetime   = 10 * 365 * 24 * time.Hour
	nodeLifetime = 90 * 24 * time.Hour
	// clockSkew is how long before its issuance a certificate becomes valid: a
	// clock set to a wrong time zone may be that far off.
	clockSkew = 26 * time.Hour
)

// Bounds of parsed input: bytes of one certificate, and of a CA with its
// bundle; certificates of a CA with three rotations at once; and certificates
// in a bundle, which briefly has two such sets while one replaces the other.
const (
	maxCert        = 8 << 10
	maxCA          = 64 << 10
	maxGenerations = 7
	maxBundle      = 2 * maxGenerations
)

// CA signs the certificates of one cluster's nodes. It uses ECDSA on P-256,
// which all TLS 1.3 peers support, operators' tools included.
type CA struct {
	clusterID string
	// trustDomain is that of workloads: the cluster's ID, unless it was named when
	// the cluster was formed. The certificates have the name.
	trustDomain string
	cert        *x509.Certificate
	key         *ecdsa.PrivateKey
	previous    []*x509.Certificate // of earlier generations, newest first
}

// NewCA returns a new CA for a cluster, valid for ten years. trustDomain is the
// SPIFFE trust domain of the cluster's workloads, for good; "": the cluster's ID.
func NewCA(clusterID, trustDomain string, now time.Time) (*CA, error) {
	if trustDomain == "" {
		trustDomain = clusterID
	}
	if err := errors.Join(checkID("cluster", clusterID), checkTrustDomain(trustDomain)); err != nil {
		return nil, err
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := caTemplate(clusterID, trustDomain, now)
	cert, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return &CA{clusterID: clusterID, trustDomain: trustDomain, cert: cert, key: key}, nil
}

func caTemplate(clusterID, trustDomain string, now time.Time) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: serial(),
		// The serial number distinguishes the generations of a cluster's CA.
		Subject:               pkix.Name{CommonName: "Penstock CA", Organization: []string{clusterID}, SerialNumber: randomHex(8)},
		NotBefore:             now.Add(-clockSkew).UTC(),
		NotAfter:              now.Add(caLifetime).UTC(),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if trustDomain != clusterID {
		// The SPIFFE ID of a signing certificate is the trust domain's (X509-SVID, section 3).
		template.URIs = []*url.URL{{Scheme: "spiffe", Host: trustDomain}}
	}
	return template
}

// Next returns the next generation of the CA: a new key, with a self-signed
// certificate and a cross-signed one by this CA. A node that has only this CA
// verifies the next one's certificates through the cross-signed one, so that
// nodes may learn of the rotation late and in any order. Retire ends that.
func (c *CA) Next(now time.Time) (*CA, error) {
	if len(c.previous)+3 > maxGenerations {
		return nil, fmt.Errorf("%w: %d certificates are in use, the limit is %d; wait until all nodes have renewed",
			ErrRotating, len(c.previous)+1, maxGenerations)
	}
	next, err := NewCA(c.clusterID, c.trustDomain, now)
	if err != nil {
		return nil, err
	}
	template := caTemplate(c.clusterID, c.trustDomain, now)
	template.Subject = next.cert.Subject
	template.SubjectKeyId = next.cert.SubjectKeyId
	cross, err := sign(template, c.cert, &next.key.PublicKey, c.key)
	if err != nil {
		return nil, err
	}
	next.previous = append([]*x509.Certificate{cross, c.cert}, c.previous...)
	return next, nil
}

// Retire returns the CA without its predecessors, which invalidates everything
// that they signed and the tokens that name them.
func (c *CA) Retire() *CA {
	return &CA{clusterID: c.clusterID, trustDomain: c.trustDomain, cert: c.cert, key: c.key}
}

// ClusterID returns the ID of its cluster.
func (c *CA) ClusterID() string { return c.clusterID }

// TrustDomain returns the SPIFFE trust domain of its workloads.
func (c *CA) TrustDomain() string { return c.trustDomain }

// Certificate returns its self-signed certificate.
func (c *CA) Certificate() *x509.Certificate { return c.cert }

// Digest returns the digest by which tokens identify the CA.
func (c *CA) Digest() [32]byte { return Digest(c.cert) }

// Rotating reports whether predecessors are still trusted.
func (c *CA) Rotating() bool { return len(c.previous) > 0 }

// Bundle returns the certificates that nodes trust and send, as DER, newest
// first: its own and, until Retire, those of its predecessors.
func (c *CA) Bundle() [][]byte {
	ders := [][]byte{c.cert.Raw}
	for _, cert := range c.previous {
		ders = append(ders, cert.Raw)
	}
	return ders
}

// Issue signs a node's certificate, valid for 90 days.
func (c *CA) Issue(pub crypto.PublicKey, nodeID, name string, now time.Time) (der []byte, err error) {
	if err := errors.Join(checkID("node", nodeID), checkName(name)); err != nil {
		return nil, err
	}
	key, ok := pub.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, fmt.Errorf("%w: the key of node %s is a %T, want ECDSA P-256", ErrCertificate, nodeID, pub)
	}
	cert, err := sign(&x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: name, Organization: []string{c.clusterID}},
		NotBefore:             now.Add(-clockSkew).UTC(),
		NotAfter:              c.until(now.Add(nodeLifetime)),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:                  []*url.URL{nodeURI(c.clusterID, nodeID)},
	}, c.cert, key, c.key)
	if err != nil {
		return nil, err
	}
	return cert.Raw, nil
}

// Marshal returns the CA with its private key, as PEM. The caller must seal it.
func (c *CA) Marshal() ([]byte, error) {
	key, err := marshalKey(c.key)
	if err != nil {
		return nil, err
	}
	return append(marshalCerts(append([]*x509.Certificate{c.cert}, c.previous...)), key...), nil
}

// ParseCA parses the output of Marshal.
func ParseCA(b []byte) (*CA, error) {
	if len(b) > maxCA {
		return nil, fmt.Errorf("%w: the CA has %d bytes, the limit is %d", ErrCertificate, len(b), maxCA)
	}
	certs, keys, err := parsePEM(b)
	if err != nil {
		return nil, fmt.Errorf("the CA: %w", err)
	}
	if len(certs) == 0 || len(keys) != 1 {
		return nil, fmt.Errorf("%w: the CA has %d certificates and %d keys, want at least 1 and exactly 1", ErrCertificate, len(certs), len(keys))
	}
	cert := certs[0]
	clusterID, trustDomain, err := checkBundle(certs)
	if err != nil {
		return nil, err
	}
	if !selfSigned(cert) || !keys[0].PublicKey.Equal(cert.PublicKey) {
		return nil, fmt.Errorf("%w: the CA's key does not match its certificate", ErrCertificate)
	}
	return &CA{clusterID: clusterID, trustDomain: trustDomain, cert: cert, key: keys[0], previous: certs[1:]}, nil
}

// Format hides the key.
func (c *CA) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "CA of cluster "+c.clusterID)
}

// Digest returns the SHA-256 of a certificate's public key
// (SubjectPublicKeyInfo). It does not change if the certificate is renewed
// under the same key.
func Digest(cert *x509.Certificate) [32]byte { return sha256.Sum256(cert.RawSubjectPublicKeyInfo) }

// checkBundle checks the certificates of one cluster's CA, newest first, and
// returns the cluster's ID and its trust domain.
func checkBundle(certs []*x509.Certificate) (clusterID, trustDomain string, err error) {
	if len(certs) == 0 || len(certs) > maxBundle {
		return "", "", fmt.Errorf("%w: the bundle has %d certificates, want 1 to %d", ErrCertificate, len(certs), maxBundle)
	}
	for i, cert := range certs {
		if !cert.IsCA || !cert.BasicConstraintsValid || len(cert.Subject.Organization) != 1 {
			return "", "", fmt.Errorf("%w: certificate %d of the bundle is not a cluster CA", ErrCertificate, i+1)
		}
		switch id := cert.Subject.Organization[0]; {
		case i == 0 && !selfSigned(cert):
			return "", "", fmt.Errorf("%w: the first certificate of the bundle is not self-signed", ErrCertificate)
		case i == 0:
			clusterID = id
		case id != clusterID:
			return "", "", fmt.Errorf("%w: the bundle mixes clusters %q and %q", ErrCertificate, clusterID, id)
		}
		domain, err := domainOf(cert, clusterID)
		switch {
		case err != nil:
			return "", "", err
		case i == 0:
			trustDomain = domain
		case domain != trustDomain:
			return "", "", fmt.Errorf("%w: the bundle mixes the trust domains %q and %q", ErrCertificate, trustDomain, domain)
		}
	}
	return clusterID, trustDomain, checkID("cluster", clusterID)
}

// domainOf returns the trust domain that a CA's certificate names; the cluster's ID
// if it names none.
func domainOf(ca *x509.Certificate, clusterID string) (string, error) {
	switch len(ca.URIs) {
	case 0:
		return clusterID, nil
	case 1:
		u := ca.URIs[0]
		if spiffeURI(u.Host, "").String() == u.String()+"/" && checkTrustDomain(u.Host) == nil {
			return u.Host, nil
		}
	}
	return "", fmt.Errorf("%w: the CA's certificate names no trust domain, but %d URIs", ErrCertificate, len(ca.URIs))
}

func selfSigned(cert *x509.Certificate) bool {
	return bytes.Equal(cert.RawSubject, cert.RawIssuer) && cert.CheckSignatureFrom(cert) == nil
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func serial() *big.Int { return new(big.Int).SetBytes(append([]byte{1}, randomBytes(15)...)) }

func sign(template, parent *x509.Certificate, pub *ecdsa.PublicKey, key *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, pub, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

const (
	pemCert = "CERTIFICATE"
	pemKey  = "PRIVATE KEY"
)

func marshalCerts(certs []*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, cert := range certs {
		_ = pem.Encode(&b, &pem.Block{Type: pemCert, Bytes: cert.Raw}) // a bytes.Buffer never fails
	}
	return b.Bytes()
}

func marshalKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemKey, Bytes: der}), nil
}

// parsePEM parses certificates and keys, and rejects anything else.
func parsePEM(b []byte) (certs []*x509.Certificate, keys []*ecdsa.PrivateKey, err error) {
	for len(bytes.TrimSpace(b)) > 0 {
		block, rest := pem.Decode(b)
		if block == nil {
			return nil, nil, fmt.Errorf("%w: not PEM, or truncated", ErrCertificate)
		}
		b = rest
		switch block.Type {
		case pemCert:
			cert, err := parseCert(block.Bytes)
			if err != nil {
				return nil, nil, err
			}
			certs = append(certs, cert)
		case pemKey:
			parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			key, ok := parsed.(*ecdsa.PrivateKey)
			if err != nil || !ok || key.Curve != elliptic.P256() {
				return nil, nil, fmt.Errorf("%w: not a P-256 private key", ErrCertificate)
			}
			keys = append(keys, key)
		default:
			return nil, nil, fmt.Errorf("%w: unexpected PEM block %.40q", ErrCertificate, block.Type)
		}
	}
	return certs, keys, nil
}

func parseCert(der []byte) (*x509.Certificate, error) {
	if len(der) > maxCert {
		return nil, fmt.Errorf("%w: the certificate has %d bytes, the limit is %d", ErrCertificate, len(der), maxCert)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCertificate, err)
	}
	return cert, nil
}

func parseCerts(ders [][]byte) ([]*x509.Certificate, error) {
	if len(ders) > maxBundle {
		return nil, fmt.Errorf("%w: the bundle has %d certificates, the limit is %d", ErrCertificate, len(ders), maxBundle)
	}
	certs := make([]*x509.Certificate, 0, len(ders))
	for _, der := range ders {
		cert, err := parseCert(der)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	return certs, nil
}
