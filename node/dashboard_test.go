package node

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
	"penstock/node/rpc"
	"penstock/node/ui"
)

// threeNodes starts a cluster of three nodes.
func threeNodes(t *testing.T) []*testNode {
	t.Helper()
	nodes := []*testNode{founder(t, Config{Name: "n1"})}
	made := newToken(t, nodes[0], api.RoleJoin, time.Hour)
	for _, name := range []string{"n2", "n3"} {
		nodes = append(nodes, member(t, Config{Name: name, Join: []string{nodes[0].AdminAddr()}, Token: made.Token}))
		nodes[len(nodes)-1].mustStatus(t) // a client that asks nothing is disconnected
	}
	return nodes
}

func newToken(t *testing.T, n *testNode, role api.Role, ttl time.Duration) *api.TokenCreated {
	t.Helper()
	made, err := rpc.Call[api.TokenCreated](t.Context(), n.client, api.MethodTokenNew,
		&api.TokenCreateRequest{Name: fmt.Sprintf("%s-%d", role, time.Now().UnixNano()), Role: role, TTL: ttl})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// page is a page of the dashboard in a browser.
type page struct {
	t       *testing.T
	session ui.Session
	cookie  *http.Cookie
}

// pageAnswer is what a page sees of an answer.
type pageAnswer struct {
	StatusCode int
	Header     http.Header
	Cookies    []*http.Cookie
}

// request sends a request of the page to a node.
func (p *page) request(n *testNode, method, path, body string, change ...func(*http.Request)) (pageAnswer, string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), testkit.Patience) // a stream does not end
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+n.HTTPAddr()+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	req.Header.Set("Origin", "http://"+n.HTTPAddr())
	req.Header.Set(ui.CSRFHeader, p.session.CSRF)
	if p.cookie != nil {
		req.AddCookie(p.cookie)
	}
	for _, c := range change {
		c(req)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return pageAnswer{resp.StatusCode, resp.Header, resp.Cookies()}, string(text)
}

// get returns the status of a GET.
func (p *page) get(n *testNode, path string) int {
	p.t.Helper()
	resp, _ := p.request(n, http.MethodGet, path, "")
	return resp.StatusCode
}

// login logs in at a node.
func (p *page) login(n *testNode, token string) int {
	p.t.Helper()
	resp, text := p.request(n, http.MethodPost, "/ui/login", fmt.Sprintf(`{"token":%q}`, token))
	if secret, ok := strings.CutPrefix(token, "pst1."); ok && strings.Contains(text, secret) {
		p.t.Errorf("the answer shows the token: %s", text)
	}
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode
	}
	if err := json.Unmarshal([]byte(text), &p.session); err != nil {
		p.t.Fatal(err)
	}
	p.cookie = resp.Cookies[0]
	return resp.StatusCode
}

// A session that begins at one node is valid at all of them, and ends everywhere with its
// token.
func TestSessionIsValidAtEveryNodeUntilItsTokenIsRevoked(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t)
	made := newToken(t, nodes[0], api.RoleReader, time.Hour)
	p := &page{t: t}
	if got := p.get(nodes[0], "/ui/session"); got != http.StatusUnauthorized {
		t.Errorf("/ui/session without a session: %d", got)
	}
	if got := p.login(nodes[1], made.Token); got != http.StatusOK {
		t.Fatalf("login: %d", got)
	}
	if s := p.session; s.Role != api.RoleReader || s.Node != "n2" || s.Version != "test" || s.Dev || s.CSRF == "" ||
		time.Until(s.Until) > ui.SessionLife || time.Until(s.Until) < ui.SessionLife-testkit.Patience {
		t.Errorf("session %+v", s)
	}
	if c := p.cookie; c.Name != "penstock-session" || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" ||
		c.MaxAge != 12*3600 || strings.Contains(c.Value, made.ID) {
		t.Errorf("cookie %+v", c)
	}
	for _, n := range nodes {
		for path, want := range map[string]int{
			"/ui/session": http.StatusOK, "/v1/status": http.StatusOK, "/v1/tokens": http.StatusNotFound,
		} {
			if got := p.get(n, path); got != want {
				t.Errorf("%s: GET %s: %d, want %d", n.cfg.Name, path, got, want)
			}
		}
		resp, text := p.request(n, http.MethodDelete, "/v1/services/apps", "")
		if resp.StatusCode != http.StatusForbidden || !strings.Contains(text, "requires role admin") {
			t.Errorf("%s: a reader deletes: %d %s", n.cfg.Name, resp.StatusCode, text)
		}
	}
	if _, err := rpc.Call[api.Empty](t.Context(), nodes[0].client, api.MethodRevoke, &api.TokenRevokeRequest{Token: made.ID}); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		testkit.WaitFor(t, "the session to end at "+n.cfg.Name, func() bool {
			return p.get(n, "/ui/session") == http.StatusUnauthorized && p.get(n, "/v1/status") == http.StatusUnauthorized
		})
	}
	testkit.WaitFor(t, "the login in the audit log", func() bool {
		return slices.ContainsFunc(nodes[2].audited(t), func(e api.AuditEntry) bool {
			return e.Act == api.ActLogin && e.Outcome == api.AuditDone && e.Node == "n2" && e.Token == made.ID && strings.HasPrefix(e.From, "127.0.0.1:")
		})
	})
}

