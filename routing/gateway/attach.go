package gateway

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/routing/hostname"
	"penstock/routing/resource"
)

// Condition reasons of the Gateway API.
const (
	reasonAccepted            = "Accepted"
	reasonResolvedRefs        = "ResolvedRefs"
	reasonProgrammed          = "Programmed"
	reasonInvalid             = "Invalid"
	reasonNoConflicts         = "NoConflicts"
	reasonHostnameConflict    = "HostnameConflict"
	reasonProtocolConflict    = "ProtocolConflict"
	reasonUnsupportedProtocol = "UnsupportedProtocol"
	reasonUnsupportedValue    = "UnsupportedValue"
	reasonInvalidRouteKinds   = "InvalidRouteKinds"
	reasonInvalidCertificate  = "InvalidCertificateRef"
	reasonListenersNotValid   = "ListenersNotValid"
	reasonUnsupportedAddress  = "UnsupportedAddress"
	reasonAddressNotUsable    = "AddressNotUsable"
	reasonNoMatchingParent    = "NoMatchingParent"
	reasonNotAllowed          = "NotAllowedByListeners"
	reasonNoHostname          = "NoMatchingListenerHostname"
	reasonBackendNotFound     = "BackendNotFound"
	reasonInvalidKind         = "InvalidKind"
	reasonRefNotPermitted     = "RefNotPermitted"
)

// verdict is a condition's reason with its message; without a reason it is ok.
type verdict struct{ reason, message string }

func (v verdict) ok() bool { return v.reason == "" }

// route is a TCPRoute or a TLSRoute in parsed form.
type route struct {
	key       resource.Key
	origin    *Origin
	created   time.Time
	parents   []ParentRef
	hostnames []string // in normal form; nil: every name
	backends  []BackendRef
}

// newRoute parses the route of an object; nil if the object is none.
func newRoute(o *resource.Object) *route {
	r := &route{key: o.Key}
	switch s := o.Spec.(type) {
	case *TLSRoute:
		r.origin, r.parents = &s.Origin, s.ParentRefs
		if len(s.Rules) > 0 {
			r.backends = s.Rules[0].BackendRefs
		}
		if len(s.Hostnames) > 0 { // invalid hostnames must not mean every name
			r.hostnames = []string{}
		}
		for _, name := range s.Hostnames {
			if pattern, err := hostname.ParsePattern(name); err == nil {
				r.hostnames = append(r.hostnames, pattern)
			}
		}
	case *TCPRoute:
		r.origin, r.parents = &s.Origin, s.ParentRefs
		if len(s.Rules) > 0 {
			r.backends = s.Rules[0].BackendRefs
		}
	default:
		return nil
	}
	r.created = r.origin.created()
	return r
}

// destination returns the name of the route as a destination. No Service has a
// '/' in its name.
func (r *route) destination() string { return r.key.Kind + "/" + r.key.Name }

// compare orders routes by precedence: oldest first, those without a creation
// time last, then by namespace and name.
func (r *route) compare(q *route) int {
	if a, b := r.created, q.created; !a.Equal(b) {
		switch {
		case a.IsZero():
			return 1
		case b.IsZero():
			return -1
		}
		return a.Compare(b)
	}
	return cmp.Or(
		cmp.Compare(r.origin.namespace(), q.origin.namespace()),
		cmp.Compare(r.key.Name, q.key.Name),
		cmp.Compare(r.key.Kind, q.key.Kind),
	)
}

// listenerState is a listener of a Gateway with the routes that attach to it.
type listenerState struct {
	*Listener
	protocol       string // in upper case
	hostname       string // in normal form; "": every name
	kinds          []string
	unattachable   []string // kinds of routes that it allows but that never attach
	accepted       verdict
	conflict       verdict
	names          map[string]nameOwner // by server name; "": all others
	order          []string             // of names
	attachedRoutes int
}

func (l *listenerState) valid() bool { return l.accepted.ok() && l.conflict.ok() }

// nameOwner is the route that has a name of a listener, and the hostname that
// gives it.
type nameOwner struct {
	*route
	hostname string
}

// attachment is the result of one parentRef of a route.
type attachment struct {
	accepted verdict
	route    *route
	at       []*listenerState // listeners that it attaches to
}

// gatewayState is a Gateway with the routes that attach to it.
type gatewayState struct {
	key       resource.Key
	spec      *Gateway
	listeners []*listenerState
	// routes has the attachment of each parentRef, by the route's key; nil for
	// other parents.
	routes map[resource.Key][]*attachment
}

