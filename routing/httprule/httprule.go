// Package httprule selects the rule of a MeshHTTPRoute for a request and
// applies its filters. It does no I/O: requests are values.
//
//	rules, err := httprule.Compile(to.Rules)
//	path, ok := urlpath.Normal(r.URL.EscapedPath()) // !ok: answer 400
//	m, ok := rules.Match(&httprule.Request{Method: "GET", Path: path, ...})
//	backends := to.Rules[m.Rule].Default.BackendRefs
//
// Of the matches that fit a request the most specific one decides, whatever the
// order of the rules, as in the Gateway API. An exact path precedes a regular
// expression, which precedes a prefix, and among equal kinds the longer path is
// first; then a match with a method, with more headers, with more parameters,
// and finally the one listed first. Regular expressions precede prefixes
// because otherwise a rule for / would shadow them. If a value is too long for
// an expression that would have to be evaluated, no rule is selected: the
// request is to be refused.
package httprule

import (
	"cmp"
	"fmt"
	"iter"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
	"penstock/routing/urlpath"
)

// Request is the input of a match.
type Request struct {
	Method string
	// Path is in normal form: see urlpath.Normal.
	Path string
	// Query is as the client sent it, without the question mark.
	Query string
	// Header returns a header by its lower-case name; several values are joined
	// with commas. present is false without such a header.
	Header func(name string) (value string, present bool)
}

// Rules are the compiled rules of one destination of a route. They are
// immutable.
type Rules struct {
	filters [][]resource.HTTPFilter // of each rule, with paths in normal form
	exact   map[string][]*match     // by path
	other   []*match                // with other paths, or any; by precedence
	query   bool                    // some match has params
}

// Match identifies the rule for a request.
type Match struct {
	Rule  int
	Index int // of the match within the rule
	// Prefix is the path of the match, for filters that replace a prefix.
	Prefix string
	// TooLong: a value exceeds the 8 KiB up to which the deciding regular
	// expression is evaluated.
	TooLong bool
}

// match is one compiled HTTPMatch.
type match struct {
	rule, index int
	order       int                // position among all matches
	path        resource.PathMatch // with the value in normal form
	re          *regexp.Regexp     // of the path
	parameters  bool               // the path has parameters, or may match some
	method      string
	headers     []condition
	params      []condition
}

// condition is a condition on one header or parameter.
type condition struct {
	name, kind, value string
	re                *regexp.Regexp
	host              bool   // for the Host header
	port              string // of value, which is without it; "": any port
}

// Compile compiles validated rules with defaults filled in. An error names the
// value that validation would have refused. A match whose path has no normal
// form never matches, because no request has such a path: validation once
// accepted it, and stored resources are not validated again.
func Compile(rules []resource.HTTPRule) (*Rules, error) {
	out := &Rules{filters: make([][]resource.HTTPFilter, len(rules)), exact: map[string][]*match{}}
	var all []*match
	for i := range rules {
		out.filters[i] = normalFilters(rules[i].Default.Filters)
		for j := range rules[i].Matches {
			if !canMatch(rules[i].Matches[j].Path) {
				continue
			}
			m, err := compile(&rules[i].Matches[j])
			if err != nil {
				return nil, fmt.Errorf("rules[%d].matches[%d]: %w", i, j, err)
			}
			m.rule, m.index, m.order = i, j, len(all)
			all = append(all, m)
		}
	}
	slices.SortFunc(all, (*match).compare)
	for _, m := range all {
		out.query = out.query || len(m.params) > 0
		if m.path.Type == "Exact" {
			out.exact[m.path.Value] = append(out.exact[m.path.Value], m)
		} else {
			out.other = append(out.other, m)
		}
	}
	return out, nil
}

// InOrder iterates over all matches in order of precedence: the first one that
// fits a request decides.
func (r *Rules) InOrder() iter.Seq[Match] {
	all := slices.Clone(r.other)
	for _, list := range r.exact {
		all = append(all, list...)
	}
	slices.SortFunc(all, (*match).compare)
	return func(yield func(Match) bool) {
		for _, m := range all {
			if !yield(m.toMatch(matched, m.path.Value)) {
				return
			}
		}
	}
}

