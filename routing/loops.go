package routing

import (
	"slices"

	"penstock/routing/provider"
)

// LeadsTo reports whether connections to a listener may go to an endpoint of a
// service: because a name or the listener leads there, or because a route does.
func (t *Table) LeadsTo(listener, service string) bool {
	l, ok := t.listeners.Get(listener)
	if !ok {
		return false
	}
	routed, _ := t.backendOf.Get(service)
	leads := func(destination string) bool {
		return destination != "" && (destination == service || slices.Contains(routed, destination))
	}
	if leads(l.spec.Service) {
		return true
	}
	for _, target := range l.hosts.All() {
		if leads(target.service) || slices.ContainsFunc(target.limited, func(r limited) bool { return leads(r.service) }) {
			return true
		}
	}
	return false
}

// LeadsToUser reports whether a listener leads to a service that uses what a
// provider found.
func (t *Table) LeadsToUser(listener string, ref provider.Ref) bool {
	users, _ := t.usesRef.Get(refKey(ref))
	return slices.ContainsFunc(users, func(service string) bool { return t.LeadsTo(listener, service) })
}
