package trust

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// ErrID means that an ID or a name is invalid. An ID has 1 to 63 letters,
// digits, '-' and '_', and begins and ends with a letter or digit.
var ErrID = errors.New("invalid identifier")

// The longest ID, name and trust domain, in bytes. A longer ID could not be part of a
// host name.
const (
	maxID          = 63
	maxName        = 255
	maxTrustDomain = 255
)

// NewNodeID returns a random node ID: 16 hex digits.
func NewNodeID() string { return randomHex(8) }

// NewClusterID returns a random cluster ID: 16 hex digits.
func NewClusterID() string { return randomHex(8) }

// NewGossipKey returns a random gossip key: 32 bytes, AES-256.
func NewGossipKey() []byte { return randomBytes(32) }

// NewTicketKey returns a random key for the TLS session tickets of listeners.
func NewTicketKey() [32]byte { return [32]byte(randomBytes(32)) }

func randomHex(n int) string { return hex.EncodeToString(randomBytes(n)) }

// randomBytes never fails: without a source of randomness the process ends.
func randomBytes(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func checkID(what, s string) error {
	alnum := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' }
	ok := s != "" && len(s) <= maxID && alnum(s[0]) && alnum(s[len(s)-1])
	for i := 0; ok && i < len(s); i++ {
		ok = alnum(s[i]) || s[i] == '-' || s[i] == '_'
	}
	if !ok {
		return fmt.Errorf("%s %.80q: %w", what, s, ErrID)
	}
	return nil
}

// checkName checks the name of a node or token.
func checkName(s string) error {
	if len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		return fmt.Errorf("name %.80q: %w: at most %d bytes of printable text", s, ErrID, maxName)
	}
	return nil
}

// checkTrustDomain checks the name of a trust domain (SPIFFE-ID, section 2.1).
func checkTrustDomain(s string) error {
	ok := s != "" && len(s) <= maxTrustDomain
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_'
	}
	if !ok {
		return fmt.Errorf("trust domain %.80q: %w: want 1 to %d lower-case letters, digits, dots, hyphens and underscores", s, ErrID, maxTrustDomain)
	}
	return nil
}

// nodeURI returns the URI that identifies a node in its certificate.
func nodeURI(clusterID, nodeID string) *url.URL {
	return &url.URL{Scheme: "penstock", Host: clusterID, Path: "/node/" + nodeID}
}

// nodeFromCert returns the node that a certificate names. It verifies nothing.
func nodeFromCert(cert *x509.Certificate) (clusterID, nodeID string, err error) {
	if cert.IsCA || len(cert.URIs) != 1 {
		return "", "", fmt.Errorf("%w: its certificate names no node", ErrPeer)
	}
	uri := cert.URIs[0]
	clusterID, nodeID = uri.Host, strings.TrimPrefix(uri.Path, "/node/")
	// Only the canonical spelling is valid, so that no two parsers read it as
	// different nodes.
	if checkID("cluster", clusterID) != nil || checkID("node", nodeID) != nil || nodeURI(clusterID, nodeID).String() != uri.String() {
		return "", "", fmt.Errorf("%w: its certificate names no node: %.120q", ErrPeer, uri.String())
	}
	return clusterID, nodeID, nil
}
