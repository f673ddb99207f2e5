package routing

import (
	"penstock/routing/httprule"
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
	// Route decided, by its rule of that index; "": none did, and the request
	// goes where connections go.
	Route string
	Rule  int
	// Status, when not 0, and Location are the answer: the rule redirects.
	Status   int
	Location string

	rules *httprule.Rules
	match httprule.Match
}

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
// Table.Request: it and its destination speak HTTP, and a MeshHTTPRoute is for
// it. Such a Decision has a Destination and no endpoints.
func (d *Decision) HTTP() bool { return false }

// Request decides about one request of a connection to a destination, on this
// table, which may be a later one than the connection's. It takes the request's
// turn in a split, so it is called once for each.
func (t *Table) Request(in *Input, destination string, q *Request) (Answered, Reason) {
	s, ok := t.services.Get(destination)
	if !ok {
		return Answered{}, NoBackend
	}
	l, ok := t.listeners.Get(in.Listener)
	if !ok {
		return Answered{}, NoListener
	}
	b, reason := t.route(in, l, s, nil)
	if reason != OK {
		return Answered{Decision: Decision{destination: s.life}}, reason
	}
	return Answered{Decision: Decision{destination: s.life, service: b.life, backend: b, hash: b.hash(in)}}, OK
}
