package dataplane

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	pires "github.com/pires/go-proxyproto"

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

// Clients with a verified certificate may name others, in the modes that say so; all
// others may not, trusted proxies included.
func TestModesOfForwardedClientCert(t *testing.T) {
	ca := certs.NewCA("test CA")
	web := ca.Issue("web").TLS
	own := tlsconfig.ForwardedClientCert(web.Leaf)
	echo := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		for name, values := range r.Header {
			if strings.Contains(strings.ToLower(name), "client") {
				_, _ = fmt.Fprintln(w, name, strings.Join(values, " and "))
			}
		}
	})
	listener := func(mode string) string {
		return strings.Replace(nodetest.WebListener, `tags:`, fmt.Sprintf(
			`protocol: tls, tls: {mode: terminate, certificateRefs: [shop], clientAuth: {mode: request, ca: %q}}, http: {forwardClientCert: true, `+
				`forwardClientCertMode: %s, underscores: allow, trustedProxies: [127.0.0.0/8]}, tags:`, ca.PEM, mode), 1)
	}
	n := start(t, listener("set")+nodetest.WebService("shop", "", echo)+nodetest.Certificate("shop", ca.Issue("shop.example.com")))
	for _, c := range []struct {
		mode  string
		sends []string
		want  string
	}{
		{"set", []string{"Hash=0"}, own},
		{"append", []string{"Hash=0", "", "Hash=1"}, "Hash=0,Hash=1," + own},
		{"append", nil, own},
		{"forward", []string{"Hash=0", "Hash=1"}, "Hash=0,Hash=1"},
		{"forward", nil, ""},
	} {
		n.mustApply(t, listener(c.mode))
		ask := func(shows ...tls.Certificate) string {
			client := nodetest.ClientOf(t, "https://"+n.at(t, "web"), &http.Transport{
				TLSClientConfig: &tls.Config{RootCAs: ca.Pool, ServerName: "shop.example.com", Certificates: shows}})
			return client.Do("GET", "/", "", func(r *http.Request) {
				if c.sends != nil {
					r.Header["X-Forwarded-Client-Cert"], r.Header["X_Forwarded_Client_Cert"] = c.sends, c.sends
				}
			}).Text
		}
		want := ""
		if c.want != "" {
			want = "X-Forwarded-Client-Cert " + c.want + "\n"
		}
		if got := ask(web); got != want {
			t.Errorf("%s, %q: the endpoint got %q, want %q", c.mode, c.sends, got, want)
		}
		if got := ask(); got != "" {
			t.Errorf("%s, %q: without a certificate the endpoint got %q", c.mode, c.sends, got)
		}
	}
}

// forwardClientCert has the requests of a connection looked at although no route,
// permission or limit is about them: else a client could write the header itself.
func TestForwardedClientCertNeedsNoRoute(t *testing.T) {
	ca := certs.NewCA("test CA")
	web := ca.Issue("web").TLS
	echo := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Join(r.Header["X-Forwarded-Client-Cert"], " and "))
	})
	n := start(t, strings.Replace(nodetest.WebListener, `tags:`, fmt.Sprintf(
		`protocol: tls, tls: {mode: terminate, certificateRefs: [shop], clientAuth: {mode: request, ca: %q}}, `+
			`http: {forwardClientCert: true}, tags:`, ca.PEM), 1)+
		nodetest.WebService("shop", "", echo)+nodetest.Certificate("shop", ca.Issue("shop.example.com")))
	for _, c := range []struct {
		shows []tls.Certificate
		want  string
	}{{[]tls.Certificate{web}, tlsconfig.ForwardedClientCert(web.Leaf)}, {nil, ""}} {
		client := nodetest.ClientOf(t, "https://"+n.at(t, "web"), &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: ca.Pool, ServerName: "shop.example.com", Certificates: c.shows}})
		got := client.Do("GET", "/", "", func(r *http.Request) { r.Header["X-Forwarded-Client-Cert"] = []string{"Hash=0"} }).Text
		if got != c.want {
			t.Errorf("%d certificates: the endpoint got %q, want %q", len(c.shows), got, c.want)
		}
	}
}

