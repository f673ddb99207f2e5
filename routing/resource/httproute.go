package resource

import (
	"strconv"
	"strings"
)

// MeshHTTPRoute distributes HTTP requests from some sources to a destination
// over weighted backends and can modify them (Kuma's policy of the same name).
type MeshHTTPRoute struct {
	// TargetRef selects the sources. Default {kind: Mesh}.
	TargetRef *TargetRef `yaml:"targetRef"`
	// To has one entry for each destination, at least one.
	To []HTTPRouteTo `yaml:"to"`
}

// HTTPRouteTo routes the requests to one destination.
type HTTPRouteTo struct {
	// TargetRef is the destination, a MeshService.
	TargetRef TargetRef `yaml:"targetRef"`
	// Rules are matched against each request; the most specific match decides. 1
	// to 1,000, no two with the same matches, and at most 100 regular expressions
	// in all.
	Rules []HTTPRule `yaml:"rules"`
}

// HTTPRule applies to the requests that one of its matches fits.
type HTTPRule struct {
	// Matches select the requests that the rule applies to. 1 to 64.
	Matches []HTTPMatch `yaml:"matches"`
	// Default is what the rule does.
	Default HTTPDefault `yaml:"default"`
}

// HTTPMatch fits requests that meet all of its conditions; without conditions it
// fits all requests.
type HTTPMatch struct {
	// Path is compared with the request's path, without the query.
	Path *PathMatch `yaml:"path"`
	// Method is CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT or TRACE.
	Method string `yaml:"method" oneof:"CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE"`
	// QueryParams are compared with the query's parameters, each name once. At
	// most 16.
	QueryParams []QueryMatch `yaml:"queryParams"`
	// Headers are compared with the request's headers. At most 16.
	Headers []HeaderMatch `yaml:"headers"`
}

// PathMatch compares a path.
type PathMatch struct {
	// Type is Exact, PathPrefix or RegularExpression. Required.
	Type string `yaml:"type" oneof:"Exact PathPrefix RegularExpression"`
	// Value is an absolute path. A prefix fits whole segments (/a fits /a and
	// /a/b, not /ab). A regular expression (RE2, at most 1,024 bytes) fits the
	// whole path; a path above 8 KiB that one would have to be matched against is
	// answered with 400. Required.
	Value string `yaml:"value"`
}

// HeaderMatch compares a header.
type HeaderMatch struct {
	// Type is Exact, Present, RegularExpression, Absent or Prefix. Default Exact.
	Type string `yaml:"type" default:"Exact" oneof:"Exact Present RegularExpression Absent Prefix"`
	// Name is the header, in lower case. Required.
	Name string `yaml:"name"`
	// Value is compared with the header's value; not allowed for Present and
	// Absent, required otherwise. A regular expression fits the whole value; a
	// value above 8 KiB is answered with 400.
	Value string `yaml:"value"`
}

// QueryMatch compares a parameter of the query.
type QueryMatch struct {
	// Type is Exact or RegularExpression. Required.
	Type string `yaml:"type" oneof:"Exact RegularExpression"`
	// Name is the parameter. Required.
	Name string `yaml:"name"`
	// Value is compared with the parameter's value. A regular expression fits the
	// whole value; a value above 8 KiB is answered with 400. Required.
	Value string `yaml:"value"`
}

// HTTPDefault modifies requests and lists their backends.
type HTTPDefault struct {
	// Filters modify requests and responses, each type at most once.
	Filters []HTTPFilter `yaml:"filters"`
	// BackendRefs share the requests by weight; left out: the destination itself.
	// Not empty when given, at most 1,000.
	BackendRefs []BackendRef `yaml:"backendRefs"`
}

// HTTPFilter modifies requests or responses. The field that Type names is
// required, the others are not allowed.
type HTTPFilter struct {
	// Type is RequestHeaderModifier, ResponseHeaderModifier, RequestRedirect or
	// URLRewrite. Required.
	Type string `yaml:"type"`
	// RequestHeaderModifier modifies headers on the way to the backend.
	RequestHeaderModifier *HeaderModifier `yaml:"requestHeaderModifier"`
	// ResponseHeaderModifier modifies headers on the way back.
	ResponseHeaderModifier *HeaderModifier `yaml:"responseHeaderModifier"`
	// RequestRedirect answers with a redirect.
	RequestRedirect *RequestRedirect `yaml:"requestRedirect"`
	// URLRewrite changes the host name and the path on the way to the backend.
	URLRewrite *URLRewrite `yaml:"urlRewrite"`
}

// HeaderModifier modifies headers, each name in one way.
type HeaderModifier struct {
	// Set replaces headers. At most 16.
	Set []HeaderValue `yaml:"set"`
	// Add adds values to headers. At most 16.
	Add []HeaderValue `yaml:"add"`
	// Remove removes headers. At most 16.
	Remove []string `yaml:"remove"`
}

