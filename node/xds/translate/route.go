package translate

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"

	"penstock/routing"
	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// makeRoutes returns the RouteConfiguration of the destination. Envoy takes the
// first route that matches; the last one has the requests that no rule matches.
func (p *plan) makeRoutes() *routev3.RouteConfiguration {
	host := &routev3.VirtualHost{Name: p.to, Domains: []string{"*"}}
	for i := range p.Rules {
		host.Routes = append(host.Routes, p.ruleRoutes(&p.Rules[i])...)
	}
	rest := &routev3.Route{Match: &routev3.RouteMatch{PathSpecifier: &routev3.RouteMatch_Prefix{Prefix: "/"}}}
	p.forward(rest, p.Backends)
	host.Routes = append(host.Routes, rest)
	return &routev3.RouteConfiguration{Name: p.to, VirtualHosts: []*routev3.VirtualHost{host}}
}

// ruleRoutes returns the routes of a match: two for a prefix, which fits a path
// and what is below it. Envoy has a match for that, but gRPC clients do not.
func (p *plan) ruleRoutes(r *routing.PlanRule) []*routev3.Route {
	path := resource.PathMatch{Type: "PathPrefix", Value: "/"}
	if r.Match.Path != nil {
		path = *r.Match.Path
	}
	match := func() *routev3.RouteMatch {
		return &routev3.RouteMatch{Headers: headerMatches(&r.Match), QueryParameters: queryMatches(r.Match.QueryParams)}
	}
	exact, below := match(), match()
	exact.PathSpecifier = &routev3.RouteMatch_Path{Path: path.Value}
	switch path.Type {
	case "RegularExpression":
		exact.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: expression(path.Value)}
		return []*routev3.Route{p.ruleRoute(r, exact, "")}
	case "Exact":
		return []*routev3.Route{p.ruleRoute(r, exact, "")}
	}
	below.PathSpecifier = &routev3.RouteMatch_Prefix{Prefix: strings.TrimSuffix(path.Value, "/") + "/"}
	if path.Value == "/" && !replacesPrefix(r.Filters) {
		return []*routev3.Route{p.ruleRoute(r, below, "/")}
	}
	return []*routev3.Route{p.ruleRoute(r, exact, ""), p.ruleRoute(r, below, "/")}
}

// replacesPrefix reports whether the path / gets another one than what is below
// it.
func replacesPrefix(filters []resource.HTTPFilter) bool {
	return slices.ContainsFunc(filters, func(f resource.HTTPFilter) bool {
		return f.URLRewrite != nil && f.URLRewrite.Path != nil || f.RequestRedirect != nil && f.RequestRedirect.Path != nil
	})
}

// ruleRoute returns a route with a rule's filters. end is the end of the matched
// prefix, which a new prefix gets as well.
func (p *plan) ruleRoute(r *routing.PlanRule, match *routev3.RouteMatch, end string) *routev3.Route {
	route := &routev3.Route{Match: match}
	for i := range r.Filters {
		if redirect := r.Filters[i].RequestRedirect; redirect != nil {
			route.Action = &routev3.Route_Redirect{Redirect: redirection(redirect, end)}
		}
	}
	if route.Action == nil {
		p.forward(route, r.Backends)
	}
	for i := range r.Filters {
		f := &r.Filters[i]
		switch {
		case f.RequestHeaderModifier != nil:
			route.RequestHeadersToAdd = headersToAdd(f.RequestHeaderModifier)
			route.RequestHeadersToRemove = f.RequestHeaderModifier.Remove
		case f.ResponseHeaderModifier != nil:
			route.ResponseHeadersToAdd = headersToAdd(f.ResponseHeaderModifier)
			route.ResponseHeadersToRemove = f.ResponseHeaderModifier.Remove
		case f.URLRewrite != nil:
			rewrite(route.GetRoute(), f.URLRewrite, end)
		}
	}
	return route
}

