package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"sync"
	"sync/atomic"
	"time"
)

// The errors of handshakes.
var (
	// ErrPeer: the peer's certificate is not that of a node of this cluster.
	ErrPeer = errors.New("the peer is not a node of this cluster")
	// ErrOtherNode: the peer is a node of this cluster, but not the wanted one.
	ErrOtherNode = errors.New("the peer is another node")
	// ErrNoCluster: this node is in no cluster yet.
	ErrNoCluster = errors.New("this node is in no cluster yet")
	// ErrPin: the peer does not belong to the token's cluster.
	ErrPin = errors.New("the peer is not in the token's cluster")
)

// Protocol is the ALPN protocol of both sides, so that clients of other
// protocols fail in the handshake.
const Protocol = "penstock"

// baseConfig returns the settings common to all configurations. Sessions are
// never resumed: connections between nodes are long-lived, and each new one
// must be verified by the certificates in force.
func baseConfig() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}, SessionTicketsDisabled: true}
}

// ServerConfig returns the configuration of the cluster port. It calls id at
// each handshake, so that renewals and rotations apply at once. The node
// presents its certificate and the whole bundle, for clients that identify a CA
// only by its digest. A client certificate is optional; if present, it must be
// that of a node of this cluster, with a valid chain and valid dates. PeerNode
// returns that node. The caller must check that the node is still a member.
//
// While the node is in no cluster, it presents an ephemeral certificate and
// rejects client certificates.
func ServerConfig(id func() *Identity) *tls.Config {
	type cached struct {
		id     *Identity
		config *tls.Config
	}
	var last atomic.Pointer[cached]
	ephemeral := sync.OnceValues(Ephemeral)
	server := baseConfig()
	server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		current := id()
		if m := last.Load(); m != nil && m.id == current {
			return m.config, nil
		}
		config := baseConfig()
		if current.Joined() {
			config.Certificates = []tls.Certificate{current.tlsCert}
			config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, current.roots
			config.VerifyConnection = func(cs tls.ConnectionState) error { return current.verifyClient(cs) }
		} else {
			cert, err := ephemeral()
			if err != nil {
				return nil, err
			}
			config.Certificates = []tls.Certificate{cert}
			config.ClientAuth = tls.RequestClientCert
			config.VerifyConnection = func(cs tls.ConnectionState) error {
				if len(cs.PeerCertificates) > 0 {
					return ErrNoCluster
				}
				return nil
			}
		}
		last.Store(&cached{current, config})
		return config, nil
	}
	return server
}

// Explain adds the claimed identity of the peer to a handshake error, if the
// peer's certificate was rejected.
func Explain(err error) error {
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) || len(refused.UnverifiedCertificates) == 0 {
		return err
	}
	cluster, node, nerr := nodeFromCert(refused.UnverifiedCertificates[0])
	if nerr != nil {
		return fmt.Errorf("%w: %w", nerr, err)
	}
	return fmt.Errorf("%w: its certificate names node %s of cluster %s: %w", ErrPeer, node, cluster, err)
}

// verifyClient checks the name in a client certificate whose chain and dates
// are verified.
func (id *Identity) verifyClient(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return nil
	}
	_, err := id.verifyName(cs.PeerCertificates[0], "")
	return err
}

// verifyName returns the node of a verified certificate.
func (id *Identity) verifyName(cert *x509.Certificate, wantNode string) (string, error) {
	return checkNodeName(cert, id.ClusterID, wantNode)
}

func checkNodeName(cert *x509.Certificate, clusterID, wantNode string) (string, error) {
	cluster, node, err := nodeFromCert(cert)
	switch {
	case err != nil:
		return "", err
	case cluster != clusterID:
		return "", fmt.Errorf("%w: its cluster is %s, not %s", ErrPeer, cluster, clusterID)
	case wantNode != "" && node != wantNode:
		return "", fmt.Errorf("%w: %s, not %s", ErrOtherNode, node, wantNode)
	}
	return node, nil
}