// Each way in which a page of another origin could use the session of a browser is refused.
func TestRequestsOfOtherPagesAreRefused(t *testing.T) {
	t.Parallel()
	n := founder(t, Config{Name: "n1"})
	p := &page{t: t}
	if got := p.login(n, newToken(t, n, api.RoleAdmin, time.Hour).Token); got != http.StatusOK {
		t.Fatalf("login: %d", got)
	}
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) {
			if r.Header.Del(name); value != "" {
				r.Header.Set(name, value)
			}
		}
	}
	older := func(origin string) func(*http.Request) { // a browser without Sec-Fetch-Site
		return func(r *http.Request) {
			r.Header.Del("Sec-Fetch-Site")
			r.Header.Set("Origin", origin)
		}
	}
	const body = `{"kind":"Service","name":"more","spec":{"endpoints":[{"address":"127.0.0.1:9"}]}}`
	for _, c := range []struct {
		name, method, path string
		want               int
		change             func(*http.Request)
	}{
		{"the page itself", "POST", "/v1/apply?dryRun", 200, func(*http.Request) {}},
		{"without the header", "POST", "/v1/apply?dryRun", 403, header(ui.CSRFHeader, "")},
		{"with another session's", "POST", "/v1/apply?dryRun", 403, header(ui.CSRFHeader, "AAAAAAAAAAAAAAAAAAAAAA")},
		{"a delete without the header", "DELETE", "/v1/services/apps", 403, header(ui.CSRFHeader, "")},
		{"a put without the header", "PUT", "/v1/services/more?dryRun", 403, header(ui.CSRFHeader, "")},
		{"another site", "POST", "/v1/apply?dryRun", 403, header("Sec-Fetch-Site", "cross-site")},
		{"another port of the host", "POST", "/v1/apply?dryRun", 403, header("Sec-Fetch-Site", "same-site")},
		{"another origin", "POST", "/v1/apply?dryRun", 403, older("http://evil.example")},
		{"an opaque origin", "POST", "/v1/apply?dryRun", 403, older("null")},
		{"an older browser", "POST", "/v1/apply?dryRun", 200, older("http://" + n.HTTPAddr())},
		{"reading from another site", "GET", "/v1/status", 403, header("Sec-Fetch-Site", "cross-site")},
		{"streams from another site", "GET", "/v1/events?topics=status", 403, header("Sec-Fetch-Site", "cross-site")},
		{"a login from another site", "POST", "/ui/login", 403, header("Sec-Fetch-Site", "cross-site")},
		{"a form's login", "POST", "/ui/login", 400, header("Content-Type", "text/plain")},
		{"a logout without the header", "POST", "/ui/logout", 403, header(ui.CSRFHeader, "")},
		{"a logout from another site", "POST", "/ui/logout", 403, header("Sec-Fetch-Site", "cross-site")},
		{"TiProxy's interface without the header", "PUT", "/api/admin/config/", 403, header(ui.CSRFHeader, "")},
	} {
		if resp, text := p.request(n, c.method, c.path, body, c.change); resp.StatusCode != c.want {
			t.Errorf("%s: %d %s, want %d", c.name, resp.StatusCode, text, c.want)
		}
	}
	resp, _ := p.request(n, http.MethodPost, "/ui/logout", "")
	if c := resp.Cookies; resp.StatusCode != http.StatusOK || len(c) != 1 || c[0].MaxAge >= 0 || c[0].Value != "" {
		t.Errorf("logout: %d with cookies %v", resp.StatusCode, c)
	}
}

