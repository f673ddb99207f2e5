package routing

import (
	"fmt"
	"strings"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/httprule"
	"penstock/routing/permit"
	"penstock/routing/resource"
	"penstock/routing/urlpath"
)

// NewRequest returns a request from its description. The target is a path, with
// a query after a question mark. Header names are case-insensitive; the host
// may be given as a header.
func NewRequest(method, target, host string, headers map[string]string) *Request {
	q := &Request{Request: httprule.Request{Method: method}, Origin: httprule.Origin{Host: host}}
	q.Path, q.Query, _ = strings.Cut(target, "?")
	lower := make(map[string]string, len(headers))
	for name, value := range headers {
		lower[strings.ToLower(name)] = value
	}
	if q.Host == "" {
		q.Host = lower["host"]
	}
	q.Header = func(name string) (value string, present bool) {
		value, present = lower[name]
		return value, present
	}
	return q
}

// described returns the request with defaults for the missing fields and with
// its path in normal form, or false if the path has none.
func (q *Request) described(in *Input, l *Listener) (Request, bool) {
	full := *q
	if full.Method == "" {
		full.Method = "GET"
	}
	if full.Scheme == "" {
		if full.Scheme = "http"; l.spec.Protocol == "tls" {
			full.Scheme = "https"
		}
	}
	if full.Host == "" {
		if full.Host = in.ServerName; full.Host == "" {
			full.Host = "localhost"
		}
	}
	if full.Path == "" {
		full.Path = "/"
	}
	full.Header = withHost(q.Header, full.Host)
	var ok bool
	full.Path, ok = urlpath.Normal(full.Path)
	return full, ok
}

// withHost returns headers that include the host, as those of a real request
// do.
func withHost(header func(string) (string, bool), host string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		switch {
		case name == "host":
			return host, true
		case header == nil:
			return "", false
		}
		return header(name)
	}
}

// ExplainRequest describes how one request of a connection would be routed now.
// Its path need not be in normal form.
func (t *Table) ExplainRequest(in *Input, q *Request, now time.Time) Explanation {
	return t.explain(in, q, now)
}

// explainRequests continues an explanation where p routes the connection's
// requests. q is nil if the query names no request.
func (t *Table) explainRequests(p *policy, in *Input, l *Listener, s *Service, q *Request, now time.Time, tr *trace) {
	e := &tr.explanation
	how := "because of permissions or limits for requests"
	switch {
	case p != nil:
		e.Route, how = p.route, "by MeshHTTPRoute "+p.route
	case l.spec.HTTP.ForwardClientCert:
		how = "because of the listener's http.forwardClientCert"
	}
	if reason := tr.limits(t, in, s.name, false); reason != OK {
		tr.outcome(reason)
		return
	}
	if q == nil {
		if p != nil {
			tr.rules(p)
		}
		tr.add(Step{Name: "outcome", Looked: "decision", Result: "its requests are routed individually, " + how + "; name a path to see what happens to one"})
		return
	}
	full, ok := q.described(in, l)
	if !ok {
		e.Status = statusBadRequest
		tr.add(Step{Name: "outcome", Looked: "request", Result: fmt.Sprintf("answered %d: the path %q cannot be normalised", e.Status, q.Path)})
		return
	}
	if t.denies(in, l, s, &full, tr) {
		e.Status, e.Reason = statusForbidden, PermissionDenied
		tr.add(Step{Name: "outcome", Looked: "request", Result: fmt.Sprintf("answered %d (%s)", e.Status, e.Reason)})
		return
	}
	if tr.limits(t, in, s.name, true) != OK {
		e.Status, e.Reason = statusTooManyRequests, RateLimited
		tr.add(Step{Name: "outcome", Looked: "request", Result: fmt.Sprintf("answered %d (%s)", e.Status, e.Reason)})
		return
	}
	a := RequestDecision{Rule: NoRule}
	b, reason := t.explainedBackend(&a, p, in, l, s, &full, tr)
	if a.Rule != NoRule {
		e.Rule = &a.Rule
	}
	e.Status, e.Location = a.Status, a.Location
	if b != nil {
		e.Service = b.name
		var i int
		i, reason = b.peek(in, endpoint.Request, now)
		tr.endpoints(b, i, now)
		if i == balance.None {
			tr.result("none of %d is eligible: answered %d (%s)", len(b.pool.Members()), statusUnavailable, reason)
		}
	}
	e.Reason = reason
	step := Step{Name: "outcome", Looked: "request", Result: "sent to " + e.Endpoint}
	switch {
	case e.Endpoint == "" && reason == OK && b != nil:
		step.Result = "waits in the queue of the service's circuit breaker"
	case a.Status != 0:
		step.Result = fmt.Sprintf("answered %d, Location %s", a.Status, a.Location)
	case reason != OK:
		e.Status = statusUnavailable
		step.Result = fmt.Sprintf("answered %d (%s)", e.Status, reason)
	}
	tr.add(step)
}

