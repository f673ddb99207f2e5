package acme

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"penstock/consensus/store"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

const kindCertificate = "Certificate"

// decryptRetryInterval is the interval of the attempts to decrypt entries.
const decryptRetryInterval = 5 * time.Second

// Apply puts changes of resources, which set already contains, in force: with what
// was issued for the certificates among them. One for which nothing was issued
// yet is not there for the data plane.
func (m *Manager) Apply(set *validate.Set, changes []resource.Change) {
	m.applying.Lock()
	defer m.applying.Unlock()
	m.cfg.Apply(set, m.overlay(set, changes))
}

// overlay records changes and returns them with what was issued.
func (m *Manager) overlay(set *validate.Set, changes []resource.Change) []resource.Change {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.set = set
	out := changes
	for i := range changes {
		ch := &changes[i]
		if ch.Kind != kindCertificate {
			continue
		}
		spec, _ := ch.Spec.(*resource.Certificate)
		if ch.Delete || spec == nil || spec.ACME == nil {
			if m.specs[ch.Name] != nil {
				m.wakeUp()
			}
			delete(m.specs, ch.Name)
			delete(m.filled, ch.Name)
			delete(m.held, ch.Name)
			maps.DeleteFunc(m.orders, func(of OrderCount, _ uint64) bool { return of.Certificate == ch.Name })
			continue
		}
		m.specs[ch.Name] = spec
		if &out[0] == &changes[0] {
			out = slices.Clone(changes)
		}
		out[i] = m.fill(ch.Object)
		m.wakeUp()
	}
	return out
}

// fill returns the change that puts a certificate with what was issued in force.
// m.mu is held.
func (m *Manager) fill(o resource.Object) resource.Change {
	c := m.issuedFor(o.Name, o.Spec.(*resource.Certificate))
	if c == nil {
		return resource.Delete(o.Key)
	}
	o.Spec = c
	return resource.Put(o)
}

// issuedFor returns a certificate with what was issued for it; nil: nothing yet.
// m.mu is held.
func (m *Manager) issuedFor(name string, spec *resource.Certificate) *resource.Certificate {
	st := m.states[name]
	if st == nil || st.Issued == nil {
		return nil
	}
	f := m.filled[name]
	if f.spec != spec || f.issued == nil || *f.issued != *st.Issued {
		made := *spec
		made.Cert, made.Key = st.Issued.Chain, resource.Secret(st.Issued.Key)
		f = filled{spec, st.Issued, &made}
		m.filled[name] = f
	}
	return f.made
}

// Filled returns a certificate as the data plane has it: one that an authority
// issues has its chain and key, or is nil while there are none. The result is the
// same until something changes.
func (m *Manager) Filled(name string, spec *resource.Certificate) *resource.Certificate {
	if spec.ACME == nil {
		return spec
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.issuedFor(name, spec)
}

// follow puts what the store has in force, until ctx ends.
func (m *Manager) follow(ctx context.Context) {
	old := m.loaded
	m.loaded = store.Snapshot{} // it retains old content
	retry := false
	for {
		view, err := m.wait(ctx, old.Index(), retry)
		if err != nil {
			return // ctx ended, or the store was closed
		}
		if m.cfg.Await(ctx, view.Index()) != nil {
			return
		}
		if retry {
			old = store.Snapshot{} // all of it again
		}
		changed, unread := m.update(old, view)
		m.applyIssued(changed)
		m.markApplied(view.Index())
		old, retry = view, unread
	}
}

// wait waits for a new snapshot. With retry it returns the old one after
// decryptRetryInterval.
func (m *Manager) wait(ctx context.Context, after uint64, retry bool) (store.Snapshot, error) {
	if !retry {
		return m.cfg.Store.Wait(ctx, after)
	}
	again, cancel := context.WithTimeout(ctx, decryptRetryInterval)
	defer cancel()
	view, err := m.cfg.Store.Wait(again, after)
	if err != nil && ctx.Err() == nil && again.Err() != nil {
		return m.cfg.Store.Snapshot(), nil
	}
	return view, err
}

// update reads the states that differ between two snapshots. It returns the
// certificates with another chain, and whether a state could not be read, which
// then stays as it was.
func (m *Manager) update(old, view store.Snapshot) (changed []string, unread bool) {
	keys := changedKeys(old, view)
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.states {
		if _, ok := view.Get(stateKey(name)); !ok {
			keys = append(keys, stateKey(name))
		}
	}
	for _, key := range keys {
		name, ok := strings.CutPrefix(key.Name, statePrefix)
		if !ok {
			continue
		}
		st, _, err := get[State](m.cfg.Sealer, view, key)
		if err != nil {
			m.cfg.Log.Error("cannot read what was issued for a certificate: what was known before stays in force",
				"certificate", name, "error", err)
			unread = true
			continue
		}
		before := m.states[name]
		if st == nil {
			delete(m.states, name)
		} else {
			m.states[name] = st
		}
		if !sameIssued(before, st) {
			changed = append(changed, name)
		}
	}
	if len(keys) > 0 {
		m.setChallenges()
		m.wakeUp()
	}
	return changed, unread
}

// sameIssued reports whether two states have the same certificate.
func sameIssued(a, b *State) bool {
	var before, after Issued
	if a != nil && a.Issued != nil {
		before = *a.Issued
	}
	if b != nil && b.Issued != nil {
		after = *b.Issued
	}
	return before == after
}

// setChallenges answers the challenges of all orders in progress. m.mu is held.
func (m *Manager) setChallenges() {
	var list []Challenge
	for _, name := range slices.Sorted(maps.Keys(m.states)) {
		if o := m.states[name].Order; o != nil {
			list = append(list, o.Challenges...)
		}
	}
	if err := m.Challenges.set(list); err != nil {
		m.cfg.Log.Error("cannot answer challenges of certificate authorities", "error", err)
	}
}

// applyIssued puts other chains of certificates in force.
func (m *Manager) applyIssued(names []string) {
	if len(names) == 0 {
		return
	}
	m.applying.Lock()
	defer m.applying.Unlock()
	m.mu.Lock()
	var changes []resource.Change
	set := m.set
	for _, name := range names {
		if spec := m.specs[name]; spec != nil {
			key := resource.Key{Kind: kindCertificate, Name: name}
			changes = append(changes, m.fill(resource.Object{Key: key, Spec: spec}))
		}
	}
	m.mu.Unlock()
	if len(changes) > 0 {
		m.cfg.Apply(set, changes)
	}
}

// markApplied records the index that this node answers challenges of.
func (m *Manager) markApplied(index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.applied = index
	close(m.moved)
	m.moved = make(chan struct{})
}

// AwaitApplied waits until this node answers the challenges of an index.
func (m *Manager) AwaitApplied(ctx context.Context, index uint64) error {
	for {
		m.mu.Lock()
		applied, moved := m.applied, m.moved
		m.mu.Unlock()
		if applied >= index {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// changedKeys lists the keys of this package that differ between two snapshots, and
// possibly others. Those that are gone may be missing.
func changedKeys(old, view store.Snapshot) []store.Key {
	keys, known := view.Changed(old.Index())
	if known && old.Index() > 0 {
		return slices.DeleteFunc(keys, func(k store.Key) bool { return k.Kind != kind })
	}
	keys = nil
	for e := range view.Kind(kind) {
		keys = append(keys, e.Key)
	}
	return keys
}
