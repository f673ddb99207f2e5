package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
)

// ErrRequest means that a certificate request is invalid, or that its sender
// does not have the key.
var ErrRequest = errors.New("invalid certificate request")

// maxRequest is in bytes.
const maxRequest = 4 << 10

// Request is a parsed certificate request.
type Request struct {
	Public *ecdsa.PublicKey
	// KeyDigest is the SHA-256 of the public key (SubjectPublicKeyInfo). It
	// distinguishes a returning node from another one that uses its ID.
	KeyDigest [32]byte
	NodeID    string
	Name      string
}

// NewRequest returns a node's certificate request (PKCS #10, DER). Its
// signature proves that the sender has the key, but not that it may have the
// certificate.
func NewRequest(key crypto.Signer, nodeID, name string) ([]byte, error) {
	if err := errors.Join(checkID("node", nodeID), checkName(name)); err != nil {
		return nil, err
	}
	return x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: name},
		URIs:    []*url.URL{{Scheme: "penstock", Path: "/node/" + nodeID}},
	}, key)
}

// CheckRequest parses the output of NewRequest and verifies its signature.
func CheckRequest(der []byte) (Request, error) {
	parsed, key, err := parseRequest(der)
	if err != nil {
		return Request{}, err
	}
	r := Request{Public: key, KeyDigest: sha256.Sum256(parsed.RawSubjectPublicKeyInfo), Name: parsed.Subject.CommonName}
	const prefix = "/node/"
	if len(parsed.URIs) == 1 && len(parsed.URIs[0].Path) > len(prefix) {
		r.NodeID = parsed.URIs[0].Path[len(prefix):]
	}
	want := url.URL{Scheme: "penstock", Path: prefix + r.NodeID}
	if len(parsed.URIs) != 1 || parsed.URIs[0].String() != want.String() {
		return Request{}, fmt.Errorf("%w: it names no node", ErrRequest)
	}
	if err := errors.Join(checkID("node", r.NodeID), checkName(r.Name)); err != nil {
		return Request{}, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	return r, nil
}

// parseRequest parses a certificate request and verifies that its sender has the
// key.
func parseRequest(der []byte) (*x509.CertificateRequest, *ecdsa.PublicKey, error) {
	if len(der) > maxRequest {
		return nil, nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrRequest, len(der), maxRequest)
	}
	parsed, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrRequest, err)
	}
	key, ok := parsed.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, nil, fmt.Errorf("%w: the key is a %T, want ECDSA P-256", ErrRequest, parsed.PublicKey)
	}
	if err := parsed.CheckSignature(); err != nil {
		return nil, nil, fmt.Errorf("%w: its signature does not match its key", ErrRequest)
	}
	return parsed, key, nil
}
