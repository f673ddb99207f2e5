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

// Errors of handshakes.
var (
	// ErrPeer: the other side's certificate is not one of this cluster's nodes.
	ErrPeer = errors.New("the other side is no node of this cluster")
	// ErrOtherNode: it is a node of this cluster, and not the one wanted.
	ErrOtherNode = errors.New("another node answers there")
	// ErrNoCluster: this node is in no cluster yet.
	ErrNoCluster = errors.New("this node is in no cluster yet")
	// ErrPin: the other side does not belong to the cluster that the token is for.
	ErrPin = errors.New("the node that answers is not of the token's cluster")
)

// Protocol is what both sides name by ALPN, so that clients of other protocols
// are turned away in the handshake.
const Protocol = "penstock"

// base is what all configurations share. Sessions are never resumed: nodes
// keep their connections for long, and each new one is to be verified by the
// certificates in force.
func base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{Protocol}, SessionTicketsDisabled: true}
}

// ServerConfig is for the cluster port. At each handshake it asks for the
// identity in force, so renewals and rotations act at once. It shows the
// node's certificate and the whole bundle behind it, for clients that know a
// CA by its digest only. A client need not show a certificate; one that does
// must be a node of this cluster, by a chain and dates that hold: PeerNode
// says which. Whether that node still belongs is the caller's question.
//
// While the node is in no cluster it shows an ephemeral certificate, and takes
// no client's.
func ServerConfig(id func() *Identity) *tls.Config {
	type made struct {
		id     *Identity
		config *tls.Config
	}
	var last atomic.Pointer[made]
	ephemeral := sync.OnceValues(Ephemeral)
	server := base()
	server.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := id()
		if m := last.Load(); m != nil && m.id == now {
			return m.config, nil
		}
		config := base()
		if now.Joined() {
			config.Certificates = []tls.Certificate{now.made}
			config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, now.roots
			config.VerifyConnection = func(cs tls.ConnectionState) error { return now.admit(cs) }
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
		last.Store(&made{now, config})
		return config, nil
	}
	return server
}

// Explain adds to the error of a handshake who the other side claimed to be,
// where its certificate was refused.
func Explain(err error) error {
	var refused *tls.CertificateVerificationError
	if !errors.As(err, &refused) || len(refused.UnverifiedCertificates) == 0 {
		return err
	}
	cluster, node, nerr := nodeOf(refused.UnverifiedCertificates[0])
	if nerr != nil {
		return fmt.Errorf("%w: %w", nerr, err)
	}
	return fmt.Errorf("%w: it shows a certificate of node %s of cluster %s: %w", ErrPeer, node, cluster, err)
}

// admit looks at who a client is whose chain and dates hold already.
func (id *Identity) admit(cs tls.ConnectionState) error {
	if len(cs.PeerCertificates) == 0 {
		return nil
	}
	_, err := id.peer(cs.PeerCertificates[0], "")
	return err
}

// peer reads the node of a verified certificate.
func (id *Identity) peer(cert *x509.Certificate, wantNode string) (string, error) {
	return checkNode(cert, id.ClusterID, wantNode)
}

func checkNode(cert *x509.Certificate, clusterID, wantNode string) (string, error) {
	cluster, node, err := nodeOf(cert)
	switch {
	case err != nil:
		return "", err
	case cluster != clusterID:
		return "", fmt.Errorf("%w: it is of cluster %s, this is %s", ErrPeer, cluster, clusterID)
	case wantNode != "" && node != wantNode:
		return "", fmt.Errorf("%w: %s, not %s", ErrOtherNode, node, wantNode)
	}
	return node, nil
}

// PeerNode gives the node on the other side of a connection that ServerConfig
// accepted; not ok where the client has shown no certificate. On the dialing
// side it is never ok, since what JoinConfig meets is not verified: see
// Identity.Peer.
func PeerNode(cs tls.ConnectionState) (nodeID string, ok bool) {
	if len(cs.VerifiedChains) == 0 || len(cs.PeerCertificates) == 0 {
		return "", false
	}
	_, nodeID, err := nodeOf(cs.PeerCertificates[0])
	return nodeID, err == nil
}

// Peer verifies the other side of a connection against this identity and says
// which node it is; wantNode "" takes any of the cluster.
func (id *Identity) Peer(cs tls.ConnectionState, wantNode string) (nodeID string, err error) {
	if !id.Joined() {
		return "", ErrNoCluster
	}
	return verifyNode(cs.PeerCertificates, id.roots, id.ClusterID, wantNode)
}

// verifyNode verifies a chain as shown by a server.
func verifyNode(certs []*x509.Certificate, roots *x509.CertPool, clusterID, wantNode string) (string, error) {
	if len(certs) == 0 {
		return "", fmt.Errorf("%w: it has shown no certificate", ErrPeer)
	}
	between := x509.NewCertPool()
	for _, cert := range certs[1:] {
		between.AddCert(cert)
	}
	if _, err := certs[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return "", fmt.Errorf("%w: %w", ErrPeer, err)
	}
	return checkNode(certs[0], clusterID, wantNode)
}

// ClientConfig is for connections to another node, which must be wantNode, or
// any node of the cluster where that is "". It shows this node's certificate
// and, like ServerConfig, asks for the identity at each handshake.
func ClientConfig(id func() *Identity, wantNode string) *tls.Config {
	client := base()
	client.InsecureSkipVerify = true // VerifyConnection does it: nodes have IDs, not host names
	client.VerifyConnection = func(cs tls.ConnectionState) error {
		_, err := id().Peer(cs, wantNode)
		return err
	}
	client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		now := id()
		if !now.Joined() {
			return nil, ErrNoCluster
		}
		return &now.made, nil
	}
	return client
}

// TokenConfig is for a command that has nothing but a token. The node that
// answers must show a CA certificate with the key that the token names, and
// its own must hold under that one and be of the token's cluster.
func TokenConfig(t Token) *tls.Config {
	client := base()
	client.InsecureSkipVerify = true // VerifyConnection does it, by the digest
	client.VerifyConnection = func(cs tls.ConnectionState) error { return t.verify(cs.PeerCertificates) }
	return client
}

func (t Token) verify(certs []*x509.Certificate) error {
	if t.Kind == Expect || t.ClusterID == "" {
		return fmt.Errorf("%w: %s names no cluster: it is for start --expect", ErrPin, t)
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
		return fmt.Errorf("%w: its CA is not the one that the token names (another cluster, or its CA was replaced since)", ErrPin)
	}
	if _, err := verifyNode(certs, roots, t.ClusterID, ""); err != nil {
		return fmt.Errorf("%w: %w", ErrPin, err)
	}
	return nil
}

// JoinConfig is towards a node that cannot be verified yet. It verifies
// nothing: only what Prove and Check have said is worth anything there, and
// until then nothing may be told that a stranger must not know.
func JoinConfig() *tls.Config {
	client := base()
	client.InsecureSkipVerify = true // Check does it, by the shared secret
	return client
}

// Ephemeral makes a certificate that says nothing, for a node that is still
// forming or joining.
func Ephemeral() (tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-clockSkew), NotAfter: now.Add(caLife),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"joining.penstock.invalid"},
	}
	cert, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}, nil
}
