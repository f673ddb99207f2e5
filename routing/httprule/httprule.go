// Package httprule decides which rule of a MeshHTTPRoute a request is for, and
// what its filters make of it. It is pure: requests come as values, and nothing
// is sent.
//
//	rules, err := httprule.Compile(to.Rules)
//	path, ok := urlpath.Normal(r.URL.EscapedPath()) // !ok: answer 400
//	m, ok := rules.Match(&httprule.Request{Method: "GET", Path: path, ...})
//	backends := to.Rules[m.Rule].Default.BackendRefs
//
// Of the matches that fit a request the most specific one decides, whatever the
// order of the rules, as in the Gateway API: an exact path comes before a
// regular expression, that before a prefix, and a longer one of these before a
// shorter; then one with a method, then the one with more headers, then with
// more parameters, and last the one that stands first. Regular expressions
// come before prefixes because a rule for / would leave them nothing. Where one
// would have to be tried on a value that is too long for it, no rule is found:
// the request is to be refused.
package httprule

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"penstock/routing/hostname"
	"penstock/routing/resource"
	"penstock/routing/urlpath"
)

// Request is what rules look at.
type Request struct {
	Method string
	// Path is in normal form: see urlpath.Normal.
	Path string
	// Query is as the client sent it, without the question mark.
	Query string
	// Header gives a header by its name in lower case; several values are one
	// with commas. present false: there is none.
	Header func(name string) (value string, present bool)
}

// Rules are those of one destination of a route, ready for requests. They are
// immutable.
type Rules struct {
	filters [][]resource.HTTPFilter // of each rule, with their paths in normal form
	exact   map[string][]*match     // by path
	other   []*match                // with other paths, or any; the more specific first
	query   bool                    // some look at parameters
}

// Match says which rule a request is for.
type Match struct {
	Rule  int
	Index int // of the match within the rule
	// Prefix is what of the path has matched; of use where a prefix is replaced.
	Prefix string
	// TooLong: a regular expression that decides would have to be tried on a
	// value above 8 KiB.
	TooLong bool
}

// match is one HTTPMatch.
type match struct {
	rule, index int
	order       int                // among all matches
	path        resource.PathMatch // with the value in normal form
	re          *regexp.Regexp     // of the path
	parameters  bool               // the path names parameters, or may
	method      string
	headers     []condition
	params      []condition
}

// condition is on one header or parameter.
type condition struct {
	name, kind, value string
	re                *regexp.Regexp
	host              bool   // the header is Host:
	port              string // value is without it; "": any fits
}

