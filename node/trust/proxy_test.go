package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// proxy issues a certificate for a proxy of a service, with a key of its own.
func proxy(t *testing.T, ca *CA, service string, then time.Time) tls.Certificate {
	t.Helper()
	key := must(newKey())(t)
	pub := must(CheckProxyRequest(must(NewProxyRequest(key))(t)))(t)
	leaf := must(ca.IssueProxy(pub, service, ProxyLifetime, then))(t)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
}

// proxyServer returns the discovery server of a node.
func proxyServer(ca func() (*CA, error), id func() *Identity) *ProxyServer {
	return &ProxyServer{Identity: id, Signer: ca, Host: "edge-1.example.com"}
}

func signer(ca *CA) func() (*CA, error) { return func() (*CA, error) { return ca, nil } }

// proxyClient returns the configuration of a proxy's connections to a node.
func proxyClient(cert tls.Certificate, name string, roots ...*x509.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	for _, ca := range roots {
		pool.AddCert(ca)
	}
	return &tls.Config{
		RootCAs: pool, ServerName: name, NextProtos: []string{ProxyProtocol},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil },
	}
}

func TestProxiesAndNodesShareAPort(t *testing.T) {
	ca := newCA(t, "c1")
	a, b := join(t, ca, "a", time.Now()), join(t, ca, "b", time.Now())
	port := WithProxies(ServerConfig(always(a)), proxyServer(signer(ca), always(a)).Config())
	s, c := handshake(t, port, proxyClient(proxy(t, ca, "web", time.Now()), "edge-1.example.com", ca.cert))
	if s.err != nil || c.err != nil || s.cs.NegotiatedProtocol != ProxyProtocol {
		t.Fatalf("%v, %v, ALPN %q", s.err, c.err, s.cs.NegotiatedProtocol)
	}
	if got := s.cs.PeerCertificates[0].URIs[0].String(); got != "spiffe://c1/service/web" {
		t.Errorf("the proxy is %s", got)
	}
	if node, ok := PeerNode(s.cs); ok {
		t.Errorf("a proxy counts as node %s", node)
	}
	if s, c := handshake(t, port, ClientConfig(always(b), a.NodeID)); s.err != nil || c.err != nil || s.cs.NegotiatedProtocol != Protocol {
		t.Errorf("a node: %v, %v, ALPN %q", s.err, c.err, s.cs.NegotiatedProtocol)
	}
}

