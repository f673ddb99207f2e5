package validate

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp/syntax"
	"slices"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
	"penstock/routing/urlpath"
)

// Bounds of a MeshHTTPRoute, each of which limits the time per request.
const (
	maxRules        = 1000 // of one destination
	maxRegexps      = 100  // of one destination
	maxMatches      = 64   // of one rule
	maxConditions   = 16   // on headers, or on parameters, of one match
	maxChanges      = 16   // of headers, for each list of one filter
	maxPath         = 1024 // bytes
	maxHeaderName   = 256  // bytes
	maxHeaderValue  = 4096 // bytes
	maxRegexp       = 1024 // bytes
	maxRegexpStates = 1000 // of one regular expression, repeats unfolded
)

// validateHTTPRoute reports the faults of a route alone, in the order of its fields.
func validateHTTPRoute(r *resource.MeshHTTPRoute, fault Report) {
	Fields(r, fault)
	if r.TargetRef != nil {
		validateTarget(r.TargetRef, "targetRef", fault)
	}
	if len(r.To) == 0 {
		fault("to", "is required: the destinations to route", nil)
	}
	seen := make(map[string]int, len(r.To))
	for i := range r.To {
		to, path := &r.To[i], resource.Item("to", i)
		checkDestination(&to.TargetRef, path+".targetRef", fault)
		validateHTTPRouteTo(to, path+".rules", fault)
		if name := to.TargetRef.Name; name != "" {
			if before, ok := seen[name]; ok {
				fault(path+".targetRef.name", "duplicate, first at spec."+resource.Item("to", before), name)
			}
			seen[name] = i
		}
	}
}

func validateHTTPRouteTo(to *resource.HTTPRouteTo, path string, fault Report) {
	if len(to.Rules) == 0 || len(to.Rules) > maxRules {
		fault(path, fmt.Sprintf("must hold 1 to %d rules", maxRules), len(to.Rules))
		return
	}
	seen := map[string]int{}
	for i := range to.Rules {
		rule, at := &to.Rules[i], resource.Item(path, i)
		if len(rule.Matches) == 0 || len(rule.Matches) > maxMatches {
			fault(
				at+".matches",
				fmt.Sprintf("must hold 1 to %d matches: {path: {type: PathPrefix, value: /}} matches all requests", maxMatches),
				len(rule.Matches),
			)
			continue
		}
		for j := range rule.Matches {
			validateMatch(&rule.Matches[j], resource.Item(at+".matches", j), fault)
		}
		same := resource.MatchesKey(rule.Matches)
		if before, ok := seen[same]; ok {
			fault(at+".matches", "are the same as in spec."+resource.Item(path, before)+": one of the two rules would never apply", nil)
		}
		seen[same] = i
		validateHTTPDefault(&rule.Default, at+".default", rule.Matches, fault)
	}
	if n := countRegexps(to); n > maxRegexps {
		fault(
			path,
			fmt.Sprintf(
				"must hold at most %d regular expressions in all: each is tried on every request not matched before",
				maxRegexps,
			),
			n,
		)
	}
}

// countRegexps counts the regular expressions of a destination.
func countRegexps(to *resource.HTTPRouteTo) (n int) {
	count := func(kind string) {
		if kind == "RegularExpression" {
			n++
		}
	}
	for i := range to.Rules {
		for j := range to.Rules[i].Matches {
			m := &to.Rules[i].Matches[j]
			if m.Path != nil {
				count(m.Path.Type)
			}
			for k := range m.Headers {
				count(m.Headers[k].Type)
			}
			for k := range m.QueryParams {
				count(m.QueryParams[k].Type)
			}
		}
	}
	return n
}

