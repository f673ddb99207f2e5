// Package expiry tracks how long the certificates that a node presents are valid, and the
// CAs that it verifies its peers by. It covers all that are in force on this node,
// wherever they come from: resources, files, certificate authorities.
//
//	t := expiry.New()
//	t.Watch("--http-cert", expiry.Presented, func() []*x509.Certificate { ... })
//	t.Apply(changes)                     // as the data plane gets them
//	list := t.Problems("n1", time.Now()) // what has expired, or will soon
//
// It parses only what changes; State costs as much as its result is long.
package expiry

import (
	"cmp"
	"crypto/x509"
	"fmt"
	"slices"
	"sync"
	"time"

	"penstock/routing/resource"
)

// Role says what a node does with certificates.
type Role string

// The roles.
const (
	Presented Role = "certificate" // it shows them to its peers
	Trusted   Role = "ca"          // it verifies its peers by them
)

// A certificate ends soon when less than SoonTime is left, and less than a quarter of
// its life: one that is renewed at half of its life, or at two thirds, never does.
const (
	SoonTime  = 14 * 24 * time.Hour
	soonShare = 4
)

// maxProblems bounds the list of Problems.
const maxProblems = 100

// Tracker has the certificates in force on a node. Its methods are safe for
// concurrent use.
type Tracker struct {
	mu      sync.Mutex
	entries map[key]entry
	watched map[key]func() []*x509.Certificate
}

// key names a group of certificates.
type key struct {
	resource string // "Certificate/shop"
	role     Role
}

// entry is a group of certificates as it came into force.
type entry struct {
	certs []validity
	// since is when certificates came into force that their source renews: their life
	// counts from then. Zero: it counts from NotBefore.
	since time.Time
	local bool // other nodes may have others
}

// validity is the time in which one certificate is valid.
type validity struct{ from, until time.Time }

// New returns a Tracker that knows of no certificate.
func New() *Tracker {
	return &Tracker{entries: map[key]entry{}, watched: map[key]func() []*x509.Certificate{}}
}

// Watch adds certificates that belong to no resource: get returns those in force, if any. It is called before all other methods.
func (t *Tracker) Watch(name string, role Role, get func() []*x509.Certificate) {
	t.watched[key{name, role}] = get
}

// Apply takes changes of resources, with all content, as they come into force.
func (t *Tracker) Apply(changes []resource.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range changes {
		ch := &changes[i]
		var shown, trusted []validity
		if c, ok := ch.Spec.(*resource.Certificate); ok && !ch.Delete {
			shown = parse(c.Cert)
		}
		if spec, ok := ch.Spec.(resource.Truster); ok && !ch.Delete {
			for _, text := range spec.TrustedCAs() {
				trusted = append(trusted, parse(text)...)
			}
		}
		e := entry{}
		if !ch.Delete {
			e = source(ch.Spec)
		}
		e.certs = shown
		t.put(key{ch.String(), Presented}, e)
		e.certs = trusted
		t.put(key{ch.String(), Trusted}, e)
	}
}

// source returns an entry without certificates for a spec: whether each node has its
// own, and whether somebody renews them.
func source(spec resource.Spec) (e entry) {
	if f, ok := spec.(resource.Follower); ok && len(f.Followed()) > 0 {
		e.local = true
	}
	c, isCert := spec.(*resource.Certificate)
	u, isUser := spec.(resource.BundleUser)
	if isUser {
		name, _ := u.BundleRef()
		isUser = name != ""
	}
	if isCert && c.HasBundle() || isUser {
		e.local, e.since = true, time.Now()
	}
	return e
}

// put records what is in force under a key. The caller holds t.mu.
func (t *Tracker) put(k key, e entry) {
	if len(e.certs) == 0 {
		delete(t.entries, k)
		return
	}
	if old := t.entries[k]; !e.since.IsZero() && slices.Equal(old.certs, e.certs) {
		e.since = old.since
	}
	t.entries[k] = e
}

// parse returns how long the certificates of a chain or bundle are valid. It skips what
// cannot be parsed: that is not in use, and reported elsewhere.
func parse(text string) []validity {
	if !resource.IsPEM(text) {
		return nil
	}
	certs, err := resource.ParseCertificates(text)
	if err != nil {
		return nil
	}
	return validities(certs)
}

func validities(certs []*x509.Certificate) (list []validity) {
	for _, c := range certs {
		list = append(list, validity{c.NotBefore, c.NotAfter})
	}
	return list
}

// Trouble says what is wrong with how long certificates are valid.
type Trouble int

// The troubles.
const (
	None  Trouble = iota
	Soon          // they expire soon
	Early         // they are not valid yet
	Expired
)

// String returns a word for users.
func (t Trouble) String() string {
	return [...]string{"valid", "expiring", "notYetValid", "expired"}[t]
}

