package gateway

import (
	"fmt"
	"slices"
	"strings"

	"penstock/routing/resource"
)

// A name of a listener that ends TLS may be one that no Certificate is for. Its
// connections are closed in the handshake, so that is told at once.

// covering tells whether a Certificate is for a name, exact or a wildcard; true
// where there is none or it was not read yet.
type covering func(certificate, name string) bool

// uncovered are those of the names of a listener with connections to take that
// no Certificate is for which the listeners of its port show; all: that goes for
// every name, so that nothing gets in.
func (a *attached) uncovered(l *listening, trust func() trust, covers covering) (names []string, all bool) {
	if !l.valid() || !l.terminates() {
		return nil, false
	}
	var shown resource.ListenerTLS
	var beside []*listening
	for _, x := range a.listeners {
		if x.valid() && x.Port == l.Port {
			beside = append(beside, x)
			a.addCertificates(&shown, x, trust)
		}
	}
	if len(shown.CertificateRefs) == 0 {
		return nil, false // told as what is wrong with the references
	}
	own := slices.DeleteFunc(slices.Clone(l.order), func(name string) bool { return isolated(beside, l, name) })
	if len(own) == 0 {
		own = []string{l.hostname}
	}
	all = true
	for _, name := range own {
		if name == "" || slices.ContainsFunc(shown.CertificateRefs, func(c string) bool { return covers(c, name) }) {
			all = false
			continue
		}
		names = append(names, name)
		all = all && !strings.HasPrefix(name, "*") // of which there may be a Certificate for one
	}
	return names, all
}

// notCovered says it in words.
func notCovered(port int, names []string) string {
	return fmt.Sprintf("no Certificate shown at port %d is for %s: what none is for is closed (no_certificate)", port, some(names))
}

// warnOfNames warns of names without a Certificate at a listener, those of one
// route or, without one, of all. None is told twice in one check.
func (a *attached) warnOfNames(v *resource.View, path string, l *listening, of *route) {
	if !l.terminates() {
		return
	}
	type found struct {
		gateway  resource.Key
		listener string
	}
	type told struct {
		found
		name string
	}
	at := found{a.key, l.Name}
	names, _ := v.Once(at, func() any {
		names, _ := a.uncovered(l, viewed{v}.trust, v.Covers)
		return names
	}).([]string)
	var fresh []string
	for _, name := range names {
		if owner := l.names[name].route; of == nil || owner != nil && owner.key == of.key {
			v.Once(told{at, name}, func() any {
				fresh = append(fresh, name)
				return true
			})
		}
	}
	if len(fresh) > 0 {
		v.Warn(path, notCovered(l.Port, fresh), nil)
	}
}
