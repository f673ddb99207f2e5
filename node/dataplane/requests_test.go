package dataplane

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"penstock/internal/testkit"
	"penstock/internal/testkit/certs"
	"penstock/node/nodetest"
)

// The requests of one connection are routed by their paths, with HTTP/1.1 and
// HTTP/2 on either side.
func TestRequestsAreRoutedIndividually(t *testing.T) {
	for _, upstream := range []string{"http", "http2"} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("endpoints %s, client http2 %v", upstream, http2), func(t *testing.T) {
				more := ", protocol: " + upstream
				n := start(t, nodetest.WebListener+nodetest.WebService("shop", more, nodetest.NamedServer(t, "shop"))+
					nodetest.WebService("cart", more, nodetest.NamedServer(t, "cart"))+
					nodetest.WebRoute(nodetest.Rule("/cart", nodetest.To("cart"))))
				c := nodetest.NewWebClient(t, n.at(t, "web"), http2)
				proto := map[string]string{"http": "HTTP/1.1", "http2": "HTTP/2.0"}[upstream]
				host := strings.TrimPrefix(c.Base, "http://")
				for _, path := range []string{"/cart", "/", "/cart/7?x=1&y=%2F;z", "/carts", "/%63art"} {
					want := "shop GET "
					if path != "/" && path != "/carts" {
						want = "cart GET "
					}
					want += proto + " " + host + path
					if got := c.Do("GET", path, ""); got.Text != want || got.StatusCode != http.StatusOK {
						t.Errorf("%s: %d %q, want %q", path, got.StatusCode, got.Text, want)
					}
				}
				if got := c.Do("POST", "/cart", "body"); !strings.HasPrefix(got.Text, "cart POST") {
					t.Errorf("%q", got.Text)
				}
				if total := n.metric(t, `penstock_routed_connections_total{listener="web",service="shop"}`); total != "1" {
					t.Errorf("%s connections, want 1", total)
				}
			})
		}
	}
}

// Filters change the request to the endpoint and the answer to the client.
func TestFiltersOfRules(t *testing.T) {
	seen := make(chan *http.Request, 10)
	end := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "secret")
		seen <- r
	})
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", end)+nodetest.WebRoute(
		nodetest.Rule("/old", `filters: [`+
			`{type: URLRewrite, urlRewrite: {hostname: new.example.com, path: {type: ReplacePrefixMatch, replacePrefixMatch: "/n%20w"}}}, `+
			`{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-from, value: penstock}], remove: [x-debug]}}, `+
			`{type: ResponseHeaderModifier, responseHeaderModifier: {remove: [server], add: [{name: x-by, value: p}]}}]`),
		nodetest.Rule("/gone", `filters: [`+
			`{type: RequestRedirect, requestRedirect: {scheme: https, hostname: www.example.com, statusCode: 308}}]`),
	))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	got := c.Do("GET", "/old/a%2Fb?q=1", "", func(r *http.Request) {
		r.Header.Set("X-Debug", "1")
		r.Header.Set("X-Forwarded-For", "6.6.6.6")
		r.Header.Set("Connection", "X-Mine")
		r.Header.Set("X-Mine", "hop")
	})
	r := <-seen
	if r.RequestURI != "/n%20w/a%2Fb?q=1" || r.Host != "new.example.com" {
		t.Errorf("asked %s of %s", r.RequestURI, r.Host)
	}
	want := http.Header{"X-From": {"penstock"}, "X-Forwarded-For": {"127.0.0.1"}, "X-Forwarded-Proto": {"http"}, "X-Debug": nil, "X-Mine": nil}
	for name, value := range want {
		if !slices.Equal(r.Header[name], value) {
			t.Errorf("the endpoint got %s: %q, want %q", name, r.Header[name], value)
		}
	}
	if got.Header.Get("Server") != "" || got.Header.Get("X-By") != "p" {
		t.Errorf("the client got %v", got.Header)
	}
	redirect := c.Do("GET", "/gone/a%2fb?q=1", "")
	if redirect.StatusCode != http.StatusPermanentRedirect || redirect.Header.Get("Location") != "https://www.example.com/gone/a%2Fb?q=1" {
		t.Errorf("%d %v", redirect.StatusCode, redirect.Header)
	}
}

// Refusals have their reason in the answer to the client and in the metrics.
func TestRefusalsNameTheirReason(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		nodetest.WebService("empty", "")+nodetest.WebService("down", ", connect: {attempts: 2}", testkit.FreeAddress(t))+
		nodetest.WebService("slow", ", http: {responseTimeout: 50ms}",
			testkit.ServeHTTP(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))+
		nodetest.WebService("long", ", http: {timeout: 50ms}",
			testkit.ServeHTTP(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))+
		nodetest.WebRoute(
			nodetest.Rule("/none", nodetest.To("shop 0")),
			nodetest.Rule("/down", nodetest.To("down")),
			nodetest.Rule("/slow", nodetest.To("slow")),
			nodetest.Rule("/long", nodetest.To("long")),
			`{matches: [{path: {type: RegularExpression, value: "/z+"}}], default: {`+nodetest.To("empty")+`}}`))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	for path, want := range map[string]struct {
		status int
		reason string
	}{
		"/none":                          {503, "no_backend"},
		"/down":                          {502, "connect_refused"},
		"/a/../b":                        {400, "bad_path"},
		"/a/%2e./b":                      {400, "bad_path"},
		"/slow":                          {504, "response_timeout"},
		"/long":                          {504, "request_timeout"},
		"/" + strings.Repeat("z", 9_000): {400, "bad_request"},
	} {
		got := c.Do("GET", path, "")
		if path == "/a/%2e./b" {
			want.status = 400
		}
		if got.StatusCode != want.status || got.Text != "penstock: "+want.reason+"\n" {
			t.Errorf("%.20s: %d %q, want %d %s", path, got.StatusCode, got.Text, want.status, want.reason)
		}
		testkit.WaitFor(t, "the reason to be counted", func() bool {
			v := n.metric(t, `penstock_http_refused_total{reason="`+want.reason+`"}`)
			return v != "" && v != "0"
		})
	}
	if got := c.Do("GET", "/", ""); got.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", got.StatusCode)
	}
}