// Filters returns the filters of the rule of a match, with paths in normal form.
// They must not be changed.
func (r *Rules) Filters(m Match) []resource.HTTPFilter { return r.filters[m.Rule] }

// Normal returns a match with its path in normal form.
func Normal(h *resource.HTTPMatch) resource.HTTPMatch {
	out := *h
	if h.Path == nil || h.Path.Type == "RegularExpression" {
		return out
	}
	if path, ok := urlpath.Normal(h.Path.Value); ok {
		out.Path = &resource.PathMatch{Type: h.Path.Type, Value: path}
	}
	return out
}

// canMatch reports whether the path of a request can match.
func canMatch(p *resource.PathMatch) bool {
	if p == nil || p.Type == "RegularExpression" {
		return true
	}
	_, ok := urlpath.Normal(p.Value)
	return ok
}

func compile(h *resource.HTTPMatch) (*match, error) {
	m := &match{path: resource.PathMatch{Type: "PathPrefix", Value: "/"}, method: h.Method}
	if h.Path != nil {
		m.path = *h.Path
	}
	m.parameters = urlpath.HasParameters(m.path.Value)
	var err error
	if m.path.Type == "RegularExpression" {
		m.re, err = compileWhole(m.path.Value)
	} else {
		m.path.Value, _ = urlpath.Normal(m.path.Value)
	}
	for i := range h.Headers {
		c := &h.Headers[i]
		if c.Name == "host" {
			err = cmp.Or(err, m.addHost(c))
			continue
		}
		err = cmp.Or(err, add(&m.headers, c.Name, c.Type, c.Value))
	}
	for i := range h.QueryParams {
		c := &h.QueryParams[i]
		err = cmp.Or(err, add(&m.params, c.Name, c.Type, c.Value))
	}
	return m, err
}

func add(to *[]condition, name, kind, value string) (err error) {
	c := condition{name: name, kind: kind, value: value}
	if kind == "RegularExpression" {
		c.re, err = compileWhole(value)
	}
	*to = append(*to, c)
	return err
}

// addHost adds a condition on Host, which is case-insensitive. A port is
// compared only if the condition has one.
func (m *match) addHost(h *resource.HeaderMatch) error {
	value := h.Value
	if h.Type == "RegularExpression" {
		value = "(?i:" + value + ")"
		if _, err := regexp.Compile(value); err != nil { // an unterminated \Q
			value = "(?i:" + h.Value + `\E)`
		}
	}
	if err := add(&m.headers, h.Name, h.Type, value); err != nil {
		return err
	}
	c := &m.headers[len(m.headers)-1]
	c.host = true
	switch h.Type {
	case "Exact":
		c.value, c.port = hostname.SplitAuthority(value)
	case "Prefix":
		c.value = strings.ToLower(value)
	}
	return nil
}

// maxEvaluated bounds the values that regular expressions are evaluated on, in
// bytes: the time grows with the lengths of both, and clients choose the value.
const maxEvaluated = 8 << 10

// result is the result of a condition.
type result int8

const (
	noMatch result = iota
	matched
	tooLong // undecided: the value is too long for a regular expression
)

func resultOf(ok bool) result {
	if ok {
		return matched
	}
	return noMatch
}

// and combines the results of two conditions.
func (v result) and(w result) result {
	if v == noMatch || w == noMatch {
		return noMatch
	}
	return max(v, w)
}

func evaluate(re *regexp.Regexp, value string) result {
	if len(value) > maxEvaluated {
		return tooLong
	}
	return resultOf(re.MatchString(value))
}

// compileWhole compiles an expression that must match the whole value. An
// unterminated \Q would also quote the end of the group, so it gets a \E.
func compileWhole(text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil && strings.Contains(text, `\Q`) {
		re, err = regexp.Compile(`\A(?:` + text + `\E)\z`)
	}
	return re, err
}

