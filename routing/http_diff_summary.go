package routing

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"penstock/routing/resource"
)

// httpPolicyFor returns the MeshHTTPRoute that routes requests to a destination
// from a source that speaks HTTP, or nil.
func (t *Table) httpPolicyFor(destination string, src *source) *policy {
	s, ok := t.services.Get(destination)
	if !ok || s.requests == nil || !isHTTP(s.spec.Protocol) {
		return nil
	}
	return s.requests.chooser.choose(src)
}

// requestClassesOf returns the classes of sources that MeshHTTPRoutes
// distinguish before or after the change, and the sources outside of all
// classes.
func (w *WhatIf) requestClassesOf(destination string) (all []class) {
	seen := map[string]bool{}
	for _, t := range []*Table{w.after, w.table} {
		s, ok := t.services.Get(destination)
		if !ok {
			continue
		}
		for _, c := range s.requestClasses() {
			if name := c.name(); !seen[name] && c.sample.matches(c.ref) {
				seen[name] = true
				all = append(all, c)
			}
		}
	}
	if len(all) > 0 && !seen[kindMesh] {
		all = append(all, class{})
	}
	return all
}

// summarizeRequests describes the effect on requests to one destination, if
// they are routed individually before or after the change.
func (w *WhatIf) summarizeRequests(destination string) []string {
	_, was := w.table.services.Get(destination)
	_, is := w.after.services.Get(destination)
	if !was || !is {
		return nil
	}
	return bySource(w.requestClassesOf(destination), func(src *source) []string {
		before, after := w.table.httpPolicyFor(destination, src), w.after.httpPolicyFor(destination, src)
		switch {
		case before == nil && after == nil || before == after:
			return nil
		case before == nil:
			return []string{fmt.Sprintf("%s: HTTP requests to %s%s are routed individually, by %s; until now per connection: %s",
				after.route, destination, fromHere, count(len(after.http.spec), "rule"), w.table.destinationText(destination, src))}
		case after == nil:
			return []string{fmt.Sprintf("%s: HTTP requests to %s%s are no longer routed individually but per connection: %s",
				before.route, destination, fromHere, w.after.destinationText(destination, src))}
		}
		return summarizeRules(destination, before.http, after)
	})
}

// count renders a number of things, as in "1 rule" or "2 rules".
func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}

// destinationText says where connections from a source go, as in "to apps".
func (t *Table) destinationText(destination string, src *source) string {
	list, by, reason := t.parts(destination, src)
	text := "to " + sharesText(list, labels(destination, list))
	if reason != OK {
		text = fmt.Sprintf("closed (%s)", reason)
	}
	if by != "" {
		text += " by MeshTCPRoute " + by
	}
	return text
}

// summarizeRules describes the rules that differ. Two rules correspond if they
// match the same requests.
func summarizeRules(destination string, old *httpPolicy, p *policy) (sentences []string) {
	before, after := old.byMatches(), p.http.byMatches()
	for i := range p.http.spec {
		rule := &p.http.spec[i]
		what := "requests to " + destination + " for " + requestsText(rule.Matches) + fromHere
		j, ok := before[resource.MatchesKey(rule.Matches)]
		if !ok {
			sentences = append(sentences, fmt.Sprintf("%s: %s have their own rule: %s", p.route, what, p.http.effectText(destination, i)))
			continue
		}
		sentences = append(sentences, old.change(j, p, i, destination, what)...)
	}
	for j := range old.spec {
		if _, ok := after[resource.MatchesKey(old.spec[j].Matches)]; !ok {
			sentences = append(sentences, fmt.Sprintf("%s: requests to %s for %s%s no longer have their own rule; until now %s",
				p.route, destination, requestsText(old.spec[j].Matches), fromHere, old.effectText(destination, j)))
		}
	}
	return sentences
}

// change describes how rule j of h differs from rule i of p, which replaces it.
func (h *httpPolicy) change(j int, p *policy, i int, destination, what string) (sentences []string) {
	was, is := &h.spec[j], &p.http.spec[i]
	if !reflect.DeepEqual(was.Default.Filters, is.Default.Filters) {
		next, until := p.http.effectText(destination, i), h.effectText(destination, j)
		if next == until {
			return []string{fmt.Sprintf("%s: %s: header values change", p.route, what)}
		}
		return []string{fmt.Sprintf("%s: %s: %s; until now %s", p.route, what, next, until)}
	}
	if redirects(is) {
		return nil
	}
	m := movement{
		name: p.route, destination: destination, what: what, refused: fmt.Sprintf("answered %d", statusUnavailable),
		before: h.shares[j].parts(), after: p.http.shares[i].parts(),
		closedBefore: h.shares[j].reason(), closedAfter: p.http.shares[i].reason(),
	}
	return []string{m.text()}
}

// effectText describes the effect of a rule, as in "rewrites to path /x, to a".
func (h *httpPolicy) effectText(destination string, i int) string {
	var parts []string
	for j := range h.spec[i].Default.Filters {
		parts = append(parts, filterText(&h.spec[i].Default.Filters[j]))
	}
	if !redirects(&h.spec[i]) {
		list := h.shares[i].parts()
		text := "to " + sharesText(list, labels(destination, list))
		if h.shares[i].reason() != OK {
			text = fmt.Sprintf("answered %d (%s)", statusUnavailable, h.shares[i].reason())
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// requestsText describes the requests that match, as in "/a/* or /b".
func requestsText(matches []resource.HTTPMatch) string {
	const most = 3
	var texts []string
	for i := range matches[:min(most, len(matches))] {
		texts = append(texts, matchText(&matches[i]))
	}
	if more := len(matches) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, " or ")
}

// summarizeListener describes the listeners whose connections start or stop
// being routed request by request because of the listener itself. Effects of
// routes are described with their destination.
func (w *WhatIf) summarizeListener() (sentences []string) {
	seen := map[string]bool{}
	for _, listener := range slices.Sorted(maps.Keys(w.names)) {
		for _, hello := range w.names[listener] {
			m := nameMove{listener: listener, hello: hello}
			if text := w.listenerSentence(m.input()); text != "" && !seen[text] {
				seen[text] = true
				sentences = append(sentences, text)
			}
		}
	}
	return sentences
}

// listenerSentence compares the routing of one connection's requests.
func (w *WhatIf) listenerSentence(in *Input) string {
	before, to := w.table.requestRoute(in)
	after, next := w.after.requestRoute(in)
	if to == nil || next == nil || to.name != next.name || before == after {
		return ""
	}
	table, l := w.table, in.Listener
	if after == "" {
		table = w.after
	}
	of, _ := table.listeners.Get(l)
	src := table.source(in, of)
	if after == "" {
		if w.after.httpPolicyFor(next.name, &src) == nil {
			return ""
		}
		return fmt.Sprintf("%s: requests to %s are no longer routed individually by %s but per connection: %s",
			l, next.name, before, table.destinationText(next.name, &src))
	}
	if before != "" || w.table.httpPolicyFor(to.name, &src) == nil {
		return ""
	}
	return fmt.Sprintf("%s: requests to %s are routed individually by %s; until now per connection: %s",
		l, next.name, after, table.destinationText(to.name, &src))
}

// requestRoute returns the MeshHTTPRoute that routes the requests of a connection,
// or "" if it is routed as a whole, and the destination, or nil.
func (t *Table) requestRoute(in *Input) (route string, s *Service) {
	s, l, reason := t.resolve(in, nil)
	if reason != OK {
		return "", nil
	}
	src := t.source(in, l)
	if p := t.requestPolicy(s, &src); p != nil && l.readable() {
		route = p.route
	}
	return route, s
}