func validateMatch(m *resource.HTTPMatch, path string, fault Report) {
	if m.Path != nil {
		validatePathMatch(m.Path, path+".path", fault)
	}
	checkCount(path+".queryParams", len(m.QueryParams), maxConditions, fault)
	names := make([]string, 0, len(m.QueryParams))
	for i := range m.QueryParams {
		q, at := &m.QueryParams[i], resource.Item(path+".queryParams", i)
		checkRequired(at+".type", q.Type, fault)
		checkRequired(at+".name", q.Name, fault)
		checkValue(at+".value", q.Type, q.Value, fault)
		if q.Name != "" && slices.Contains(names, q.Name) {
			fault(at+".name", "duplicate", q.Name)
		}
		names = append(names, q.Name)
	}
	checkCount(path+".headers", len(m.Headers), maxConditions, fault)
	var seen []resource.HeaderMatch
	for i := range m.Headers {
		h, at := m.Headers[i], resource.Item(path+".headers", i)
		h.Type = orExact(h.Type)
		checkHeaderName(at+".name", h.Name, fault)
		switch {
		case h.Type != "Present" && h.Type != "Absent":
			checkValue(at+".value", h.Type, h.Value, fault)
		case h.Value != "":
			fault(at+".value", "is not allowed for type "+h.Type, nil)
		}
		if slices.ContainsFunc(seen, func(other resource.HeaderMatch) bool { return h.Name != "" && contradicts(h, other) }) {
			fault(at+".name", "contradicts or repeats an earlier condition on this header", h.Name)
		}
		seen = append(seen, h)
	}
}

func orExact(s string) string {
	if s == "" {
		return "Exact"
	}
	return s
}

// contradicts reports whether two conditions on one header exclude or repeat
// each other: both are exact, both are equal, or one is of type Absent.
func contradicts(h, other resource.HeaderMatch) bool {
	return h.Name == other.Name && (h == other || h.Type == "Absent" || other.Type == "Absent" || h.Type == "Exact" && other.Type == "Exact")
}

func validatePathMatch(p *resource.PathMatch, path string, fault Report) {
	checkRequired(path+".type", p.Type, fault)
	if !checkRequired(path+".value", p.Value, fault) {
		return
	}
	switch p.Type {
	case "RegularExpression":
		checkRegexp(path+".value", p.Value, fault)
	case "Exact", "PathPrefix":
		checkPath(path+".value", p.Value, fault)
		if p.Type == "PathPrefix" && len(p.Value) > 1 && strings.HasSuffix(p.Value, "/") {
			fault(path+".value", "must not end with /: a prefix matches whole segments anyway", p.Value)
		}
	}
}

// checkPath reports a path that no request has: requests are matched and
// forwarded in normal form.
func checkPath(path, value string, fault Report) {
	odd := func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '?' || r == '#' }
	_, normal := urlpath.Normal(value)
	switch {
	case len(value) > maxPath:
		fault(path, fmt.Sprintf("must have at most %d bytes", maxPath), value)
	case !strings.HasPrefix(value, "/"):
		fault(path, "must be an absolute path: begin with /", value)
	case strings.ContainsFunc(value, odd):
		fault(path, "must be printable ASCII without spaces, ? or #", value)
	case !normal:
		fault(path, "must not have a broken escape, %00 or the segments . and .., escaped or not", value)
	}
}

// checkValue reports a value that is missing, too long or an invalid regular expression.
func checkValue(path, kind, value string, fault Report) {
	switch {
	case !checkRequired(path, value, fault):
	case kind == "RegularExpression":
		checkRegexp(path, value, fault)
	case len(value) > maxHeaderValue:
		fault(path, fmt.Sprintf("must have at most %d bytes", maxHeaderValue), len(value))
	}
}

// checkRegexp reports a regular expression that is invalid in RE2 or would
// become too large. The size is counted before anything is built:
// ((a{100}){100}){100} is a short text.
func checkRegexp(path, text string, fault Report) {
	if len(text) > maxRegexp {
		fault(path, fmt.Sprintf("a regular expression must have at most %d bytes", maxRegexp), fmt.Sprintf("%d bytes", len(text)))
		return
	}
	re, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		reason := "" // without the text, which the fault shows as its value
		if parsing := (*syntax.Error)(nil); errors.As(err, &parsing) {
			reason = ": " + parsing.Code.String()
		}
		fault(path, "is not a valid RE2 regular expression"+reason, text)
		return
	}
	if states(re) > maxRegexpStates {
		fault(path, fmt.Sprintf("the regular expression has more than %d states: use smaller repeats", maxRegexpStates), text)
	}
}

// states counts the states of a regular expression with its repeats unfolded, up
// to just above the bound.
func states(re *syntax.Regexp) int {
	n := 1
	switch re.Op {
	case syntax.OpLiteral:
		n = len(re.Rune)
	case syntax.OpCharClass:
		n = 1 + len(re.Rune)/8
	}
	for _, sub := range re.Sub {
		if n += states(sub); n > maxRegexpStates {
			return maxRegexpStates + 1
		}
	}
	if re.Op == syntax.OpRepeat {
		n *= max(re.Min, re.Max, 1)
	}
	return min(n, maxRegexpStates+1)
}