// The shares of a rule are exact over any 1,000 requests, even on one connection.
func TestSharesOfRequestsAreExact(t *testing.T) {
	n := start(t, nodetest.WebListener+nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop"))+
		nodetest.WebService("v1", "", nodetest.NamedServer(t, "v1"))+nodetest.WebService("v2", "", nodetest.NamedServer(t, "v2"))+
		nodetest.WebRoute(nodetest.Rule("/", nodetest.To("v1 903", "v2 97"))))
	c := nodetest.NewWebClient(t, n.at(t, "web"), false)
	for range 2 {
		counts := map[string]int{}
		for range 1000 {
			counts[c.Do("GET", "/", "").Header.Get("X-Served-By")]++
		}
		if d := counts["v1"] - 903; d < -1 || d > 1 || counts["v1"]+counts["v2"] != 1000 {
			t.Errorf("shares %v, want 903 and 97", counts)
		}
	}
	if total := n.metric(t, `penstock_routed_connections_total{listener="web",service="shop"}`); total != "1" {
		t.Errorf("%s connections, want 1", total)
	}
}

// A change of routes takes effect at the next request of a connection, and cuts
// neither a running download nor the connection.
func TestRoutesChangeUnderAConnection(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	long := testkit.ServeHTTP(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-end
		_, _ = io.WriteString(w, strings.Repeat("y", 1<<20))
	})
	services := nodetest.WebService("shop", "", nodetest.NamedServer(t, "shop")) +
		nodetest.WebService("v1", "", nodetest.NamedServer(t, "v1")) +
		nodetest.WebService("v2", "", nodetest.NamedServer(t, "v2")) +
		nodetest.WebService("long", "", long)
	n := start(t, nodetest.WebListener+services+
		nodetest.WebRoute(nodetest.Rule("/", nodetest.To("v1")), nodetest.Rule("/long", nodetest.To("long"))))
	c := nodetest.NewWebClient(t, n.at(t, "web"), true)
	var downloading sync.WaitGroup
	downloading.Go(func() {
		if got, err := c.Try("GET", "/long", ""); err != nil || len(got.Text) != 2<<20 {
			t.Errorf("the download: %d bytes, %v", len(got.Text), err)
		}
	})
	<-begun
	for _, want := range []string{"v2", "v1", "v2"} {
		n.mustApply(t, nodetest.WebRoute(nodetest.Rule("/", nodetest.To(want)))[5:])
		if got := c.Do("GET", "/", "").Header.Get("X-Served-By"); got != want {
			t.Errorf("served by %s, want %s", got, want)
		}
	}
	n.mustDelete(t, "meshhttproute", "shop")
	if got := c.Do("GET", "/", "").Header.Get("X-Served-By"); got != "shop" {
		t.Errorf("without a route served by %s", got)
	}
	n.mustDelete(t, "service", "long")
	close(end)
	downloading.Wait()
	if total := n.metric(t, `penstock_routed_connections_total{listener="web",service="shop"}`); total != "1" {
		t.Errorf("%s connections, want 1", total)
	}
}

// A terminating listener offers HTTP/2 and HTTP/1.1. TLS towards endpoints verifies
// them and sends the service's client certificate.
func TestRequestsWithTLS(t *testing.T) {
	ca := certs.NewCA("test CA")
	cert := ca.Issue("shop.example")
	endPair := ca.Issue("127.0.0.1").TLS
	mine := ca.Issue("penstock")
	end := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s for %s by %s", r.Proto, r.Header.Get("X-Forwarded-Proto"), r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	end.TLS = &tls.Config{Certificates: []tls.Certificate{endPair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool}
	end.EnableHTTP2 = true
	end.StartTLS()
	t.Cleanup(end.Close)
	for _, upstream := range []string{"http", "http2"} {
		n := start(t, strings.Replace(nodetest.WebListener, `tags:`, `protocol: tls, noServerName: service, `+
			`tls: {mode: terminate, certificateRefs: [shop], alpn: [h2, http/1.1]}, tags:`, 1)+
			nodetest.WebService("shop", fmt.Sprintf(", protocol: %s, tls: {ca: %q, certificateRef: mine}", upstream, ca.PEM),
				end.Listener.Addr().String())+
			nodetest.WebRoute(nodetest.Rule("/", ""))+nodetest.Certificate("shop", cert)+nodetest.Certificate("mine", mine))
		for _, http2 := range []bool{false, true} {
			p := &http.Protocols{}
			p.SetHTTP1(!http2)
			p.SetHTTP2(http2)
			c := nodetest.ClientOf(t, "https://"+n.at(t, "web"), &http.Transport{
				Protocols: p, TLSClientConfig: &tls.Config{RootCAs: ca.Pool, ServerName: "shop.example"},
			})
			got := c.Do("GET", "/", "")
			want := map[string]string{"http": "HTTP/1.1", "http2": "HTTP/2.0"}[upstream] + " for https by penstock"
			if got.Text != want || (got.ProtoMajor == 2) != http2 {
				t.Errorf("%s: %q, want %q", got.Proto, got.Text, want)
			}
		}
	}
}
