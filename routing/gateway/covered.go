package gateway

import (
	"fmt"
	"slices"
	"strings"

	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// A listener that terminates TLS may have names that no Certificate is valid
// for. Their connections fail in the handshake, so checks and status report
// them.

// coverFunc reports whether a Certificate is valid for a name, exact or a
// wildcard. It returns true if the Certificate is missing or was not read yet.
type coverFunc func(certificate, name string) bool

// uncovered returns the names of a valid listener that no Certificate presented
// at its port is valid for. all reports that this holds for every name, so that
// the listener can take no connection.
func (a *gatewayState) uncovered(l *listenerState, refs func() references, covers coverFunc) (names []string, all bool) {
	if !l.valid() || !l.terminates() {
		return nil, false
	}
	var presented resource.ListenerTLS
	var samePort []*listenerState
	for _, x := range a.listeners {
		if x.valid() && x.Port == l.Port {
			samePort = append(samePort, x)
			a.addCertificates(&presented, x, refs)
		}
	}
	if len(presented.CertificateRefs) == 0 {
		return nil, false // reported as a fault of the references
	}
	own := slices.DeleteFunc(slices.Clone(l.order), func(name string) bool { return isolated(samePort, l, name) })
	if len(own) == 0 {
		own = []string{l.hostname}
	}
	all = true
	for _, name := range own {
		if name == "" || slices.ContainsFunc(presented.CertificateRefs, func(c string) bool { return covers(c, name) }) {
			all = false
			continue
		}
		names = append(names, name)
		all = all && !strings.HasPrefix(name, "*") // a Certificate may be valid for some of its names
	}
	return names, all
}

// notCovered formats the message for uncovered names.
func notCovered(port int, names []string) string {
	return fmt.Sprintf("no Certificate at port %d is valid for %s: such connections are closed (no_certificate)", port, joinNames(names))
}

// warnOfNames warns of names without a Certificate at a listener: those of one
// route, or all if of is nil. One check reports each name once.
func (a *gatewayState) warnOfNames(v *validate.View, path string, l *listenerState, of *route) {
	if !l.terminates() {
		return
	}
	type listenerKey struct {
		gateway  resource.Key
		listener string
	}
	type nameKey struct {
		listenerKey
		name string
	}
	at := listenerKey{a.key, l.Name}
	names, _ := v.Once(at, func() any {
		names, _ := a.uncovered(l, checkView{v}.references, v.CertificateCovers)
		return names
	}).([]string)
	var fresh []string
	for _, name := range names {
		if owner := l.names[name].route; of == nil || owner != nil && owner.key == of.key {
			v.Once(nameKey{at, name}, func() any {
				fresh = append(fresh, name)
				return true
			})
		}
	}
	if len(fresh) > 0 {
		v.Warn(path, notCovered(l.Port, fresh), nil)
	}
}
