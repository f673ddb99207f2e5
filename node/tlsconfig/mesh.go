package tlsconfig

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"penstock/netio/tlsstream"
	"penstock/node/trust"
)

// MeshProtocol is the ALPN protocol of mesh connections between nodes. Without it no
// handshake of the mesh succeeds, so neither side can be led to another port of a node.
const MeshProtocol = "penstock-mesh/1"

var (
	errNoMesh       = errors.New("this node is in no cluster, so it has no identity for the mesh")
	errMeshProtocol = errors.New("the peer does not speak " + MeshProtocol)
	errDeparted     = errors.New("the peer was removed from the cluster")
)

// maxMeshHosts bounds the configurations that are cached, one for each endpoint's host.
const maxMeshHosts = 4096

// Mesh makes the TLS of connections between the nodes of a cluster that carry those
// of clients: TLS 1.3, both sides with the certificate that makes them a node. It
// follows renewals of that certificate and rotations of the CA: the next handshake
// uses what is in force. Sessions are resumed, on any node, until the node's
// certificate or the CA changes; the peer is verified then as well. Its methods
// are safe for concurrent use.
type Mesh struct {
	identity func() *trust.Identity
	departed func(nodeID string) bool
	tickets  *tlsstream.Tickets

	counts [2][2]atomic.Uint64 // handshakes by side (client, server), full or resumed

	mu      sync.Mutex
	made    *trust.Identity // that server and clients were made for
	server  *tls.Config
	clients map[string]*tls.Config // by host of the endpoint
}

// NewMesh makes a Mesh. identity returns the node's own, departed whether a node was
// removed from the cluster. tickets are those of the cluster's listeners.
func NewMesh(identity func() *trust.Identity, departed func(nodeID string) bool, tickets *tlsstream.Tickets) *Mesh {
	return &Mesh{identity: identity, departed: departed, tickets: tickets}
}

// NewMeshClient makes the Client towards mesh endpoints. Without a Mesh it trusts no
// endpoint.
func NewMeshClient(m *Mesh) *Client {
	if m == nil {
		m = NewMesh(func() *trust.Identity { return nil }, func(string) bool { return true }, tlsstream.NewTickets())
	}
	return &Client{mesh: m}
}

// Server returns the configuration of mesh listeners; nil while the node is in no
// cluster.
func (m *Mesh) Server() *tls.Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.current()
	if id == nil {
		return nil
	}
	if m.server == nil {
		m.server = m.config(id, 1)
		m.server.ClientAuth = tls.RequireAnyClientCert // VerifyConnection verifies it
		scope := sha256.New()
		for _, der := range id.Bundle() {
			scope.Write(der)
		}
		m.tickets.Share(m.server, fmt.Sprintf("%s\x00%x", MeshProtocol, scope.Sum(nil)))
	}
	return m.server
}

// client returns the configuration towards an endpoint on a host.
func (m *Mesh) client(host string) *tls.Config {
	m.mu.Lock()
	defer m.mu.Unlock()
	id := m.current()
	if c := m.clients[host]; c != nil && id != nil {
		return c
	}
	config := m.config(id, 0)
	config.ServerName = host
	config.InsecureSkipVerify = true // VerifyConnection does it: nodes have IDs, not host names
	sessions := config.ClientSessionCache
	verify := config.VerifyConnection
	config.VerifyConnection = func(state tls.ConnectionState) error {
		err := verify(state)
		if err != nil {
			sessions.Put(host, nil) // the next handshake is a whole one
		}
		return err
	}
	if id == nil {
		return config
	}
	if len(m.clients) >= maxMeshHosts {
		clear(m.clients)
	}
	m.clients[host] = config
	return config
}

// current returns the node's identity; nil: it is in no cluster. What was made for an
// earlier one is dropped.
func (m *Mesh) current() *trust.Identity {
	id := m.identity()
	if !id.Joined() {
		id = nil
	}
	if id != m.made {
		m.made, m.server, m.clients = id, nil, map[string]*tls.Config{}
	}
	return id
}

// MeshPeer returns the node ID of the peer of a mesh connection; "": none.
func MeshPeer(state *tls.ConnectionState) string {
	if state == nil || len(state.PeerCertificates) == 0 {
		return ""
	}
	return trust.CertificateNode(state.PeerCertificates[0])
}

// Handshakes calls f with the number of handshakes in which this side accepted the peer,
// by its side and whether a session was resumed.
func (m *Mesh) Handshakes(f func(side string, resumed bool, n uint64)) {
	for i, side := range []string{"client", "server"} {
		f(side, false, m.counts[i][0].Load())
		f(side, true, m.counts[i][1].Load())
	}
}

// config returns what both sides have in common; side is 0 for clients and 1 for
// servers. Its callbacks use the identity of
// the moment of the handshake, so that an old configuration stays usable.
func (m *Mesh) config(id *trust.Identity, side int) *tls.Config {
	c := tlsstream.Defaults(&tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{MeshProtocol}})
	c.VerifyConnection = func(state tls.ConnectionState) error {
		err := m.verify(state)
		if err == nil && state.DidResume {
			m.counts[side][1].Add(1)
		} else if err == nil {
			m.counts[side][0].Add(1)
		}
		return err
	}
	if id == nil {
		return c
	}
	cert := certificateOf(id)
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return m.certificate(id, cert) }
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return m.certificate(id, cert) }
	return c
}

// certificate returns the node's certificate: cert, if its identity is still id.
func (m *Mesh) certificate(id *trust.Identity, cert *tls.Certificate) (*tls.Certificate, error) {
	switch now := m.identity(); {
	case now == id:
		return cert, nil
	case now.Joined():
		return certificateOf(now), nil
	}
	return nil, errNoMesh
}

// certificateOf returns what the node presents: its certificate and those of the
// bundle that end no chain, for peers that have only an earlier CA.
func certificateOf(id *trust.Identity) *tls.Certificate {
	cert := &tls.Certificate{Certificate: [][]byte{id.Leaf().Raw}, PrivateKey: id.Certificate().PrivateKey, Leaf: id.Leaf()}
	bundle := id.Bundle()
	roots := trust.SelfSigned(bundle)
	for _, der := range bundle {
		if !slices.ContainsFunc(roots, func(root []byte) bool { return string(root) == string(der) }) {
			cert.Certificate = append(cert.Certificate, der)
		}
	}
	return cert
}

// verify is the tls.Config.VerifyConnection of both sides, which runs for resumed
// sessions too: the peer must be a node of the cluster, by the CA in force.
func (m *Mesh) verify(state tls.ConnectionState) error {
	id := m.identity()
	if !id.Joined() {
		return errNoMesh
	}
	if state.NegotiatedProtocol != MeshProtocol {
		return refused(state.PeerCertificates, errMeshProtocol)
	}
	node, err := id.Peer(state, "")
	if err == nil && m.departed(node) {
		err = errDeparted
	}
	if err != nil {
		return refused(state.PeerCertificates, err)
	}
	return nil
}
