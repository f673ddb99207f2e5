package trust

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/url"
	"time"
)

// The lifetimes of an X.509 SVID.
const (
	SVIDLifetime    = time.Hour // default
	MinSVIDLifetime = 5 * time.Minute
	MaxSVIDLifetime = 7 * 24 * time.Hour
	// SVIDSkew is how long before its issuance an SVID becomes valid, so that a
	// workload whose clock is behind by up to that much can use it.
	SVIDSkew = 2 * time.Hour
)

// SVID describes an X.509 SVID that is to be issued. The caller has validated the
// names.
type SVID struct {
	ID  *url.URL // the only URI SAN
	DNS []string // DNS SANs; may be empty
	TTL time.Duration
}

// IssueSVID signs a leaf SVID (X509-SVID, section 4): one URI SAN, no CA, and for
// both sides of TLS. It never outlives the CA. The subject is
// the ID of the cluster without a common name, since only the URI
// identifies the workload.
func (c *CA) IssueSVID(pub *ecdsa.PublicKey, s SVID, now time.Time) (*x509.Certificate, error) {
	if s.TTL < MinSVIDLifetime || s.TTL > MaxSVIDLifetime {
		return nil, fmt.Errorf("%w: a lifetime of %v: want %v to %v", ErrCertificate, s.TTL, MinSVIDLifetime, MaxSVIDLifetime)
	}
	return sign(&x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{Organization: []string{c.clusterID}},
		NotBefore:             now.Add(-SVIDSkew).UTC(),
		NotAfter:              c.until(now.Add(s.TTL)),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:                  []*url.URL{s.ID},
		DNSNames:              s.DNS,
	}, c.cert, pub, c.key)
}

// NewWorkloadRequest returns a new key of a workload, as PKCS #8 PEM, and its
// certificate request (PKCS #10, DER), which says nothing but the key.
func NewWorkloadRequest() (keyPEM, csr []byte, err error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	if csr, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key); err != nil {
		return nil, nil, err
	}
	keyPEM, err = marshalKey(key)
	return keyPEM, csr, err
}

// CertificatesPEM returns certificates (DER) as PEM.
func CertificatesPEM(ders ...[]byte) (text []byte) {
	for _, der := range ders {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: pemCert, Bytes: der})...)
	}
	return text
}

// Roots returns the certificates of the bundle that end a chain, those of all
// generations in use, as DER: what SPIFFE calls the trust bundle.
func (c *CA) Roots() (roots [][]byte) { return SelfSigned(c.Bundle()) }

// Intermediates returns the certificates of the bundle that end no chain, as DER: a
// peer that has only an earlier generation's root verifies the current one's
// certificates by them.
func (c *CA) Intermediates() (certs [][]byte) {
	for _, cert := range c.previous {
		if !selfSigned(cert) {
			certs = append(certs, cert.Raw)
		}
	}
	return certs
}

// BundleRefresh is how often those who follow a trust bundle should get it again.
// A new CA signs as soon as it exists, but its cross-signed certificate goes along,
// so the bundle may be as old as the rotation takes.
const BundleRefresh = 5 * time.Minute

// bundleKey is a key of a trust bundle: an EC key (RFC 7517, RFC 7518, section 6.2)
// with its certificate.
type bundleKey struct {
	Type  string   `json:"kty"`
	Use   string   `json:"use"`
	Curve string   `json:"crv"`
	X     string   `json:"x"`
	Y     string   `json:"y"`
	Chain [][]byte `json:"x5c"` // standard base64, which is that of encoding/json
}

// SPIFFEBundle returns a trust bundle as a JWK set (SPIFFE Trust Domain and Bundle,
// section 4). Sequence must grow with each change.
func SPIFFEBundle(roots [][]byte, sequence uint64) ([]byte, error) {
	certs, err := parseCerts(roots)
	if err != nil {
		return nil, err
	}
	keys := []bundleKey{}
	for _, cert := range certs {
		key, ok := cert.PublicKey.(*ecdsa.PublicKey)
		if !ok || key.Curve != elliptic.P256() {
			return nil, fmt.Errorf("%w: the key is a %T, want ECDSA P-256", ErrCertificate, cert.PublicKey)
		}
		point, err := key.Bytes() // uncompressed: 4, and 32 bytes each (SEC 1, section 2.3.3)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrCertificate, err)
		}
		text := base64.RawURLEncoding.EncodeToString
		keys = append(keys, bundleKey{"EC", "x509-svid", "P-256", text(point[1:33]), text(point[33:]), [][]byte{cert.Raw}})
	}
	return json.MarshalIndent(struct {
		Keys     []bundleKey `json:"keys"`
		Sequence uint64      `json:"spiffe_sequence"`
		Refresh  int         `json:"spiffe_refresh_hint"` // seconds
	}{keys, sequence, int(BundleRefresh.Seconds())}, "", "  ")
}

// SelfSigned returns the certificates that end a chain.
func SelfSigned(ders [][]byte) (roots [][]byte) {
	for _, der := range ders {
		if cert, err := parseCert(der); err == nil && selfSigned(cert) {
			roots = append(roots, der)
		}
	}
	return roots
}
