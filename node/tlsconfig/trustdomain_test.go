package tlsconfig

import (
	"crypto/tls"
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit/certs"
	"penstock/netio/tlsstream"
	"penstock/node/trust"
	"penstock/routing/resource"
)

// bundleOf makes the bundle of a trust domain with these authorities.
func bundleOf(domain string, cas ...*certs.CA) *trust.Bundle {
	var authorities []*x509.Certificate
	for _, ca := range cas {
		parsed, err := resource.ParseCertificates(ca.PEM)
		if err != nil {
			panic(err)
		}
		authorities = append(authorities, parsed...)
	}
	return trust.NewBundle(domain, authorities)
}

// domainServer is a listener that admits trust domains.
type domainServer struct {
	bundles *trust.Bundles
	*Server
}

func newDomainServer(t testing.TB, auth *resource.ClientAuth, tickets *tlsstream.Tickets) *domainServer {
	t.Helper()
	s := &domainServer{bundles: trust.NewBundles()}
	store := NewStore()
	store.Bundles = s.bundles
	if err := store.Set("a", selfSigned("edge.example")); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.Server, err = NewServer("edge", &resource.ListenerTLS{ClientAuth: auth}, store, tickets); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *domainServer) now() *tls.Config { return s.For([]string{"a"}) }

// showing returns the configuration of a client that shows a certificate whatever CAs
// the server names.
func showing(shown tls.Certificate) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, ServerName: "edge.example",
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil },
	}
}

// No authority can sign an ID of another trust domain than its own.
func TestClientsAreVerifiedByTheBundleOfTheirOwnTrustDomain(t *testing.T) {
	t.Parallel()
	ours, partner, third, plain := certs.NewCA("ours"), certs.NewCA("partner"), certs.NewCA("third"), certs.NewCA("plain")
	expired := workload(t, "spiffe://partner.example/web")
	expired.NotAfter = time.Now().Add(-time.Hour)
	server := func(auth resource.ClientAuth) *domainServer {
		auth.Mode = "require"
		s := newDomainServer(t, &auth, tlsstream.NewTickets())
		s.bundles.Set("cluster", bundleOf("ours.example", ours))
		s.bundles.Set("partner", bundleOf("partner.example", partner))
		s.bundles.Set("third", bundleOf("third.example", third))
		return s
	}
	domains := server(resource.ClientAuth{TrustDomains: []string{"cluster", "partner", "not-fetched"}})
	patterns := server(resource.ClientAuth{TrustDomains: []string{"cluster", "partner"}, SPIFFE: []string{"spiffe://*/web"}})
	beside := server(resource.ClientAuth{TrustDomains: []string{"cluster", "partner"}, CA: plain.PEM})
	const web, foreign = "spiffe://partner.example/web", "not signed by an authority of the trust domain"
	for _, c := range []struct {
		what string
		s    *domainServer
		leaf *x509.Certificate
		ca   *certs.CA
		why  string // "": admitted
	}{
		{"a partner's", domains, workload(t, web), partner, ""},
		{"our own", domains, workload(t, "spiffe://ours.example/web"), ours, ""},
		{"ours signed by the partner", domains, workload(t, "spiffe://ours.example/web"), partner, foreign},
		{"a partner's signed by us", domains, workload(t, web), ours, foreign},
		{"a third one's signed by the partner", domains, workload(t, "spiffe://third.example/web"), partner, "not accepted here"},
		{"a third one's", domains, workload(t, "spiffe://third.example/web"), third, "unknown authority"},
		{"a partner's signed by a third one", domains, workload(t, web), third, "unknown authority"},
		{"two IDs", domains, workload(t, web, "spiffe://ours.example/web"), partner, "several URI SANs"},
		{"Kuma's tags beside it", domains, workload(t, web, "kuma://version/v2"), partner, "several URI SANs"},
		{"an escape", domains, workload(t, "spiffe://partner.example/%2e%2e/web"), partner, "escape"},
		{"a query", domains, workload(t, web+"?x"), partner, "query"},
		{"upper case", domains, workload(t, "spiffe://Partner.example/web"), partner, "lower-case"},
		{"a port", domains, workload(t, "spiffe://partner.example:443/web"), partner, "no port"},
		{"no path", domains, workload(t, "spiffe://partner.example"), partner, "no path"},
		{"no ID", domains, workload(t), partner, "no SPIFFE ID"},
		{"an expired one", domains, expired, partner, "expired"},
		{"an allowed ID", patterns, workload(t, web), partner, ""},
		{"another ID", patterns, workload(t, "spiffe://partner.example/db"), partner, "not one of those allowed"},
		{"without an ID, by the CA", beside, workload(t), plain, ""},
		{"an ID beside the CA", beside, workload(t, web), partner, ""},
		{"an ID that the CA signed", beside, workload(t, web), plain, foreign},
		{"without an ID, by the partner", beside, workload(t), partner, "no SPIFFE ID"},
		{"a third one's ID by the CA", beside, workload(t, "spiffe://third.example/web"), plain, "not accepted here"},
	} {
		_, serverErr, clientErr := connect(t, c.s.now(), showing(c.ca.Sign(c.leaf).TLS))
		switch {
		case c.why == "" && (serverErr != nil || clientErr != nil):
			t.Errorf("%s is refused: %v, %v", c.what, serverErr, clientErr)
		case c.why != "" && (serverErr == nil || clientErr == nil || !strings.Contains(serverErr.Error(), c.why)):
			t.Errorf("%s: the server says %v, want %q; the client %v", c.what, serverErr, c.why, clientErr)
		}
	}
}

