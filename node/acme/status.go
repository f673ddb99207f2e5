package acme

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"penstock/routing/resource"
)

// The states of a certificate.
const (
	StateOrdering = "ordering" // nothing was issued yet
	StateFailed   = "failed"   // the same, and the last attempt failed
	StateIssued   = "issued"
	StateRenewing = "renewing" // another one is ordered, or due
	StateExpired  = "expired"
)

// Status is the state of one certificate, the status field of its resource.
type Status struct {
	Name     string    `json:"-"`
	Source   string    `json:"source"` // acme; or files, identity, workloadAPI, with a State of package expiry or missing
	State    string    `json:"state"`
	NotAfter time.Time `json:"notAfter,omitzero"`
	Renewal  time.Time `json:"renewal,omitzero"`
	Order    string    `json:"order,omitempty"` // URL of the one in progress
	// Failures counts the attempts that failed in a row; Fault is that of the last
	// one, at Failed. NextAttempt is when the next one is due.
	Failures    int       `json:"failures,omitempty"`
	Fault       string    `json:"fault,omitempty"`
	Failed      time.Time `json:"failed,omitzero"`
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
}

// statusOf returns the status of a certificate at a time; st may be nil.
func statusOf(name string, a *resource.ACME, st *State, now time.Time) Status {
	s := Status{Name: name, Source: "acme", State: StateOrdering}
	if st == nil {
		return s
	}
	s.Failures, s.Fault, s.Failed = st.Failures, st.Fault, st.Failed
	if st.Order != nil {
		s.Order = st.Order.URL
	}
	at := due(a, st)
	if st.Failures > 0 {
		s.NextAttempt = at
	}
	if st.Issued == nil {
		if st.Failures > 0 {
			s.State = StateFailed
		}
		return s
	}
	leaf, err := leafOf(st.Issued)
	if err != nil {
		return s
	}
	s.NotAfter, s.Renewal = leaf.NotAfter.UTC(), renewal(st.Issued).UTC().Round(time.Second)
	switch {
	case now.After(leaf.NotAfter):
		s.State = StateExpired
	case st.Order != nil, !now.Before(at), st.Failures > 0:
		s.State = StateRenewing
	default:
		s.State = StateIssued
	}
	return s
}

// Status returns the state of all certificates with acme, sorted by name.
func (m *Manager) Status(now time.Time) []Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]Status, 0, len(m.specs))
	for _, name := range slices.Sorted(maps.Keys(m.specs)) {
		all = append(all, statusOf(name, m.specs[name].ACME, m.states[name], now))
	}
	return all
}

// StatusOf returns the status of a resource; not ok: it has none.
func (m *Manager) StatusOf(o *resource.Object, now time.Time) (s Status, ok bool) {
	spec, ok := o.Spec.(*resource.Certificate)
	if !ok || spec.ACME == nil {
		return Status{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return statusOf(o.Name, spec.ACME, m.states[o.Name], now), true
}

// Problems describes the certificates whose last attempt failed.
func (m *Manager) Problems(now time.Time) (list []string) {
	for _, s := range m.Status(now) {
		if s.Failures > 0 {
			text := fmt.Sprintf("Certificate/%s: %s, %d attempts failed, the next one is at %s: %s",
				s.Name, s.State, s.Failures, s.NextAttempt.UTC().Format(time.RFC3339), s.Fault)
			list = append(list, text)
		}
	}
	return list
}

// Orders returns how many attempts ended on this node, by certificate and result:
// ok or failed.
func (m *Manager) Orders() map[OrderCount]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.orders)
}
