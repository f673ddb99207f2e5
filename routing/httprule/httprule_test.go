package httprule

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/codec"
	"penstock/routing/urlpath"
)

// route decodes the rules of a route.
func route(t testing.TB, text string) *Rules {
	t.Helper()
	doc := "kind: MeshHTTPRoute\nname: r\nspec:\n  to:\n  - targetRef: {kind: MeshService, name: shop}\n    rules:\n" + text
	objects, faults := codec.Decode("r.yaml", []byte(doc), resource.RoutingKinds())
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	r, err := Compile(objects[0].Spec.(*resource.MeshHTTPRoute).WithDefaults().To[0].Rules)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ask parses a request line such as "GET /a?b=c header: value".
func ask(t testing.TB, line string) *Request {
	t.Helper()
	method, rest, _ := strings.Cut(line, " ")
	target, header, _ := strings.Cut(rest, " ")
	path, query, _ := strings.Cut(target, "?")
	path, ok := urlpath.Normal(path)
	if !ok {
		t.Fatalf("%q cannot be normalised", target)
	}
	h := http.Header{}
	if name, value, ok := strings.Cut(header, ": "); ok {
		h.Set(name, value)
	}
	return &Request{Method: method, Path: path, Query: query, Header: func(name string) (string, bool) {
		values := h.Values(name)
		return strings.Join(values, ","), len(values) > 0
	}}
}

// Of the matching rules the most specific one decides, at any position.
func TestMostSpecificRuleDecides(t *testing.T) {
	r := route(t, `
    - {matches: [{path: {type: PathPrefix, value: /}}]}
    - {matches: [{path: {type: PathPrefix, value: /shop}}]}
    - {matches: [{path: {type: PathPrefix, value: /shop/cart}}]}
    - {matches: [{path: {type: RegularExpression, value: "/shop/item/[0-9]+"}}]}
    - {matches: [{path: {type: Exact, value: /shop/item/7}}]}
    - {matches: [{path: {type: PathPrefix, value: /shop/cart}, method: POST}]}
    - {matches: [{path: {type: PathPrefix, value: /shop/cart}, headers: [{name: x-beta, value: "yes"}]}]}
    - {matches: [{path: {type: PathPrefix, value: /shop/cart}, queryParams: [{type: Exact, name: v, value: "2"}]}]}
    - {matches: [{path: {type: PathPrefix, value: /old}}, {path: {type: Exact, value: /older}}]}
    - {matches: [{path: {type: Exact, value: "/caf%c3%a9"}}]}
`)
	for line, want := range map[string]int{
		"GET /":                          0,
		"GET /shopping":                  0,
		"GET /shop":                      1,
		"GET /shop/":                     1,
		"GET /shop/item/x":               1,
		"GET /shop/item/12":              3,
		"GET /shop/item/12/":             1,
		"GET /shop/item/7":               4,
		"GET /shop/cart":                 2,
		"GET /shop/cart/a/b":             2,
		"POST /shop/cart/a":              5,
		"POST /shop/cart x-beta: yes":    5, // a method precedes headers
		"GET /shop/cart x-beta: yes":     6,
		"GET /shop/cart X-BETA: yes":     6,
		"GET /shop/cart x-beta: Yes":     2,
		"GET /shop/cart?v=2":             7,
		"GET /shop/cart?v=2 x-beta: yes": 6, // headers precede parameters
		"GET /shop/cart?v=1&v=2":         2, // the first value counts
		"GET /shop/cart?v=%32":           7,
		"GET /old/x":                     8,
		"GET /older":                     8,
		"GET /older/x":                   0,
		"GET /sh%6Fp":                    1, // normal forms are equal
		"GET /shop%2Fcart":               0, // an escaped slash does not separate segments
		"GET /caf%C3%A9":                 9,
	} {
		if m, ok := r.Match(ask(t, line)); !ok || m.Rule != want {
			t.Errorf("%s: rule %d, %v, want %d", line, m.Rule, ok, want)
		}
	}
}

func TestConditions(t *testing.T) {
	for text, lines := range map[string]map[string]bool{
		`headers: [{name: a, type: Present}]`:                         {"GET / a: ": true, "GET / a: x": true, "GET / b: x": false},
		`headers: [{name: a, type: Absent}]`:                          {"GET / a: ": false, "GET / b: x": true},
		`headers: [{name: a, type: Prefix, value: x}]`:                {"GET / a: xy": true, "GET / a: yx": false, "GET /": false},
		`headers: [{name: a, type: RegularExpression, value: "x|y"}]`: {"GET / a: y": true, "GET / a: xy": false, "GET /": false},
		`queryParams: [{type: RegularExpression, name: p, value: "[0-9]*"}]`: {
			"GET /?p=12": true, "GET /?p=": true, "GET /?p": true, "GET /?p=x": false, "GET /": false, "GET /?q=1": false, "GET /?p=1;q=2": false},
		`method: PUT`: {"PUT /": true, "GET /": false, "put /": false},
	} {
		r := route(t, "    - {matches: [{"+text+"}]}\n")
		for line, want := range lines {
			if _, ok := r.Match(ask(t, line)); ok != want {
				t.Errorf("%s, %s: %v", text, line, ok)
			}
		}
	}
}

func TestRedirects(t *testing.T) {
	for filter, want := range map[string]string{
		`{scheme: https}`: "302 https://shop.example.com/a/b?c",
		`{hostname: other.example.com, statusCode: 301}`:                      "301 http://other.example.com:8080/a/b?c",
		`{scheme: https, port: 8443}`:                                         "302 https://shop.example.com:8443/a/b?c",
		`{scheme: https, port: 443}`:                                          "302 https://shop.example.com/a/b?c",
		`{path: {type: ReplaceFullPath, replaceFullPath: /new}}`:              "302 http://shop.example.com:8080/new?c",
		`{path: {type: ReplacePrefixMatch, replacePrefixMatch: /x/y/}}`:       "302 http://shop.example.com:8080/x/y/b?c",
		`{port: 80, path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}`: "302 http://shop.example.com/b?c",
	} {
		r := route(t, "    - {matches: [{path: {type: PathPrefix, value: /a}}], "+
			"default: {filters: [{type: RequestRedirect, requestRedirect: "+filter+"}]}}\n")
		m, _ := r.Match(ask(t, "GET /a/b"))
		status, location, ok := r.Redirect(m, Origin{"http", "shop.example.com:8080"}, "/a/b", "c")
		if got := fmt.Sprint(status, " ", location); !ok || got != want {
			t.Errorf("%s: %s, want %s", filter, got, want)
		}
	}
	r := route(t, "    - {matches: [{path: {type: PathPrefix, value: /}}], "+
		"default: {filters: [{type: RequestRedirect, requestRedirect: {port: 9}}]}}\n")
	if _, location, _ := r.Redirect(Match{Prefix: "/"}, Origin{"http", "[::1]:8080"}, "/", ""); location != "http://[::1]:9/" {
		t.Errorf("IPv6: %s", location)
	}
	r = route(t, "    - {matches: [{path: {type: PathPrefix, value: /}}], "+
		"default: {filters: [{type: RequestRedirect, requestRedirect: "+
		"{scheme: https, path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]}}\n")
	if _, location, _ := r.Redirect(Match{Prefix: "/"}, Origin{"http", "x"}, "/", "a=b"); location != "https://x/?a=b" {
		t.Errorf("a redirect of / to /: %s", location)
	}
}

func TestPrefixesAreReplacedBySegments(t *testing.T) {
	for _, c := range []struct{ prefix, with, path, want string }{
		{"/a", "/b", "/a", "/b"},
		{"/a", "/b", "/a/", "/b/"},
		{"/a", "/b", "/a/c", "/b/c"},
		{"/a", "/b/", "/a/c", "/b/c"},
		{"/a", "/", "/a", "/"},
		{"/a", "/", "/a/", "/"},
		{"/a", "/", "/a/c", "/c"},
		{"/", "/b", "/", "/b"},
		{"/", "/b", "/c", "/b/c"},
		{"/", "/", "/c", "/c"},
		{"/", "/", "/", "/"},
	} {
		to := &resource.PathRewrite{Type: "ReplacePrefixMatch", ReplacePrefixMatch: &c.with}
		if got := rewritten(to, c.path, c.prefix); got != c.want {
			t.Errorf("%s with %s for %s: %s, want %s", c.path, c.with, c.prefix, got, c.want)
		}
	}
}

func TestHeadersAndRewrites(t *testing.T) {
	r := route(t, `
    - matches: [{path: {type: PathPrefix, value: /api}}]
      default:
        filters:
        - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: "1"}], add: [{name: b, value: "2"}], remove: [c]}}
        - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: d, value: "4"}]}}
        - {type: URLRewrite, urlRewrite: {hostname: inner.example.com, path: {type: ReplacePrefixMatch, replacePrefixMatch: /v2}}}
    - {matches: [{path: {type: PathPrefix, value: /}}]}
`)
	m, _ := r.Match(ask(t, "GET /api/x"))
	h := http.Header{"A": {"x", "y"}, "B": {"1"}, "C": {"3"}}
	r.RequestHeaders(m, h)
	if got := fmt.Sprint(h); got != "map[A:[1] B:[1 2]]" {
		t.Error(got)
	}
	h = http.Header{}
	r.ResponseHeaders(m, h)
	if got := fmt.Sprint(h); got != "map[D:[4]]" {
		t.Error(got)
	}
	if host, path := r.Rewrite(m, "/api/x"); host != "inner.example.com" || path != "/v2/x" {
		t.Error(host, path)
	}
	m, _ = r.Match(ask(t, "GET /"))
	h = http.Header{}
	r.RequestHeaders(m, h)
	r.ResponseHeaders(m, h)
	if host, path := r.Rewrite(m, "/"); len(h) > 0 || host+path != "" {
		t.Error("a rule without filters changes something:", h, host, path)
	}
	if _, _, ok := r.Redirect(m, Origin{"http", "x"}, "/", ""); ok {
		t.Error("a rule without filters redirects")
	}
}

// Replaced paths are in normal form like the request's, so that they can be
// forwarded without escaping.
func TestReplacementsAreInNormalForm(t *testing.T) {
	for written, want := range map[string]string{"/a|b": "/a%7Cb/x%2Fy", "/%61%2fb": "/a%2Fb/x%2Fy", "/a": "/a/x%2Fy"} {
		for _, filter := range []string{"{type: URLRewrite, urlRewrite: %s}", "{type: RequestRedirect, requestRedirect: %s}"} {
			path := fmt.Sprintf("{path: {type: ReplacePrefixMatch, replacePrefixMatch: %q}}", written)
			r := route(t, "    - {matches: [{path: {type: PathPrefix, value: /old}}], default: {filters: ["+fmt.Sprintf(filter, path)+"]}}\n")
			q := ask(t, "GET /old/x%2fy")
			m, _ := r.Match(q)
			_, got := r.Rewrite(m, q.Path)
			if _, location, ok := r.Redirect(m, Origin{"http", "x"}, q.Path, ""); ok {
				got = strings.TrimPrefix(location, "http://x")
			}
			if got != want {
				t.Errorf("%s: %s, want %s", written, got, want)
			}
		}
	}
}

// A stored replacement without a normal form keeps its effect.
func TestStoredReplacementWithoutNormalFormIsKept(t *testing.T) {
	route := ruled("PathPrefix", "/old", "/a%zz")
	if valid(route) {
		t.Error("it is valid")
	}
	r, err := Compile(route.To[0].Rules)
	if err != nil {
		t.Fatal(err)
	}
	m, ok := r.Match(ask(t, "GET /old/x"))
	if _, path := r.Rewrite(m, "/old/x"); !ok || path != "/a%zz/x" {
		t.Errorf("%s, %v", path, ok)
	}
}

// A client can neither make regular expressions run on long values nor bypass
// one with a long value: if the expression would decide, the request is
// refused. Other conditions apply at any length.
func TestRegularExpressionsSkipLongValues(t *testing.T) {
	long := strings.Repeat("a", maxEvaluated)
	for text, line := range map[string]string{
		`path: {type: RegularExpression, value: "/a*"}`:                                     "GET /%s",
		`headers: [{name: h, type: RegularExpression, value: "a*"}]`:                        "GET / h: a%s",
		`queryParams: [{type: RegularExpression, name: p, value: "a*"}]`:                    "GET /?p=a%s",
		`path: {type: PathPrefix, value: /}, headers: [{name: h, type: Prefix, value: aa}]`: "",
	} {
		r := route(t, "    - {matches: [{"+text+"}]}\n")
		if line == "" { // no regular expression
			if _, ok := r.Match(ask(t, "GET /"+long+" h: a"+long)); !ok {
				t.Errorf("%s does not match a long value", text)
			}
			continue
		}
		if m, ok := r.Match(ask(t, fmt.Sprintf(line, long))); ok || !m.TooLong {
			t.Errorf("%s, on %d bytes: %v, %v", text, len(long)+1, m, ok)
		}
		if _, ok := r.Match(ask(t, fmt.Sprintf(line, long[1:]))); !ok {
			t.Errorf("%s does not fit %d bytes", text, len(long))
		}
	}
}

func TestLongValueIsIgnoredIfAnotherConditionDecides(t *testing.T) {
	long := strings.Repeat("a", maxEvaluated+1)
	r := route(t, `
    - {matches: [{path: {type: Exact, value: /first}}]}
    - {matches: [{path: {type: RegularExpression, value: "/x.*"}, method: POST, `+
		`headers: [{name: h, type: RegularExpression, value: "b*"}]}]}
    - {matches: [{path: {type: PathPrefix, value: /}}]}
`)
	for line, want := range map[string]Match{
		"GET /first h: " + long:   {Rule: 0, Prefix: "/first"},
		"GET /" + long:            {Rule: 2, Prefix: "/"}, // not POST
		"POST /" + long:           {Rule: 2, Prefix: "/"}, // no header h
		"POST /" + long + " h: c": {Rule: 2, Prefix: "/"},
		"POST /" + long + " h: b": {TooLong: true},
		"POST /y h: " + long:      {Rule: 2, Prefix: "/"}, // another path
		"POST /x h: " + long:      {TooLong: true},
	} {
		if m, ok := r.Match(ask(t, line)); m != want || ok == m.TooLong {
			t.Errorf("%.20s: %v, %v, want %v", line, m, ok, want)
		}
	}
}

func TestNoRuleMatches(t *testing.T) {
	r := route(t, "    - {matches: [{path: {type: PathPrefix, value: /a}}]}\n")
	if m, ok := r.Match(ask(t, "GET /b")); ok {
		t.Error(m)
	}
}

func BenchmarkMatch(b *testing.B) {
	var rules strings.Builder
	for i := range 50 {
		fmt.Fprintf(&rules, "    - {matches: [{path: {type: PathPrefix, value: /service/%d}}]}\n", i)
	}
	r, q := route(b, rules.String()), ask(b, "GET /service/25/a/b")
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := r.Match(q); !ok {
			b.Fatal("no rule")
		}
	}
}

