package model

import (
	"penstock/routing"
	"penstock/routing/hostname"
)

// Route is where a connection goes: one virtual broker of one virtual cluster.
type Route struct {
	Cluster *Virtual
	Broker  *Broker
}

// Resolve finds the virtual broker for a connection at a listener, which is a
// Listener resource or a port of a cluster itself: exactly one, or the reason
// why there is none. serverName is as the client sent it; has tells an empty
// name from none.
func (t *Table) Resolve(listener, serverName string, has bool) (Route, routing.Reason) {
	if p, ok := t.ports.Get(listener); ok {
		return Route{p.cluster, p.broker}, routing.OK
	}
	l, ok := t.listeners.Get(listener)
	if !ok {
		return Route{}, routing.NoListener
	}
	if l.spec.TLS == nil {
		if l.plain == nil {
			return Route{}, routing.NoRoute
		}
		return Route{l.plain.cluster, l.plain.broker}, routing.OK
	}
	if !has {
		return Route{}, routing.NoServerName
	}
	name, ok := hostname.CheckSNI(serverName)
	if !ok {
		return Route{}, routing.BadServerName
	}
	return l.find(name)
}

// find finds the broker of a server name in normal form. No name is of two:
// that is a fault of the resources.
func (l *listener) find(name string) (Route, routing.Reason) {
	m, ok := l.names.Match(name)
	if ok && !m.Wildcard {
		return Route{m.Value.cluster, m.Value.broker}, routing.OK
	}
	if l.numbered.Len() > 0 {
		var found Route
		hostname.EachNumbered(name, func(p hostname.Numbered, n int32) bool {
			x, ok := l.numbered.Get(p.String())
			if ok {
				found = Route{x.cluster, x.cluster.node(n)}
			}
			return !ok
		})
		if found.Cluster != nil {
			return found, routing.OK
		}
	}
	if ok {
		return Route{m.Value.cluster, m.Value.broker}, routing.OK
	}
	return Route{}, routing.NoRoute
}

// Certificates names the Certificates to show to a client: those of the broker,
// or else of its cluster. The route says whose clientAuth and minVersion apply.
func (t *Table) Certificates(listener, serverName string, has bool) ([]string, Route, routing.Reason) {
	route, reason := t.Resolve(listener, serverName, has)
	if reason != routing.OK {
		return nil, Route{}, reason
	}
	if route.Broker.certificate == "" {
		return nil, route, routing.NoCertificate
	}
	return []string{route.Broker.certificate}, route, routing.OK
}