// attach attaches routes, given in order of precedence, to a Gateway.
func attach(name string, g *Gateway, routes []*route) *gatewayState {
	a := &gatewayState{
		key:    resource.Key{Kind: KindGateway, Name: name},
		spec:   g,
		routes: make(map[resource.Key][]*attachment, len(routes)),
	}
	a.listeners = listenersOf(g)
	for _, r := range routes {
		list := make([]*attachment, len(r.parents))
		counted := map[*listenerState]bool{}
		for i := range r.parents {
			p := &r.parents[i]
			if p.isGateway() && r.origin.NameOf(p.Namespace, p.Name) == name {
				list[i] = a.attach(r, p, counted)
			}
		}
		a.routes[r.key] = list
	}
	return a
}

// listenersOf parses the listeners of a Gateway and marks their conflicts.
func listenersOf(g *Gateway) []*listenerState {
	list := make([]*listenerState, len(g.Listeners))
	for i := range g.Listeners {
		l := &listenerState{Listener: &g.Listeners[i], protocol: strings.ToUpper(g.Listeners[i].Protocol), names: map[string]nameOwner{}}
		l.kinds, l.unattachable = l.allowedKinds()
		if l.Hostname != "" {
			var err error
			if l.hostname, err = hostname.ParsePattern(l.Hostname); err != nil {
				l.accepted = verdict{reasonUnsupportedValue, fmt.Sprintf("hostname: %v", err)}
			}
		}
		if l.protocol != "TCP" && l.protocol != "TLS" {
			l.accepted = verdict{reasonUnsupportedProtocol, fmt.Sprintf("protocol %s is not supported: use TLS or TCP", l.Protocol)}
		}
		list[i] = l
	}
	for i, l := range list {
		for _, other := range list[:i] {
			if other.Port == l.Port {
				l.markConflict(other)
			}
		}
	}
	return list
}

// markConflict marks a conflict of two listeners of one port. Neither of them
// wins.
func (l *listenerState) markConflict(other *listenerState) {
	both := func(reason, why string) {
		for _, x := range [][2]*listenerState{{l, other}, {other, l}} {
			if x[0].conflict.ok() {
				x[0].conflict = verdict{reason, fmt.Sprintf("%s that of listener %s on port %d", why, x[1].Name, l.Port)}
			}
		}
	}
	switch {
	case l.portProtocol() == "" || other.portProtocol() == "":
	case l.portProtocol() != other.portProtocol():
		both(reasonProtocolConflict, "protocol differs from")
	case l.hostname == other.hostname:
		both(reasonHostnameConflict, "hostname equals")
	case l.protocol == "TLS" && other.protocol == "TLS" && l.terminates() != other.terminates():
		both(reasonProtocolConflict, "tls.mode differs from")
	}
}

// portProtocol returns the protocol that all listeners of one port must have:
// TLS and HTTPS can share a port by server name. "" conflicts with nothing.
func (l *listenerState) portProtocol() string {
	switch l.protocol {
	case "TLS", "HTTPS":
		return "TLS"
	case "TCP", "HTTP":
		return l.protocol
	}
	return ""
}

func (l *listenerState) terminates() bool { return l.Security != nil && l.Security.terminates() }

// attach attaches a route by one of its parentRefs.
func (a *gatewayState) attach(r *route, p *ParentRef, counted map[*listenerState]bool) *attachment {
	var found []*listenerState
	for _, l := range a.listeners {
		if (p.SectionName == "" || p.SectionName == l.Name) && (p.Port == 0 || p.Port == l.Port) {
			found = append(found, l)
		}
	}
	done := &attachment{route: r}
	refuse := func(reason, format string, args ...any) *attachment {
		done.accepted = verdict{reason, fmt.Sprintf(format, args...)}
		return done
	}
	if len(found) == 0 {
		return refuse(reasonNoMatchingParent, "%s has no listener %s", a.key, p.listenerText())
	}
	allowed, notAllowed := a.allowedListeners(r, found)
	if len(allowed) == 0 {
		done.accepted = notAllowed
		return done
	}
	named, invalid := false, verdict{}
	done.at = allowed[:0] // in place: a Gateway may have thousands of routes
	for _, l := range allowed {
		names := intersection(l.hostname, r.hostnames)
		if len(names) == 0 {
			continue
		}
		named = true
		if !counted[l] {
			counted[l] = true
			l.attachedRoutes++
		}
		if !l.valid() {
			invalid = l.accepted
			if invalid.ok() {
				invalid = l.conflict
			}
			invalid.message = "listener " + l.Name + " is not accepted: " + invalid.message
			continue
		}
		done.at = append(done.at, l) // even if it gets no name: the other route may be deleted
		l.assignNames(r, names)
	}
	switch {
	case !named:
		return refuse(reasonNoHostname, "no listener has a hostname in common with %s", joinNames(r.hostnames))
	case len(done.at) == 0:
		return refuse(reasonNoMatchingParent, "%s", invalid.message)
	}
	return done
}