// forward sends requests to backends; without any they are answered 503.
func (p *plan) forward(route *routev3.Route, backends []routing.PlanBackend) {
	if len(backends) == 0 {
		route.Action = &routev3.Route_DirectResponse{DirectResponse: &routev3.DirectResponseAction{Status: http.StatusServiceUnavailable}}
		return
	}
	action := &routev3.RouteAction{Timeout: duration(*p.spec.HTTP.Timeout)}
	if retries := p.spec.Connect.Attempts - 1; retries > 0 {
		action.RetryPolicy = &routev3.RetryPolicy{RetryOn: "connect-failure,refused-stream", NumRetries: number(retries)}
	}
	if p.hashes {
		action.HashPolicy = []*routev3.RouteAction_HashPolicy{{
			PolicySpecifier: &routev3.RouteAction_HashPolicy_ConnectionProperties_{
				ConnectionProperties: &routev3.RouteAction_HashPolicy_ConnectionProperties{SourceIp: true},
			},
		}}
	}
	route.Action = &routev3.Route_Route{Route: action}
	shares := weigh(backends)
	if len(shares) == 1 {
		action.ClusterSpecifier = &routev3.RouteAction_Cluster{Cluster: shares[0].cluster}
		return
	}
	weighted := &routev3.WeightedCluster{}
	for _, s := range shares {
		weighted.Clusters = append(weighted.Clusters, &routev3.WeightedCluster_ClusterWeight{Name: s.cluster, Weight: number(s.weight)})
	}
	action.ClusterSpecifier = &routev3.RouteAction_WeightedClusters{WeightedClusters: weighted}
}

// redirection returns the action of a RequestRedirect.
func redirection(r *resource.RequestRedirect, end string) *routev3.RedirectAction {
	a := &routev3.RedirectAction{HostRedirect: r.Hostname, ResponseCode: redirectCode(*r.StatusCode)}
	if r.Scheme != "" {
		a.SchemeRewriteSpecifier = &routev3.RedirectAction_SchemeRedirect{SchemeRedirect: r.Scheme}
	}
	if r.Port != nil {
		a.PortRedirect = uint32(*r.Port)
	}
	switch {
	case r.Path == nil:
	case r.Path.ReplaceFullPath != nil:
		a.PathRewriteSpecifier = &routev3.RedirectAction_PathRedirect{PathRedirect: *r.Path.ReplaceFullPath}
	default:
		a.PathRewriteSpecifier = &routev3.RedirectAction_PrefixRewrite{PrefixRewrite: newPrefix(*r.Path.ReplacePrefixMatch, end)}
	}
	return a
}

func redirectCode(status int) routev3.RedirectAction_RedirectResponseCode {
	switch status {
	case http.StatusMovedPermanently:
		return routev3.RedirectAction_MOVED_PERMANENTLY
	case http.StatusSeeOther:
		return routev3.RedirectAction_SEE_OTHER
	case http.StatusTemporaryRedirect:
		return routev3.RedirectAction_TEMPORARY_REDIRECT
	case http.StatusPermanentRedirect:
		return routev3.RedirectAction_PERMANENT_REDIRECT
	default:
		return routev3.RedirectAction_FOUND
	}
}

// newPrefix returns what replaces a prefix that ends in end.
func newPrefix(to, end string) string {
	if prefix := strings.TrimSuffix(to, "/") + end; prefix != "" {
		return prefix
	}
	return "/"
}

