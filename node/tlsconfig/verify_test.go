package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/netio/tlsstream"
	"penstock/routing/resource"
)

// workload returns the template of a certificate with these URI SANs.
func workload(t testing.TB, uris ...string) *x509.Certificate {
	t.Helper()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: "workload"}, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		c.URIs = append(c.URIs, u)
	}
	return c
}

// served makes the configuration of a listener with that client authentication.
func served(t testing.TB, auth *resource.ClientAuth, tickets *tlsstream.Tickets) *tls.Config {
	t.Helper()
	store := NewStore()
	if err := store.Set("a", selfSigned("edge.example")); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer("edge", &resource.ListenerTLS{ClientAuth: auth}, store, tickets)
	if err != nil {
		t.Fatal(err)
	}
	return s.For([]string{"a"})
}

// connect runs a handshake and exchanges a byte, so that a client of TLS 1.3 learns of
// a refusal and gets its ticket. It returns the errors of both sides.
func connect(t testing.TB, server, client *tls.Config) (resumed bool, serverErr, clientErr error) {
	t.Helper()
	done := make(chan error, 1)
	address := testkit.Serve(t, func(conn net.Conn) {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		c := tls.Server(conn, server)
		err := c.Handshake()
		if err == nil {
			_, err = c.Write([]byte{1})
		}
		done <- err
	})
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	c := tls.Client(conn, client)
	clientErr = c.Handshake()
	if clientErr == nil {
		_, clientErr = c.Read(make([]byte, 1))
	}
	resumed = c.ConnectionState().DidResume
	conn.Close()
	return resumed, <-done, clientErr
}

func TestClientsAreAdmittedBySPIFFEID(t *testing.T) {
	t.Parallel()
	ca, other := certs.NewCA("ours"), certs.NewCA("another")
	auth := &resource.ClientAuth{Mode: "require", CA: ca.PEM, SPIFFE: []string{"spiffe://prod.example/ns/*/web", "spiffe://prod.example/batch/**"}}
	server := served(t, auth, tlsstream.NewTickets())
	expired, early, signing := workload(t, "spiffe://prod.example/ns/a/web"), workload(t, "spiffe://prod.example/ns/a/web"),
		workload(t, "spiffe://prod.example/ns/a/web")
	expired.NotAfter, early.NotBefore = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	signing.KeyUsage |= x509.KeyUsageCRLSign
	for _, c := range []struct {
		what string
		leaf *x509.Certificate
		ca   *certs.CA
		why  string // "": admitted
	}{
		{"an allowed ID", workload(t, "spiffe://prod.example/ns/a/web"), ca, ""},
		{"an ID below a path", workload(t, "spiffe://prod.example/batch/x/y"), ca, ""},
		{"Kuma's tags beside it", workload(t, "spiffe://prod.example/ns/a/web", "kuma://version/v2"), ca, ""},
		{"another workload", workload(t, "spiffe://prod.example/ns/a/db"), ca, "is not one of those allowed"},
		{"another trust domain", workload(t, "spiffe://test.example/ns/a/web"), ca, "is not one of those allowed"},
		{"another CA", workload(t, "spiffe://prod.example/ns/a/web"), other, "unknown authority"},
		{"two IDs", workload(t, "spiffe://prod.example/ns/a/web", "spiffe://prod.example/ns/b/web"), ca, "several URI SANs"},
		{"a second URI", workload(t, "spiffe://prod.example/ns/a/web", "https://a.example"), ca, "several URI SANs"},
		{"a query", workload(t, "spiffe://prod.example/ns/a/web?x"), ca, "no query"},
		{"a dot segment", workload(t, "spiffe://prod.example/batch/../web"), ca, "dot segment"},
		{"no ID", workload(t), ca, "no SPIFFE ID"},
		{"no path", workload(t, "spiffe://prod.example"), ca, "no path"},
		{"a certificate that may sign", signing, ca, "may sign others"},
		{"an expired one", expired, ca, "expired"},
		{"one not yet valid", early, ca, "not yet valid"},
	} {
		shown := c.ca.Sign(c.leaf).TLS
		client := &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &shown, nil // whatever CAs the server names
		}}
		_, serverErr, clientErr := connect(t, server, client)
		if c.why == "" {
			if serverErr != nil || clientErr != nil {
				t.Errorf("%s is refused: %v, %v", c.what, serverErr, clientErr)
			}
			continue
		}
		if serverErr == nil || !strings.Contains(serverErr.Error(), c.why) {
			t.Errorf("%s: the server says %v, want %q", c.what, serverErr, c.why)
		}
		if clientErr == nil {
			t.Errorf("%s: the client sees no refusal", c.what)
		}
	}
}

