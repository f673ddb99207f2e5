package federation

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"penstock/routing/resource"
)

// Status is the state of one trust bundle, the status field of its resource.
type Status struct {
	Name string `json:"-"`
	// Source is where the bundle in force comes from: spec.bundle or the endpoint's URL;
	// "": there is none.
	Source      string    `json:"source,omitempty"`
	Authorities int       `json:"authorities"`
	Sequence    *uint64   `json:"sequence,omitempty"`
	Changed     time.Time `json:"changed,omitzero"` // when these authorities were fetched first
	Expires     time.Time `json:"expires,omitzero"` // the end of the last authority
	// Only the leader knows the rest. Fetched is the last fetch that succeeded,
	// Failures how many have failed since, with Fault, that of the last one.
	Fetched   time.Time `json:"fetched,omitzero"`
	Failures  int       `json:"failures,omitempty"`
	Fault     string    `json:"fault,omitempty"`
	NextFetch time.Time `json:"nextFetch,omitzero"`

	trustDomain string
}

// status returns the state of a relation.
func (r *relation) status(name string) Status {
	s := Status{
		Name: name, trustDomain: r.spec.TrustDomain, Fetched: r.fetched.UTC(), Failures: r.failures, Fault: r.fault, NextFetch: r.next.UTC(),
	}
	b := r.inForce()
	if b == nil {
		return s
	}
	s.Source, s.Authorities, s.Sequence = "spec.bundle", len(b.Authorities), b.Sequence
	if r.usesStored() {
		s.Source, s.Changed = r.spec.Endpoint.URL, r.stored.Fetched
	}
	for _, cert := range b.Authorities {
		if cert.NotAfter.After(s.Expires) {
			s.Expires = cert.NotAfter.UTC()
		}
	}
	return s
}

// Status returns the state of all TrustBundles, sorted by name.
func (m *Manager) Status() []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []Status
	for _, name := range slices.Sorted(maps.Keys(m.relations)) {
		if r := m.relations[name]; r.spec != nil {
			all = append(all, r.status(name))
		}
	}
	return all
}

// StatusOf returns the state of a resource; not ok: it is not a TrustBundle.
func (m *Manager) StatusOf(o *resource.Object) (s Status, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.relations[o.Name]
	if o.Kind != resource.KindTrustBundle || r == nil || r.spec == nil {
		return Status{}, false
	}
	return r.status(o.Name), true
}

// Unusable describes the bundles that verify nobody. It is the same on every node.
func (m *Manager) Unusable(now time.Time) (list []string) {
	for _, s := range m.Status() {
		var why string
		switch {
		case s.trustDomain == m.cfg.TrustDomain:
			why = "it is the cluster's own"
		case s.Source == "":
			why = "its bundle was not fetched yet"
		case s.Authorities == 0:
			why = "its bundle has no authority for X.509 SVIDs"
		case !now.Before(s.Expires):
			why = "the last authority of its bundle expired at " + s.Expires.Format(time.RFC3339)
		default:
			continue
		}
		list = append(list, fmt.Sprintf("TrustBundle/%s: nobody of %s is accepted: %s", s.Name, s.trustDomain, why))
	}
	return list
}

// Faults describes the fetches that failed; on the leader alone.
func (m *Manager) Faults() (list []string) {
	for _, s := range m.Status() {
		if s.Failures > 0 {
			list = append(list, fmt.Sprintf("TrustBundle/%s: cannot fetch the bundle of %s, %d times in a row, the next time is %s: %s",
				s.Name, s.trustDomain, s.Failures, s.NextFetch.Format(time.RFC3339), s.Fault))
		}
	}
	return list
}

// Fetches returns how many fetches ended on this node, by TrustBundle and result: ok or
// failed.
func (m *Manager) Fetches() map[FetchCount]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.fetches)
}
