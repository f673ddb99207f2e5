package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

const day = 24 * time.Hour

func TestNodesOfOneClusterAuthenticateEachOther(t *testing.T) {
	ca := newCA(t, "c1")
	a, b := join(t, ca, "a", time.Now()), join(t, ca, "b", time.Now())
	s, c := handshake(t, ServerConfig(always(a)), ClientConfig(always(b), a.NodeID))
	if s.err != nil || c.err != nil {
		t.Fatal(s.err, c.err)
	}
	if got, ok := PeerNode(s.cs); !ok || got != b.NodeID {
		t.Errorf("the server sees node %q, %v; want %s", got, ok, b.NodeID)
	}
	if got, err := b.Peer(c.cs, ""); err != nil || got != a.NodeID {
		t.Errorf("the client sees node %q, %v; want %s", got, err, a.NodeID)
	}
	if got, ok := PeerNode(c.cs); ok {
		t.Errorf("PeerNode returned %s for a server that crypto/tls did not verify", got)
	}
	if s.cs.NegotiatedProtocol != Protocol || s.cs.Version != tls.VersionTLS13 {
		t.Errorf("protocol %q, version %x", s.cs.NegotiatedProtocol, s.cs.Version)
	}
}

func TestClientWithoutCertificateHasNoNodeID(t *testing.T) {
	ca := newCA(t, "c1")
	a := join(t, ca, "a", time.Now())
	s, c := handshake(t, ServerConfig(always(a)), JoinConfig())
	if s.err != nil || c.err != nil {
		t.Fatal(s.err, c.err)
	}
	if got, ok := PeerNode(s.cs); ok {
		t.Errorf("no certificate, and it is node %s", got)
	}
	if got, ok := PeerNode(c.cs); ok {
		t.Errorf("JoinConfig verifies nothing, but PeerNode returned %s", got)
	}
}

// forged signs a certificate that Issue would not sign.
func forged(t *testing.T, ca *CA, id *Identity, change func(*x509.Certificate)) tls.Certificate {
	t.Helper()
	template := must(x509.ParseCertificate(issue(t, ca, id, time.Now())))(t)
	change(template)
	cert := must(sign(template, ca.cert, &id.key.PublicKey, ca.key))(t)
	return tls.Certificate{Certificate: [][]byte{cert.Raw, ca.cert.Raw}, PrivateKey: id.key}
}

func uris(text ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.URIs = nil
		for _, s := range text {
			u, err := url.Parse(s)
			if err != nil {
				panic(err)
			}
			c.URIs = append(c.URIs, u)
		}
	}
}

// foreignCertificates returns certificates that are not of a node of cluster
// c1; ca is its CA.
func foreignCertificates(t *testing.T, ca *CA, id *Identity) map[string]tls.Certificate {
	t.Helper()
	ephemeral := must(Ephemeral())(t)
	namesake := newCA(t, "c1") // another cluster with the same ID
	return map[string]tls.Certificate{
		"another cluster":            join(t, newCA(t, "c2"), "x", time.Now()).tlsCert,
		"another CA, same ID":        join(t, namesake, "x", time.Now()).tlsCert,
		"expired":                    join(t, ca, "x", time.Now().Add(-91*day)).tlsCert,
		"not valid yet":              join(t, ca, "x", time.Now().Add(clockSkew+time.Hour)).tlsCert,
		"right CA, other cluster ID": forged(t, ca, id, uris("penstock://c2/node/"+id.NodeID)),
		"no URI":                     forged(t, ca, id, uris()),
		"two URIs":                   forged(t, ca, id, uris("penstock://c1/node/aa", "penstock://c1/node/bb")),
		"another scheme":             forged(t, ca, id, uris("https://c1/node/aa")),
		"an escaped spelling":        forged(t, ca, id, uris("penstock://c1/node/%61a")),
		"a port":                     forged(t, ca, id, uris("penstock://c1:1/node/aa")),
		"a query":                    forged(t, ca, id, uris("penstock://c1/node/aa?x")),
		"a path below":               forged(t, ca, id, uris("penstock://c1/node/aa/bb")),
		"not a node":                 forged(t, ca, id, uris("penstock://c1/user/aa")),
		"the CA itself":              {Certificate: [][]byte{ca.cert.Raw}, PrivateKey: ca.key},
		"a CA with a node's name": forged(t, ca, id, func(c *x509.Certificate) {
			c.IsCA, c.KeyUsage = true, c.KeyUsage|x509.KeyUsageCertSign
		}),
		"for signing code": forged(t, ca, id, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
		}),
		"self-signed":        ephemeral,
		"a proxy":            proxy(t, ca, "web", time.Now()),
		"a discovery server": discoveryServer(t, ca, id),
	}
}

