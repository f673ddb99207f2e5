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

// ErrID means that an ID is none: 1 to 63 letters, digits, '-' and '_', of
// which the first and the last is a letter or digit; or a name is none.
var ErrID = errors.New("not an ID")

// maxID and maxName are in bytes; a longer ID is no part of a host name.
const (
	maxID   = 63
	maxName = 255
)

// NewNodeID makes the ID of a node: 16 hex digits.
func NewNodeID() string { return randomHex(8) }

// NewClusterID makes the ID of a cluster: 16 hex digits.
func NewClusterID() string { return randomHex(8) }

// NewGossipKey makes a key for gossip: 32 bytes, AES-256.
func NewGossipKey() []byte { return randomBytes(32) }

// NewTicketKey makes a key that TLS session tickets of listeners are sealed with.
func NewTicketKey() [32]byte { return [32]byte(randomBytes(32)) }

func randomHex(n int) string { return hex.EncodeToString(randomBytes(n)) }

// randomBytes never fails: where there is no randomness the process ends.
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

// checkName takes what people call a node or a token.
func checkName(s string) error {
	if len(s) > maxName || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == 0xfffd }) {
		return fmt.Errorf("name %.80q: %w: at most %d bytes of printable text", s, ErrID, maxName)
	}
	return nil
}

// nodeURI is the name of a node in its certificate.
func nodeURI(clusterID, nodeID string) *url.URL {
	return &url.URL{Scheme: "penstock", Host: clusterID, Path: "/node/" + nodeID}
}

// nodeOf reads whose certificate it is. It verifies nothing.
func nodeOf(cert *x509.Certificate) (clusterID, nodeID string, err error) {
	if cert.IsCA || len(cert.URIs) != 1 {
		return "", "", fmt.Errorf("%w: it names no node", ErrPeer)
	}
	uri := cert.URIs[0]
	clusterID, nodeID = uri.Host, strings.TrimPrefix(uri.Path, "/node/")
	// Only the one spelling: what two readers could take for two nodes is none.
	if checkID("cluster", clusterID) != nil || checkID("node", nodeID) != nil || nodeURI(clusterID, nodeID).String() != uri.String() {
		return "", "", fmt.Errorf("%w: it names no node: %.120q", ErrPeer, uri.String())
	}
	return clusterID, nodeID, nil
}
