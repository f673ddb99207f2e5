package dataplane

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
	"penstock/node/tlsconfig"
)

// An endpoint gets X-Forwarded-Client-Cert for a verified certificate only, and never a
// client's own.
func TestForwardedClientCert(t *testing.T) {
	ca := certs.NewCA("test CA")
	web := ca.Issue("web").TLS
	want := tlsconfig.ForwardedClientCert(web.Leaf)
	echo := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			if strings.Contains(strings.ToLower(name), "client") {
				_, _ = fmt.Fprintln(w, name, values)
			}
		}
	})
	listener := func(forward bool) string {
		return strings.Replace(nodetest.WebListener, `tags:`, fmt.Sprintf(
			`protocol: tls, tls: {mode: terminate, certificateRefs: [shop], alpn: [h2, http/1.1], clientAuth: {mode: request, ca: %q}}, `+
				`http: {forwardClientCert: %v, underscores: allow, trustedProxies: [127.0.0.0/8]}, tags:`, ca.PEM, forward), 1)
	}
	n := start(t, listener(true)+nodetest.WebService("shop", "", echo)+nodetest.WebRoute(nodetest.Rule("/", ""))+
		nodetest.Certificate("shop", ca.Issue("shop.example.com")))
	for _, http2 := range []bool{false, true} {
		client := func(shows ...tls.Certificate) *nodetest.WebClient {
			p := &http.Protocols{}
			p.SetHTTP1(!http2)
			p.SetHTTP2(http2)
			return nodetest.ClientOf(t, "https://"+n.at(t, "web"), &http.Transport{
				Protocols: p, TLSClientConfig: &tls.Config{RootCAs: ca.Pool, ServerName: "shop.example.com", Certificates: shows},
			})
		}
		ask := func(c *nodetest.WebClient) string {
			return c.Do("GET", "/", "", func(r *http.Request) {
				r.Header["X-Forwarded-Client-Cert"] = []string{"Hash=0;Subject=\"CN=admin\""}
				r.Header["X_Forwarded_Client_Cert"] = r.Header["X-Forwarded-Client-Cert"]
				if !http2 {
					r.Header["Connection"] = []string{"X-Forwarded-Client-Cert"}
				}
			}).Text
		}
		n.mustApply(t, listener(true))
		known := client(web)
		if got := ask(known); got != "X-Forwarded-Client-Cert ["+want+"]\n" {
			t.Errorf("HTTP/2 %v: the endpoint got %q, want %q", http2, got, want)
		}
		if got := ask(client()); got != "" {
			t.Errorf("HTTP/2 %v: without a certificate the endpoint got %q", http2, got)
		}
		n.mustApply(t, listener(false))
		if got := ask(known); strings.Contains(got, want) {
			t.Errorf("HTTP/2 %v: turned off, the endpoint got %q", http2, got)
		}
	}
}