func validateHTTPDefault(d *resource.HTTPDefault, path string, matches []resource.HTTPMatch, fault Report) {
	seen := map[string]bool{}
	for i := range d.Filters {
		f, at := &d.Filters[i], resource.Item(path+".filters", i)
		validateFilter(f, at, matches, fault)
		if f.Type != "" && seen[f.Type] {
			fault(at+".type", "duplicate", f.Type)
		}
		seen[f.Type] = true
	}
	if seen["RequestRedirect"] && seen["URLRewrite"] {
		fault(path+".filters", "RequestRedirect and URLRewrite exclude each other: a redirected request reaches no backend", nil)
	}
	if seen["RequestRedirect"] && len(d.BackendRefs) > 0 {
		fault(path+".backendRefs", "is not allowed in a rule that redirects: no request reaches a backend", nil)
	}
	checkBackends(path+".backendRefs", d.BackendRefs, fault)
}

// filterTypes are the supported types of filters.
var filterTypes = []string{"RequestHeaderModifier", "ResponseHeaderModifier", "RequestRedirect", "URLRewrite"}

func validateFilter(f *resource.HTTPFilter, path string, matches []resource.HTTPMatch, fault Report) {
	switch {
	case f.Type == "RequestMirror":
		fault(path+".type", "RequestMirror is not supported: requests are not copied", nil)
	case f.Type == "":
		fault(path+".type", "is required", nil)
	case !slices.Contains(filterTypes, f.Type):
		fault(path+".type", "must be "+orList(filterTypes)+resource.DidYouMean(f.Type, filterTypes), f.Type)
	}
	for _, field := range []struct {
		kind, name string
		given      bool
		validate   func(path string)
	}{
		{
			"RequestHeaderModifier", "requestHeaderModifier", f.RequestHeaderModifier != nil,
			func(at string) { validateHeaderModifier(f.RequestHeaderModifier, at, fault) },
		},
		{
			"ResponseHeaderModifier", "responseHeaderModifier", f.ResponseHeaderModifier != nil,
			func(at string) { validateHeaderModifier(f.ResponseHeaderModifier, at, fault) },
		},
		{
			"RequestRedirect", "requestRedirect", f.RequestRedirect != nil,
			func(at string) { validateRedirect(f.RequestRedirect, at, matches, fault) },
		},
		{"URLRewrite", "urlRewrite", f.URLRewrite != nil, func(at string) { validateURLRewrite(f.URLRewrite, at, matches, fault) }},
	} {
		at := path + "." + field.name
		switch {
		case field.given && field.kind == f.Type:
			field.validate(at)
		case field.given && slices.Contains(filterTypes, f.Type):
			fault(at, "is not allowed for type "+f.Type, nil)
		case field.kind == f.Type:
			fault(at, "is required for type "+f.Type, nil)
		}
	}
}

func validateHeaderModifier(m *resource.HeaderModifier, path string, fault Report) {
	if len(m.Set)+len(m.Add)+len(m.Remove) == 0 {
		fault(path, "must have set, add or remove", nil)
	}
	seen := map[string]bool{}
	name := func(at, header string) {
		if !checkHeaderName(at, header, fault) {
			return
		}
		switch {
		case header == "host":
			fault(at, "must be changed with URLRewrite", header)
		case slices.Contains(unchangeable, header):
			fault(at, "belongs to the connection and cannot be changed", header)
		case seen[header]:
			fault(at, "duplicate: a header can be changed in only one way", header)
		}
		seen[header] = true
	}
	for _, list := range []struct {
		field   string
		headers []resource.HeaderValue
	}{{"set", m.Set}, {"add", m.Add}} {
		checkCount(path+"."+list.field, len(list.headers), maxChanges, fault)
		for i, h := range list.headers {
			at := resource.Item(path+"."+list.field, i)
			name(at+".name", h.Name)
			checkHeaderValue(at+".value", h.Value, fault)
		}
	}
	checkCount(path+".remove", len(m.Remove), maxChanges, fault)
	for i, header := range m.Remove {
		name(resource.Item(path+".remove", i), header)
	}
}