// explainedBackend returns the backend of a request by the MeshHTTPRoute p, or by
// MeshTCPRoutes if p is nil.
func (t *Table) explainedBackend(
	a *RequestDecision, p *policy, in *Input, l *Listener, s *Service, q *Request, tr *trace,
) (*backend, Reason) {
	if p != nil {
		return p.answer(a, s, q, tr)
	}
	src := t.source(in, l)
	b, _, reason := s.send(&src, tr)
	return b, reason
}

// Status codes of the proxy's own answers.
const (
	statusBadRequest      = 400
	statusForbidden       = 403
	statusTooManyRequests = 429
	statusUnavailable     = 503
)

// requests reports whether a connection's requests are routed individually, and
// by which MeshHTTPRoute; nil: by none, but permissions, limits or the listener look at
// them.
func (tr *trace) requests(t *Table, in *Input, l *Listener, s *Service, src *source) (*policy, bool) {
	tr.source(src)
	step := Step{Name: "protocol", Looked: "listener, source and destination"}
	client := t.protocol(src)
	step.Result = fmt.Sprintf("the source %s, the destination %s", client.text(), orTCP(s.spec.Protocol))
	var lacking []string
	if !l.readable() {
		lacking = append(lacking, "the listener passes TLS through and cannot read requests")
	}
	if !isHTTP(client.protocol) {
		lacking = append(lacking, "the source does not speak http or http2")
	}
	if !isHTTP(s.spec.Protocol) {
		lacking = append(lacking, "the destination does not speak http or http2")
	}
	acts := len(lacking) == 0
	switch {
	case acts && s.requests == nil && l.spec.HTTP.ForwardClientCert:
		step.Result += ": the listener's http.forwardClientCert applies"
	case acts && s.requests == nil && !t.readsRequests(s, l):
		step.Result += ": limits of requests apply"
	case acts && s.requests == nil:
		step.Result += ": permissions for requests apply"
	case acts:
		step.Result += ": MeshHTTPRoutes apply"
	default:
		step.Result += ": MeshTCPRoutes apply, because " + strings.Join(lacking, ", and ")
	}
	tr.add(step)
	var chosen *policy
	if acts {
		chosen = t.requestPolicy(s, src)
	}
	if s.requests != nil {
		tr.httpPolicies(s, src, chosen, acts)
	}
	return chosen, chosen != nil || acts && (t.readsRequests(s, l) || t.limitsRequests(in, src, s))
}

// addPermission adds the step that asks the permissions; q is nil for a connection.
func (tr *trace) addPermission(service string, q *Request, v *permit.Verdict) {
	looked := "connections to " + service
	if q != nil {
		looked = fmt.Sprintf("%s %s to %s", q.Method, q.Path, service)
	}
	tr.add(Step{Name: "permission", Looked: looked, Result: verdictText(v)})
}

