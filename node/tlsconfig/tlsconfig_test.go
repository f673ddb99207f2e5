package tlsconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"

	"penstock/netio/tlsstream"
	"penstock/routing/resource"
)

// selfSigned makes a certificate that is its own CA.
func selfSigned(t *testing.T, names ...string) *resource.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: names, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &resource.Certificate{
		Cert: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:  resource.Secret(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})),
	}
}

func mustSet(t *testing.T, s *Store, name string, c *resource.Certificate) {
	t.Helper()
	if err := s.Set(name, c); err != nil {
		t.Fatal(err)
	}
}

// handshake runs a handshake and returns the client's error.
func handshake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		tls.Server(conn, server).Handshake()
	}()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	c := tls.Client(conn, client)
	err = c.Handshake()
	conn.Close()
	<-done
	return err
}

func TestConfigIsCachedUntilCertificatesChange(t *testing.T) {
	store := NewStore()
	mustSet(t, store, "a", selfSigned(t, "a.example"))
	mustSet(t, store, "b", selfSigned(t, "b.example"))
	s, err := NewServer("edge", &resource.ListenerTLS{ALPN: []string{"h2"}, MinVersion: "1.3"}, store, tlsstream.NewTickets())
	if err != nil {
		t.Fatal(err)
	}
	one, both := s.For([]string{"a"}), s.For([]string{"a", "b"})
	if one == nil || s.For([]string{"a"}) != one || both == one || s.For([]string{"a", "b"}) != both {
		t.Fatal("configurations are not shared by those that they are right for")
	}
	if one.MinVersion != tls.VersionTLS13 || one.NextProtos[0] != "h2" || len(both.Certificates) != 2 {
		t.Errorf("configuration %+v", both)
	}
	mustSet(t, store, "b", selfSigned(t, "b.example"))
	if s.For([]string{"a"}) != one || s.For([]string{"a", "b"}) == both {
		t.Error("a replaced certificate changes those configurations that show it")
	}
	store.Delete("a")
	if s.For([]string{"a"}) != nil || s.For(nil) != nil {
		t.Error("a configuration without a certificate is none")
	}
	if c := s.For([]string{"a", "b"}); c == nil || len(c.Certificates) != 1 {
		t.Error("what is left of the certificates is shown")
	}
}

func TestInvalidCertificateIsOmitted(t *testing.T) {
	store := NewStore()
	mustSet(t, store, "a", selfSigned(t, "a.example"))
	broken := selfSigned(t, "a.example")
	broken.Key = selfSigned(t, "a.example").Key
	if err := store.Set("a", broken); err == nil {
		t.Error("a key of another certificate was taken")
	}
	if got := store.find([]string{"a"}); len(got) != 0 {
		t.Error("the certificate before is still shown")
	}
}

// TestInvalidCARefusesEveryClient: with an invalid CA bundle no client is accepted and no
// endpoint trusted.
func TestInvalidCARefusesEveryClient(t *testing.T) {
	store := NewStore()
	ours := selfSigned(t, "a.example")
	mustSet(t, store, "a", ours)
	s, err := NewServer("edge", &resource.ListenerTLS{ClientAuth: &resource.ClientAuth{Mode: "require", CA: "no PEM"}},
		store, tlsstream.NewTickets())
	if err == nil {
		t.Error("a bundle without certificates was taken")
	}
	config := s.For([]string{"a"})
	if config.ClientAuth != tls.RequireAndVerifyClientCert || config.ClientCAs == nil || !config.ClientCAs.Equal(x509.NewCertPool()) {
		t.Errorf("clients are verified by %v against %v", config.ClientAuth, config.ClientCAs)
	}
	c, err := NewClient(&resource.ServiceTLS{CA: "no PEM"}, store)
	if err == nil {
		t.Error("a bundle without certificates was taken")
	}
	if err := handshake(t, config, c.For("a.example")); err == nil {
		t.Error("an endpoint was trusted")
	}
}

func TestClientVerifiesHostOrServerName(t *testing.T) {
	store := NewStore()
	ours := selfSigned(t, "a.example")
	mustSet(t, store, "a", ours)
	s, _ := NewServer("edge", &resource.ListenerTLS{}, store, tlsstream.NewTickets())
	server := s.For([]string{"a"})
	for _, c := range []struct {
		spec resource.ServiceTLS
		host string
		ok   bool
	}{
		{resource.ServiceTLS{CA: ours.Cert}, "a.example", true},
		{resource.ServiceTLS{CA: ours.Cert}, "b.example", false},
		{resource.ServiceTLS{CA: ours.Cert, ServerName: "a.example"}, "10.0.0.1", true},
		{resource.ServiceTLS{CA: ours.Cert, ServerName: "b.example"}, "a.example", false},
		{resource.ServiceTLS{CA: ours.Cert}, "", false},
		{resource.ServiceTLS{}, "a.example", false},
		{resource.ServiceTLS{InsecureSkipVerify: true}, "b.example", true},
		{resource.ServiceTLS{CA: selfSigned(t, "a.example").Cert}, "a.example", false},
	} {
		client, err := NewClient(&c.spec, store)
		if err != nil {
			t.Fatal(err)
		}
		if first := client.For(c.host); client.For(c.host) != first {
			t.Error("configurations towards one host are not shared")
		}
		if err := handshake(t, server, client.For(c.host)); (err == nil) != c.ok {
			t.Errorf("%+v at %q: %v", c.spec, c.host, err)
		}
	}
}

func TestClientUsesCurrentCertificate(t *testing.T) {
	store := NewStore()
	mustSet(t, store, "me", selfSigned(t, "me"))
	client, err := NewClient(&resource.ServiceTLS{CertificateRef: "me"}, store)
	if err != nil {
		t.Fatal(err)
	}
	before := client.For("a.example")
	if len(before.Certificates) != 1 {
		t.Fatalf("%d certificates are shown", len(before.Certificates))
	}
	mustSet(t, store, "me", selfSigned(t, "me"))
	after := client.For("a.example")
	if after == before || after.ClientSessionCache == before.ClientSessionCache {
		t.Error("with a new certificate sessions of the old one must not be resumed")
	}
}

// A client's handshake may have used other settings than those that Accepts checks:
// only a chain to the CA of these counts.
func TestAcceptsChecksCurrentSettings(t *testing.T) {
	parse := func(c *resource.Certificate) *x509.Certificate {
		block, _ := pem.Decode([]byte(c.Cert))
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		return cert
	}
	ours, theirs := selfSigned(t, "ours.example.com"), selfSigned(t, "theirs.example.com")
	state := func(c *x509.Certificate) *tls.ConnectionState {
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	}
	for _, test := range []struct {
		mode               string
		none, ours, theirs bool
	}{{"none", true, true, true}, {"request", true, true, false}, {"require", false, true, false}} {
		s, err := NewServer("edge", &resource.ListenerTLS{
			MinVersion: "1.2", ClientAuth: &resource.ClientAuth{Mode: test.mode, CA: ours.Cert},
		}, NewStore(), tlsstream.NewTickets())
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Accepts(&tls.ConnectionState{}); got != test.none {
			t.Errorf("%s: a client without a certificate: %t", test.mode, got)
		}
		if got := s.Accepts(state(parse(ours))); got != test.ours {
			t.Errorf("%s: a client of ours: %t", test.mode, got)
		}
		if got := s.Accepts(state(parse(theirs))); got != test.theirs {
			t.Errorf("%s: a client of others: %t", test.mode, got)
		}
	}
}
