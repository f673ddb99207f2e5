package routing

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
)

// Explanation describes step by step how a decision is made. The code that
// makes decisions produces it, without side effects: no split or balancer
// advances and no counter changes.
type Explanation struct {
	Steps []Step `json:"steps"`
	// Destination is the service that the listener names, Service the one whose
	// endpoints are used, Endpoint the address that the next such connection would
	// try first. A random balancing policy may choose another one.
	Destination string `json:"destination,omitempty"`
	Service     string `json:"service,omitempty"`
	Endpoint    string `json:"endpoint,omitempty"`
	// Reason is "" if the connection can be routed.
	Reason Reason `json:"reason,omitempty"`
	// Route is the MeshHTTPRoute by which requests are routed individually; "" if
	// the connection is routed as a whole, or only permissions look at its requests. If the query named a request, Rule is
	// the index of the matching rule, if any, and Status and Location are an
	// answer that needs no backend.
	Route    string `json:"route,omitempty"`
	Rule     *int   `json:"rule,omitempty"`
	Status   int    `json:"status,omitempty"`
	Location string `json:"location,omitempty"`
}

// Step is one step of a decision.
type Step struct {
	// Name is listener, certificate, user, name, destination, source, protocol,
	// permission, limit, policy, rules, rule, redirect, rewrite, headers, backend, endpoint or
	// outcome.
	Name   string `json:"name"`
	Looked string `json:"looked"` // the input of the step
	Result string `json:"result"` // its outcome

	Tags      []Tag           `json:"tags,omitempty"`      // of the source
	Policies  []PolicyState   `json:"policies,omitempty"`  // for the destination, in order of precedence
	Rules     []EffectiveRule `json:"rules,omitempty"`     // of a MeshHTTPRoute
	Backends  []BackendState  `json:"backends,omitempty"`  // of the winning policy
	Endpoints []EndpointState `json:"endpoints,omitempty"` // of the backend
}

// Tag is a tag of the source, with the layer that it comes from.
type Tag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"` // client, network and its prefix, listener or node
}

// PolicyState is a policy that could apply.
type PolicyState struct {
	Name    string `json:"name"`
	Source  string `json:"source"` // the sources that it selects
	Matches bool   `json:"matches"`
	Wins    bool   `json:"wins"`
	Why     string `json:"why,omitempty"` // why a matching policy does not win
}

// BackendState is one backendRef.
type BackendState struct {
	Service string  `json:"service"`
	Tags    string  `json:"tags,omitempty"` // "k=v,..."
	Weight  int     `json:"weight"`
	Share   float64 `json:"share"`             // of the connections, 0 to 1
	Skipped string  `json:"skipped,omitempty"` // why it gets no connections
	Closed  string  `json:"closed,omitempty"`  // why connections for it are closed; it keeps its share
	Next    bool    `json:"next"`              // the next connection goes there
}

