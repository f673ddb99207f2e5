package routing

import (
	"fmt"
	"strings"

	"penstock/routing/resource"
)

// EffectiveRule is one rule of a MeshHTTPRoute: the requests that it matches
// and its effect.
type EffectiveRule struct {
	// Requests that the rule matches, as in "GET /cart/* with header x-beta=yes".
	Requests []string `json:"requests" yaml:"requests"`
	// Does is the effect of the filters, as in "redirects to https, 301".
	Does     []string           `json:"does,omitempty" yaml:"does,omitempty"`
	Backends []EffectiveBackend `json:"backends,omitempty" yaml:"backends,omitempty"`
	// Reason is why these requests are answered 503; "" if they are not.
	Reason Reason `json:"reason,omitempty" yaml:"reason,omitempty"`
}

// effectiveRules describes the rules, at most the first most of them.
func (h *httpPolicy) effectiveRules(most int) []EffectiveRule {
	list := make([]EffectiveRule, 0, min(most, len(h.spec)))
	for i := range h.spec[:min(most, len(h.spec))] {
		rule := &h.spec[i]
		e := EffectiveRule{}
		for j := range rule.Matches {
			e.Requests = append(e.Requests, matchText(&rule.Matches[j]))
		}
		for j := range rule.Default.Filters {
			e.Does = append(e.Does, filterText(&rule.Default.Filters[j]))
		}
		if !redirects(rule) {
			e.Backends, e.Reason = h.shares[i].effectiveBackends(), h.shares[i].reason()
		}
		list = append(list, e)
	}
	return list
}

// redirects reports whether a rule answers requests without a backend.
func redirects(rule *resource.HTTPRule) bool {
	for i := range rule.Default.Filters {
		if rule.Default.Filters[i].Type == "RequestRedirect" {
			return true
		}
	}
	return false
}

// AllRequests is the EffectiveRule.Requests entry of a match for every request.
const AllRequests = "/*"

// matchText describes a match, as in "GET /cart/* with header a=b".
func matchText(m *resource.HTTPMatch) string {
	path := AllRequests
	if m.Path != nil {
		switch path = m.Path.Value; m.Path.Type {
		case "PathPrefix":
			path = strings.TrimSuffix(path, "/") + "/*"
		case "RegularExpression":
			path = "~" + path
		}
	}
	if m.Method != "" {
		path = m.Method + " " + path
	}
	var with []string
	for i := range m.Headers {
		with = append(with, "header "+m.Headers[i].Name+conditionText(m.Headers[i].Type, m.Headers[i].Value))
	}
	for i := range m.QueryParams {
		with = append(with, "parameter "+m.QueryParams[i].Name+conditionText(m.QueryParams[i].Type, m.QueryParams[i].Value))
	}
	if len(with) == 0 {
		return path
	}
	return path + " with " + strings.Join(with, ", ")
}

func conditionText(kind, value string) string {
	switch kind {
	case "Present":
		return ""
	case "Absent":
		return " absent"
	case "Prefix":
		return "=" + value + "*"
	case "RegularExpression":
		return "~" + value
	}
	return "=" + value
}

func filterText(f *resource.HTTPFilter) string {
	switch f.Type {
	case "RequestRedirect":
		r := f.RequestRedirect
		text := "redirects"
		if r.Scheme != "" {
			text += " to " + r.Scheme
		}
		if r.Hostname != "" {
			text += " to host " + r.Hostname
		}
		if r.Port != nil {
			text += fmt.Sprintf(" to port %d", *r.Port)
		}
		return fmt.Sprintf("%s%s, %d", text, pathText(r.Path), *r.StatusCode)
	case "URLRewrite":
		text := "rewrites"
		if f.URLRewrite.Hostname != "" {
			text += " to host " + f.URLRewrite.Hostname
		}
		return text + pathText(f.URLRewrite.Path)
	case "RequestHeaderModifier":
		return "request headers: " + f.RequestHeaderModifier.Text()
	case "ResponseHeaderModifier":
		return "response headers: " + f.ResponseHeaderModifier.Text()
	}
	return f.Type
}

func pathText(p *resource.PathRewrite) string {
	switch {
	case p == nil:
		return ""
	case p.ReplaceFullPath != nil:
		return " to path " + *p.ReplaceFullPath
	}
	return " with prefix " + *p.ReplacePrefixMatch
}

// Text renders a rule on one line, for people.
func (r *EffectiveRule) Text() string {
	parts := append([]string(nil), r.Does...)
	if r.Reason != OK {
		parts = append(parts, fmt.Sprintf("answered %d (%s)", statusUnavailable, r.Reason))
	}
	for i := range r.Backends {
		parts = append(parts, r.Backends[i].text())
	}
	return strings.Join(r.Requests, " or ") + ": " + strings.Join(parts, ", ")
}

// text renders a backend with its share.
func (b *EffectiveBackend) text() string {
	name := resource.SubsetText(b.Service, b.Tags)
	if b.Skipped != "" {
		return "not " + name + " (" + b.Skipped + ")"
	}
	return fmt.Sprintf("%s %.4g %%", name, b.Share*100)
}