// State is how long a group of certificates is valid: a chain, or the CAs of a
// resource.
type State struct {
	Resource string // "Certificate/shop", "--http-cert", "node"
	Role     Role
	From     time.Time
	// Until is when the first of a chain expires. Of CAs it is the first that has not
	// expired, since one that has is often left in place on purpose; the last, if all
	// have, and of a trust bundle in which somebody replaces CAs before their end.
	Until   time.Time
	Trouble Trouble
	Local   bool // other nodes may have other certificates
	Renewed bool // their source renews them
}

// State returns all certificates in force, sorted by resource and role.
func (t *Tracker) State(now time.Time) []State {
	t.mu.Lock()
	all := make([]State, 0, len(t.entries)+len(t.watched))
	for k, e := range t.entries {
		all = append(all, state(k, e, now))
	}
	t.mu.Unlock()
	for k, get := range t.watched {
		if e := (entry{certs: validities(get()), local: true}); len(e.certs) > 0 {
			all = append(all, state(k, e, now))
		}
	}
	slices.SortFunc(all, func(a, b State) int { return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Role, b.Role)) })
	return all
}

// Of returns the state of the certificate of a resource; not ok: none is in force.
func (t *Tracker) Of(k resource.Key, now time.Time) (s State, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := key{k.String(), Presented}
	e, ok := t.entries[own]
	if !ok {
		return State{}, false
	}
	return state(own, e, now), true
}

// state judges certificates at a time.
func state(k key, e entry, now time.Time) State {
	counts := decisive(k, e, now)
	s := State{Resource: k.resource, Role: k.role, From: counts.from, Until: counts.until, Local: e.local, Renewed: !e.since.IsZero()}
	begin := counts.from
	if e.since.After(begin) {
		begin = e.since
	}
	left := counts.until.Sub(now)
	switch {
	case left < 0:
		s.Trouble = Expired
	case early(k.role, e.certs, now):
		s.Trouble = Early
	case left < SoonTime && left < counts.until.Sub(begin)/soonShare:
		s.Trouble = Soon
	}
	return s
}

// decisive returns the certificate whose end counts; see State.Until.
func decisive(k key, e entry, now time.Time) validity {
	counts := e.certs[0]
	for _, c := range e.certs[1:] {
		sooner := c.until.Before(counts.until)
		switch {
		case k.role == Trusted && !e.since.IsZero():
			sooner = c.until.After(counts.until)
		case k.role == Trusted:
			ended, endedBefore := now.After(c.until), now.After(counts.until)
			if ended != endedBefore {
				sooner = endedBefore
			} else if ended {
				sooner = c.until.After(counts.until)
			}
		}
		if sooner {
			counts = c
		}
	}
	return counts
}

// early reports whether a chain, or each of the CAs that have not expired, is yet to
// become valid.
func early(role Role, certs []validity, now time.Time) bool {
	isEarly := func(c validity) bool { return now.Before(c.from) }
	if role == Presented {
		return slices.ContainsFunc(certs, isEarly)
	}
	return !slices.ContainsFunc(certs, func(c validity) bool { return !isEarly(c) && !now.After(c.until) })
}

// Problems describes the certificates with a Trouble, the worst first, at most 100. A
// text names the node only if others may have other certificates, and has no time but
// that of the certificate: nodes that have the same one say the same.
func (t *Tracker) Problems(node string, now time.Time) (list []string) {
	troubled := slices.DeleteFunc(t.State(now), func(s State) bool { return s.Trouble == None })
	slices.SortStableFunc(troubled, func(a, b State) int { return cmp.Compare(b.Trouble, a.Trouble) })
	for _, s := range troubled[:min(len(troubled), maxProblems)] {
		if s.Local {
			s.Resource = "node " + node + ": " + s.Resource
		}
		list = append(list, s.problem())
	}
	if rest := len(troubled) - len(list); rest > 0 {
		list = append(list, fmt.Sprintf("%d more certificates or CAs have expired, or do soon: see %s", rest, Metric))
	}
	return list
}

// Metric is the name of the metric with the end of each.
const Metric = "penstock_certificate_expiry_timestamp_seconds"

func (s *State) problem() string {
	what := map[Role]string{Presented: "the certificate", Trusted: "the CA that verifies its peers"}[s.Role]
	at := func(when time.Time) string { return when.UTC().Format(time.RFC3339) }
	switch s.Trouble {
	case Expired:
		return fmt.Sprintf("%s: %s expired at %s", s.Resource, what, at(s.Until))
	case Early:
		return fmt.Sprintf("%s: %s is not valid before %s: are the clocks right?", s.Resource, what, at(s.From))
	}
	if s.Renewed {
		return fmt.Sprintf("%s: %s expires soon, at %s, and was not renewed", s.Resource, what, at(s.Until))
	}
	return fmt.Sprintf("%s: %s expires soon, at %s: renew it", s.Resource, what, at(s.Until))
}