// EndpointState is one endpoint.
type EndpointState struct {
	Address string `json:"address"`        // as configured
	At      string `json:"at,omitempty"`   // the resolved address, if it differs
	Tags    string `json:"tags,omitempty"` // "k=v,..."
	Weight  int    `json:"weight"`         // as configured
	// Source is the provider that found the endpoint first, at Since, or "service"
	// if the Service lists it. AlsoFrom are the other providers that report it.
	Source    string     `json:"source,omitempty"`
	AlsoFrom  []string   `json:"alsoFrom,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	Health    string     `json:"health"`            // as in status: unchecked, healthy, unhealthy, ejected or paused
	Ejected   string     `json:"ejected,omitempty"` // remaining time of the ejection
	Active    int64      `json:"active"`            // connections
	SlowStart int        `json:"grown"`             // percent of its share, by slow start
	Load      string     `json:"load,omitempty"`    // how busy it is, and what that makes of its weight
	Priority  int        `json:"priority,omitempty"`
	Backup    bool       `json:"backup,omitempty"`
	// LevelShare is the percentage of the connections that the endpoints of its
	// priority get together; left out if all have the same.
	LevelShare *float64 `json:"levelShare,omitempty"`
	Near       bool     `json:"near"` // in the preferred zone; true without zones
	// Eligible: the endpoint takes new connections; Why is the reason if not.
	// Used: it gets connections, possibly although it is not eligible, because no
	// other endpoint is.
	Eligible bool   `json:"eligible"`
	Why      string `json:"why,omitempty"`
	Used     bool   `json:"used"`
	// Error is the last failure, at ErrorAt.
	Error   string     `json:"error,omitempty"`
	ErrorAt *time.Time `json:"errorAt,omitempty"`
}

// Explain describes how a connection would be routed now.
func (t *Table) Explain(in *Input, now time.Time) Explanation { return t.explain(in, nil, now) }

// explain describes a connection, and one of its requests if q is not nil.
func (t *Table) explain(in *Input, q *Request, now time.Time) Explanation {
	tr := &trace{discovered: t.discovered}
	e := &tr.explanation
	s, l, reason := t.resolve(in, tr)
	if t.handshake(in, tr) == NoCertificate {
		reason = NoCertificate
	}
	if reason == OK {
		e.Destination = s.name
		src := t.source(in, l)
		if s.requests != nil || t.readsRequests(s, l) || t.limitsRequests(in, &src, s) {
			if p, ok := tr.requests(t, in, l, s, &src); ok && l.spec.Originates() != nil {
				tr.outcome(OriginateConflict)
				return *e
			} else if ok {
				t.explainRequests(p, in, l, s, q, now, tr)
				return *e
			}
		}
		if t.denies(in, l, s, nil, tr) {
			reason = PermissionDenied
		} else {
			reason = tr.limits(t, in, s.name, false)
		}
		var b *backend
		if reason == OK {
			b, _, reason = t.route(in, l, s, tr)
		}
		if reason == OK {
			if reason = l.conflict(b); reason == NoBackend {
				tr.misfit(l, b)
			}
		}
		if reason == OK {
			e.Service = b.name
			var i int
			i, reason = b.peek(in, endpoint.Connection, now)
			tr.endpoints(b, i, now)
		}
	}
	tr.outcome(reason)
	if q != nil {
		tr.result("%s; requests are not routed individually", e.Steps[len(e.Steps)-1].Result)
	}
	return *e
}

// peek returns the member that the next one of a kind would go to, or why there is
// none: balance.Full with OK if it would wait.
func (b *backend) peek(in *Input, kind endpoint.Kind, now time.Time) (int, Reason) {
	q := balance.Query{Now: now, Hash: b.hash(in), Peek: true, Kind: kind}
	if breaker := b.group.Breaker(); breaker != nil {
		q.Bounds = &breaker.Endpoint
	}
	i := b.pool.Pick(&q)
	switch {
	case i == balance.None:
		return i, b.unavailable()
	case i != balance.Full && !b.group.Full(kind) && b.queue.waiting.Load() == 0:
		return i, OK
	case b.queue.room():
		return balance.Full, OK
	}
	return balance.Full, Overflow
}

// handshake adds the certificate step for a connection whose TLS the listener
// terminates. The step precedes the destination, which reports a bad or missing
// server name.
func (t *Table) handshake(in *Input, tr *trace) Reason {
	l, ok := t.listeners.Get(in.Listener)
	if !ok || l.spec.TLS == nil || l.spec.TLS.Mode != "terminate" || l.speaksMySQL() && !in.HasServerName {
		return OK
	}
	refs, reason := l.Certificates(in.ServerName, in.HasServerName)
	if reason == OK || reason == NoCertificate {
		tr.certificate(in, refs, reason)
	}
	return reason
}

// Text renders the explanation for people, one line per step and per item in
// it.
func (e *Explanation) Text() string {
	var b strings.Builder
	for _, s := range e.Steps {
		fmt.Fprintf(&b, "%-12s %s: %s\n", s.Name, s.Looked, s.Result)
		for _, t := range s.Tags {
			fmt.Fprintf(&b, "  %s=%s (%s)\n", t.Name, t.Value, t.From)
		}
		for _, p := range s.Policies {
			fmt.Fprintf(&b, "  %s\n", p.text())
		}
		for i, r := range s.Rules {
			fmt.Fprintf(&b, "  rules[%d] %s\n", i, r.Text())
		}
		for _, x := range s.Backends {
			fmt.Fprintf(&b, "  %s\n", x.text())
		}
		for _, x := range s.Endpoints {
			fmt.Fprintf(&b, "  %s\n", x.text())
		}
	}
	return b.String()
}

func (p *PolicyState) text() string {
	switch {
	case p.Wins:
		return fmt.Sprintf("%s for %s: wins", p.Name, p.Source)
	case p.Why != "":
		return fmt.Sprintf("%s for %s: matches, %s", p.Name, p.Source, p.Why)
	case p.Matches:
		return fmt.Sprintf("%s for %s: matches, lower precedence", p.Name, p.Source)
	}
	return fmt.Sprintf("%s for %s: does not match", p.Name, p.Source)
}

func (x *BackendState) text() string {
	s := x.Service
	if x.Tags != "" {
		s += " {" + x.Tags + "}"
	}
	s += fmt.Sprintf(" weight %d, share %.4g %%", x.Weight, x.Share*100)
	if x.Skipped != "" {
		s += ": skipped, " + x.Skipped
	}
	if x.Closed != "" {
		s += ": closed, " + x.Closed
	}
	if x.Next {
		s += ": picked next"
	}
	return s
}

func (x *EndpointState) text() string {
	s := x.Address
	if x.At != "" {
		s += " at " + x.At
	}
	if x.Tags != "" {
		s += " {" + x.Tags + "}"
	}
	s += fmt.Sprintf(" weight %d, %s, %d active", x.Weight, x.Health, x.Active) + x.originText()
	if x.SlowStart < 100 {
		s += fmt.Sprintf(", slow start at %d %%", x.SlowStart)
	}
	if x.Load != "" {
		s += ", " + x.Load
	}
	if x.LevelShare != nil {
		s += fmt.Sprintf(", priority %s with %.4g %%", PriorityText(x.Priority, x.Backup), *x.LevelShare)
	}
	if !x.Near {
		s += ", in another zone"
	}
	if !x.Eligible {
		s += ": not eligible, " + x.Why
		if x.Used {
			s += "; used anyway"
		}
		if x.Error != "" {
			s += " (" + x.Error + ")"
		}
	}
	return s
}

// PriorityText returns a priority as people read it.
func PriorityText(priority int, backup bool) string {
	if backup {
		return fmt.Sprintf("backup %d", priority)
	}
	return strconv.Itoa(priority)
}

// originText says which providers found the endpoint; "" if none did.
func (x *EndpointState) originText() string {
	var s string
	if x.Since != nil {
		s = ", from " + x.Source + " since " + x.Since.UTC().Format(time.RFC3339)
	}
	if len(x.AlsoFrom) > 0 {
		s += ", also from " + strings.Join(x.AlsoFrom, " and ")
	}
	return s
}

func (x *EndpointState) setOrigin(o Origin) {
	x.Source, x.AlsoFrom = o.Source, o.AlsoFrom
	if !o.Since.IsZero() {
		x.Since = &o.Since
	}
}

// state describes member i of a backend's pool.
func (b *backend) state(i int, now time.Time) EndpointState {
	m := b.pool.Members()[i]
	c := b.group.Condition(m.Endpoint, now)
	x := EndpointState{
		Address: m.Address, Tags: tagList(m.Tags), Weight: m.Weight, Health: string(c.State),
		Used: b.pool.Uses(i, now), Error: c.Error, Load: m.Load().String(),
		Active: m.Active(), SlowStart: int(b.pool.SlowStartShare(i, now) * 100), Near: m.Weight == 0 || !b.pool.Matches(i) || b.pool.Near(i),
	}
	if at := m.Addr.String(); m.Addr.IsValid() && at != m.Address {
		x.At = at
	}
	if m.Ejected(now) {
		x.Ejected = m.EjectedUntil().Sub(now).Round(time.Millisecond).String()
	}
	if c.Error != "" {
		x.ErrorAt = &c.ErrorAt
	}
	x.Priority, x.Backup = m.Level%balance.Backup, m.Level >= balance.Backup
	if b.pool.Levels() {
		share := b.pool.LevelShare(i, now) * 100
		x.LevelShare = &share
	}
	x.Why = c.Reason
	if !b.pool.Matches(i) {
		x.Why = b.mismatch(m.Tags)
	}
	if m.Weight == 0 {
		x.Why = "its weight is 0"
	}
	x.Eligible = x.Why == ""
	return x
}