// A PROXY header of a service with clientIdentity has the client's SPIFFE ID, for
// connections and for requests that are routed one by one.
func TestPROXYHeaderWithSPIFFEID(t *testing.T) {
	ca := certs.NewCA("test CA")
	const id = "spiffe://prod.example/ns/shop/web"
	workload := ca.Sign(&x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "prod.example", Path: "/ns/shop/web"}}}).TLS
	l := testkit.Listen(t)
	seen := make(chan []pires.TLV, 1)
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { l.Close() })
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			if h, err := pires.Read(in); err == nil {
				tlvs, _ := h.TLVs()
				seen <- tlvs
				_, _ = http.ReadRequest(in)
				_, _ = io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n") // or the request would be tried again
			}
			_ = c.Close()
		}
	})
	resources := func(send bool) string {
		return strings.Replace(nodetest.WebListener, `tags:`, fmt.Sprintf(
			`protocol: tls, tls: {mode: terminate, certificateRefs: [shop], clientAuth: {mode: request, ca: %q}}, tags:`, ca.PEM), 1) +
			nodetest.WebService("shop", fmt.Sprintf(", proxyProtocol: {send: v2, clientIdentity: %v}", send), l.Addr().String())
	}
	n := start(t, resources(true)+nodetest.Certificate("shop", ca.Issue("shop.example.com")))
	config := &tls.Config{RootCAs: ca.Pool, ServerName: "shop.example.com"}
	ask := func(shows ...tls.Certificate) (spiffe, authority string) {
		mine := config.Clone()
		mine.Certificates = shows
		c, err := tls.Dial("tcp", n.at(t, "web"), mine)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, "GET / HTTP/1.0\r\nHost: shop.example.com\r\n\r\n")
		for _, tlv := range <-seen {
			switch tlv.Type {
			case 0xE1:
				spiffe = string(tlv.Value)
			case pires.PP2_TYPE_AUTHORITY:
				authority = string(tlv.Value)
			}
		}
		return spiffe, authority
	}
	for _, routed := range []string{"connections", "requests"} {
		if routed == "requests" {
			n.mustApply(t, nodetest.WebRoute(nodetest.Rule("/", ""))[5:])
		}
		for _, c := range []struct {
			send  bool
			shows []tls.Certificate
			want  string
		}{{true, []tls.Certificate{workload}, id}, {true, nil, ""}, {true, []tls.Certificate{ca.Issue("web").TLS}, ""}, {false, []tls.Certificate{workload}, ""}} {
			n.mustApply(t, resources(c.send))
			if got, authority := ask(c.shows...); got != c.want || authority != "shop.example.com" {
				t.Errorf("%s, %d certificates, clientIdentity %v: ID %q and authority %q, want %q", routed, len(c.shows), c.send, got, authority, c.want)
			}
		}
	}
}

// The access log names the verified client of connections and of requests, admitted
// or denied, and the version of TLS.
func TestAccessLogOfIdentities(t *testing.T) {
	ca := certs.NewCA("test CA")
	n := start(t, strings.Replace(nodetest.WebListener, `tags:`, fmt.Sprintf(
		`protocol: tls, tls: {mode: terminate, certificateRefs: [shop], clientAuth: {mode: request, ca: %q}}, tags:`, ca.PEM), 1)+
		nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+nodetest.WebRoute(nodetest.Rule("/", ""))+
		nodetest.Certificate("shop", ca.Issue("shop.example.com"))+
		"---\nkind: TrafficPermission\nname: p\nspec: {action: deny, to: [{http: [{methods: [POST]}]}]}\n")
	workload := ca.Sign(&x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "prod.example", Path: "/web"}}}).TLS
	person := ca.Sign(&x509.Certificate{Subject: pkix.Name{CommonName: "a\nb"}}).TLS
	for i, c := range []struct {
		shows tls.Certificate
		max   uint16
		want  string
	}{
		{workload, tls.VersionTLS13, "tls=1.3 identity=spiffe://prod.example/web "},
		{person, tls.VersionTLS12, `tls=1.2 identity="CN=a\\0Ab" `},
		{tls.Certificate{}, tls.VersionTLS13, "tls=1.3 "},
	} {
		for _, denied := range []bool{false, true} {
			method := "GET"
			if denied {
				method = "POST"
			}
			client := nodetest.ClientOf(t, "https://"+n.at(t, "web"), &http.Transport{TLSClientConfig: &tls.Config{
				RootCAs: ca.Pool, ServerName: "shop.example.com", MaxVersion: c.max, Certificates: []tls.Certificate{c.shows},
			}})
			before := len(n.lines.String())
			if got := client.Do(method, "/", ""); (got.StatusCode == http.StatusForbidden) != denied {
				t.Errorf("%d: %s is answered %d", i, method, got.StatusCode)
			}
			client.HTTP.CloseIdleConnections()
			var lines string
			testkit.WaitFor(t, "the lines of the connection and the request", func() bool {
				lines = n.lines.String()[before:]
				return strings.Contains(lines, `msg="connection closed"`) && strings.Contains(lines, "msg=request ")
			})
			if strings.Count(lines, c.want) != 2 || (i == 2) == strings.Contains(lines, "identity=") {
				t.Errorf("%s, want twice %q:\n%s", method, c.want, lines)
			}
		}
	}
}
