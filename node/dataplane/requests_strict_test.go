package dataplane

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
)

// A connection for one server name does not serve a Host of another rule.
func TestMisdirectedRequestsAreRefused(t *testing.T) {
	ca := certs.NewCA("test CA")
	cert := ca.Issue("*.example.com")
	n := start(t, strings.Replace(nodetest.WebListener, `tags:`,
		`protocol: tls, tls: {mode: terminate, certificateRefs: [shop], alpn: [h2, http/1.1]}, `+
			`hosts: [{names: [other.example.com], service: other}], tags:`, 1)+
		nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+nodetest.WebService("other", "", nodetest.NamedServer(t, "other"))+
		nodetest.WebRoute(nodetest.Rule("/", ""))+nodetest.Certificate("shop", cert))
	for _, http2 := range []bool{false, true} {
		p := &http.Protocols{}
		p.SetHTTP1(!http2)
		p.SetHTTP2(http2)
		c := nodetest.ClientOf(t, "https://"+n.at(t, "web"), &http.Transport{
			Protocols: p, TLSClientConfig: &tls.Config{RootCAs: ca.Pool, ServerName: "shop.example.com"},
		})
		for host, want := range map[string]int{
			"shop.example.com": 200, "SHOP.example.com:8443": 200, "else.example.com": 200,
			"other.example.com": 421, "Other.Example.com.": 421,
		} {
			got := c.Do("GET", "/", "", func(r *http.Request) { r.Host = host })
			if got.StatusCode != want || want == 421 && got.Text != "penstock: misdirected\n" {
				t.Errorf("HTTP/2 %v, %s: %d %q, want %d", http2, host, got.StatusCode, got.Text, want)
			}
		}
	}
}

// A client that has its answers ends in order even without close_notify in TLS, or
// with a reset.
func TestClientLeavingAfterItsResponse(t *testing.T) {
	ca := certs.NewCA("test CA")
	cert := ca.Issue("shop.example.com")
	n := start(t, strings.Replace(nodetest.WebListener, `tags:`,
		`protocol: tls, tls: {mode: terminate, certificateRefs: [shop], alpn: [h2, http/1.1]}, tags:`, 1)+
		nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+nodetest.WebRoute(nodetest.Rule("/", ""))+
		nodetest.Certificate("shop", cert))
	for i, leave := range []func(*net.TCPConn){
		func(c *net.TCPConn) { _ = c.Close() },
		func(c *net.TCPConn) { _ = c.SetLinger(0); _ = c.Close() },
	} {
		raw, err := net.Dial("tcp", n.at(t, "web"))
		if err != nil {
			t.Fatal(err)
		}
		c := tls.Client(raw, &tls.Config{RootCAs: ca.Pool, ServerName: "shop.example.com"})
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: shop.example.com\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		testkit.WaitFor(t, "the request to end", func() bool {
			return n.metric(t, `penstock_http_requests{listener="web",service="shop"}`) == "0"
		})
		leave(raw.(*net.TCPConn))
		testkit.WaitFor(t, "the connection to end in order", func() bool {
			return n.metric(t, `penstock_connections_total{listener="web",result="client_fin",service="shop"}`) == fmt.Sprint(i+1)
		})
	}
}

// A change of a listener's http settings takes effect at the next request.
func TestListenerHTTPRules(t *testing.T) {
	echo := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.Header.Get("X-Forwarded-For"), " ", r.Header["X_a"], " ", r.URL.EscapedPath())
	})
	services := nodetest.WebService("shop", "", echo) + nodetest.WebRoute(nodetest.Rule("/", ""))
	n := start(t, nodetest.WebListener+services)
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	ask := func(path string) string {
		got := c.Do("GET", path, "", func(r *http.Request) {
			r.Header["X_a"] = []string{"b"}
			r.Header.Set("X-Forwarded-For", "192.0.2.1")
		})
		return fmt.Sprint(got.StatusCode, " ", got.Text)
	}
	for _, path := range []string{"/a;b=1", "/a%2Fb"} {
		if got, want := ask(path), "200 127.0.0.1 [] "+path; got != want {
			t.Errorf("by default: %q, want %q", got, want)
		}
	}
	n.mustApply(t, strings.Replace(nodetest.WebListener, "tags:", "http: {trustedProxies: [127.0.0.0/8], "+
		"underscores: allow, pathParameters: refuse, escapedSlashes: refuse}, tags:", 1))
	for path, want := range map[string]string{
		"/a":     "200 192.0.2.1, 127.0.0.1 [b] /a",
		"/a;b":   "400 penstock: bad_path\n",
		"/a%2fb": "400 penstock: bad_path\n",
		"/a%5Cb": "400 penstock: bad_path\n",
	} {
		if got := ask(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	n.mustApply(t, strings.Replace(nodetest.WebListener, "tags:", "http: {underscores: refuse}, tags:", 1))
	if got, want := ask("/a"), "400 penstock: bad_request\n"; got != want {
		t.Errorf("refused: %q, want %q", got, want)
	}
}
