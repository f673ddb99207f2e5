package routing

import (
	"net/url"
	"regexp/syntax"
	"strings"

	"penstock/routing/resource"
)

// withRequest sets the request of some simulations; a nil request changes nothing.
func withRequest(runs []simulationRun, q *Request) []simulationRun {
	if q == nil {
		return runs
	}
	for i := range runs {
		runs[i].q, runs[i].report.Request = q, q.text()
	}
	return runs
}

// text renders a request, as in "GET /cart?page=2".
func (q *Request) text() string {
	method, path := q.Method, q.Path
	if method == "" {
		method = "GET"
	}
	if path == "" {
		path = "/"
	}
	if q.Query != "" {
		path += "?" + q.Query
	}
	return method + " " + path
}

// requestRuns returns the simulations of requests to one destination:
// for each class of sources and each rule, old or new, one with an example
// request of the rule.
func (w *WhatIf) requestRuns(destination string, tags map[string]string) (runs []simulationRun) {
	classes := w.requestClassesOf(destination)
	if tags != nil {
		src := source{layers: [4]map[string]string{0: tags, 3: w.table.node}}
		if protocol := w.table.protocol(&src).protocol; protocol != "" && !isHTTP(protocol) {
			return nil
		}
		classes = []class{{sample: src}}
	}
	for i := range classes {
		c := &classes[i]
		seen := map[string]bool{}
		for _, t := range []*Table{w.after, w.table} {
			p := t.httpPolicyFor(destination, &c.sample)
			if p == nil {
				continue
			}
			for i := range p.http.spec {
				key := resource.MatchesKey(p.http.spec[i].Matches)
				q := p.http.example(i)
				if seen[key] || q == nil {
					continue
				}
				seen[key] = true
				runs = append(runs, exampleRun(destination, tags, c, q, &p.http.spec[i].Matches[0]))
			}
		}
	}
	return runs
}

func exampleRun(destination string, tags map[string]string, c *class, q *Request, m *resource.HTTPMatch) simulationRun {
	run := simulationRun{q: q, in: Input{Tags: tags}, report: SimulatedRun{Destination: destination, Source: c.name(), Request: matchText(m)}}
	if tags != nil {
		run.report.Source = tagList(tags)
	}
	src := c.sample
	run.src = &src
	return run
}

// example returns a request that fits the first match of a rule and for which
// that rule decides, or nil if it finds none.
func (h *httpPolicy) example(i int) *Request {
	m := &h.spec[i].Matches[0]
	path := "/"
	if m.Path != nil {
		path = m.Path.Value
		if m.Path.Type == "RegularExpression" {
			path = exampleOf(path)
		}
	}
	var query []string
	for j := range m.QueryParams {
		value := m.QueryParams[j].Value
		if m.QueryParams[j].Type == "RegularExpression" {
			value = exampleOf(value)
		}
		query = append(query, url.QueryEscape(m.QueryParams[j].Name)+"="+url.QueryEscape(value))
	}
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	headers := map[string]string{}
	for j := range m.Headers {
		switch c := &m.Headers[j]; c.Type {
		case "Absent":
		case "RegularExpression":
			headers[c.Name] = exampleOf(c.Value)
		case "Present":
			if headers[c.Name] == "" {
				headers[c.Name] = "1"
			}
		default:
			headers[c.Name] = c.Value
		}
	}
	q := NewRequest(m.Method, path, "", headers)
	full, ok := q.described(&Input{}, &Listener{spec: &resource.Listener{}})
	if !ok {
		return nil
	}
	if found, ok := h.rules.Match(&full.Request); !ok || found.Rule != i {
		return nil // another rule decides
	}
	return q
}

// exampleOf returns a short text that matches a simple expression; for others
// it may not match.
func exampleOf(expression string) string {
	re, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return ""
	}
	var b strings.Builder
	writeExample(&b, re)
	return b.String()
}

// maxExample bounds the length of an example, in bytes.
const maxExample = 1024

func writeExample(b *strings.Builder, re *syntax.Regexp) {
	if b.Len() > maxExample {
		return
	}
	switch re.Op {
	case syntax.OpLiteral:
		b.WriteString(string(re.Rune))
	case syntax.OpCharClass:
		b.WriteRune(runeOf(re.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		b.WriteByte('a')
	case syntax.OpCapture, syntax.OpPlus, syntax.OpAlternate:
		writeExample(b, re.Sub[0])
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			writeExample(b, sub)
		}
	case syntax.OpRepeat:
		for range re.Min {
			writeExample(b, re.Sub[0])
		}
	}
}

// runeOf returns a character of a class, given as pairs of bounds; a plain
// character if there is one.
func runeOf(ranges []rune) rune {
	for _, r := range "a0A-_" {
		for i := 0; i+1 < len(ranges); i += 2 {
			if ranges[i] <= r && r <= ranges[i+1] {
				return r
			}
		}
	}
	if len(ranges) == 0 {
		return 'a' // an empty class matches nothing
	}
	return ranges[0]
}
