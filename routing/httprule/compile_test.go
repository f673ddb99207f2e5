package httprule

import (
	"fmt"
	"testing"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
	"penstock/routing/urlpath"
)

// ruled returns a route with one rule for a path, or for a header, that
// replaces the matched prefix.
func ruled(kind, value, replacement string) *resource.MeshHTTPRoute {
	rule := resource.HTTPRule{Matches: []resource.HTTPMatch{{Path: &resource.PathMatch{Type: kind, Value: value}}}}
	if kind == "header" {
		rule.Matches[0] = resource.HTTPMatch{Headers: []resource.HeaderMatch{{Type: "RegularExpression", Name: "a", Value: value}}}
	}
	if replacement != "" {
		to := &resource.PathRewrite{Type: "ReplaceFullPath", ReplaceFullPath: &replacement}
		if kind == "PathPrefix" {
			to = &resource.PathRewrite{Type: "ReplacePrefixMatch", ReplacePrefixMatch: &replacement}
		}
		rule.Default.Filters = []resource.HTTPFilter{{Type: "URLRewrite", URLRewrite: &resource.URLRewrite{Path: to}}}
	}
	return &resource.MeshHTTPRoute{To: []resource.HTTPRouteTo{{
		TargetRef: resource.TargetRef{Kind: "MeshService", Name: "shop"}, Rules: []resource.HTTPRule{rule},
	}}}
}

func valid(r *resource.MeshHTTPRoute) bool {
	ok := true
	validate.Spec(r, func(string, string, any) { ok = false })
	return ok
}

// Every valid route compiles without losing a rule: otherwise apply would
// succeed and the route be missing.
func FuzzValidRulesCompile(f *testing.F) {
	for _, s := range []string{
		"/", "/a", "/a%2Fb", "/100%", "/a/%2e%2e", "/%00", "/a/..%2fb", "/a//b", "/%c3%a9", "/a|b", "/[0-9]+",
		`\Qa`, `/(a|b){3}`, "(?i)a|b",
	} {
		for i := range uint8(4) {
			f.Add(i, s, s)
			f.Add(i, s, "")
		}
	}
	f.Fuzz(func(t *testing.T, kind uint8, value, replacement string) {
		kinds := []string{"Exact", "PathPrefix", "RegularExpression", "header"}
		route := ruled(kinds[int(kind)%len(kinds)], value, replacement)
		if !valid(route) {
			return
		}
		r, err := Compile(route.WithDefaults().To[0].Rules)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.exact) + len(r.other); n != 1 {
			t.Fatalf("%d matches are left", n)
		}
		if kinds[int(kind)%len(kinds)] != "PathPrefix" && kinds[int(kind)%len(kinds)] != "Exact" {
			return
		}
		path, _ := urlpath.Normal(value)
		m, ok := r.Match(&Request{Method: "GET", Path: path})
		if !ok {
			t.Fatalf("%s: the path %s does not fit", value, path)
		}
		if _, now := r.Rewrite(m, path); replacement != "" {
			if normal, ok := urlpath.Normal(now); !ok || normal != now {
				t.Fatalf("%s with %s becomes %s, which is not in normal form", path, replacement, now)
			}
		}
	})
}

// RE2 also accepts an expression with an unterminated \Q.
func TestExpressionMayEndInAQuotation(t *testing.T) {
	for text, fits := range map[string]string{`/\Qa.b`: "/a.b", `/(a)\Q)\E\Qb|`: "/a)b|", `/a\Q`: "/a"} {
		route := ruled("RegularExpression", text, "")
		if !valid(route) {
			t.Errorf("%s is not valid", text)
			continue
		}
		r, err := Compile(route.To[0].Rules)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for path, want := range map[string]bool{fits: true, fits + "x": false, "/axb": false} {
			if _, ok := r.Match(&Request{Method: "GET", Path: path}); ok != want {
				t.Errorf("%s, %s: %v", text, path, ok)
			}
		}
	}
}

// A route stored by a release with laxer validation still works: a path that no
// request can have matches none, and the other rules are unaffected.
func TestStoredPathThatBecameInvalidMatchesNothing(t *testing.T) {
	var rules []resource.HTTPRule
	for _, kind := range []string{"Exact", "PathPrefix"} {
		for _, value := range []string{"/100%", "/a/%2e%2e", "/a%00", "no path"} {
			route := ruled(kind, value, "")
			if valid(route) {
				t.Errorf("%s %s is valid", kind, value)
			}
			rules = append(rules, route.To[0].Rules...)
		}
	}
	rules = append(rules, ruled("PathPrefix", "/cart", "").To[0].Rules...)
	r, err := Compile(rules)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/cart/7": fmt.Sprint(len(rules) - 1), "/": "none", "/100%25": "none", "/a": "none"} {
		got := "none"
		if m, ok := r.Match(&Request{Method: "GET", Path: path}); ok {
			got = fmt.Sprint(m.Rule)
		}
		if got != want {
			t.Errorf("%s: rule %s, want %s", path, got, want)
		}
	}
	if n := len(r.other) + len(r.exact); n != 1 {
		t.Errorf("%d matches are left", n)
	}
}
