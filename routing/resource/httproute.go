package resource

import "strings"

// MeshHTTPRoute sends requests of HTTP from sources to a destination on to
// weighted backends, changed on the way (Kuma's policy of that name).
type MeshHTTPRoute struct {
	// TargetRef picks the sources. Default {kind: Mesh}.
	TargetRef *TargetRef `yaml:"targetRef"`
	// To has one entry for each destination, at least one.
	To []HTTPRouteTo `yaml:"to"`
}

// HTTPRouteTo is what happens to requests to one destination.
type HTTPRouteTo struct {
	// TargetRef is a MeshService.
	TargetRef TargetRef `yaml:"targetRef"`
	// Rules are tried for each request; the most specific match decides. 1 to
	// 1,000, no two with the same matches, with at most 100 regular expressions
	// in all.
	Rules []HTTPRule `yaml:"rules"`
}

// HTTPRule is what happens to the requests that it is for.
type HTTPRule struct {
	// Matches are the requests that the rule is for: those that fit one of
	// them. 1 to 64.
	Matches []HTTPMatch `yaml:"matches"`
	// Default is what the rule does.
	Default HTTPDefault `yaml:"default"`
}

// HTTPMatch fits requests that have all of what it says; one that says nothing
// fits all.
type HTTPMatch struct {
	// Path is compared with the path, without the query.
	Path *PathMatch `yaml:"path"`
	// Method is CONNECT, DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT or TRACE.
	Method string `yaml:"method" oneof:"CONNECT DELETE GET HEAD OPTIONS PATCH POST PUT TRACE"`
	// QueryParams are parameters of the query, each named once. At most 16.
	QueryParams []QueryMatch `yaml:"queryParams"`
	// Headers are headers of the request. At most 16.
	Headers []HeaderMatch `yaml:"headers"`
}

// PathMatch compares a path.
type PathMatch struct {
	// Type is Exact, PathPrefix or RegularExpression. Required.
	Type string `yaml:"type" oneof:"Exact PathPrefix RegularExpression"`
	// Value is an absolute path; a prefix fits whole segments (/a fits /a and
	// /a/b, not /ab); a regular expression (RE2, at most 1,024 bytes) fits the
	// whole path; where one above 8 KiB would be for it, the answer is 400. Required.
	Value string `yaml:"value"`
}

// HeaderMatch compares a header.
type HeaderMatch struct {
	// Type is Exact, Present, RegularExpression, Absent or Prefix. Default Exact.
	Type string `yaml:"type" default:"Exact" oneof:"Exact Present RegularExpression Absent Prefix"`
	// Name is the header, in lower case. Required.
	Name string `yaml:"name"`
	// Value is what it is compared with; not for Present and Absent. A regular
	// expression fits the whole of what is there; where it is above 8 KiB, the
	// answer is 400. Required for the others.
	Value string `yaml:"value"`
}

// QueryMatch compares a parameter of the query.
type QueryMatch struct {
	// Type is Exact or RegularExpression. Required.
	Type string `yaml:"type" oneof:"Exact RegularExpression"`
	// Name is the parameter. Required.
	Name string `yaml:"name"`
	// Value is what it is compared with. A regular expression fits the whole of
	// what is there; where it is above 8 KiB, the answer is 400. Required.
	Value string `yaml:"value"`
}

// HTTPDefault lists the backends, and what is done with requests before.
type HTTPDefault struct {
	// Filters change requests and answers, each type at most once.
	Filters []HTTPFilter `yaml:"filters"`
	// BackendRefs share the requests by weight; left out, the destination
	// itself. Not empty when given, at most 1,000.
	BackendRefs []BackendRef `yaml:"backendRefs"`
}

// HTTPFilter changes requests or answers. The field of its type is required,
// the others are not for it.
type HTTPFilter struct {
	// Type is RequestHeaderModifier, ResponseHeaderModifier, RequestRedirect or
	// URLRewrite. Required.
	Type string `yaml:"type"`
	// RequestHeaderModifier changes headers on the way to the backend.
	RequestHeaderModifier *HeaderModifier `yaml:"requestHeaderModifier"`
	// ResponseHeaderModifier changes headers on the way back.
	ResponseHeaderModifier *HeaderModifier `yaml:"responseHeaderModifier"`
	// RequestRedirect answers with another place to go to.
	RequestRedirect *RequestRedirect `yaml:"requestRedirect"`
	// URLRewrite changes the host name and the path on the way to the backend.
	URLRewrite *URLRewrite `yaml:"urlRewrite"`
}

// HeaderModifier changes headers, each name in one way.
type HeaderModifier struct {
	// Set replaces headers. At most 16.
	Set []HeaderValue `yaml:"set"`
	// Add adds to what is there. At most 16.
	Add []HeaderValue `yaml:"add"`
	// Remove takes headers out. At most 16.
	Remove []string `yaml:"remove"`
}

// HeaderValue is a header with its value.
type HeaderValue struct {
	// Name is the header, in lower case. Required.
	Name string `yaml:"name"`
	// Value is its value, at most 4,096 bytes. Required.
	Value string `yaml:"value"`
}

// RequestRedirect answers with another place to go to. What it does not say
// stays as in the request.
type RequestRedirect struct {
	// Scheme is http or https.
	Scheme string `yaml:"scheme" oneof:"http https"`
	// Hostname is a host name in lower case.
	Hostname string `yaml:"hostname"`
	// Path changes the path.
	Path *PathRewrite `yaml:"path"`
	// Port is from 1 to 65,535. Default: that of the scheme where the scheme is
	// given, else that of the request.
	Port *int `yaml:"port" range:"1..65535"`
	// StatusCode is 301, 302, 303, 307 or 308. Default 302.
	StatusCode *int `yaml:"statusCode" default:"302"`
}

// URLRewrite changes what the backend sees. What it does not say stays.
type URLRewrite struct {
	// Hostname is a host name in lower case.
	Hostname string `yaml:"hostname"`
	// Path changes the path.
	Path *PathRewrite `yaml:"path"`
}

// PathRewrite changes a path, in the way that its type says.
type PathRewrite struct {
	// Type is ReplaceFullPath or ReplacePrefixMatch. Required.
	Type string `yaml:"type" oneof:"ReplaceFullPath ReplacePrefixMatch"`
	// ReplaceFullPath is the new path. Required for its type, not for the other.
	ReplaceFullPath *string `yaml:"replaceFullPath"`
	// ReplacePrefixMatch stands for the prefix that matched; the matches of the
	// rule must all have one. Required for its type, not for the other.
	ReplacePrefixMatch *string `yaml:"replacePrefixMatch"`
}

// Refs lists the services that a route speaks of. All may be missing, as those
// of MeshTCPRoute.
func (r *MeshHTTPRoute) Refs() []Ref {
	refs := targetRefs(nil, r.TargetRef, "targetRef")
	for i := range r.To {
		to, path := &r.To[i], item("to", i)
		refs = targetRefs(refs, &to.TargetRef, path+".targetRef")
		for j := range to.Rules {
			refs = backendRefs(refs, to.Rules[j].Default.BackendRefs, item(path+".rules", j))
		}
	}
	return refs
}

// WithDefaults gives a copy in which every default is filled in. BackendRefs
// that are left out become the destination itself, but where requests are
// redirected.
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

// filter finds the filter of a type; nil: there is none.
func (d *HTTPDefault) filter(kind string) *HTTPFilter {
	for i := range d.Filters {
		if d.Filters[i].Type == kind {
			return &d.Filters[i]
		}
	}
	return nil
}

// Text says which headers are changed; their values may be secrets.
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
