package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// webServer is an endpoint that speaks HTTP/1.1 and HTTP/2, both without TLS.
func webServer(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = &http.Protocols{}
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// namedServer answers with its name and what it was asked.
func namedServer(t testing.TB, name string) string {
	return webServer(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Served-By", name)
		fmt.Fprintf(w, "%s %s %s %s%s", name, r.Method, r.Proto, r.Host, r.URL.RequestURI())
	})
}

// webService is a service of HTTP; more is the rest of its spec.
func webService(name, more string, endpoints ...string) string {
	var list []string
	for _, e := range endpoints {
		list = append(list, fmt.Sprintf("{address: %q}", e))
	}
	if !strings.Contains(more, "protocol:") {
		more += ", protocol: http"
	}
	return fmt.Sprintf("\n---\nkind: Service\nname: %s\nspec: {endpoints: [%s]%s}\n", name, strings.Join(list, ", "), more)
}

// webListener is a listener whose clients speak HTTP.
const webListener = `
---
kind: Listener
name: web
spec: {address: "127.0.0.1:0", service: shop, tags: {protocol: http}}
`

// webRoute is a route for shop with these rules, each on a line of its own.
func webRoute(rules ...string) string {
	return "\n---\nkind: MeshHTTPRoute\nname: shop\nspec:\n  to:\n  - targetRef: {kind: MeshService, name: shop}\n    rules:\n    - " +
		strings.Join(rules, "\n    - ") + "\n"
}

// rule is one of a path's prefix.
func rule(prefix, what string) string {
	return fmt.Sprintf("{matches: [{path: {type: PathPrefix, value: %q}}], default: {%s}}", prefix, what)
}

// to is a rule's backends: "v1 90", "v2 10".
func to(backends ...string) string {
	var refs []string
	for _, b := range backends {
		name, weight, _ := strings.Cut(b, " ")
		if weight == "" {
			weight = "1"
		}
		refs = append(refs, fmt.Sprintf("{kind: MeshService, name: %s, weight: %s}", name, weight))
	}
	return "backendRefs: [" + strings.Join(refs, ", ") + "]"
}

// webClient is a client of HTTP that follows no redirect.
type webClient struct {
	t    testing.TB
	http *http.Client
	base string
}

// newWebClient speaks HTTP/1.1, or HTTP/2 by prior knowledge.
func newWebClient(t testing.TB, addr string, http2 bool) *webClient {
	p := &http.Protocols{}
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	return clientOf(t, "http://"+addr, &http.Transport{Protocols: p, DisableCompression: true})
}