// A proxy verifies nodes by the name that it dials, so the certificate has all of
// them.
func TestServerCertificateHasTheNamesOfTheNode(t *testing.T) {
	ca := newCA(t, "c1")
	a := join(t, ca, "a", time.Now())
	server := proxyServer(signer(ca), always(a))
	cert := proxy(t, ca, "web", time.Now())
	for _, name := range []string{"edge-1.example.com", "127.0.0.1", "localhost", "xds.example.com", "XDS.example.com"} {
		if _, c := handshake(t, server.Config(), proxyClient(cert, name, ca.cert)); c.err != nil {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if _, c := handshake(t, server.Config(), proxyClient(cert, "127.0.0.2", ca.cert)); c.err == nil {
		t.Error("the certificate has an address of which nothing was said")
	}
	if len(server.certs) != 4 { // three names, and none: an IP address is no server name
		t.Errorf("%d certificates were made", len(server.certs))
	}
	leaf := server.certs[serverAddress{ip: netip.MustParseAddr("127.0.0.1")}].Leaf
	if leaf.URIs[0].String() != ServerID("c1") || !slices.Equal(leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) {
		t.Errorf("it is %v, for %v", leaf.URIs, leaf.ExtKeyUsage)
	}
	if names := []string{"edge-1.example.com", "localhost"}; !slices.Equal(leaf.DNSNames, names) || len(leaf.IPAddresses) != 1 {
		t.Errorf("it is for %v, %v; want %v", leaf.DNSNames, leaf.IPAddresses, names)
	}
}

// A client may ask for any name; the certificates for them are bounded.
func TestServerCertificatesAreBounded(t *testing.T) {
	ca := newCA(t, "c1")
	a := join(t, ca, "a", time.Now())
	server := proxyServer(signer(ca), always(a))
	for range 2*maxServerCerts + 1 {
		must(server.certificate(a, serverAddress{name: randomHex(8) + ".example.com"}, time.Now()))(t)
	}
	if n := len(server.certs); n == 0 || n > maxServerCerts {
		t.Errorf("%d certificates are kept", n)
	}
}

func TestServerCertificateIsRenewedInTime(t *testing.T) {
	ca, now := newCA(t, "c1"), time.Now()
	a := join(t, ca, "a", now)
	server := proxyServer(signer(ca), always(a))
	issued := func(now time.Time) string {
		cert := must(server.certificate(a, serverAddress{}, now))(t)
		if now.After(cert.Leaf.NotAfter) || now.Before(cert.Leaf.NotBefore) {
			t.Errorf("at %v it is valid from %v to %v", now, cert.Leaf.NotBefore, cert.Leaf.NotAfter)
		}
		return cert.Leaf.SerialNumber.String()
	}
	first := issued(now)
	if again := issued(now.Add(4 * day)); again != first {
		t.Error("renewed after 4 days")
	}
	if late := issued(now.Add(5 * day)); late == first {
		t.Error("not renewed after 5 days")
	}
	if back := issued(now.Add(-30 * day)); back == first {
		t.Error("a clock that was set back has a certificate of the future")
	}
}

func TestProxiesFollowARotationOfTheCA(t *testing.T) {
	old := newCA(t, "c1")
	next := must(old.Next(time.Now()))(t)
	a := join(t, old, "a", time.Now())
	both := must(a.WithBundle(next.Bundle()))(t)
	server := proxyServer(signer(next), always(both)).Config()
	for name, cert := range map[string]tls.Certificate{"old": proxy(t, old, "web", time.Now()), "new": proxy(t, next, "web", time.Now())} {
		// A proxy that knows only the old CA verifies the new one by it.
		if s, c := handshake(t, server, proxyClient(cert, "localhost", old.cert)); s.err != nil || c.err != nil {
			t.Errorf("certificate of the %s CA: %v, %v", name, s.err, c.err)
		}
	}
	after := join(t, next.Retire(), "a", time.Now())
	server = proxyServer(signer(next.Retire()), always(after)).Config()
	if s, _ := handshake(t, server, proxyClient(proxy(t, old, "web", time.Now()), "localhost", next.cert)); s.err == nil {
		t.Error("the certificate of a CA that was retired is accepted")
	}
	if s, c := handshake(t, server, proxyClient(proxy(t, next, "web", time.Now()), "localhost", next.cert)); s.err != nil || c.err != nil {
		t.Errorf("after the rotation: %v, %v", s.err, c.err)
	}
}

// A rotation takes effect on a server that has a certificate already.
func TestServerCertificateIsFromTheNewestCA(t *testing.T) {
	old, now := newCA(t, "c1"), time.Now()
	ca, id := old, join(t, old, "a", now)
	server := proxyServer(func() (*CA, error) { return ca, nil }, func() *Identity { return id })
	if err := must(server.certificate(id, serverAddress{}, now))(t).Leaf.CheckSignatureFrom(old.cert); err != nil {
		t.Fatal(err)
	}
	ca = must(old.Next(now))(t)
	id = must(id.WithBundle(ca.Bundle()))(t)
	if err := must(server.certificate(id, serverAddress{}, now))(t).Leaf.CheckSignatureFrom(ca.cert); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyProxiesGetDiscovery(t *testing.T) {
	ca := newCA(t, "c1")
	a, b := join(t, ca, "a", time.Now()), join(t, ca, "b", time.Now())
	server := proxyServer(signer(ca), always(a)).Config()
	client := func(cert tls.Certificate) *tls.Config { return proxyClient(cert, "localhost", ca.cert) }
	bare := client(tls.Certificate{})
	bare.GetClientCertificate = nil
	silent := client(proxy(t, ca, "web", time.Now()))
	silent.NextProtos = nil
	cases := map[string]*tls.Config{
		"no certificate": bare,
		"no ALPN":        silent,
		"a node":         client(b.tlsCert),
		"expired":        client(proxy(t, ca, "web", time.Now().Add(-31*day))),
		"not valid yet":  client(proxy(t, ca, "web", time.Now().Add(2*day))),
		"another CA":     client(proxy(t, newCA(t, "c1"), "web", time.Now())),
	}
	for name, uri := range map[string][]string{
		"another trust domain": {"spiffe://c2/service/web"}, "two IDs": {"spiffe://c1/service/web", "spiffe://c1/service/shop"},
		"no ID": {}, "a discovery server": {"spiffe://c1/xds"}, "a path below": {"spiffe://c1/service/web/x"},
		"no service": {"spiffe://c1/service/"}, "an escaped spelling": {"spiffe://c1/service/%77eb"}, "a parent": {"spiffe://c1/service/.."},
		"a query": {"spiffe://c1/service/web?x"}, "another scheme": {"https://c1/service/web"}, "a user": {"spiffe://u@c1/service/web"},
	} {
		cases[name] = client(forged(t, ca, b, uris(uri...)))
	}
	cases["only a server"] = client(forged(t, ca, b, func(c *x509.Certificate) {
		uris("spiffe://c1/service/web")(c)
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}))
	for name, config := range cases {
		if s, c := handshake(t, server, config); s.err == nil || c.err == nil {
			t.Errorf("%s: server %v, client %v: want both refused", name, s.err, c.err)
		}
	}
	if s, _ := handshake(t, proxyServer(signer(ca), func() *Identity { return nil }).Config(), client(tls.Certificate{})); !errors.Is(s.err, ErrNoCluster) {
		t.Errorf("a node in no cluster: %v", s.err)
	}
}

func TestProxyCertificatesAreBounded(t *testing.T) {
	ca, now := newCA(t, "c1"), time.Now()
	key := &must(newKey())(t).PublicKey
	for _, ttl := range []time.Duration{0, -time.Hour, time.Hour - 1, MaxProxyLifetime + 1} {
		if _, err := ca.IssueProxy(key, "web", ttl, now); !errors.Is(err, ErrCertificate) {
			t.Errorf("a lifetime of %v: %v", ttl, err)
		}
	}
	for _, service := range []string{"", ".", "..", "a/b", "a b", "a%62", "ä", strings.Repeat("a", maxName+1)} {
		if _, err := ca.IssueProxy(key, service, time.Hour, now); !errors.Is(err, ErrID) {
			t.Errorf("service %q: %v", service, err)
		}
	}
	long := strings.Repeat("a", maxName-2) + "_b"
	leaf := must(ca.IssueProxy(key, long, time.Hour, now))(t)
	if leaf.Subject.CommonName != "" || leaf.URIs[0].String() != ProxyID("c1", long) {
		t.Errorf("it is %q, %v", leaf.Subject.CommonName, leaf.URIs)
	}
	if leaf := must(ca.IssueProxy(key, "web", time.Hour, now))(t); leaf.Subject.CommonName != "web" || leaf.NotAfter.After(now.Add(time.Hour)) {
		t.Errorf("%q, valid until %v", leaf.Subject.CommonName, leaf.NotAfter)
	}
	late := must(ca.IssueProxy(key, "web", 90*day, now.Add(caLifetime-day)))(t)
	if !late.NotAfter.Equal(ca.cert.NotAfter) {
		t.Errorf("valid until %v, its CA until %v", late.NotAfter, ca.cert.NotAfter)
	}
}

func FuzzCheckProxyRequest(f *testing.F) {
	key, err := newKey()
	if err != nil {
		f.Fatal(err)
	}
	der, err := NewProxyRequest(key)
	if err != nil {
		f.Fatal(err)
	}
	ca, err := NewCA("c1", "", time.Now())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(der)
	f.Add(der[:len(der)-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, der []byte) {
		pub, err := CheckProxyRequest(der)
		if err != nil {
			return
		}
		leaf, err := ca.IssueProxy(pub, "web", time.Hour, time.Now())
		if err != nil || leaf.URIs[0].String() != "spiffe://c1/service/web" || len(leaf.DNSNames)+len(leaf.IPAddresses) > 0 {
			t.Errorf("%v, %v", leaf, err)
		}
	})
}