// kinds lists the kinds of path by precedence.
var kinds = []string{"Exact", "RegularExpression", "PathPrefix"}

// compare orders matches by precedence.
func (m *match) compare(n *match) int {
	return cmp.Or(
		cmp.Compare(slices.Index(kinds, m.path.Type), slices.Index(kinds, n.path.Type)),
		cmp.Compare(len(n.path.Value), len(m.path.Value)),
		cmp.Compare(min(len(n.method), 1), min(len(m.method), 1)),
		cmp.Compare(len(n.headers), len(m.headers)),
		cmp.Compare(len(n.params), len(m.params)),
		cmp.Compare(m.order, n.order),
	)
}

// Match returns the rule for a request. It returns false if no rule matches, or
// if that is undecided: then TooLong is set.
func (r *Rules) Match(q *Request) (Match, bool) {
	var params url.Values
	if r.query && q.Query != "" {
		// Parameters that do not parse are ignored, as servers do.
		params, _ = url.ParseQuery(q.Query)
	}
	plain := urlpath.WithoutParameters(q.Path)
	for _, path := range [2]string{q.Path, plain} {
		for _, m := range r.exact[path] {
			if v := m.matches(q, params); v != noMatch {
				return m.toMatch(v, m.path.Value), v == matched
			}
		}
	}
	for _, m := range r.other {
		path := plain
		if m.parameters {
			path = q.Path
		}
		v := m.matchesPath(path)
		if v != noMatch {
			v = v.and(m.matches(q, params))
		}
		if v != noMatch {
			return m.toMatch(v, m.path.Value), v == matched
		}
	}
	return Match{}, false
}

func (m *match) toMatch(v result, prefix string) Match {
	if v == tooLong {
		return Match{TooLong: true}
	}
	return Match{Rule: m.rule, Index: m.index, Prefix: prefix}
}

func (m *match) matchesPath(path string) result {
	if m.re != nil {
		return evaluate(m.re, path)
	}
	rest, ok := strings.CutPrefix(path, m.path.Value)
	return resultOf(ok && (rest == "" || rest[0] == '/' || m.path.Value == "/"))
}

// matches checks everything but the path.
func (m *match) matches(q *Request, params url.Values) result {
	if m.method != "" && m.method != q.Method {
		return noMatch
	}
	all := matched
	for i := range m.headers {
		value, present := q.Header(m.headers[i].name)
		if all = all.and(m.headers[i].matches(value, present)); all == noMatch {
			return noMatch
		}
	}
	for i := range m.params {
		value, present := "", false
		if values, ok := params[m.params[i].name]; ok {
			value, present = values[0], true // the first value counts
		}
		if all = all.and(m.params[i].matches(value, present)); all == noMatch {
			return noMatch
		}
	}
	return all
}

func (c *condition) matches(value string, present bool) result {
	if c.host && present {
		return c.matchesHost(value)
	}
	switch c.kind {
	case "Absent":
		return resultOf(!present)
	case "Present":
		return resultOf(present)
	case "RegularExpression":
		if !present {
			return noMatch
		}
		return evaluate(c.re, value)
	case "Prefix":
		return resultOf(present && strings.HasPrefix(value, c.value))
	}
	return resultOf(present && value == c.value) // Exact
}

// matchesHost compares a host name: case-insensitively and, except for Prefix,
// without the root's trailing dot.
func (c *condition) matchesHost(value string) result {
	if c.kind == "Prefix" {
		return resultOf(strings.HasPrefix(strings.ToLower(value), c.value))
	}
	name, port := hostname.SplitAuthority(value)
	switch {
	case c.kind == "Exact":
		return resultOf(name == c.value && (c.port == "" || c.port == port))
	case c.kind == "RegularExpression" && port != "":
		return evaluate(c.re, name+":"+port)
	case c.kind == "RegularExpression":
		return evaluate(c.re, name)
	}
	return resultOf(c.kind == "Present")
}
