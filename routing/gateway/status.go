package gateway

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Controller is the controllerName in the status of routes.
const Controller = "penstock.internal/gateway"

// Condition is a condition of the Gateway API.
type Condition struct {
	Type               string `json:"type"`
	Status             string `json:"status"` // True or False
	ObservedGeneration uint64 `json:"observedGeneration"`
	LastTransitionTime string `json:"lastTransitionTime"`
	Reason             string `json:"reason"`
	Message            string `json:"message"`
}

// Status is the status of a Gateway.
type Status struct {
	Addresses  []StatusAddress  `json:"addresses,omitempty"`
	Conditions []Condition      `json:"conditions"`
	Listeners  []ListenerStatus `json:"listeners"`
}

// StatusAddress is an address that a Gateway has.
type StatusAddress struct {
	Type  string `json:"type"`
	Value string `json:"value"`
}

// ListenerStatus is the status of one listener.
type ListenerStatus struct {
	Name           string       `json:"name"`
	SupportedKinds []StatusKind `json:"supportedKinds"`
	AttachedRoutes int          `json:"attachedRoutes"`
	Conditions     []Condition  `json:"conditions"`
}

// StatusKind is a kind of route.
type StatusKind struct {
	Group string `json:"group"`
	Kind  string `json:"kind"`
}

// RouteStatus is the status of a route.
type RouteStatus struct {
	Parents []ParentStatus `json:"parents"`
}

// ParentStatus is the status of one parentRef.
type ParentStatus struct {
	ParentRef      StatusParent `json:"parentRef"`
	ControllerName string       `json:"controllerName"`
	Conditions     []Condition  `json:"conditions"`
}

// StatusParent is a parentRef with its group and kind filled in.
type StatusParent struct {
	Group       string `json:"group"`
	Kind        string `json:"kind"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name"`
	SectionName string `json:"sectionName,omitempty"`
	Port        int    `json:"port,omitempty"`
}

// ListenFailure returns why a node cannot listen for a listener, given its name
// as in Changed; "" if it listens or that is unknown.
type ListenFailure func(listener string) string

// Statuses computes the status of objects of a set. It caches results and is for
// a single use by one goroutine.
type Statuses struct {
	set        *validate.Set
	failed     ListenFailure
	bind       string // address of the node; "": unknown
	states     map[resource.Key]*gatewayState
	references func() references
}

// NewStatuses returns the Statuses of a set. failed may be nil.
func NewStatuses(set *validate.Set, failed ListenFailure) *Statuses {
	if failed == nil {
		failed = func(string) string { return "" }
	}
	return &Statuses{
		set: set, failed: failed, states: map[resource.Key]*gatewayState{},
		references: sync.OnceValue(func() references { return referencesIn(setObjects{set}) }),
	}
}

// WithBindAddress sets the address where the node listens for Gateways without
// addresses.
func (s *Statuses) WithBindAddress(bind string) *Statuses {
	s.bind = bind
	return s
}

// Status returns the status of an object, a *Status or a *RouteStatus; nil if
// it has none. version is the version that its conditions observed, and since
// the time from which they may hold: the transitions of a single condition are
// not tracked.
func (s *Statuses) Status(o *resource.Object, version uint64, since time.Time) any {
	c := conditions{version, since.UTC().Format(time.RFC3339)}
	if o.Kind == KindGateway {
		if a := s.state(o.Key); a != nil {
			return s.gateway(a, c)
		}
		return nil
	}
	if r := newRoute(o); r != nil {
		return s.route(r, c)
	}
	return nil
}

// setObjects finds objects in a set.
type setObjects struct{ *validate.Set }

// Users implements objects.
func (s setObjects) Users(k resource.Key) iter.Seq[resource.Object] {
	return func(yield func(resource.Object) bool) {
		var last resource.Key
		for _, u := range s.Set.Users(k) {
			if o, ok := s.Get(u.Key); ok && u.Key != last && !yield(o) {
				return
			}
			last = u.Key
		}
	}
}

func (s *Statuses) state(gateway resource.Key) *gatewayState {
	a, ok := s.states[gateway]
	if !ok {
		a = attachIn(setObjects{s.set}, gateway)
		s.states[gateway] = a
	}
	return a
}

func (s *Statuses) has(kind, name string) bool {
	_, ok := s.set.Get(resource.Key{Kind: kind, Name: name})
	return ok
}

// conditions creates the conditions of one object.
type conditions struct {
	version uint64
	since   string
}

// trueIfOK returns a condition that is True if v is ok, with the given reason
// and message.
func (c conditions) trueIfOK(what string, v verdict, reason, message string) Condition {
	status := "True"
	if !v.ok() {
		status, reason, message = "False", v.reason, v.message
	}
	return Condition{what, status, c.version, c.since, reason, message}
}

