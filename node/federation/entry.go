package federation

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"penstock/consensus/store"
	"penstock/routing/resource"
)

// kind is the kind of the store's entries, one for each TrustBundle with an endpoint, by
// its name. It is internal to the cluster: it has no history, and the catalog ignores
// it.
const kind = "_bundle"

// format is the format of the entries. Fields may be added without a new one.
const format = 1

// commitTimeout bounds the wait for one change.
const commitTimeout = 10 * time.Second

// entry is a bundle that was fetched.
type entry struct {
	Format int `json:"format"`
	// For is the digest of what it belongs to (origin): it is invalid for another trust
	// domain, and once the user has given another first bundle.
	For         string        `json:"for"`
	Authorities [][]byte      `json:"authorities"` // DER
	Sequence    *uint64       `json:"sequence,omitempty"`
	RefreshHint time.Duration `json:"refreshHint,omitempty"`
	// Fetched is when these authorities were first fetched, by the leader's clock.
	Fetched time.Time `json:"fetched"`

	bundle *resource.Bundle // as decoded
}

// origin returns the digest of what a fetched bundle belongs to. Another URL or profile
// does not change it: the last good bundle of a trust domain outlives a move of its
// endpoint.
func origin(spec *resource.TrustBundle) string {
	sum := sha256.Sum256([]byte(spec.TrustDomain + "\x00" + spec.Bundle))
	return hex.EncodeToString(sum[:])
}

// newEntry makes the entry of a bundle.
func newEntry(spec *resource.TrustBundle, b *resource.Bundle, now time.Time) *entry {
	e := &entry{Format: format, For: origin(spec), Sequence: b.Sequence, RefreshHint: b.RefreshHint, Fetched: now.UTC(), bundle: b}
	for _, cert := range b.Authorities {
		e.Authorities = append(e.Authorities, cert.Raw)
	}
	return e
}

// decode reads an entry.
func decode(value []byte) (*entry, error) {
	e := &entry{}
	if err := json.Unmarshal(value, e); err != nil {
		return nil, err
	}
	if e.Format != format {
		return nil, fmt.Errorf("has format %d, this build supports %d", e.Format, format)
	}
	e.bundle = &resource.Bundle{Sequence: e.Sequence, RefreshHint: e.RefreshHint}
	for _, der := range e.Authorities {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		e.bundle.Authorities = append(e.bundle.Authorities, cert)
	}
	return e, nil
}

// same reports whether two entries have the same bundle of the same trust domain.
func (e *entry) same(other *entry) bool {
	return e.For == other.For && e.RefreshHint == other.RefreshHint && sequence(e.Sequence) == sequence(other.Sequence) &&
		slices.EqualFunc(e.Authorities, other.Authorities, slices.Equal)
}

// sequence returns a sequence number, which may be missing, as a number to compare.
func sequence(n *uint64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprint(*n)
}

// adopt stores a bundle that was fetched for a spec, if it differs from the stored one.
func (m *Manager) adopt(ctx context.Context, name string, spec *resource.TrustBundle, b *resource.Bundle) error {
	next := newEntry(spec, b, time.Now())
	m.mu.Lock()
	r := m.relations[name]
	if r == nil || r.spec != spec {
		m.mu.Unlock()
		return errReplaced
	}
	old, version, current := r.stored, r.version, r.inForce()
	m.mu.Unlock()
	switch {
	case current != nil && current.Sequence != nil && b.Sequence != nil && *b.Sequence < *current.Sequence:
		return fmt.Errorf("the bundle of %s %w (%d, in use is %d)", spec.TrustDomain, errOlder, *b.Sequence, *current.Sequence)
	case old != nil && old.same(next):
		return nil
	}
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	err = m.commit(ctx, "bundle of "+spec.TrustDomain, store.Op{
		Key: store.Key{Kind: kind, Name: name}, Value: value, IfVersion: &version,
	})
	if err != nil {
		return fmt.Errorf("cannot store it: %w", err)
	}
	return nil
}

// commit stores operations and waits until they are in force here.
func (m *Manager) commit(ctx context.Context, what string, ops ...store.Op) error {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	b := &store.Batch{Ops: ops, Note: store.Note{Who: "federation", What: what, At: time.Now().UTC()}}
	_, _ = rand.Read(b.ID[:]) // never fails
	pending, err := m.cfg.Store.Propose(ctx, b)
	if err != nil {
		return err
	}
	result, err := pending.Wait(ctx)
	if err != nil {
		return err
	}
	return m.awaitApplied(ctx, result.Index)
}

// removeOrphans deletes the entries of TrustBundles that are gone or have no endpoint
// any more.
func (m *Manager) removeOrphans(ctx context.Context) {
	m.mu.Lock()
	var ops []store.Op
	for name, r := range m.relations {
		if r.version != 0 && !r.running && (r.spec == nil || r.spec.Endpoint == nil) {
			version := r.version
			ops = append(ops, store.Op{Key: store.Key{Kind: kind, Name: name}, IfVersion: &version})
		}
	}
	m.mu.Unlock()
	if len(ops) == 0 {
		return
	}
	if err := m.commit(ctx, "trust bundles are gone", ops...); err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn("cannot remove the bundles of trust domains that are gone; retrying", "error", err)
	}
}

// follow puts what a leader stored in force, until ctx ends.
func (m *Manager) follow(ctx context.Context) {
	old := m.loaded
	m.loaded = store.Snapshot{} // it retains old content
	for {
		view, err := m.cfg.Store.Wait(ctx, old.Index())
		if err != nil {
			return // ctx ended, or the store was closed
		}
		if changes(old, view) {
			m.load(view)
		}
		m.mu.Lock()
		m.applied = view.Index()
		close(m.moved)
		m.moved = make(chan struct{})
		m.mu.Unlock()
		old = view
	}
}

// changes reports whether entries may differ between two snapshots.
func changes(old, view store.Snapshot) bool {
	keys, known := view.Changed(old.Index())
	return !known || slices.ContainsFunc(keys, func(k store.Key) bool { return k.Kind == kind })
}

// load reads the entries of a snapshot. One that cannot be read changes nothing.
func (m *Manager) load(view store.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.relations {
		if _, ok := view.Get(store.Key{Kind: kind, Name: name}); !ok && r.version != 0 {
			r.stored, r.version = nil, 0
			m.put(name, r)
		}
	}
	for e := range view.Kind(kind) {
		r := m.relation(e.Name)
		if r.version == e.Version {
			continue
		}
		r.version = e.Version
		got, err := decode(e.Value)
		if err != nil {
			m.cfg.Log.Error("cannot read a stored trust bundle; what was in use stays in use", "trustBundle", e.Name, "error", err)
			continue
		}
		r.stored = got
		m.put(e.Name, r)
	}
}

// awaitApplied waits until the entries of an index are in force here.
func (m *Manager) awaitApplied(ctx context.Context, index uint64) error {
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