// The next handshake uses another bundle, and no session of the previous one is resumed.
// A bundle of another trust domain changes nothing.
func TestTheNextHandshakeUsesAnotherBundle(t *testing.T) {
	t.Parallel()
	tickets := tlsstream.NewTickets()
	auth := &resource.ClientAuth{Mode: "require", TrustDomains: []string{"partner"}}
	s, other := newDomainServer(t, auth, tickets), newDomainServer(t, auth, tickets)
	before, after := certs.NewCA("before"), certs.NewCA("after")
	cert := before.Sign(workload(t, "spiffe://partner.example/web")).TLS
	client := showing(cert)
	client.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	expect := func(what string, s *domainServer, resumes bool, why string) {
		t.Helper()
		resumed, serverErr, clientErr := connect(t, s.now(), client)
		switch {
		case why == "" && (serverErr != nil || clientErr != nil || resumed != resumes):
			t.Fatalf("%s: %v, %v, resumed %v", what, serverErr, clientErr, resumed)
		case why != "" && (serverErr == nil || !strings.Contains(serverErr.Error(), why)):
			t.Fatalf("%s: %v, want %q", what, serverErr, why)
		}
	}
	expect("without a bundle", s, false, "unknown authority")
	s.bundles.Set("partner", bundleOf("partner.example", before))
	other.bundles.Set("partner", bundleOf("partner.example", before))
	expect("with its bundle", s, false, "")
	expect("again", s, true, "")
	expect("on another node", other, true, "")
	s.bundles.Set("third", bundleOf("third.example", after))
	expect("with another one of others", s, true, "")
	s.bundles.Set("partner", bundleOf("partner.example", before, after))
	expect("with another authority", s, false, "")
	expect("again", s, true, "")
	// A handshake that began before the change is decided by the bundle in force at its end.
	begun := s.now()
	s.bundles.Set("partner", bundleOf("partner.example", after))
	if resumed, serverErr, _ := connect(t, begun, client); serverErr == nil {
		t.Errorf("the previous bundle is still used, resumed %v", resumed)
	}
	expect("without its authority", s, false, "unknown authority")
	s.bundles.Set("partner", bundleOf("another.example", before))
	expect("as the bundle of another trust domain", s, false, "not accepted here")
	s.bundles.Set("partner", nil)
	expect("without the bundle", s, false, "unknown authority")
}

// What Accepts says of an established connection follows the bundles.
func TestAcceptsFollowsTheBundles(t *testing.T) {
	t.Parallel()
	ca := certs.NewCA("partner")
	s := newDomainServer(t, &resource.ClientAuth{Mode: "request", TrustDomains: []string{"partner"}}, tlsstream.NewTickets())
	leaf := ca.Sign(workload(t, "spiffe://partner.example/web")).TLS.Leaf
	b := bundleOf("partner.example", ca)
	state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf, b.Authorities[0]}}}
	if s.Accepts(state) || !s.Accepts(&tls.ConnectionState{}) {
		t.Error("without a bundle")
	}
	s.bundles.Set("partner", b)
	if !s.Accepts(state) {
		t.Error("with the bundle")
	}
	s.bundles.Set("partner", bundleOf("partner.example", certs.NewCA("next")))
	if s.Accepts(state) {
		t.Error("with another bundle")
	}
}

// An endpoint is of one of the trust domains, by its own bundle, and has one of the IDs.
func TestEndpointsAreVerifiedByTheBundleOfTheirOwnTrustDomain(t *testing.T) {
	t.Parallel()
	ours, partner := certs.NewCA("ours"), certs.NewCA("partner")
	store := NewStore()
	store.Bundles = trust.NewBundles()
	store.Bundles.Set("cluster", bundleOf("ours.example", ours))
	client, err := NewClient(&resource.ServiceTLS{
		TrustDomains: []string{"cluster", "partner"}, Verify: &resource.Verify{SPIFFE: []string{"spiffe://*/db"}},
	}, store)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what string, ca *certs.CA, uri, why string) {
		t.Helper()
		server := &tls.Config{Certificates: []tls.Certificate{ca.Sign(workload(t, uri)).TLS}}
		_, _, err := connect(t, server, client.For("10.0.0.1"))
		if (why == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", what, err, why)
		}
	}
	const db = "spiffe://partner.example/db"
	expect("without the bundle", partner, db, "not accepted here")
	store.Bundles.Set("partner", bundleOf("partner.example", partner))
	expect("with it", partner, db, "")
	expect("our own", ours, "spiffe://ours.example/db", "")
	expect("ours signed by the partner", partner, "spiffe://ours.example/db", "unknown authority")
	expect("another workload", partner, "spiffe://partner.example/web", "not one of those allowed")
	expect("no ID", partner, "https://partner.example", "no SPIFFE ID")
}

// An endpoint with a revoked certificate is refused by its ID too.
func TestARevokedEndpointIsRefusedByItsIdentity(t *testing.T) {
	t.Parallel()
	ca := certs.NewCA("ours")
	store := NewStore()
	store.Bundles = trust.NewBundles()
	store.Bundles.Set("cluster", bundleOf("ours.example", ca))
	store.Revoked = func(*x509.Certificate) bool { return true }
	server := &tls.Config{Certificates: []tls.Certificate{ca.Sign(workload(t, "spiffe://ours.example/db")).TLS}}
	verify := &resource.Verify{SPIFFE: []string{"spiffe://ours.example/db"}}
	for what, settings := range map[string]*resource.ServiceTLS{
		"by its CA": {CA: ca.PEM, Verify: verify}, "by its trust domain": {TrustDomains: []string{"cluster"}, Verify: verify},
	} {
		client, err := NewClient(settings, store)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := connect(t, server, client.For("h")); err == nil || !strings.Contains(err.Error(), "revoked") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