// discoveryServer returns the certificate that a node presents to proxies.
func discoveryServer(t *testing.T, ca *CA, id *Identity) tls.Certificate {
	t.Helper()
	return must(proxyServer(signer(ca), always(id)).certificate(id, serverAddress{}, time.Now()))(t)
}

func TestServerRejectsNonNodes(t *testing.T) {
	ca := newCA(t, "c1")
	a := join(t, ca, "a", time.Now())
	for name, cert := range foreignCertificates(t, ca, join(t, ca, "x", time.Now())) {
		t.Run(name, func(t *testing.T) {
			client := JoinConfig()
			client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
			s, c := handshake(t, ServerConfig(always(a)), client)
			if s.err == nil || c.err == nil {
				t.Fatalf("server %v, client %v: want both refused", s.err, c.err)
			}
			if err := Explain(s.err); name == "another cluster" && !strings.Contains(err.Error(), "of cluster c2") {
				t.Errorf("%v: does not say which cluster the stranger is of", err)
			}
		})
	}
}

func TestClientRejectsNonNodes(t *testing.T) {
	ca := newCA(t, "c1")
	b := join(t, ca, "b", time.Now())
	token, _, err := Mint(Admin, "admin", "ops", "local", time.Hour, "c1", ca.Digest(), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, cert := range foreignCertificates(t, ca, join(t, ca, "x", time.Now())) {
		t.Run(name, func(t *testing.T) {
			server := baseConfig()
			server.Certificates = []tls.Certificate{cert}
			server.ClientAuth = tls.RequestClientCert
			if _, c := handshake(t, server, ClientConfig(always(b), "")); !errors.Is(c.err, ErrPeer) {
				t.Errorf("as a node: %v, want ErrPeer", c.err)
			}
			if _, c := handshake(t, server, TokenConfig(token)); !errors.Is(c.err, ErrPin) {
				t.Errorf("by token: %v, want ErrPin", c.err)
			}
		})
	}
}

func TestClientRejectsAnotherNode(t *testing.T) {
	ca := newCA(t, "c1")
	a, b := join(t, ca, "a", time.Now()), join(t, ca, "b", time.Now())
	if _, c := handshake(t, ServerConfig(always(a)), ClientConfig(always(b), "0123456789abcdef")); !errors.Is(c.err, ErrOtherNode) {
		t.Errorf("%v, want ErrOtherNode", c.err)
	}
	if _, c := handshake(t, ServerConfig(always(a)), ClientConfig(always(b), "")); c.err != nil {
		t.Errorf("any node: %v", c.err)
	}
}

func TestOlderTLSIsRejected(t *testing.T) {
	ca := newCA(t, "c1")
	a := join(t, ca, "a", time.Now())
	client := JoinConfig()
	client.MinVersion, client.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if s, c := handshake(t, ServerConfig(always(a)), client); s.err == nil || c.err == nil {
		t.Errorf("TLS 1.2: server %v, client %v", s.err, c.err)
	}
	server := &tls.Config{Certificates: []tls.Certificate{a.tlsCert}, MaxVersion: tls.VersionTLS12}
	for name, client := range map[string]*tls.Config{"node": ClientConfig(always(a), ""), "join": JoinConfig()} {
		if s, c := handshake(t, server, client); s.err == nil || c.err == nil {
			t.Errorf("%s, TLS 1.2: server %v, client %v", name, s.err, c.err)
		}
	}
}

func TestOtherALPNProtocolsAreRejected(t *testing.T) {
	a := join(t, newCA(t, "c1"), "a", time.Now())
	client := JoinConfig()
	client.NextProtos = []string{"h2", "http/1.1"}
	if s, c := handshake(t, ServerConfig(always(a)), client); s.err == nil || c.err == nil {
		t.Errorf("a browser: server %v, client %v", s.err, c.err)
	}
}

func TestSessionsAreNotResumed(t *testing.T) {
	a := join(t, newCA(t, "c1"), "a", time.Now())
	server, client := ServerConfig(always(a)), JoinConfig()
	client.ClientSessionCache, client.ServerName = tls.NewLRUClientSessionCache(4), "x"
	for range 3 {
		s, c := handshake(t, server, client)
		if s.err != nil || c.err != nil {
			t.Fatal(s.err, c.err)
		}
		if s.cs.DidResume || c.cs.DidResume {
			t.Fatal("a session was resumed: its node was not verified again")
		}
	}
}

func TestTokenConfigAcceptsOnlyItsCluster(t *testing.T) {
	ca := newCA(t, "c1")
	a := join(t, ca, "a", time.Now())
	mint := func(clusterID string, digest [32]byte) Token {
		token, _, err := Mint(Admin, "admin", "ops", "local", time.Hour, clusterID, digest, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	if s, c := handshake(t, ServerConfig(always(a)), TokenConfig(mint("c1", ca.Digest()))); s.err != nil || c.err != nil {
		t.Errorf("its own cluster: %v, %v", s.err, c.err)
	}
	for name, token := range map[string]Token{
		"another cluster's CA":            mint("c1", newCA(t, "c1").Digest()),
		"this CA, another cluster":        mint("c2", ca.Digest()),
		"the digest of the node's key":    mint("c1", Digest(a.leaf)),
		"a token for forming":             NewExpectToken(),
		"no token":                        {},
		"no token, with this CA's digest": {CADigest: ca.Digest()},
	} {
		if _, c := handshake(t, ServerConfig(always(a)), TokenConfig(token)); !errors.Is(c.err, ErrPin) {
			t.Errorf("%s: %v, want ErrPin", name, c.err)
		}
	}
	// The CA's public certificate after a foreign one proves nothing.
	thief := must(Ephemeral())(t)
	thief.Certificate = append(thief.Certificate, ca.cert.Raw)
	server := baseConfig()
	server.Certificates = []tls.Certificate{thief}
	if _, c := handshake(t, server, TokenConfig(mint("c1", ca.Digest()))); !errors.Is(c.err, ErrPin) {
		t.Errorf("a thief of the CA's certificate: %v, want ErrPin", c.err)
	}
}

func TestNodeInNoClusterPresentsAndAcceptsNoIdentity(t *testing.T) {
	ca := newCA(t, "c1")
	member, alone := join(t, ca, "a", time.Now()), must(NewIdentity("b"))(t)
	for name, id := range map[string]*Identity{"with an ID": alone, "with none": nil} {
		server := ServerConfig(always(id))
		s, c := handshake(t, server, JoinConfig())
		if s.err != nil || c.err != nil {
			t.Fatalf("%s: %v, %v", name, s.err, c.err)
		}
		if len(s.cs.PeerCertificates) != 0 || len(c.cs.PeerCertificates) != 1 {
			t.Errorf("%s: %d and %d certificates shown", name, len(s.cs.PeerCertificates), len(c.cs.PeerCertificates))
		}
		again, _ := c.cs, 0
		if _, c := handshake(t, server, JoinConfig()); !c.cs.PeerCertificates[0].Equal(again.PeerCertificates[0]) {
			t.Errorf("%s: another ephemeral certificate for each connection", name)
		}
		if _, c := handshake(t, server, ClientConfig(always(member), "")); !errors.Is(c.err, ErrPeer) {
			t.Errorf("%s: a member takes it for %v", name, c.err)
		}
		trusting := JoinConfig()
		trusting.Certificates = []tls.Certificate{member.tlsCert}
		if s, _ := handshake(t, server, trusting); !errors.Is(s.err, ErrNoCluster) {
			t.Errorf("%s: it takes a member's certificate: %v", name, s.err)
		}
		if _, c := handshake(t, ServerConfig(always(member)), ClientConfig(always(id), "")); !errors.Is(c.err, ErrNoCluster) {
			t.Errorf("%s: it dials as a node: %v", name, c.err)
		}
	}
}

// mustAuthenticate fails the test unless all nodes accept each other, as server
// and as client.
func mustAuthenticate(t *testing.T, what string, nodes ...*Identity) {
	t.Helper()
	for _, a := range nodes {
		for _, b := range nodes {
			s, c := handshake(t, ServerConfig(always(a)), ClientConfig(always(b), a.NodeID))
			if s.err != nil || c.err != nil {
				t.Errorf("%s: %s dials %s: %v, %v", what, b.Name, a.Name, s.err, c.err)
			}
		}
	}
}

func TestBothGenerationsAuthenticateDuringRotation(t *testing.T) {
	now := time.Now()
	one := newCA(t, "c1")
	old := join(t, one, "old", now)
	two := must(one.Next(now))(t)
	told := must(join(t, one, "told", now).WithBundle(two.Bundle()))(t)
	renewed := must(told.Renewed(nil, issue(t, two, told, now), two.Bundle()))(t)
	renewed.Name = "renewed"
	fresh := join(t, two, "fresh", now)
	mustAuthenticate(t, "one rotation", old, told, renewed, fresh)

	if !told.NeedsRenewal(now) || renewed.NeedsRenewal(now) || old.NeedsRenewal(now) {
		t.Errorf("needs renewal: told %v, renewed %v, old %v; want true, false, false",
			told.NeedsRenewal(now), renewed.NeedsRenewal(now), old.NeedsRenewal(now))
	}
	for i, digest := range [][32]byte{one.Digest(), two.Digest()} {
		token, _, err := Mint(Admin, "admin", "ops", "local", time.Hour, "c1", digest, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, c := handshake(t, ServerConfig(always(fresh)), TokenConfig(token)); c.err != nil {
			t.Errorf("a token of generation %d: %v", i+1, c.err)
		}
	}

	three := must(two.Next(now))(t)
	mustAuthenticate(t, "two rotations", old, renewed, join(t, three, "latest", now))

	// The first rotation is over.
	retired := must(fresh.WithBundle(two.Retire().Bundle()))(t)
	if _, c := handshake(t, ServerConfig(always(retired)), ClientConfig(always(old), "")); !errors.Is(c.err, ErrPeer) {
		t.Errorf("after it was retired, the old CA is still trusted: %v", c.err)
	}
	if s, _ := handshake(t, ServerConfig(always(retired)), ClientConfig(always(renewed), "")); s.err != nil {
		t.Errorf("renewed node after the retirement: %v", s.err)
	}
	if _, err := told.WithBundle(two.Retire().Bundle()); !errors.Is(err, ErrCertificate) {
		t.Errorf("a node drops the CA that signed its own certificate: %v", err)
	}
}

func TestConcurrentRotationsAreBounded(t *testing.T) {
	ca := newCA(t, "c1")
	for range 3 {
		ca = must(ca.Next(time.Now()))(t)
	}
	if _, err := ca.Next(time.Now()); !errors.Is(err, ErrRotating) {
		t.Errorf("a fourth rotation: %v, want ErrRotating", err)
	}
	if _, err := ca.Retire().Next(time.Now()); err != nil {
		t.Errorf("after the others are over: %v", err)
	}
}

func TestRenewalAppliesWithoutRestart(t *testing.T) {
	ca := newCA(t, "c1")
	var current atomic.Pointer[Identity]
	a := join(t, ca, "a", time.Now().Add(-91*day))
	current.Store(a)
	server := ServerConfig(current.Load)
	client := ClientConfig(always(join(t, ca, "b", time.Now())), a.NodeID)
	if _, c := handshake(t, server, client); !errors.Is(c.err, ErrPeer) {
		t.Fatalf("an expired certificate: %v, want ErrPeer", c.err)
	}
	key := must(newKey())(t)
	r := must(CheckRequest(must(NewRequest(key, a.NodeID, a.Name))(t)))(t)
	leaf := must(ca.Issue(r.Public, r.NodeID, r.Name, time.Now()))(t)
	current.Store(must(a.Renewed(key, leaf, ca.Bundle()))(t))
	if s, c := handshake(t, server, client); s.err != nil || c.err != nil {
		t.Errorf("the same configurations after the renewal: %v, %v", s.err, c.err)
	}
}

func TestClocksMayBeAnHourApart(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, time.Hour} {
		ca := must(NewCA("c1", "", time.Now().Add(skew)))(t)
		mustAuthenticate(t, skew.String(), join(t, ca, "a", time.Now().Add(skew)), join(t, ca, "b", time.Now()))
	}
}