// HeaderValue is a header with its value.
type HeaderValue struct {
	// Name is the header, in lower case. Required.
	Name string `yaml:"name"`
	// Value is its value, at most 4,096 bytes. Required.
	Value string `yaml:"value"`
}

// RequestRedirect answers with a redirect. Parts that are left out stay as in
// the request.
type RequestRedirect struct {
	// Scheme is http or https.
	Scheme string `yaml:"scheme" oneof:"http https"`
	// Hostname is a host name in lower case.
	Hostname string `yaml:"hostname"`
	// Path changes the path.
	Path *PathRewrite `yaml:"path"`
	// Port is from 1 to 65,535. Default: the scheme's if Scheme is given, else the
	// request's.
	Port *int `yaml:"port" range:"1..65535"`
	// StatusCode is 301, 302, 303, 307 or 308. Default 302.
	StatusCode *int `yaml:"statusCode" default:"302"`
}

// URLRewrite changes what the backend receives. Parts that are left out stay.
type URLRewrite struct {
	// Hostname is a host name in lower case.
	Hostname string `yaml:"hostname"`
	// Path changes the path.
	Path *PathRewrite `yaml:"path"`
}

// PathRewrite changes a path as its type says.
type PathRewrite struct {
	// Type is ReplaceFullPath or ReplacePrefixMatch. Required.
	Type string `yaml:"type" oneof:"ReplaceFullPath ReplacePrefixMatch"`
	// ReplaceFullPath is the new path. Required for its type, not allowed for the other.
	ReplaceFullPath *string `yaml:"replaceFullPath"`
	// ReplacePrefixMatch replaces the prefix that matched; every match of the rule
	// must have one. Required for its type, not allowed for the other.
	ReplacePrefixMatch *string `yaml:"replacePrefixMatch"`
}

// Refs lists the services that the route names. All may be missing, as those of
// MeshTCPRoute.
func (r *MeshHTTPRoute) Refs() []Ref {
	refs := targetRefs(nil, r.TargetRef, "targetRef")
	for i := range r.To {
		to, path := &r.To[i], Item("to", i)
		refs = targetRefs(refs, &to.TargetRef, path+".targetRef")
		for j := range to.Rules {
			refs = backendRefs(refs, to.Rules[j].Default.BackendRefs, Item(path+".rules", j))
		}
	}
	return refs
}

// WithDefaults returns a copy with all defaults filled in. BackendRefs that are
// left out become the destination itself, unless requests are redirected.
func (r *MeshHTTPRoute) WithDefaults() *MeshHTTPRoute {
	out := *r
	if r.TargetRef == nil {
		out.TargetRef = &TargetRef{Kind: "Mesh"}
	}
	out.To = make([]HTTPRouteTo, len(r.To))
	for i, to := range r.To {
		rules := make([]HTTPRule, len(to.Rules))
		for j, rule := range to.Rules {
			if len(rule.Default.BackendRefs) == 0 && rule.Default.filter("RequestRedirect") == nil {
				rule.Default.BackendRefs = []BackendRef{{Kind: "MeshService", Name: to.TargetRef.Name}}
			}
			rules[j] = rule
		}
		out.To[i] = HTTPRouteTo{TargetRef: to.TargetRef, Rules: rules}
	}
	FillDefaults(&out)
	return &out
}

// filter returns the filter of a type, or nil.
func (d *HTTPDefault) filter(kind string) *HTTPFilter {
	for i := range d.Filters {
		if d.Filters[i].Type == kind {
			return &d.Filters[i]
		}
	}
	return nil
}

// Text says which headers are modified, but not their values, which may be secrets.
func (m *HeaderModifier) Text() string {
	names := func(list []HeaderValue) (all []string) {
		for i := range list {
			all = append(all, list[i].Name)
		}
		return all
	}
	var parts []string
	for _, x := range []struct {
		verb  string
		names []string
	}{{"sets", names(m.Set)}, {"adds", names(m.Add)}, {"removes", m.Remove}} {
		if len(x.names) > 0 {
			parts = append(parts, x.verb+" "+strings.Join(x.names, ", "))
		}
	}
	return strings.Join(parts, ", ")
}

// MatchesKey returns the same text for equal matches.
func MatchesKey(matches []HTTPMatch) string {
	var key []byte
	add := func(texts ...string) {
		for _, s := range texts {
			key = strconv.AppendQuote(key, s)
		}
	}
	for i := range matches {
		m := &matches[i]
		add("match", m.Method)
		if m.Path != nil {
			add("path", m.Path.Type, m.Path.Value)
		}
		for _, q := range m.QueryParams {
			add("query", q.Type, q.Name, q.Value)
		}
		for _, h := range m.Headers {
			add("header", h.Type, h.Name, h.Value)
		}
	}
	return string(key)
}