func clientOf(t testing.TB, base string, transport *http.Transport) *webClient {
	t.Cleanup(transport.CloseIdleConnections)
	return &webClient{t, &http.Client{
		Transport: transport, Timeout: 20 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, base}
}

// answer is a response that has been read.
type answer struct {
	*http.Response
	body string
}

func (c *webClient) do(method, path, body string, change ...func(*http.Request)) answer {
	c.t.Helper()
	a, err := c.try(method, path, body, change...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

func (c *webClient) try(method, path, body string, change ...func(*http.Request)) (answer, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, c.base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if body == "" {
		req.Body = nil
	}
	for _, f := range change {
		f(req)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return answer{resp, string(all)}, err
}

// A node routes requests by their path, on one connection, in HTTP/1.1 and
// HTTP/2 on either side.
func TestRequestsAreRoutedOneByOne(t *testing.T) {
	for _, upstream := range []string{"http", "http2"} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprintf("endpoints %s, client http2 %v", upstream, http2), func(t *testing.T) {
				more := ", protocol: " + upstream
				n := startNode(t, webListener+webService("shop", more, namedServer(t, "shop"))+webService("cart", more, namedServer(t, "cart"))+
					webRoute(rule("/cart", to("cart"))))
				c := newWebClient(t, n.at(t, "web"), http2)
				proto := map[string]string{"http": "HTTP/1.1", "http2": "HTTP/2.0"}[upstream]
				host := strings.TrimPrefix(c.base, "http://")
				for _, path := range []string{"/cart", "/", "/cart/7?x=1&y=%2F;z", "/carts", "/%63art"} {
					want := "shop GET "
					if path != "/" && path != "/carts" {
						want = "cart GET "
					}
					want += proto + " " + host + path
					if got := c.do("GET", path, ""); got.body != want || got.StatusCode != http.StatusOK {
						t.Errorf("%s: %d %q, want %q", path, got.StatusCode, got.body, want)
					}
				}
				if got := c.do("POST", "/cart", "body"); !strings.HasPrefix(got.body, "cart POST") {
					t.Errorf("%q", got.body)
				}
				if total := n.metric(t, `penstock_routed_connections_total{listener="web",service="shop"}`); total != "1" {
					t.Errorf("%s connections, want 1", total)
				}
			})
		}
	}
}

// What filters do reaches the endpoint and the client.
func TestFiltersOfRules(t *testing.T) {
	seen := make(chan *http.Request, 10)
	end := webServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", "secret")
		seen <- r
	})
	n := startNode(t, webListener+webService("shop", "", end)+webRoute(
		rule("/old", `filters: [{type: URLRewrite, urlRewrite: {hostname: new.example.com, path: {type: ReplacePrefixMatch, replacePrefixMatch: "/n%20w"}}}, {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-from, value: penstock}], remove: [x-debug]}}, {type: ResponseHeaderModifier, responseHeaderModifier: {remove: [server], add: [{name: x-by, value: p}]}}]`),
		rule("/gone", `filters: [{type: RequestRedirect, requestRedirect: {scheme: https, hostname: www.example.com, statusCode: 308}}]`),
	))
	c := newWebClient(t, n.at(t, "web"), false)
	got := c.do("GET", "/old/a%2Fb?q=1", "", func(r *http.Request) {
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
	redirect := c.do("GET", "/gone/a%2fb?q=1", "")
	if redirect.StatusCode != http.StatusPermanentRedirect || redirect.Header.Get("Location") != "https://www.example.com/gone/a%2Fb?q=1" {
		t.Errorf("%d %v", redirect.StatusCode, redirect.Header)
	}
}

// Refusals name their reason, to the client and in the metrics.
func TestRefusalsNameTheirReason(t *testing.T) {
	n := startNode(t, webListener+webService("shop", "", namedServer(t, "shop"))+webService("empty", "")+webService("down", ", connect: {attempts: 2}", deadAddress(t))+
		webService("slow", ", http: {responseTimeout: 50ms}", webServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))+
		webService("long", ", http: {timeout: 50ms}", webServer(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))+
		webRoute(rule("/none", to("shop 0")), rule("/down", to("down")), rule("/slow", to("slow")), rule("/long", to("long")),
			`{matches: [{path: {type: RegularExpression, value: "/z+"}}], default: {`+to("empty")+`}}`))
	c := newWebClient(t, n.at(t, "web"), false)
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
		got := c.do("GET", path, "")
		if path == "/a/%2e./b" {
			want.status = 400
		}
		if got.StatusCode != want.status || got.body != "penstock: "+want.reason+"\n" {
			t.Errorf("%.20s: %d %q, want %d %s", path, got.StatusCode, got.body, want.status, want.reason)
		}
		waitFor(t, "the reason to be counted", func() bool {
			v := n.metric(t, `penstock_http_refused_total{reason="`+want.reason+`"}`)
			return v != "" && v != "0"
		})
	}
	if got := c.do("GET", "/", ""); got.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d", got.StatusCode)
	}
}

// The shares of a rule are exact over any 1,000 requests, of one connection.
func TestSharesOfRequestsAreExact(t *testing.T) {
	n := startNode(t, webListener+webService("shop", "", namedServer(t, "shop"))+webService("v1", "", namedServer(t, "v1"))+webService("v2", "", namedServer(t, "v2"))+
		webRoute(rule("/", to("v1 903", "v2 97"))))
	c := newWebClient(t, n.at(t, "web"), false)
	for range 2 {
		counts := map[string]int{}
		for range 1000 {
			counts[c.do("GET", "/", "").Header.Get("X-Served-By")]++
		}
		if d := counts["v1"] - 903; d < -1 || d > 1 || counts["v1"]+counts["v2"] != 1000 {
			t.Errorf("shares %v, want 903 and 97", counts)
		}
	}
	if total := n.metric(t, `penstock_routed_connections_total{listener="web",service="shop"}`); total != "1" {
		t.Errorf("%s connections, want 1", total)
	}
}