// Compile makes rules that have been validated and have their defaults. An
// error names the value that validation would have refused. A match whose path
// has no normal form fits nothing, since no request has one: validation once
// let such paths pass, and what is stored is not validated again.
func Compile(rules []resource.HTTPRule) (*Rules, error) {
	out := &Rules{filters: make([][]resource.HTTPFilter, len(rules)), exact: map[string][]*match{}}
	var all []*match
	for i := range rules {
		out.filters[i] = normalFilters(rules[i].Default.Filters)
		for j := range rules[i].Matches {
			if !possible(rules[i].Matches[j].Path) {
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

// possible tells whether requests can have a path that fits.
func possible(p *resource.PathMatch) bool {
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
		m.re, err = whole(m.path.Value)
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
		c.re, err = whole(value)
	}
	*to = append(*to, c)
	return err
}

// addHost adds a condition on Host, which has no case. Its port counts only
// where the condition names one.
func (m *match) addHost(h *resource.HeaderMatch) error {
	value := h.Value
	if h.Type == "RegularExpression" {
		value = "(?i:" + value + ")"
		if _, err := regexp.Compile(value); err != nil { // an open quotation
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

// maxExpressed bounds the values that regular expressions are tried on, in
// bytes: their time grows with both, and it is a client that chooses the value.
const maxExpressed = 8 << 10

// verdict is what a condition has to say to a request.
type verdict int8

const (
	misses  verdict = iota
	fits            // it does
	tooLong         // nobody knows: the value is longer than an expression is tried on
)

func verdictOf(ok bool) verdict {
	if ok {
		return fits
	}
	return misses
}

// and is what two conditions have to say together.
func (v verdict) and(w verdict) verdict {
	if v == misses || w == misses {
		return misses
	}
	return max(v, w)
}

func expresses(re *regexp.Regexp, value string) verdict {
	if len(value) > maxExpressed {
		return tooLong
	}
	return verdictOf(re.MatchString(value))
}

// whole compiles an expression that has to fit all of a value. A quotation that
// is still open at its end would quote what closes the group, too.
func whole(text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile(`\A(?:` + text + `)\z`)
	if err != nil && strings.Contains(text, `\Q`) {
		re, err = regexp.Compile(`\A(?:` + text + `\E)\z`)
	}
	return re, err
}

// kinds orders the kinds of path; the earlier decides first.
var kinds = []string{"Exact", "RegularExpression", "PathPrefix"}

// compare orders matches: the one that decides first.
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

// Match finds the rule for a request; false: none is, or with TooLong it cannot
// be told.
func (r *Rules) Match(q *Request) (Match, bool) {
	var params url.Values
	if r.query && q.Query != "" {
		// What cannot be read is left out, as servers do.
		params, _ = url.ParseQuery(q.Query)
	}
	plain := urlpath.WithoutParameters(q.Path)
	for _, path := range [2]string{q.Path, plain} {
		for _, m := range r.exact[path] {
			if on := m.fits(q, params); on != misses {
				return m.found(on, m.path.Value), on == fits
			}
		}
	}
	for _, m := range r.other {
		path := plain
		if m.parameters {
			path = q.Path
		}
		on := m.fitsPath(path)
		if on != misses {
			on = on.and(m.fits(q, params))
		}
		if on != misses {
			return m.found(on, m.path.Value), on == fits
		}
	}
	return Match{}, false
}

func (m *match) found(on verdict, prefix string) Match {
	if on == tooLong {
		return Match{TooLong: true}
	}
	return Match{Rule: m.rule, Index: m.index, Prefix: prefix}
}

func (m *match) fitsPath(path string) verdict {
	if m.re != nil {
		return expresses(m.re, path)
	}
	rest, ok := strings.CutPrefix(path, m.path.Value)
	return verdictOf(ok && (rest == "" || rest[0] == '/' || m.path.Value == "/"))
}

// fits looks at all but the path.
func (m *match) fits(q *Request, params url.Values) verdict {
	if m.method != "" && m.method != q.Method {
		return misses
	}
	all := fits
	for i := range m.headers {
		value, present := q.Header(m.headers[i].name)
		if all = all.and(m.headers[i].fits(value, present)); all == misses {
			return misses
		}
	}
	for i := range m.params {
		value, present := "", false
		if values, ok := params[m.params[i].name]; ok {
			value, present = values[0], true // the first counts
		}
		if all = all.and(m.params[i].fits(value, present)); all == misses {
			return misses
		}
	}
	return all
}

func (c *condition) fits(value string, present bool) verdict {
	if c.host && present {
		return c.fitsHost(value)
	}
	switch c.kind {
	case "Absent":
		return verdictOf(!present)
	case "Present":
		return verdictOf(present)
	case "RegularExpression":
		if !present {
			return misses
		}
		return expresses(c.re, value)
	case "Prefix":
		return verdictOf(present && strings.HasPrefix(value, c.value))
	}
	return verdictOf(present && value == c.value) // Exact
}

// fitsHost compares a host as a name: without case, and but for a prefix
// without the root's trailing dot.
func (c *condition) fitsHost(value string) verdict {
	if c.kind == "Prefix" {
		return verdictOf(strings.HasPrefix(strings.ToLower(value), c.value))
	}
	name, port := hostname.SplitAuthority(value)
	switch {
	case c.kind == "Exact":
		return verdictOf(name == c.value && (c.port == "" || c.port == port))
	case c.kind == "RegularExpression" && port != "":
		return expresses(c.re, name+":"+port)
	case c.kind == "RegularExpression":
		return expresses(c.re, name)
	}
	return verdictOf(c.kind == "Present")
}
