package routing

import (
	"penstock/routing/hostname"
	"penstock/routing/httprule"
	"penstock/routing/resource"
)

// Request is one HTTP request on a connection whose Decision.HTTP is true.
type Request struct {
	httprule.Request
	httprule.Origin
}

// RequestDecision is the route of one request: an answer from the proxy itself, or
// endpoints, which its Decision returns in turn. It belongs to the request.
type RequestDecision struct {
	Decision
	// Route is the deciding MeshHTTPRoute, and Rule the index of its rule, or
	// NoRule. Route is "" if none decided: the request goes where connections go.
	Route string
	Rule  int
	// Status and Location are the answer of a redirect; Status is 0 otherwise.
	Status   int
	Location string

	rules *httprule.Rules // nil if no rule matches the request
	match httprule.Match
}

// BadRequest is a reason for requests only: a value exceeds the length up to
// which regular expressions are evaluated.
const BadRequest Reason = "bad_request"

// NoRule is RequestDecision.Rule if no rule matches: the request goes to the
// destination itself, as by the default rule that Kuma appends.
const NoRule = -1

// RequestHeaders changes the headers for the backend.
func (a *RequestDecision) RequestHeaders(h httprule.Headers) {
	if a.rules != nil {
		a.rules.RequestHeaders(a.match, h)
	}
}

// ResponseHeaders changes the headers for the client.
func (a *RequestDecision) ResponseHeaders(h httprule.Headers) {
	if a.rules != nil {
		a.rules.ResponseHeaders(a.match, h)
	}
}

// Rewrite returns the host and the path for the backend, or "" for each that
// does not change.
func (a *RequestDecision) Rewrite(path string) (host, newPath string) {
	if a.rules == nil {
		return "", ""
	}
	return a.rules.Rewrite(a.match, path)
}

// HTTP reports that the connection's requests are to be routed individually, by
// Table.Request: the listener can read them, client and destination speak HTTP,
// and a MeshHTTPRoute, a permission or limit for requests or http.forwardClientCert
// applies. Such a Decision has a Destination and no endpoints.
func (d *Decision) HTTP() bool { return d.http }

// Request routes one request of a connection to a destination, on this table,
// which may be newer than the connection's. It advances the split, so call it
// once per request. If requests are no longer routed individually, the request
// goes where a connection would.
//
// On failure it returns the reason; Route and Rule are set nevertheless.
func (t *Table) Request(in *Input, destination string, q *Request) (RequestDecision, Reason) {
	return t.request(in, destination, q, nil)
}

// HTTPRules returns a listener's settings for requests, with defaults. They
// must not be changed.
func (t *Table) HTTPRules(listener string) *resource.ListenerHTTP {
	if l, ok := t.listeners.Get(listener); ok {
		return &l.spec.HTTP
	}
	return &resource.ListenerHTTP{}
}

// Misdirected reports whether the host of a request belongs to another route
// than the connection's server name: a rule of the listener leads it to another
// destination, or it is of another Host. Such a request is answered 421 (RFC
// 9110, section 15.5.20). A host without a rule is not misdirected.
func (t *Table) Misdirected(in *Input, host string) bool {
	l, ok := t.listeners.Get(in.Listener)
	if !ok || l.spec.Protocol != "tls" || l.hosts.Len() == 0 {
		return false
	}
	name, _ := hostname.SplitAuthority(host)
	asked, ok := l.hosts.Match(name)
	if !ok {
		return false
	}
	sni, valid := hostname.CheckSNI(in.ServerName)
	if !in.HasServerName || !valid {
		return true
	}
	own, ok := l.hosts.Match(sni)
	if !ok {
		return true
	}
	service, protocol := own.Value.choose(in.ALPN)
	other, otherProtocol := asked.Value.choose(in.ALPN)
	return service != other || own.Value.hostFor(protocol) != asked.Value.hostFor(otherProtocol)
}

func (t *Table) request(in *Input, destination string, q *Request, tr *trace) (RequestDecision, Reason) {
	s, ok := t.services.Get(destination)
	if !ok {
		return RequestDecision{}, NoBackend
	}
	l, ok := t.listeners.Get(in.Listener)
	if !ok {
		return RequestDecision{}, NoListener
	}
	a := RequestDecision{Decision: Decision{destination: s.serviceState, request: true}}
	if l.spec.Originates() != nil { // since the connection began
		return a, OriginateConflict
	}
	if t.denies(in, l, s, q, tr) {
		return a, PermissionDenied
	}
	src := t.source(in, l)
	var b *backend
	var reason Reason
	if p := t.requestPolicy(s, &src); p != nil {
		b, reason = p.answer(&a, s, q, tr)
	} else {
		b, a.via, reason = s.send(&src, tr)
	}
	if b != nil {
		a.service, a.backend, a.outcomes, a.hash = b.serviceState, b, b.outcomes, b.hash(in)
		if reason == OK {
			reason = l.conflict(b)
		}
	}
	return a, reason
}

// answer routes a request by the rules of a MeshHTTPRoute. The backend is nil
// if a rule redirects, or on failure.
func (p *policy) answer(a *RequestDecision, s *Service, q *Request, tr *trace) (*backend, Reason) {
	a.Route, a.Rule = p.route, NoRule
	m, fits := p.http.rules.Match(&q.Request)
	tr.rule(p, q, m, fits)
	switch {
	case m.TooLong:
		return nil, BadRequest
	case !fits:
		return s.whole, OK
	}
	a.Rule, a.rules, a.match = m.Rule, p.http.rules, m
	var redirects bool
	if a.Status, a.Location, redirects = p.http.rules.Redirect(m, q.Origin, q.Path, q.Query); redirects {
		tr.redirect(a)
		return nil, OK
	}
	sh := &p.http.shares[m.Rule]
	turn := sh.turn(tr.enabled())
	tr.filters(&p.http.spec[m.Rule], a, q)
	tr.ruleSplit(p.route, m.Rule, sh, turn)
	if turn == noTurn {
		return nil, NoBackend
	}
	return sh.live[turn], OK
}