// falseIfOK returns a condition that is True if v is not ok.
func (c conditions) falseIfOK(what string, v verdict, reason string) Condition {
	if v.ok() {
		return Condition{what, "False", c.version, c.since, reason, ""}
	}
	return Condition{what, "True", c.version, c.since, v.reason, v.message}
}

func (s *Statuses) gateway(a *gatewayState, c conditions) *Status {
	out := &Status{Listeners: []ListenerStatus{}}
	out.Addresses = s.addresses(a)
	accepted := verdict{}
	if bad := a.unsupportedAddress(); bad != "" {
		accepted = verdict{reasonUnsupportedAddress, bad + " is not supported: use IPAddress"}
	}
	var invalid, idle []string
	valid, failed := 0, verdict{}
	for _, l := range a.listeners {
		refs, programmed, note := s.resolve(a, l)
		switch why := s.listenFailure(a, l); {
		case !l.valid() || !accepted.ok():
			programmed = verdict{reasonInvalid, "it is not accepted"}
		case why != "":
			programmed = verdict{reasonAddressNotUsable, why}
			failed = programmed
		}
		if !l.valid() {
			invalid = append(invalid, l.Name)
		} else if valid++; !programmed.ok() {
			idle = append(idle, l.Name)
		}
		out.Listeners = append(out.Listeners, l.status(refs, programmed, note, c))
	}
	if accepted.ok() && valid == 0 {
		accepted = verdict{reasonListenersNotValid, "no listener is accepted: " + joinNames(invalid)}
	}
	programmed := verdict{}
	switch {
	case !accepted.ok():
		programmed = verdict{reasonInvalid, "the Gateway is not accepted"}
	case !failed.ok():
		programmed = failed
	case len(idle) == valid:
		programmed = verdict{reasonInvalid, "no listener takes connections: " + joinNames(idle)}
	}
	reason, message := reasonAccepted, ""
	if len(invalid) > 0 {
		reason, message = reasonListenersNotValid, "listeners not accepted: "+joinNames(invalid)
	}
	out.Conditions = []Condition{c.trueIfOK("Accepted", accepted, reason, message), c.trueIfOK("Programmed", programmed, reasonProgrammed, "")}
	return out
}

// addresses returns the addresses where a Gateway listens: its own, or the node's.
func (s *Statuses) addresses(a *gatewayState) (list []StatusAddress) {
	const ip = "IPAddress"
	for i := range a.spec.Addresses {
		if x := &a.spec.Addresses[i]; x.isIP() {
			list = append(list, StatusAddress{ip, x.Value})
		}
	}
	if len(a.spec.Addresses) == 0 && s.bind != "" && slices.ContainsFunc(a.listeners, (*listenerState).valid) {
		list = append(list, StatusAddress{ip, s.bind})
	}
	return list
}

// listenFailure returns why the node does not listen for a listener; "" if it
// does.
func (s *Statuses) listenFailure(a *gatewayState, l *listenerState) string {
	if !l.valid() {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(a.spec.listenAddresses(l.Port))) {
		if why := s.failed(a.key.Name + "/" + name); why != "" {
			return why
		}
	}
	return ""
}

// resolve returns the verdict on the references of a listener, and on whether
// enough of them are usable for it to take connections. note names what is
// unusable if it takes connections.
func (s *Statuses) resolve(a *gatewayState, l *listenerState) (refs, programmed verdict, note string) {
	usable := 0
	if l.terminates() {
		for i := range l.Security.CertificateRefs {
			r := &l.Security.CertificateRefs[i]
			v := r.resolve(&a.spec.Origin, s.references)
			if name := a.spec.Origin.NameOf(r.Namespace, r.Name); v.ok() && !s.has(kindCertificate, name) {
				v = verdict{reasonInvalidCertificate, "there is no Certificate " + name}
			}
			if v.ok() {
				usable++
			} else if refs.ok() {
				refs = v
			}
		}
		names, all := a.uncovered(l, s.references, s.set.CertificateCovers)
		switch {
		case usable == 0:
			programmed = verdict{reasonInvalid, refs.message}
		case all:
			programmed = verdict{reasonInvalid, notCovered(l.Port, names)}
		case len(names) > 0:
			note = notCovered(l.Port, names)
		}
	}
	if len(l.unattachable) > 0 {
		refs = verdict{reasonInvalidRouteKinds, "kinds that never attach: " + joinNames(l.unattachable)}
		if len(l.kinds) == 0 {
			programmed = verdict{reasonInvalid, refs.message}
		}
	}
	return refs, programmed, note
}

