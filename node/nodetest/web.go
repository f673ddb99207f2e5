package nodetest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"penstock/internal/testkit"
)

// NamedServer starts an HTTP endpoint that answers with its name and the request.
func NamedServer(t testing.TB, name string) string {
	return testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("X-Served-By", name)
		fmt.Fprintf(w, "%s %s %s %s%s", name, r.Method, r.Proto, r.Host, r.URL.RequestURI())
	})
}

// WebService returns the resource of an HTTP service; more is the rest of its spec.
func WebService(name, more string, endpoints ...string) string {
	var list []string
	for _, e := range endpoints {
		list = append(list, fmt.Sprintf("{address: %q}", e))
	}
	if !strings.Contains(more, "protocol:") {
		more += ", protocol: http"
	}
	return fmt.Sprintf("\n---\nkind: Service\nname: %s\nspec: {endpoints: [%s]%s}\n", name, strings.Join(list, ", "), more)
}

// WebListener is the resource of a listener for HTTP clients.
const WebListener = `
---
kind: Listener
name: web
spec: {address: "127.0.0.1:0", service: shop, tags: {protocol: http}}
`

// WebRoute returns the resource of a route for shop with these rules.
func WebRoute(rules ...string) string {
	return "\n---\nkind: MeshHTTPRoute\nname: shop\nspec:\n  to:\n  - targetRef: {kind: MeshService, name: shop}\n    rules:\n    - " +
		strings.Join(rules, "\n    - ") + "\n"
}

// Rule returns a rule that matches the prefix of a path.
func Rule(prefix, what string) string {
	return fmt.Sprintf("{matches: [{path: {type: PathPrefix, value: %q}}], default: {%s}}", prefix, what)
}

// To returns the backends of a rule with their weights: "v1 90", "v2 10".
func To(backends ...string) string {
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

// WebClient is an HTTP client that does not follow redirects.
type WebClient struct {
	t    testing.TB
	HTTP *http.Client
	Base string // URL of the server
}

// NewWebClient makes a client of HTTP/1.1, or of HTTP/2 with prior knowledge.
func NewWebClient(t testing.TB, addr string, http2 bool) *WebClient {
	p := &http.Protocols{}
	p.SetHTTP1(!http2)
	p.SetUnencryptedHTTP2(http2)
	return ClientOf(t, "http://"+addr, &http.Transport{Protocols: p, DisableCompression: true})
}

// ClientOf makes a client for the server at a URL.
func ClientOf(t testing.TB, base string, transport *http.Transport) *WebClient {
	t.Cleanup(transport.CloseIdleConnections)
	return &WebClient{t, &http.Client{
		Transport: transport, Timeout: testkit.Patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, base}
}

// Answer is a response that has been read.
type Answer struct {
	*http.Response
	Text string
}

// Do sends a request and fails the test if it gets no answer.
func (c *WebClient) Do(method, path, body string, change ...func(*http.Request)) Answer {
	c.t.Helper()
	a, err := c.Try(method, path, body, change...)
	if err != nil {
		c.t.Fatal(err)
	}
	return a
}

// Try sends a request, after change may have altered it.
func (c *WebClient) Try(method, path, body string, change ...func(*http.Request)) (Answer, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, c.Base+path, strings.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	if body == "" {
		req.Body = nil
	}
	for _, f := range change {
		f(req)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return Answer{resp, string(all)}, err
}
