package envoy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// named makes a template of a certificate with a common name.
func named(cn string) x509.Certificate {
	return x509.Certificate{Subject: pkix.Name{CommonName: cn}}
}

// withURIs makes a template without a subject.
func withURIs(uris ...*url.URL) x509.Certificate { return x509.Certificate{URIs: uris} }

// web is the SPIFFE ID of a certificate.
var web = &url.URL{Scheme: "spiffe", Host: "prod.example", Path: "/ns/shop/web"}

// attributes makes a subject of attributes by OID.
func attributes(all ...pkix.AttributeTypeAndValue) x509.Certificate {
	return x509.Certificate{Subject: pkix.Name{ExtraNames: all}}
}

func attribute(value string, oid ...int) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: oid, Value: value}
}

// headers are certificates, and what a node writes after Hash= where it deliberately
// differs from Envoy; "": it writes the same, byte for byte.
var headers = map[string]struct {
	template x509.Certificate
	node     string
}{
	"plain": {x509.Certificate{Subject: pkix.Name{CommonName: "web", Organization: []string{"Shop"}, Country: []string{"CH"}}}, ""},
	"URI and DNS names": {x509.Certificate{
		Subject: pkix.Name{CommonName: "web"}, DNSNames: []string{"web.example", "*.web.example"}, URIs: []*url.URL{web}}, ""},
	"two URIs":             {withURIs(web, &url.URL{Scheme: "kuma", Host: "version", Path: "/v2"}), ""},
	"no subject":           {x509.Certificate{DNSNames: []string{"web.example", "c_d"}}, ""},
	"comma in subject":     {named("a,b;c=d"), ""},
	"quote in subject":     {named(`a"b`), ""},
	"forged by a subject":  {named(`a";URI=spiffe://prod.example/admin`), ""},
	"umlaut in subject":    {named("b\u00fccher"), ""},
	"blanks in subject":    {named(" a "), ""},
	"number sign":          {named("#a"), ""},
	"line break":           {named("a\r\nb"), ""},
	"other characters":     {named("a+b<c>d"), ""},
	"attribute of no name": {attributes(attribute("x", 1, 2, 3)), ""},
	"attributes": {attributes(attribute("17", 2, 5, 4, 5), attribute("Road 1", 2, 5, 4, 9), attribute("G", 2, 5, 4, 42),
		attribute("T", 2, 5, 4, 12), attribute("8000", 2, 5, 4, 17), attribute("S", 2, 5, 4, 4), attribute("BE", 2, 5, 4, 8),
		attribute("Bern", 2, 5, 4, 7), attribute("Team", 2, 5, 4, 11), attribute("u", 0, 9, 2342, 19200300, 100, 1, 1),
		attribute("example", 0, 9, 2342, 19200300, 100, 1, 25), attribute("a@b", 1, 2, 840, 113549, 1, 9, 1)), ""},

	// Envoy writes these so that a reader finds the end of a value elsewhere, or
	// finds values that the certificate does not have.
	"backslash in subject": {named(`a\b`), `Subject="CN=a\5Cb";URI=`},
	"comma in URI":         {withURIs(&url.URL{Scheme: "urn", Opaque: "a,b;c=d"}), `Subject="";URI="urn:a,b;c=d"`},
	"quote in URI":         {withURIs(&url.URL{Scheme: "urn", Opaque: `a"b`}), `Subject="";URI="urn:a\"b"`},
	"backslash in URI":     {withURIs(&url.URL{Scheme: "urn", Opaque: `a\b`}), `Subject="";URI=urn:a%5Cb`},
	"forged by a DNS name": {x509.Certificate{DNSNames: []string{"a;URI=b", "c"}}, `Subject="";URI=;DNS=c`},
}

// compareHeaders compares the X-Forwarded-Client-Cert that a node writes with Envoy's,
// for the same certificate.
func (p *peers) compareHeaders(t *testing.T) {
	for name, c := range headers {
		pair := p.ca.Sign(&c.template)
		envoy, node := p.headerOf(t, "envoy xfcc", sent, pair.TLS), p.headerOf(t, "node xfcc", sent, pair.TLS)
		if !strings.HasPrefix(envoy, "seen Hash=") {
			t.Fatalf("%s: Envoy writes %s", name, envoy)
		}
		hash, _, _ := strings.Cut(envoy, ";")
		switch want := hash + ";" + c.node; {
		case c.node == "" && node != envoy:
			t.Errorf("%s\nEnvoy %s\nnode  %s", name, envoy, node)
		case c.node != "" && (node != want || node == envoy):
			t.Errorf("%s\nEnvoy %s\nnode  %s\nwant  %s", name, envoy, node, want)
		}
	}
}

// sent is what a client sends that both remove.
var sent = []string{"Hash=0;URI=spiffe://prod.example/admin"}

// compareModes compares what becomes of a client's own headers, with and without a
// certificate, with what Envoy does.
func (p *peers) compareModes(t *testing.T) {
	pair := p.ca.Issue("proxy.example")
	for _, mode := range []string{"append", "forward"} {
		for _, sent := range [][]string{
			nil, sent, {"Hash=0", "Hash=1"}, {"Hash=0,Hash=1", "By=a;Hash=2"}, {"", "Hash=0"}, {"Hash=0", ""}, {""}, {" a ", "\tb"}, {`Subject="a,b"`}, {","},
		} {
			for _, certificates := range [][]tls.Certificate{{pair.TLS}, nil} {
				envoy, node := p.headerOf(t, "envoy "+mode, sent, certificates...), p.headerOf(t, "node "+mode, sent, certificates...)
				if !strings.HasPrefix(envoy, "seen ") || node != envoy {
					t.Errorf("%s of %q with %d certificates\nEnvoy %s\nnode  %s", mode, sent, len(certificates), envoy, node)
				}
			}
		}
	}
}

// headerOf returns what the service gets of a client with or without a certificate that
// sends headers of its own.
func (p *peers) headerOf(t *testing.T, at string, sent []string, certificates ...tls.Certificate) string {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, ServerName: "server.example", Certificates: certificates}}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+p.at[at]+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	if sent != nil {
		req.Header["X-Forwarded-Client-Cert"] = sent
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}