// With mode request a client may have no certificate, but not a wrong one.
func TestRequestedCertificateMustHaveAnAllowedID(t *testing.T) {
	t.Parallel()
	ca := certs.NewCA("ours")
	server := served(t, &resource.ClientAuth{Mode: "request", CA: ca.PEM, SPIFFE: []string{"spiffe://prod.example/web"}}, tlsstream.NewTickets())
	for _, c := range []struct {
		what  string
		certs []tls.Certificate
		ok    bool
	}{
		{"none", nil, true},
		{"an allowed one", []tls.Certificate{ca.Sign(workload(t, "spiffe://prod.example/web")).TLS}, true},
		{"another", []tls.Certificate{ca.Sign(workload(t, "spiffe://prod.example/db")).TLS}, false},
	} {
		if _, err, _ := connect(t, server, &tls.Config{InsecureSkipVerify: true, Certificates: c.certs}); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// A session that began under other patterns, or under none, is not resumed.
func TestSessionIsNotResumedUnderOtherPatterns(t *testing.T) {
	t.Parallel()
	ca, tickets := certs.NewCA("ours"), tlsstream.NewTickets()
	auth := func(patterns ...string) *resource.ClientAuth {
		return &resource.ClientAuth{Mode: "require", CA: ca.PEM, SPIFFE: patterns}
	}
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		client := &tls.Config{
			InsecureSkipVerify: true, MaxVersion: version, ServerName: "edge.example", ClientSessionCache: tls.NewLRUClientSessionCache(1),
			Certificates: []tls.Certificate{ca.Sign(workload(t, "spiffe://prod.example/web")).TLS},
		}
		for _, step := range []struct {
			auth        *resource.ClientAuth
			resumed, ok bool
		}{
			{auth(), false, true},
			{auth(), true, true},
			{auth("spiffe://prod.example/**"), false, true},
			{auth("spiffe://prod.example/**"), true, true},
			{auth("spiffe://prod.example/db"), false, false},
		} {
			resumed, err, _ := connect(t, served(t, step.auth, tickets), client)
			if resumed != step.resumed || (err == nil) != step.ok {
				t.Errorf("%x, %v: resumed %t, error %v", version, step.auth.SPIFFE, resumed, err)
			}
		}
	}
}

// A connection made under other settings goes on only if these admit its client too.
func TestAcceptsChecksSPIFFEID(t *testing.T) {
	t.Parallel()
	ca := certs.NewCA("ours")
	block, _ := pem.Decode([]byte(ca.PEM))
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewServer("edge", &resource.ListenerTLS{
		ClientAuth: &resource.ClientAuth{Mode: "require", CA: ca.PEM, SPIFFE: []string{"spiffe://prod.example/web"}},
	}, NewStore(), tlsstream.NewTickets())
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]bool{"spiffe://prod.example/web": true, "spiffe://prod.example/db": false} {
		leaf := ca.Sign(workload(t, id)).TLS.Leaf
		state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf, root}}}
		if got := s.Accepts(state); got != want {
			t.Errorf("%s is accepted: %t", id, got)
		}
	}
}

func TestEndpointsAreVerifiedByTheirIdentities(t *testing.T) {
	t.Parallel()
	ca, other := certs.NewCA("ours"), certs.NewCA("another")
	named := func(c *x509.Certificate, names ...string) *x509.Certificate {
		c.DNSNames = names
		return c
	}
	clientOnly, expired := workload(t, "spiffe://prod.example/web"), workload(t, "spiffe://prod.example/web")
	clientOnly.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	expired.NotAfter = time.Now().Add(-time.Hour)
	bySPIFFE := resource.Verify{SPIFFE: []string{"spiffe://prod.example/*"}}
	byDNS := resource.Verify{DNS: []string{"web.example.com"}}
	byURI := resource.Verify{URI: []string{"urn:web"}}
	mixed := resource.Verify{SPIFFE: bySPIFFE.SPIFFE, DNS: byDNS.DNS, URI: byURI.URI}
	for _, c := range []struct {
		what   string
		leaf   *x509.Certificate
		ca     *certs.CA
		verify resource.Verify
		why    string // "": trusted
	}{
		{"a SPIFFE ID", workload(t, "spiffe://prod.example/web"), ca, bySPIFFE, ""},
		{"another SPIFFE ID", workload(t, "spiffe://test.example/web"), ca, bySPIFFE, "is not one of those allowed"},
		{"the ID of another CA", workload(t, "spiffe://prod.example/web"), other, bySPIFFE, "unknown authority"},
		{"two IDs", workload(t, "spiffe://prod.example/web", "spiffe://prod.example/db"), ca, bySPIFFE, "several URI SANs"},
		{"the host's name alone", named(workload(t), "host.example"), ca, bySPIFFE, "no SPIFFE ID"},
		{"a DNS name", named(workload(t), "web.example.com"), ca, byDNS, ""},
		{"a wildcard for it", named(workload(t), "*.example.com"), ca, byDNS, ""},
		{"another DNS name", named(workload(t), "host.example"), ca, byDNS, "none of the identities"},
		{"a URI", workload(t, "urn:web"), ca, byURI, ""},
		{"another URI", workload(t, "urn:db"), ca, byURI, "none of the identities"},
		{"one of several: DNS", named(workload(t, "spiffe://test.example/web"), "web.example.com"), ca, mixed, ""},
		{"one of several: URI", workload(t, "urn:web"), ca, mixed, ""},
		{"one of several: SPIFFE", workload(t, "spiffe://prod.example/web"), ca, mixed, ""},
		{"none of several", named(workload(t, "urn:db"), "host.example"), ca, mixed, "none of the identities"},
		{"a certificate for clients only", clientOnly, ca, bySPIFFE, "usage"},
		{"an expired one", expired, ca, bySPIFFE, "expired"},
	} {
		client, err := NewClient(&resource.ServiceTLS{CA: ca.PEM, Verify: &c.verify}, NewStore())
		if err != nil {
			t.Fatal(err)
		}
		server := &tls.Config{Certificates: []tls.Certificate{c.ca.Sign(c.leaf).TLS}}
		for range 2 { // the second resumes the first's session
			_, _, err := connect(t, server, client.For("host.example"))
			if c.why == "" && err != nil || c.why != "" && (err == nil || !strings.Contains(err.Error(), c.why)) {
				t.Errorf("%s: %v, want %q", c.what, err, c.why)
			}
		}
	}
}

