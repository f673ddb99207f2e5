package dataplane

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
)

func TestIdentityTagsOfCertificates(t *testing.T) {
	uris := func(texts ...string) (list []*url.URL) {
		for _, s := range texts {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, u)
		}
		return list
	}
	var many []string
	for i := range 2 * maxIdentityTags {
		many = append(many, fmt.Sprintf("kuma://tag-%d/v", i))
	}
	for name, c := range map[string]struct {
		leaf x509.Certificate
		want map[string]string
	}{
		"Kuma's": {
			x509.Certificate{URIs: uris("spiffe://default/web", "kuma://kuma.io/service/web", "kuma://version/v2")},
			map[string]string{"service": "web", "spiffe": "spiffe://default/web", "kuma.io/service": "web", "version": "v2"},
		},
		"Istio's": {
			x509.Certificate{URIs: uris("spiffe://cluster.local/ns/shop/sa/web"), DNSNames: []string{"other"}},
			map[string]string{"service": "web", "spiffe": "spiffe://cluster.local/ns/shop/sa/web"},
		},
		"a DNS name": {
			x509.Certificate{DNSNames: []string{"*.example.com", "Web.example.com", "second"}},
			map[string]string{"service": "web.example.com"},
		},
		"no name":                {x509.Certificate{}, nil},
		"two SPIFFE IDs":         {x509.Certificate{URIs: uris("spiffe://a/web", "spiffe://b/batch"), DNSNames: []string{"web"}}, nil},
		"a second URI":           {x509.Certificate{URIs: uris("spiffe://a/web", "https://a.example/web"), DNSNames: []string{"web"}}, nil},
		"a SPIFFE ID of no path": {x509.Certificate{URIs: uris("spiffe://a"), DNSNames: []string{"web"}}, nil},
		"a SPIFFE ID with a query, which no DNS name makes good": {
			x509.Certificate{URIs: uris("spiffe://a/web?x=1"), DNSNames: []string{"web"}}, nil,
		},
		"a SPIFFE ID with a dot segment": {x509.Certificate{URIs: uris("spiffe://a/b/../web")}, nil},
		"a certificate that may sign":    {x509.Certificate{URIs: uris("spiffe://a/web"), KeyUsage: x509.KeyUsageCertSign}, nil},
		"a tag that would say who it is": {
			x509.Certificate{URIs: uris("spiffe://a/web", "kuma://service/admin", "kuma://spiffe/x")},
			map[string]string{"service": "web", "spiffe": "spiffe://a/web"},
		},
		"what no route could name": {
			x509.Certificate{DNSNames: []string{"a=b", "web"}, URIs: uris("kuma://version/" + strings.Repeat("v", 254))}, nil,
		},
	} {
		for _, verified := range []bool{true, false} {
			state := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{&c.leaf}}
			want := map[string]string(nil)
			if verified {
				state.VerifiedChains, want = [][]*x509.Certificate{{&c.leaf}}, c.want
			}
			if got := identity(state); !maps.Equal(got, want) || (got == nil) != (want == nil) {
				t.Errorf("%s, verified %v: %v, want %v", name, verified, got, want)
			}
		}
	}
	leaf := &x509.Certificate{URIs: uris(many...)}
	if got := identity(&tls.ConnectionState{
		PeerCertificates: []*x509.Certificate{leaf}, VerifiedChains: [][]*x509.Certificate{{leaf}},
	}); len(got) != maxIdentityTags {
		t.Errorf("%d tags of one certificate", len(got))
	}
	if identity(nil) != nil {
		t.Error("a plain connection has an identity")
	}
}

// A client with a certificate is routed by its identity, other clients are not.
func TestClientsAreRoutedByTheirCertificates(t *testing.T) {
	ca := certs.NewCA("test CA")
	a, b := nodetest.NewBackend(t, "a"), nodetest.NewBackend(t, "b")
	cert := ca.Issue("one.example")
	auth := ", clientAuth: {mode: request, ca: " + fmt.Sprintf("%q", ca.PEM) + "}"
	n := start(t, strings.Replace(terminating(a, auth), "[one, many]", "[one]", 1)+fmt.Sprintf(`---
kind: Service
name: other
spec: {endpoints: [{address: %q}]}
---
kind: MeshTCPRoute
name: web
spec:
  targetRef: {kind: MeshService, name: web}
  to: [{targetRef: {kind: MeshService, name: apps}, rules: [{default: {backendRefs: [{kind: MeshService, name: other}]}}]}]
`, b.At())+nodetest.Certificate("one", cert))
	edge := n.at(t, "edge")
	web := ca.Issue("web").TLS
	batch := ca.Issue("batch").TLS
	for who, c := range map[string]struct {
		shows []tls.Certificate
		to    string
	}{"web": {[]tls.Certificate{web}, "b"}, "another service": {[]tls.Certificate{batch}, "a"}, "nobody": {nil, "a"}} {
		config := &tls.Config{RootCAs: ca.Pool, ServerName: "one.example", Certificates: c.shows}
		config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
		for range 2 { // the second resumes the first's session
			if _, to, err := nodetest.DialTLS(t, edge, config); err != nil || to != c.to {
				t.Errorf("%s comes to %q, want %s: %v", who, to, c.to, err)
			}
		}
	}
}