// text says which protocol the client speaks, and the source of that fact.
func (p clientProtocol) text() string {
	switch {
	case p.tag != "":
		return fmt.Sprintf("%s (%s of the %s)", p.protocol, p.tag, layerNames[p.layer])
	case p.service != "":
		return fmt.Sprintf("%s (as Service %s)", p.protocol, p.service)
	}
	return "tcp (protocol unknown)"
}

func orTCP(protocol string) string {
	if protocol == "" {
		return "tcp"
	}
	return protocol
}

func (tr *trace) httpPolicies(s *Service, src *source, chosen *policy, acts bool) {
	step := Step{Name: "policy", Looked: "MeshHTTPRoutes to " + s.name}
	switch {
	case chosen != nil:
		step.Result = "MeshHTTPRoute " + chosen.route
	case acts:
		step.Result = "none matches this source: MeshTCPRoutes apply"
	default:
		step.Result = "they do not apply"
	}
	for _, p := range s.requests.policies {
		state := PolicyState{Name: p.route, Source: refText(&p.source), Matches: src.matches(&p.source), Wins: p == chosen}
		switch {
		case !state.Matches || state.Wins:
		case chosen != nil:
			state.Why = "lower precedence: " + p.losesTo(chosen)
		default:
			state.Why = "not applied"
		}
		step.Policies = append(step.Policies, state)
	}
	tr.add(step)
}

// maxExplainedRules bounds the listed rules of a route.
const maxExplainedRules = 100

// rules adds the rules of a route and their effects.
func (tr *trace) rules(p *policy) {
	step := Step{
		Name: "rules", Looked: "rules of " + p.route,
		Result: fmt.Sprintf("%d; requests without a matching rule go to the destination itself", len(p.http.spec)),
	}
	step.Rules = p.http.effectiveRules(maxExplainedRules)
	tr.add(step)
}

// addRule adds the step that matches a request against the rules.
func (tr *trace) addRule(p *policy, q *Request, m httprule.Match, fits bool) {
	step := Step{Name: "rule", Looked: fmt.Sprintf("%s %s in MeshHTTPRoute %s", q.Method, q.Path, p.route)}
	switch {
	case m.TooLong:
		step.Result = "undecided: a value is too long for a regular expression"
	case !fits:
		step.Result = "no rule matches: the destination itself"
	default:
		match := &p.http.spec[m.Rule].Matches[m.Index]
		step.Result = fmt.Sprintf("rules[%d].matches[%d]: %s", m.Rule, m.Index, matchText(match))
	}
	tr.add(step)
}

func (tr *trace) addRedirect(a *RequestDecision) {
	tr.add(Step{Name: "redirect", Looked: "RequestRedirect", Result: fmt.Sprintf("%d %s", a.Status, a.Location)})
}

// addRuleSplit adds the step that picks the backend of a rule.
func (tr *trace) addRuleSplit(route string, rule int, sh *shares, turn int) {
	tr.split(fmt.Sprintf("rules[%d] of %s", rule, route), sh, turn)
	if turn == noTurn {
		tr.result("no backend has both weight and endpoints: answered %d (%s)", statusUnavailable, NoBackend)
	}
}

// addFilters adds what a rule changes. Header values may be secrets, so only names
// are shown.
func (tr *trace) addFilters(rule *resource.HTTPRule, a *RequestDecision, q *Request) {
	for i := range rule.Default.Filters {
		f := &rule.Default.Filters[i]
		switch f.Type {
		case "URLRewrite":
			host, path := a.Rewrite(q.Path)
			var to []string
			if host != "" {
				to = append(to, "host "+host)
			}
			if path != "" {
				to = append(to, "path "+path)
			}
			tr.add(Step{Name: "rewrite", Looked: f.Type, Result: strings.Join(to, ", ")})
		case "RequestHeaderModifier":
			tr.add(Step{Name: "headers", Looked: f.Type, Result: f.RequestHeaderModifier.Text()})
		case "ResponseHeaderModifier":
			tr.add(Step{Name: "headers", Looked: f.Type, Result: f.ResponseHeaderModifier.Text()})
		}
	}
}