// Routes change between two requests of a connection; a download under way is
// not cut, nor is the connection.
func TestRoutesChangeUnderAConnection(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	long := webServer(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1<<20))
		_ = http.NewResponseController(w).Flush()
		close(begun)
		<-end
		_, _ = io.WriteString(w, strings.Repeat("y", 1<<20))
	})
	services := webService("shop", "", namedServer(t, "shop")) + webService("v1", "", namedServer(t, "v1")) + webService("v2", "", namedServer(t, "v2")) + webService("long", "", long)
	n := startNode(t, webListener+services+webRoute(rule("/", to("v1")), rule("/long", to("long"))))
	c := newWebClient(t, n.at(t, "web"), true)
	var downloading sync.WaitGroup
	downloading.Go(func() {
		if got, err := c.try("GET", "/long", ""); err != nil || len(got.body) != 2<<20 {
			t.Errorf("the download: %d bytes, %v", len(got.body), err)
		}
	})
	<-begun
	for _, want := range []string{"v2", "v1", "v2"} {
		n.mustApply(t, webRoute(rule("/", to(want)))[5:])
		if got := c.do("GET", "/", "").Header.Get("X-Served-By"); got != want {
			t.Errorf("served by %s, want %s", got, want)
		}
	}
	n.mustDelete(t, "meshhttproute", "shop")
	if got := c.do("GET", "/", "").Header.Get("X-Served-By"); got != "shop" {
		t.Errorf("without a route served by %s", got)
	}
	n.mustDelete(t, "service", "long")
	close(end)
	downloading.Wait()
	if total := n.metric(t, `penstock_routed_connections_total{listener="web",service="shop"}`); total != "1" {
		t.Errorf("%s connections, want 1", total)
	}
}

// TLS that the listener ends offers HTTP/2 and HTTP/1.1; TLS towards endpoints
// verifies them and shows the node's certificate.
func TestRequestsWithTLS(t *testing.T) {
	ca := newAuthority(t)
	cert, key, _ := ca.issue(t, "shop.example")
	_, _, endPair := ca.issue(t, "127.0.0.1")
	mine, mineKey, _ := ca.issue(t, "penstock")
	end := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s for %s by %s", r.Proto, r.Header.Get("X-Forwarded-Proto"), r.TLS.PeerCertificates[0].Subject.CommonName)
	}))
	end.TLS = &tls.Config{Certificates: []tls.Certificate{endPair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.pool}
	end.EnableHTTP2 = true
	end.StartTLS()
	t.Cleanup(end.Close)
	for _, upstream := range []string{"http", "http2"} {
		n := startNode(t, strings.Replace(webListener, `tags:`, `protocol: tls, noServerName: service, tls: {mode: terminate, certificateRefs: [shop], alpn: [h2, http/1.1]}, tags:`, 1)+
			webService("shop", fmt.Sprintf(", protocol: %s, tls: {ca: %q, certificateRef: mine}", upstream, ca.pem), end.Listener.Addr().String())+
			webRoute(rule("/", ""))+certificate("shop", cert, key)+certificate("mine", mine, mineKey))
		for _, http2 := range []bool{false, true} {
			p := &http.Protocols{}
			p.SetHTTP1(!http2)
			p.SetHTTP2(http2)
			c := clientOf(t, "https://"+n.at(t, "web"), &http.Transport{Protocols: p, TLSClientConfig: &tls.Config{RootCAs: ca.pool, ServerName: "shop.example"}})
			got := c.do("GET", "/", "")
			want := map[string]string{"http": "HTTP/1.1", "http2": "HTTP/2.0"}[upstream] + " for https by penstock"
			if got.body != want || (got.ProtoMajor == 2) != http2 {
				t.Errorf("%s: %q, want %q", got.Proto, got.body, want)
			}
		}
	}
}