// Parameters of a path do not prevent a match without parameters, and a rewrite
// removes those of the replaced segments.
func TestPathParameters(t *testing.T) {
	t.Parallel()
	prefix := func(p string) *resource.PathMatch { return &resource.PathMatch{Type: "PathPrefix", Value: p} }
	rules, err := Compile([]resource.HTTPRule{
		{Matches: []resource.HTTPMatch{{Path: prefix("/")}}},
		{Matches: []resource.HTTPMatch{{Path: prefix("/admin/keys")}}, Default: resource.HTTPDefault{Filters: []resource.HTTPFilter{{
			Type: "URLRewrite", URLRewrite: &resource.URLRewrite{
				Path: &resource.PathRewrite{Type: "ReplacePrefixMatch", ReplacePrefixMatch: new("/k")},
			},
		}}}},
		{Matches: []resource.HTTPMatch{{Path: &resource.PathMatch{Type: "Exact", Value: "/login"}}}},
		{Matches: []resource.HTTPMatch{{Path: &resource.PathMatch{Type: "Exact", Value: "/m;v=1"}}}},
		{Matches: []resource.HTTPMatch{{Path: &resource.PathMatch{Type: "RegularExpression", Value: "/r/[a-z]+"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]struct {
		rule int
		path string
	}{
		"/admin;x/keys;y=1/7;z": {1, "/k/7;z"}, "/admin/keys": {1, "/k"}, "/admin/keys;a": {1, "/k"},
		"/admin%3Bx/keys": {0, ""}, "/login;jsessionid=1": {2, ""}, "/m;v=1": {3, ""}, "/m;v=2": {0, ""},
		"/m": {0, ""}, "/r/abc;d": {4, ""}, "/admin/keysx": {0, ""}, "/admin%2Fkeys": {0, ""},
	} {
		m, ok := rules.Match(&Request{Method: "GET", Path: path})
		if !ok || m.Rule != want.rule {
			t.Errorf("%s: rule %d, %v; want %d", path, m.Rule, ok, want.rule)
			continue
		}
		if _, got := rules.Rewrite(m, path); got != want.path {
			t.Errorf("%s becomes %q, want %q", path, got, want.path)
		}
	}
}

// Host is compared case-insensitively, without a trailing dot, and without a
// port unless the match has one.
func TestHostIsComparedAsAName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, value, host string
		fits              bool
	}{
		{"Exact", "shop.example.com", "SHOP.Example.com", true},
		{"Exact", "Shop.example.com", "shop.example.com.:8080", true},
		{"Exact", "shop.example.com:8080", "shop.example.com:8080", true},
		{"Exact", "shop.example.com:8080", "shop.example.com", false},
		{"Exact", "shop.example.com", "shop.example.com.evil", false},
		{"Exact", "[::1]", "[::1]:80", true},
		{"Prefix", "Shop.", "sHOP.example.com", true},
		{"RegularExpression", `.*\.Example\.com`, "a.EXAMPLE.com.", true},
		{"RegularExpression", `\QShop`, "shop", true},
		{"RegularExpression", `a\.b`, "a.b:1", false},
	} {
		rules, err := Compile([]resource.HTTPRule{{Matches: []resource.HTTPMatch{{
			Headers: []resource.HeaderMatch{{Name: "host", Type: c.kind, Value: c.value}},
		}}}})
		if err != nil {
			t.Fatal(err)
		}
		header := func(string) (string, bool) { return c.host, true }
		if _, ok := rules.Match(&Request{Method: "GET", Path: "/", Header: header}); ok != c.fits {
			t.Errorf("%s %s, host %s: %v", c.kind, c.value, c.host, ok)
		}
	}
}