// conflict describes the names that the route lost to others; "" if it has all.
func (d *attachment) conflict() string {
	var lost nameList
	var by *route
	won := false
	for _, l := range d.at {
		for _, x := range intersection(l.hostname, d.route.hostnames) {
			switch owner := l.names[x.name]; owner.route {
			case d.route:
				won = true
			default:
				if by == nil {
					by = owner.route
				}
				lost.add(x.name)
			}
		}
	}
	if by == nil {
		return ""
	}
	names := lost.String()
	if lost.first[0] == "" {
		names = "all connections"
	}
	message := by.key.String() + " takes precedence for " + names + " by hostname, age or name"
	if !won {
		message += ": this route gets no connections here"
	}
	return message
}

// assignNames gives a route the names of a listener that are free, and those
// that another route has by a wider hostname: in the Gateway API the most
// specific match precedes the older route.
func (l *listenerState) assignNames(r *route, names []matchedName) {
	for _, x := range names {
		owner, taken := l.names[x.name]
		if !taken {
			l.order = append(l.order, x.name)
		}
		if !taken || x.hostname != owner.hostname && covers(owner.hostname, x.hostname) {
			l.names[x.name] = nameOwner{r, x.hostname}
		}
	}
}

// listenerText describes the listeners that a parentRef selects.
func (p *ParentRef) listenerText() string {
	s := p.SectionName
	if p.Port != 0 {
		s = strings.TrimSpace(fmt.Sprintf("%s on port %d", s, p.Port))
	}
	return s
}

// allowedListeners returns the listeners that a route may attach to, or why
// there are none.
func (a *gatewayState) allowedListeners(r *route, found []*listenerState) (allowed []*listenerState, why verdict) {
	fits := false
	for _, l := range found {
		fits = fits || slices.Contains(l.routeKinds(), r.key.Kind)
		if slices.Contains(l.kinds, r.key.Kind) && l.allows(r.origin.namespace(), a.spec.Origin.namespace()) {
			allowed = append(allowed, l)
		}
	}
	switch {
	case len(allowed) > 0:
		return allowed, verdict{}
	case !fits && r.key.Kind == KindTLSRoute:
		return nil, verdict{reasonNotAllowed, "a TLSRoute needs a listener with protocol TLS"}
	case !fits:
		return nil, verdict{reasonNotAllowed, "a TCPRoute needs a listener with protocol TCP, or with protocol TLS and mode Terminate"}
	}
	return nil, verdict{
		reasonNotAllowed,
		fmt.Sprintf("no listener's allowedRoutes permits a %s of namespace %s", r.key.Kind, r.origin.namespace()),
	}
}

// allows reports whether routes of a namespace may attach.
func (l *listenerState) allows(namespace, own string) bool {
	if l.AllowedRoutes == nil || l.AllowedRoutes.Namespaces == nil {
		return namespace == own
	}
	switch n := l.AllowedRoutes.Namespaces; n.From {
	case "All":
		return true
	case "None":
		return false
	case "Selector":
		return n.Labels != nil && n.Labels.matches(map[string]string{"kubernetes.io/metadata.name": namespace})
	}
	return namespace == own
}

// matches reports whether the selector matches labels.
func (s *Selector) matches(labels map[string]string) bool {
	for k, v := range s.MatchLabels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		v, ok := labels[e.Key]
		listed := ok && slices.Contains(e.Values, v)
		if e.Operator == "In" && !listed || e.Operator == "NotIn" && listed ||
			e.Operator == "Exists" && !ok || e.Operator == "DoesNotExist" && ok {
			return false
		}
	}
	return true
}

// matchedName is a name that a route has at a listener, and the hostname that
// gives it.
type matchedName struct{ name, hostname string }

// intersection returns the names that a route has at a listener: the route's
// hostnames that the listener's covers, and the listener's hostname where it is
// the narrower one. "" is every name.
func intersection(listener string, hostnames []string) (names []matchedName) {
	if hostnames == nil {
		return []matchedName{{listener, ""}}
	}
	for _, own := range hostnames {
		switch {
		case covers(listener, own):
			names = append(names, matchedName{own, own})
		case covers(own, listener):
			names = append(names, matchedName{listener, own})
		}
	}
	return names
}

// covers reports whether all names of a pattern also match the wider one. "" is
// the pattern of every name.
func covers(wider, pattern string) bool {
	if wider == "" || wider == pattern {
		return true
	}
	suffix, wild := strings.CutPrefix(wider, "*")
	if !wild {
		return false
	}
	if inner, isWild := strings.CutPrefix(pattern, "*"); isWild {
		return strings.HasSuffix(inner, suffix)
	}
	return strings.HasSuffix(pattern, suffix)
}