func rewrite(a *routev3.RouteAction, to *resource.URLRewrite, end string) {
	if a == nil {
		return // answered without a backend
	}
	if to.Hostname != "" {
		a.HostRewriteSpecifier = &routev3.RouteAction_HostRewriteLiteral{HostRewriteLiteral: to.Hostname}
	}
	switch {
	case to.Path == nil:
	case to.Path.ReplaceFullPath != nil:
		a.RegexRewrite = &matcherv3.RegexMatchAndSubstitute{
			Pattern: expression("^/.*$"), Substitution: strings.ReplaceAll(*to.Path.ReplaceFullPath, `\`, `\\`),
		}
	default:
		a.PrefixRewrite = newPrefix(*to.Path.ReplacePrefixMatch, end)
	}
}

// headersToAdd returns the headers that a filter sets and adds. A percent sign
// begins a command in Envoy.
func headersToAdd(m *resource.HeaderModifier) (list []*corev3.HeaderValueOption) {
	add := func(values []resource.HeaderValue, how corev3.HeaderValueOption_HeaderAppendAction) {
		for i := range values {
			list = append(list, &corev3.HeaderValueOption{
				Header:       &corev3.HeaderValue{Key: values[i].Name, Value: strings.ReplaceAll(values[i].Value, "%", "%%")},
				AppendAction: how,
			})
		}
	}
	add(m.Set, corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD)
	add(m.Add, corev3.HeaderValueOption_APPEND_IF_EXISTS_OR_ADD)
	return list
}

func headerMatches(m *resource.HTTPMatch) (list []*routev3.HeaderMatcher) {
	if m.Method != "" {
		list = append(list, headerMatch(":method", exactly(m.Method)))
	}
	for i := range m.Headers {
		h := &m.Headers[i]
		switch {
		case h.Type == "Present" || h.Type == "Absent":
			list = append(list, &routev3.HeaderMatcher{
				Name:                 headerName(h.Name),
				HeaderMatchSpecifier: &routev3.HeaderMatcher_PresentMatch{PresentMatch: h.Type == "Present"},
			})
		case h.Name == hostHeader:
			list = append(list, headerMatch(authority, hostMatch(h)))
		default:
			list = append(list, headerMatch(h.Name, textMatch(h.Type, h.Value)))
		}
	}
	return list
}

const (
	hostHeader = "host"
	authority  = ":authority" // as Envoy calls the host in every version of HTTP
)

func headerName(name string) string {
	if name == hostHeader {
		return authority
	}
	return name
}

func headerMatch(name string, m *matcherv3.StringMatcher) *routev3.HeaderMatcher {
	return &routev3.HeaderMatcher{Name: name, HeaderMatchSpecifier: &routev3.HeaderMatcher_StringMatch{StringMatch: m}}
}

// textMatch matches a text as a whole, or its beginning.
func textMatch(kind, value string) *matcherv3.StringMatcher {
	switch kind {
	case "RegularExpression":
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_SafeRegex{SafeRegex: expression(value)}}
	case "Prefix":
		return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Prefix{Prefix: value}}
	default:
		return exactly(value)
	}
}

// hostMatch matches a host: without regard to case, a final dot, and the port
// unless the value has one.
func hostMatch(h *resource.HeaderMatch) *matcherv3.StringMatcher {
	switch h.Type {
	case "Prefix":
		m := textMatch(h.Type, h.Value)
		m.IgnoreCase = true
		return m
	case "RegularExpression":
		return textMatch(h.Type, ignoringCase(h.Value))
	}
	name, port := hostname.SplitAuthority(h.Value)
	pattern := "(?i:" + regexp.QuoteMeta(name) + `)\.?`
	if port != "" {
		pattern += ":" + regexp.QuoteMeta(port)
	} else {
		pattern += "(:[0-9]*)?"
	}
	return textMatch("RegularExpression", pattern)
}

// ignoringCase returns an expression that ignores case. An unterminated \Q would
// quote the end of the group.
func ignoringCase(text string) string {
	if all := "(?i:" + text + ")"; !strings.Contains(text, `\Q`) {
		return all
	} else if _, err := regexp.Compile(all); err == nil {
		return all
	}
	return "(?i:" + text + `\E)`
}

func queryMatches(params []resource.QueryMatch) (list []*routev3.QueryParameterMatcher) {
	for i := range params {
		list = append(list, &routev3.QueryParameterMatcher{
			Name: params[i].Name,
			QueryParameterMatchSpecifier: &routev3.QueryParameterMatcher_StringMatch{
				StringMatch: textMatch(params[i].Type, params[i].Value),
			},
		})
	}
	return list
}

// expression is RE2's, as in MeshHTTPRoute; it matches a whole text.
func expression(text string) *matcherv3.RegexMatcher { return &matcherv3.RegexMatcher{Regex: text} }
