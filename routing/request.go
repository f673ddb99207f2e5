package routing

import (
	"fmt"

	"penstock/routing/hostname"
	"penstock/routing/httprule"
	"penstock/routing/resource"
)

// Request is one request of HTTP, on a connection whose Decision says HTTP.
type Request struct {
	httprule.Request
	httprule.Origin
}

// Answered is where one request goes: to an answer from here, or to endpoints,
// of which its Decision names one after the other. It belongs to the request.
type Answered struct {
	Decision
	// Route is the MeshHTTPRoute that decided, by its rule of that index, or by
	// NoRule. "": none did, and the request goes where connections go.
	Route string
	Rule  int
	// Status, when not 0, and Location are the answer: the rule redirects.
	Status   int
	Location string

	rules *httprule.Rules // nil: no rule is for the request
	match httprule.Match
}

// BadRequest is the reason that no connection has, only a request: a value is
// longer than the expression that would decide is tried on.
const BadRequest Reason = "bad_request"

// NoRule is Answered.Rule where none of the rules fits: the request goes to the
// destination itself, as by the rule that Kuma appends to all others.
const NoRule = -1

// RequestHeaders changes the headers that the backend gets.
func (a *Answered) RequestHeaders(h httprule.Headers) {
	if a.rules != nil {
		a.rules.RequestHeaders(a.match, h)
	}
}

// ResponseHeaders changes the headers that the client gets.
func (a *Answered) ResponseHeaders(h httprule.Headers) {
	if a.rules != nil {
		a.rules.ResponseHeaders(a.match, h)
	}
}

// Rewrite gives the host and the path that the backend sees; "" where the
// client's stays.
func (a *Answered) Rewrite(path string) (host, newPath string) {
	if a.rules == nil {
		return "", ""
	}
	return a.rules.Rewrite(a.match, path)
}

// HTTP tells that the connection's requests are to be routed one by one, by
// Table.Request: it can be read, it and its destination speak HTTP, and a
// MeshHTTPRoute is for it. Such a Decision has a Destination and no endpoints.
func (d *Decision) HTTP() bool { return d.http }

// Request decides about one request of a connection to a destination, on this
// table, which may be a later one than the connection's. It takes the request's
// turn in a split, so it is called once for each. Where requests are no longer
// routed one by one it goes where a connection would.
//
// The reason says why there is no way; Route and Rule are set all the same.
func (t *Table) Request(in *Input, destination string, q *Request) (Answered, Reason) {
	return t.request(in, destination, q, nil)
}

// HTTPRules are what a listener says about requests, with its defaults. They
// must not be changed.
func (t *Table) HTTPRules(listener string) *resource.ListenerHTTP {
	if l, ok := t.listeners.Get(listener); ok {
		return &l.spec.HTTP
	}
	return &resource.ListenerHTTP{}
}

// Misdirected tells whether the host that a request names is somebody else's
// than the server name that its connection began with: a rule of the listener
// leads it to another destination, or it is of another Host. Such a request is
// answered 421 (RFC 9110, section 15.5.20). A host that no rule has is none.
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

func (t *Table) request(in *Input, destination string, q *Request, tr *trace) (Answered, Reason) {
	s, ok := t.services.Get(destination)
	if !ok {
		return Answered{}, NoBackend
	}
	l, ok := t.listeners.Get(in.Listener)
	if !ok {
		return Answered{}, NoListener
	}
	a := Answered{Decision: Decision{destination: s.serviceState, request: true}}
	src := t.source(in, l)
	var b *backend
	var reason Reason
	if p := t.requestPolicy(s, &src); p != nil {
		b, reason = p.answer(&a, s, q, tr)
	} else {
		b, reason = s.send(&src, tr)
	}
	if b != nil {
		a.service, a.backend, a.tally, a.hash = b.serviceState, b, b.tally, b.hash(in)
	}
	return a, reason
}

// answer decides about a request by the rules of a MeshHTTPRoute. There is no
// backend where it is answered from here.
func (p *policy) answer(a *Answered, s *Service, q *Request, tr *trace) (*backend, Reason) {
	a.Route, a.Rule = p.route, NoRule
	m, fits := p.http.rules.Match(&q.Request)
	if tr != nil {
		tr.rule(p, q, m, fits)
	}
	switch {
	case m.TooLong:
		return nil, BadRequest
	case !fits:
		return s.whole, OK
	}
	a.Rule, a.rules, a.match = m.Rule, p.http.rules, m
	var redirects bool
	if a.Status, a.Location, redirects = p.http.rules.Redirect(m, q.Origin, q.Path, q.Query); redirects {
		if tr != nil {
			tr.redirect(a)
		}
		return nil, OK
	}
	sh := &p.http.shares[m.Rule]
	turn := sh.turn(tr != nil)
	if tr != nil {
		tr.filters(&p.http.spec[m.Rule], a, q)
		tr.split(fmt.Sprintf("rules[%d] of %s", m.Rule, p.route), sh, turn)
	}
	if turn == nowhere {
		if tr != nil {
			tr.result("none leads anywhere: answered %d (%s)", statusUnavailable, NoBackend)
		}
		return nil, NoBackend
	}
	return sh.live[turn], OK
}
