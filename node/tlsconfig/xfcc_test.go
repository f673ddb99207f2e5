package tlsconfig

import (
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"penstock/internal/testkit/certs"
)

func TestForwardedClientCert(t *testing.T) {
	spiffe := &url.URL{Scheme: "spiffe", Host: "prod.example", Path: "/ns/shop/sa/web"}
	for name, c := range map[string]struct {
		template x509.Certificate
		want     string // after Hash
	}{
		"all fields": {
			x509.Certificate{
				Subject:  pkix.Name{CommonName: "web", Organization: []string{"Shop"}, Country: []string{"CH"}},
				URIs:     []*url.URL{spiffe, {Scheme: "kuma", Host: "version", Path: "/v2"}},
				DNSNames: []string{"web.example", "*.web.example"},
			},
			`Subject="CN=web,O=Shop,C=CH";URI=spiffe://prod.example/ns/shop/sa/web;URI=kuma://version/v2;DNS=web.example;DNS=*.web.example`,
		},
		"a subject that would end its value": {
			x509.Certificate{Subject: pkix.Name{CommonName: `a";URI=spiffe://evil/b\`}},
			`Subject="CN=a\"\;URI=spiffe://evil/b\5C";URI=`,
		},
		"characters that RFC 2253 escapes": {
			x509.Certificate{Subject: pkix.Name{CommonName: "# ü,+<>;\r\n "}},
			`Subject="CN=\# \C3\BC\,\+\<\>\;\0D\0A\ ";URI=`,
		},
		"attributes without a name": {
			x509.Certificate{Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{
				{Type: asn1.ObjectIdentifier{1, 2, 3}, Value: "x"}, {Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 1}, Value: "a@b"},
			}}},
			`Subject="emailAddress=a@b,1.2.3=#130178";URI=`,
		},
		"no subject": {x509.Certificate{DNSNames: []string{"a"}}, `Subject="";URI=;DNS=a`},
		"a URI with separators": {
			x509.Certificate{URIs: []*url.URL{{Scheme: "urn", Opaque: `a;URI=b,"c\`}}},
			`Subject="";URI="urn:a;URI=b,\"c%5C"`,
		},
		"a DNS name with a separator": {x509.Certificate{DNSNames: []string{"a;URI=b", "c"}}, `Subject="";URI=;DNS=c`},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := certs.Sign(&c.template).TLS.Leaf
			want := fmt.Sprintf("Hash=%x;%s", sha256.Sum256(leaf.Raw), c.want)
			if got := ForwardedClientCert(leaf); got != want {
				t.Errorf("got\n%s, want\n%s", got, want)
			}
		})
	}
}

// Names beyond the limit are left out as a whole.
func TestForwardedClientCertIsBounded(t *testing.T) {
	template := x509.Certificate{Subject: pkix.Name{CommonName: "web"}}
	for i := range 100 {
		template.DNSNames = append(template.DNSNames, fmt.Sprintf("%s%02d.example", strings.Repeat("a", 60), i))
	}
	got := ForwardedClientCert(certs.Sign(&template).TLS.Leaf)
	names := strings.Split(got, ";DNS=")[1:]
	if len(got) > 4<<10 || len(got) < 4<<10-100 {
		t.Errorf("%d bytes", len(got))
	}
	for i, name := range names {
		if name != template.DNSNames[i] {
			t.Errorf("name %d is %s", i, name)
		}
	}
}