func (l *listenerState) status(refs, programmed verdict, note string, c conditions) ListenerStatus {
	out := ListenerStatus{Name: l.Name, SupportedKinds: []StatusKind{}, AttachedRoutes: l.attachedRoutes}
	for _, k := range l.kinds {
		out.SupportedKinds = append(out.SupportedKinds, StatusKind{Group, k})
	}
	accepted := l.accepted
	if accepted.ok() {
		accepted = l.conflict
	}
	out.Conditions = []Condition{
		c.trueIfOK("Accepted", accepted, reasonAccepted, ""),
		c.trueIfOK("Programmed", programmed, reasonProgrammed, note),
		c.trueIfOK("ResolvedRefs", refs, reasonResolvedRefs, ""),
		c.falseIfOK("Conflicted", l.conflict, reasonNoConflicts),
	}
	return out
}

func (s *Statuses) route(r *route, c conditions) *RouteStatus {
	out := &RouteStatus{Parents: []ParentStatus{}}
	refs := s.resolveBackends(r)
	for i := range r.parents {
		p := &r.parents[i]
		at := StatusParent{Group: Group, Kind: KindGateway, Namespace: p.Namespace, Name: p.Name, SectionName: p.SectionName, Port: p.Port}
		if p.Group != nil {
			at.Group = *p.Group
		}
		if p.Kind != "" {
			at.Kind = p.Kind
		}
		accepted, message := s.parent(r, i)
		out.Parents = append(out.Parents, ParentStatus{at, Controller, []Condition{
			c.trueIfOK("Accepted", accepted, reasonAccepted, message),
			c.trueIfOK("ResolvedRefs", refs, reasonResolvedRefs, ""),
		}})
	}
	return out
}

// parent returns the verdict on a parentRef, with a message if it is accepted.
func (s *Statuses) parent(r *route, i int) (accepted verdict, message string) {
	p := &r.parents[i]
	if !p.isGateway() {
		return verdict{reasonInvalidKind, "a route attaches to a Gateway"}, ""
	}
	name := r.origin.NameOf(p.Namespace, p.Name)
	a := s.state(resource.Key{Kind: KindGateway, Name: name})
	if a == nil || a.routes[r.key] == nil {
		return verdict{reasonNoMatchingParent, "there is no Gateway " + name}, ""
	}
	done := a.routes[r.key][i]
	return done.accepted, done.conflict()
}

// resolveBackends returns the verdict on the Services of a route.
func (s *Statuses) resolveBackends(r *route) verdict {
	for i := range r.backends {
		b := &r.backends[i]
		if v := b.resolve(r, s.references); !v.ok() {
			return v
		}
		if name := r.origin.NameOf(b.Namespace, b.Name); !s.has(kindService, name) {
			return verdict{reasonBackendNotFound, fmt.Sprintf("there is no Service %s", name)}
		}
	}
	return verdict{}
}

// Problems describes the conditions of a status that do not hold, or hold only
// in part.
func Problems(status any) (words []string) {
	note := func(what string, list []Condition) {
		for _, c := range list {
			if c.Status == "True" && c.Reason == c.Type && c.Message != "" {
				words = append(words, what+" is "+c.Type+", but "+c.Message)
			}
			if c.Status == "False" && (c.Type == "Accepted" || c.Type == "ResolvedRefs" || c.Type == "Programmed" && c.Reason != reasonInvalid) {
				words = append(words, fmt.Sprintf("%s is not %s (%s): %s", what, c.Type, c.Reason, c.Message))
			}
		}
	}
	switch s := status.(type) {
	case *Status:
		note("it", s.Conditions)
		for _, l := range s.Listeners {
			note("listener "+l.Name, l.Conditions)
		}
	case *RouteStatus:
		for _, p := range s.Parents {
			note(strings.TrimSuffix("at "+p.ParentRef.Name+"/"+p.ParentRef.SectionName, "/")+" it", p.Conditions)
		}
	}
	return words
}

// Summary returns the columns that tables show of a status: whether the object
// is accepted, its references are resolved and, for a Gateway, it is programmed,
// each with the reason if not. A condition that the object does not have is "".
func Summary(status any) (accepted, resolved, programmed string) {
	switch s := status.(type) {
	case *Status:
		accepted, programmed = conditionText(s.Conditions, "Accepted"), conditionText(s.Conditions, "Programmed")
		for _, l := range s.Listeners {
			resolved = firstProblem(resolved, conditionText(l.Conditions, "ResolvedRefs"))
		}
	case *RouteStatus:
		for _, p := range s.Parents {
			accepted = firstProblem(accepted, conditionText(p.Conditions, "Accepted"))
			resolved = firstProblem(resolved, conditionText(p.Conditions, "ResolvedRefs"))
		}
	}
	return accepted, resolved, programmed
}

func conditionText(list []Condition, what string) string {
	i := slices.IndexFunc(list, func(c Condition) bool { return c.Type == what })
	switch {
	case i < 0:
		return ""
	case list[i].Status == "True" && list[i].Reason == what:
		return "True"
	}
	return list[i].Status + " (" + list[i].Reason + ")"
}

func firstProblem(a, b string) string {
	if a == "" || a == "True" {
		return b
	}
	return a
}