// PeerNode returns the peer's node ID on a connection that ServerConfig
// accepted. ok is false if the client has no certificate, and always on the
// dialing side, since JoinConfig does not verify its peer: see Identity.Peer.
func PeerNode(cs tls.ConnectionState) (nodeID string, ok bool) {
	if len(cs.VerifiedChains) == 0 || len(cs.PeerCertificates) == 0 {
		return "", false
	}
	_, nodeID, err := nodeFromCert(cs.PeerCertificates[0])
	return nodeID, err == nil
}

// CertificateNode returns the ID of the node that a certificate names; "": none. It
// verifies nothing.
func CertificateNode(cert *x509.Certificate) string {
	_, nodeID, _ := nodeFromCert(cert)
	return nodeID
}

// Peer verifies the peer of a connection against this identity and returns its
// node ID. wantNode "" accepts any node of the cluster.
func (id *Identity) Peer(cs tls.ConnectionState, wantNode string) (nodeID string, err error) {
	if !id.Joined() {
		return "", ErrNoCluster
	}
	return verifyNode(cs.PeerCertificates, id.roots, id.ClusterID, wantNode)
}

// verifyNode verifies a server's certificate chain.
func verifyNode(certs []*x509.Certificate, roots *x509.CertPool, clusterID, wantNode string) (string, error) {
	if len(certs) == 0 {
		return "", fmt.Errorf("%w: it presented no certificate", ErrPeer)
	}
	intermediates := x509.NewCertPool()
	for _, cert := range certs[1:] {
		intermediates.AddCert(cert)
	}
	if _, err := certs[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: intermediates,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return "", fmt.Errorf("%w: %w", ErrPeer, err)
	}
	return checkNodeName(certs[0], clusterID, wantNode)
}

// ClientConfig returns the configuration for connections to wantNode, or to any
// node of the cluster if that is "". It presents this node's certificate and,
// like ServerConfig, calls id at each handshake.
func ClientConfig(id func() *Identity, wantNode string) *tls.Config {
	client := baseConfig()
	client.InsecureSkipVerify = true // VerifyConnection does it: nodes have IDs, not host names
	client.VerifyConnection = func(cs tls.ConnectionState) error {
		_, err := id().Peer(cs, wantNode)
		return err
	}
	client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		current := id()
		if !current.Joined() {
			return nil, ErrNoCluster
		}
		return &current.tlsCert, nil
	}
	return client
}

// TokenConfig returns the configuration of a client that has only a token. The
// server must present a CA certificate with the key that the token names, and a
// node certificate that is valid under that CA and belongs to the token's
// cluster.
func TokenConfig(t Token) *tls.Config {
	client := baseConfig()
	client.InsecureSkipVerify = true // VerifyConnection does it, by the digest
	client.VerifyConnection = func(cs tls.ConnectionState) error { return t.verify(cs.PeerCertificates) }
	return client
}

func (t Token) verify(certs []*x509.Certificate) error {
	if t.Kind == Expect || t.ClusterID == "" {
		return fmt.Errorf("%w: %s names no cluster: it is only for start --expect", ErrPin, t)
	}
	roots := x509.NewCertPool()
	found := false
	for i, cert := range certs {
		if i > 0 && i <= maxBundle && cert.IsCA && Digest(cert) == t.CADigest {
			roots.AddCert(cert)
			found = true
		}
	}
	if !found {
		return fmt.Errorf("%w: the token names another CA (another cluster, or its CA was replaced since)", ErrPin)
	}
	if _, err := verifyNode(certs, roots, t.ClusterID, ""); err != nil {
		return fmt.Errorf("%w: %w", ErrPin, err)
	}
	return nil
}

// JoinConfig returns the configuration of connections to a node that cannot be
// verified yet. It verifies nothing: nothing confidential may be sent, and
// nothing received may be trusted, before Prove and Check have succeeded.
func JoinConfig() *tls.Config {
	client := baseConfig()
	client.InsecureSkipVerify = true // Check does it, by the shared secret
	return client
}

// Ephemeral returns a certificate that identifies nothing, for a node that is
// still bootstrapping or joining.
func Ephemeral() (tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-clockSkew), NotAfter: now.Add(caLifetime),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"joining.penstock.invalid"},
	}
	cert, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}