// unchangeable are headers that frame a message or belong to one connection
// (RFC 9110, 7.6.1): changing them would allow request smuggling.
var unchangeable = []string{
	"connection", "content-length", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
}

// checkHeaderName reports an invalid header name (RFC 9110, 5.1, in lower case)
// and returns whether it is valid.
func checkHeaderName(path, name string, fault Report) bool {
	if !checkRequired(path, name, fault) {
		return false
	}
	token := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	}
	if len(name) <= maxHeaderName && strings.IndexFunc(name, func(r rune) bool { return !token(r) }) < 0 {
		return true
	}
	fault(path, fmt.Sprintf("must be a lower-case header name of at most %d bytes", maxHeaderName), name)
	return false
}

// checkHeaderValue reports a value that cannot be sent. The fault does not show
// the value, which may be a secret.
func checkHeaderValue(path, value string, fault Report) {
	switch {
	case !checkRequired(path, value, fault):
	case len(value) > maxHeaderValue:
		fault(path, fmt.Sprintf("must have at most %d bytes", maxHeaderValue), len(value))
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r >= 0x7f }) || strings.TrimSpace(value) != value:
		fault(path, "must be printable ASCII without surrounding blanks", nil)
	}
}

func validateRedirect(r *resource.RequestRedirect, path string, matches []resource.HTTPMatch, fault Report) {
	if r.Scheme == "" && r.Hostname == "" && r.Path == nil && r.Port == nil {
		fault(path, "must have scheme, hostname, path or port: otherwise it redirects to itself", nil)
	}
	checkHostname(path+".hostname", r.Hostname, fault)
	if r.Path != nil {
		validatePathRewrite(r.Path, path+".path", matches, fault)
	}
	if r.StatusCode != nil && !slices.Contains([]int{301, 302, 303, 307, 308}, *r.StatusCode) {
		fault(path+".statusCode", "must be 301, 302, 303, 307 or 308", *r.StatusCode)
	}
}

func validateURLRewrite(u *resource.URLRewrite, path string, matches []resource.HTTPMatch, fault Report) {
	if u.Hostname == "" && u.Path == nil {
		fault(path, "must have hostname or path", nil)
	}
	checkHostname(path+".hostname", u.Hostname, fault)
	if u.Path != nil {
		validatePathRewrite(u.Path, path+".path", matches, fault)
	}
}

func validatePathRewrite(p *resource.PathRewrite, path string, matches []resource.HTTPMatch, fault Report) {
	if p.Type == "" {
		fault(path+".type", "is required", nil)
		return
	}
	for _, field := range []struct {
		kind, name string
		value      *string
	}{{"ReplaceFullPath", "replaceFullPath", p.ReplaceFullPath}, {"ReplacePrefixMatch", "replacePrefixMatch", p.ReplacePrefixMatch}} {
		at := path + "." + field.name
		switch {
		case field.kind == p.Type && field.value == nil:
			fault(at, "is required for type "+p.Type, nil)
		case field.kind == p.Type:
			checkPath(at, *field.value, fault)
		case field.value != nil:
			fault(at, "is not allowed for type "+p.Type, *field.value)
		}
	}
	withoutPrefix := func(m resource.HTTPMatch) bool { return m.Path == nil || m.Path.Type != "PathPrefix" }
	if p.Type == "ReplacePrefixMatch" && slices.ContainsFunc(matches, withoutPrefix) {
		fault(path+".type", "requires a path of type PathPrefix in every match", p.Type)
	}
}

func checkHostname(path, name string, fault Report) {
	if name == "" {
		return
	}
	if _, err := netip.ParseAddr(name); err == nil {
		fault(path, "must be a host name, not an address", name)
	} else if canonical, err := hostname.ParseName(name); err != nil {
		fault(path, err.Error(), name)
	} else if canonical != name {
		fault(path, "must be written "+canonical, name)
	}
}

// checkRequired reports a missing text and returns whether it is given.
func checkRequired(path, value string, fault Report) bool {
	if value == "" {
		fault(path, "is required", nil)
	}
	return value != ""
}

func checkCount(path string, n, most int, fault Report) {
	if n > most {
		fault(path, fmt.Sprintf("must hold at most %d", most), n)
	}
}