// A page of another origin cannot change a node with --dev, which has no login.
func TestDevRefusesRequestsOfOtherPages(t *testing.T) {
	t.Parallel()
	n := startNode(t, "kind: Service\nname: apps\nspec: {endpoints: [{address: \"127.0.0.1:9\"}]}\n")
	p := &page{t: t}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		for _, site := range []string{"cross-site", "same-site", ""} {
			resp, text := p.request(n, method, map[string]string{"POST": "/v1/apply"}[method]+map[bool]string{true: "/v1/services/apps"}[method != "POST"],
				`{"kind":"Service","name":"apps","spec":{}}`, func(r *http.Request) {
					r.Header.Set("Origin", "http://127.0.0.1:1")
					if r.Header.Del("Sec-Fetch-Site"); site != "" {
						r.Header.Set("Sec-Fetch-Site", site)
					}
				})
			if resp.StatusCode != http.StatusForbidden {
				t.Errorf("%s by a page (Sec-Fetch-Site %q): %d %s", method, site, resp.StatusCode, text)
			}
		}
	}
	for _, path := range []string{"/v1/status", "/v1/services", "/v1/events?topics=status"} {
		if resp, _ := p.request(n, "GET", path, "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }); resp.StatusCode != http.StatusForbidden {
			t.Errorf("GET %s by a page: %d", path, resp.StatusCode)
		}
	}
	var s ui.Session
	resp, text := p.request(n, "GET", "/ui/session", "")
	if err := json.Unmarshal([]byte(text), &s); err != nil || resp.StatusCode != http.StatusOK || !s.Dev || s.Role != api.RoleAdmin || s.Name != "dev" {
		t.Errorf("/ui/session: %d %s", resp.StatusCode, text)
	}
	if resp, text := p.request(n, "DELETE", "/v1/services/apps", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("the dashboard deletes: %d %s", resp.StatusCode, text)
	}
	if status, _ := n.getAs(t, "/ui/", "evil.example"); status != http.StatusForbidden {
		t.Errorf("/ui/ under another name: %d", status)
	}
}

// Wrong tokens at the login are limited as elsewhere, and the audit log has them.
func TestFailedLoginsAreLimitedAndRecorded(t *testing.T) {
	t.Parallel()
	n := founder(t, Config{Name: "n1"})
	good, join := newToken(t, n, api.RoleReader, time.Hour), newToken(t, n, api.RoleJoin, time.Hour)
	issuer, err := rpc.Call[api.TokenCreated](t.Context(), n.client, api.MethodTokenNew,
		&api.TokenCreateRequest{Name: "issuer", Role: api.RoleIssuer, Path: "/a", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	p := &page{t: t}
	for token, want := range map[string]int{join.Token: 401, good.Token[:len(good.Token)-6] + "AAAAAA": 401, issuer.Token: 403, "": 400, "nonsense": 401} {
		if got := p.login(n, token); got != want || p.cookie != nil {
			t.Errorf("login: %d, want %d", got, want)
		}
	}
	testkit.WaitFor(t, "the limit", func() bool { return p.login(n, "nonsense") == http.StatusTooManyRequests })
	var counted uint64
	for _, e := range n.audited(t) {
		if e.Act != api.ActLogin {
			continue
		}
		counted += e.Count
		if e.Outcome != api.AuditRefused || e.From == "" || strings.Contains(fmt.Sprint(e), "nonsense") || strings.Contains(fmt.Sprint(e), good.Token[5:50]) {
			t.Errorf("recorded %+v", e)
		}
	}
	if counted < 10 {
		t.Errorf("the audit log counts %d failed logins", counted)
	}
}

// Every answer has the headers that keep browsers from misusing it, and no path leaves
// the bundle.
func TestDashboardIsServedWithItsHeaders(t *testing.T) {
	t.Parallel()
	n := startNode(t, "")
	p := &page{t: t}
	for path, want := range map[string]int{
		"/": 303, "/ui/": 200, "/ui/services/apps": 200, "/ui/assets/none.js": 404, "/ui/%2e%2e/%2e%2e/go.mod": 200, "/ui/..%2f..%2fetc/passwd": 200,
		"/ui/session": 200, "/v1/status": 200, "/v1/none": 404, "/metrics": 200, "/healthz": 200, "/none": 404,
	} {
		resp, text := p.request(n, "GET", path, "", func(r *http.Request) { r.Header.Set("Accept-Encoding", "gzip;q=0") })
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cross-Origin-Opener-Policy": "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := resp.Header.Get(name); got != value {
				t.Errorf("%s: %s is %q", path, name, got)
			}
		}
		policy := resp.Header.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || !strings.Contains(policy, "frame-ancestors 'none'") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: policy %q", path, policy)
		}
		if strings.HasPrefix(path, "/ui/") && want == 200 && path != "/ui/session" {
			if resp.Header.Get("Cache-Control") != "no-store" || !strings.HasPrefix(text, "<!doctype html>") {
				t.Errorf("%s: %v %.40s", path, resp.Header, text)
			}
		}
	}
}