// Settings that verify identities in their own way refuse revoked certificates like all
// others, in resumed sessions too.
func TestRevokedIdentitiesAreRefused(t *testing.T) {
	t.Parallel()
	ca := certs.NewCA("ours")
	shown := ca.Sign(workload(t, "spiffe://prod.example/web")).TLS
	patterns := []string{"spiffe://prod.example/*"}
	var revoked atomic.Bool
	store := NewStore()
	store.Revoked = func(leaf *x509.Certificate) bool { return revoked.Load() && leaf.Equal(shown.Leaf) }
	if err := store.Set("a", selfSigned("edge.example")); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer("edge", &resource.ListenerTLS{
		ClientAuth: &resource.ClientAuth{Mode: "require", CA: ca.PEM, SPIFFE: patterns},
	}, store, tlsstream.NewTickets())
	if err != nil {
		t.Fatal(err)
	}
	made, err := NewClient(&resource.ServiceTLS{CA: ca.PEM, Verify: &resource.Verify{SPIFFE: patterns}}, store)
	if err != nil {
		t.Fatal(err)
	}
	listener, endpoint := s.For([]string{"a"}), &tls.Config{Certificates: []tls.Certificate{shown}}
	workload := &tls.Config{
		InsecureSkipVerify: true, ServerName: "edge.example", ClientSessionCache: tls.NewLRUClientSessionCache(1),
		Certificates: []tls.Certificate{shown},
	}
	for _, step := range []bool{false, true} {
		revoked.Store(step)
		if _, err, _ := connect(t, listener, workload); errors.Is(err, ErrRevoked) != step {
			t.Errorf("a client with a certificate, revoked: %t: %v", step, err)
		}
		if _, _, err := connect(t, endpoint, made.For("host.example")); errors.Is(err, ErrRevoked) != step {
			t.Errorf("an endpoint with a certificate, revoked: %t: %v", step, err)
		}
	}
}

// BenchmarkMutualTLS compares full handshakes with and without verification of SPIFFE
// IDs on both sides.
func BenchmarkMutualTLS(b *testing.B) {
	ca := certs.NewCA("ours")
	store := NewStore()
	me := ca.Sign(workload(b, "spiffe://prod.example/ns/shop/sa/web"))
	if err := store.Set("me", &resource.Certificate{Cert: me.Cert, Key: resource.Secret(me.Key)}); err != nil {
		b.Fatal(err)
	}
	named := ca.Issue("edge.example")
	if err := store.Set("named", &resource.Certificate{Cert: named.Cert, Key: resource.Secret(named.Key)}); err != nil {
		b.Fatal(err)
	}
	patterns := []string{"spiffe://prod.example/ns/a/**", "spiffe://prod.example/ns/b/**", "spiffe://prod.example/ns/*/sa/web"}
	for _, c := range []struct {
		name, presents string
		auth           resource.ClientAuth
		verify         *resource.Verify
	}{
		{"name", "named", resource.ClientAuth{Mode: "require", CA: ca.PEM}, nil},
		{"spiffe", "me", resource.ClientAuth{Mode: "require", CA: ca.PEM, SPIFFE: patterns}, &resource.Verify{SPIFFE: patterns}},
	} {
		b.Run(c.name, func(b *testing.B) {
			s, err := NewServer("edge", &resource.ListenerTLS{ClientAuth: &c.auth}, store, tlsstream.NewTickets())
			if err != nil {
				b.Fatal(err)
			}
			made, err := NewClient(&resource.ServiceTLS{CA: ca.PEM, CertificateRef: "me", Verify: c.verify}, store)
			if err != nil {
				b.Fatal(err)
			}
			server, client := s.For([]string{c.presents}), made.For("edge.example").Clone()
			client.ClientSessionCache = nil // each handshake is a full one
			for b.Loop() {
				near, far := net.Pipe()
				done := make(chan error, 1)
				go func() { done <- tls.Server(far, server).Handshake() }()
				c := tls.Client(near, client)
				err := c.Handshake()
				go c.Read(make([]byte, 1)) // takes the tickets
				if err := <-done; err != nil {
					b.Fatal(err)
				}
				if err != nil {
					b.Fatal(err)
				}
				near.Close()
				far.Close()
			}
		})
	}
}
