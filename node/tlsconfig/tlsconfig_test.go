package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio/tlsstream"
	"penstock/routing/resource"
)

// selfSigned makes a certificate that is its own CA.
func selfSigned(names ...string) *resource.Certificate {
	p := certs.SelfSigned(names...)
	return &resource.Certificate{Cert: p.Cert, Key: resource.Secret(p.Key)}
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
	done := make(chan struct{})
	conn, err := net.Dial("tcp", testkit.Serve(t, func(conn net.Conn) {
		defer close(done)
		conn.SetDeadline(time.Now().Add(time.Minute))
		tls.Server(conn, server).Handshake()
	}))
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
	mustSet(t, store, "a", selfSigned("a.example"))
	mustSet(t, store, "b", selfSigned("b.example"))
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
	mustSet(t, store, "b", selfSigned("b.example"))
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
	mustSet(t, store, "a", selfSigned("a.example"))
	broken := selfSigned("a.example")
	broken.Key = selfSigned("a.example").Key
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
	ours := selfSigned("a.example")
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
	ours := selfSigned("a.example")
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
		{resource.ServiceTLS{CA: selfSigned("a.example").Cert}, "a.example", false},
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
	mustSet(t, store, "me", selfSigned("me"))
	client, err := NewClient(&resource.ServiceTLS{CertificateRef: "me"}, store)
	if err != nil {
		t.Fatal(err)
	}
	before := client.For("a.example")
	if len(before.Certificates) != 1 {
		t.Fatalf("%d certificates are shown", len(before.Certificates))
	}
	mustSet(t, store, "me", selfSigned("me"))
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
	ours, theirs := selfSigned("ours.example.com"), selfSigned("theirs.example.com")
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
