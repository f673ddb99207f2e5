package tlsconfig

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/netio/tlsstream"
	"penstock/node/trust"
)

// meshNode is a node with its identity in a cluster.
type meshNode struct {
	id       *trust.Identity
	departed []string
	*Mesh
}

func newMeshNode(t testing.TB, ca *trust.CA, tickets *tlsstream.Tickets) *meshNode {
	t.Helper()
	n := &meshNode{id: joined(t, ca)}
	n.Mesh = NewMesh(func() *trust.Identity { return n.id }, func(id string) bool { return slices.Contains(n.departed, id) }, tickets)
	return n
}

func newMeshCA(t testing.TB) *trust.CA {
	t.Helper()
	ca, err := trust.NewCA(trust.NewClusterID(), "", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// joined returns the identity of a new node of the CA's cluster.
func joined(t testing.TB, ca *trust.CA) *trust.Identity {
	t.Helper()
	id, err := trust.NewIdentity("n")
	if err != nil {
		t.Fatal(err)
	}
	ring, err := trust.NewKeyring()
	if err != nil {
		t.Fatal(err)
	}
	return signed(t, ca, id, ring)
}

// signed returns the identity with a new certificate.
func signed(t testing.TB, ca *trust.CA, id *trust.Identity, ring *trust.Keyring) *trust.Identity {
	t.Helper()
	csr, err := id.Request()
	if err != nil {
		t.Fatal(err)
	}
	req, err := trust.CheckRequest(csr)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := ca.Issue(req.Public, req.NodeID, req.Name, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	next, err := id.Join(ca.ClusterID(), leaf, ca.Bundle(), ring)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// shake connects a client to a server, which sends a byte, and returns the state of
// the client and the error of the server.
func shake(t testing.TB, client, server *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan error, 1)
	go func() {
		raw, err := ln.Accept()
		if err != nil {
			done <- err
			return
		}
		defer raw.Close()
		raw.SetDeadline(time.Now().Add(testkit.Patience))
		s := tls.Server(raw, server)
		if _, err = s.Write([]byte("x")); err == nil {
			_, _ = s.Read(make([]byte, 1)) // until the client closes
		}
		done <- err
	}()
	raw, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	raw.SetDeadline(time.Now().Add(testkit.Patience))
	c := tls.Client(raw, client)
	_, readErr := io.ReadFull(c, make([]byte, 1))
	raw.Close()
	if err := <-done; err != nil {
		return c.ConnectionState(), err
	}
	return c.ConnectionState(), readErr
}

// A session is resumed on every node, and not after either side's identity changed or
// the peer was removed.
func TestMeshSessions(t *testing.T) {
	t.Parallel()
	ca, tickets := newMeshCA(t), tlsstream.NewTickets()
	client, server, third := newMeshNode(t, ca, tickets), newMeshNode(t, ca, tickets), newMeshNode(t, ca, tickets)
	resumed := func(name string, s *meshNode, want bool) {
		t.Helper()
		state, err := shake(t, client.client("10.0.0.1"), s.Server())
		if err != nil || state.DidResume != want || state.Version != tls.VersionTLS13 || state.NegotiatedProtocol != MeshProtocol {
			t.Fatalf("%s: resumed %v, ALPN %q, version %x, %v", name, state.DidResume, state.NegotiatedProtocol, state.Version, err)
		}
	}
	resumed("first", server, false)
	resumed("second", server, true)
	resumed("on another node", third, true)
	if MeshPeer(&tls.ConnectionState{}) != "" {
		t.Error("a peer without a certificate has a name")
	}
	client.id = signed(t, ca, client.id, client.id.Keyring())
	resumed("after the client's renewal", server, false)
	resumed("again", server, true)
	counts := map[string]uint64{}
	server.Handshakes(func(side string, resumed bool, n uint64) {
		if resumed {
			side += " resumed"
		}
		counts[side] = n
	})
	if counts["server"] != 2 || counts["server resumed"] != 2 || counts["client"] != 0 {
		t.Errorf("counted %v", counts)
	}
	server.departed = []string{client.id.NodeID}
	if _, err := shake(t, client.client("10.0.0.1"), server.Server()); !errors.Is(err, errDeparted) {
		t.Errorf("a removed node resumed: %v", err)
	}
	server.departed = nil
	// The client refuses a node that was removed, and then begins anew with another.
	resumed("back", server, true)
	state, err := shake(t, client.client("10.0.0.1"), server.Server())
	if err != nil {
		t.Fatal(err)
	}
	client.departed = []string{MeshPeer(&state)}
	if _, err := shake(t, client.client("10.0.0.1"), third.Server()); err == nil {
		t.Error("the session of a removed node was resumed")
	}
	if MeshPeer(&state) == third.id.NodeID {
		client.departed = nil
	}
	resumed("the node behind the same address", third, false)
}

// Neither side accepts the node of another cluster, or one whose certificate another
// CA signed.
func TestMeshRefusesOtherClusters(t *testing.T) {
	t.Parallel()
	tickets := tlsstream.NewTickets()
	own, foreign := newMeshNode(t, newMeshCA(t), tickets), newMeshNode(t, newMeshCA(t), tickets)
	trusting := own.client("h").Clone()
	trusting.VerifyConnection = nil
	if _, err := shake(t, foreign.client("h"), own.Server()); err == nil {
		t.Error("the client accepted a foreign server")
	}
	if _, err := shake(t, trusting, foreign.Server()); !errors.Is(err, trust.ErrPeer) {
		t.Errorf("the server said %v", err)
	}
	none := NewMeshClient(nil).For("h")
	if _, err := shake(t, none, own.Server()); err == nil {
		t.Error("a client without an identity came through")
	}
	alone := NewMesh(func() *trust.Identity { return nil }, func(string) bool { return false }, tickets)
	if alone.Server() != nil {
		t.Error("a node without a cluster has a server")
	}
}

// A node with the previous CA's bundle accepts one with the next CA's certificate, in
// both directions, and the other way round until the previous CA is retired.
func TestMeshDuringRotation(t *testing.T) {
	t.Parallel()
	tickets := tlsstream.NewTickets()
	ca := newMeshCA(t)
	before, after := newMeshNode(t, ca, tickets), newMeshNode(t, ca, tickets)
	if _, err := shake(t, before.client("h"), after.Server()); err != nil {
		t.Fatal(err)
	}
	next, err := ca.Next(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	after.id = signed(t, next, after.id, after.id.Keyring())
	for name, pair := range map[string][2]*meshNode{"old client": {before, after}, "new client": {after, before}} {
		state, err := shake(t, pair[0].client("h"), pair[1].Server())
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if state.DidResume {
			t.Errorf("%s: resumed a session of another generation", name)
		}
	}
	// The old configuration of a renewed node goes on working: health checks keep one.
	kept := after.client("h")
	after.id = signed(t, next, after.id, after.id.Keyring())
	if _, err := shake(t, kept, before.Server()); err != nil {
		t.Error(err)
	}
	if len(certificateOf(after.id).Certificate) < 2 {
		t.Error("the cross-signed certificate is not sent")
	}
}

// The CPU of both sides for a whole handshake and for one that resumes a session.
func BenchmarkMeshHandshake(b *testing.B) {
	for name, whole := range map[string]bool{"full": true, "resumed": false} {
		b.Run(name, func(b *testing.B) {
			ca, tickets := newMeshCA(b), tlsstream.NewTickets()
			client, server := newMeshNode(b, ca, tickets), newMeshNode(b, ca, tickets)
			config := client.client("h").Clone()
			for b.Loop() {
				if whole {
					config.ClientSessionCache = nil
				}
				if _, err := shake(b, config, server.Server()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
