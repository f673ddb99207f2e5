package acme

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/internal/testkit"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

func TestMain(m *testing.M) { testkit.VerifyTestMain(m) }

// applied records what the data plane is given.
type applied struct {
	mu   sync.Mutex
	last map[string]string // chain by certificate; "": deleted
}

func (a *applied) apply(_ *validate.Set, changes []resource.Change) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range changes {
		ch := &changes[i]
		chain := ""
		if c, ok := ch.Spec.(*resource.Certificate); ok && !ch.Delete {
			chain = c.Cert + "|" + string(c.Key)
		}
		a.last[ch.Name] = chain
	}
}

func (a *applied) get(name string) (string, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	chain, ok := a.last[name]
	return chain, ok
}

// sealer seals by marking.
type sealer struct{}

func (sealer) Seal(aad, plain []byte) ([]byte, error) {
	out := slices.Concat([]byte("sealed:"), aad, []byte(":"), plain)
	for i := range out {
		out[i] ^= 0x55
	}
	return out, nil
}

func (sealer) Open(aad, sealed []byte) ([]byte, error) {
	out := slices.Clone(sealed)
	for i := range out {
		out[i] ^= 0x55
	}
	plain, ok := bytes.CutPrefix(out, slices.Concat([]byte("sealed:"), aad, []byte(":")))
	if !ok {
		return nil, errors.New("sealed for another entry")
	}
	return plain, nil
}

// newFollower returns a Manager that does not lead, and runs until the test ends.
func newFollower(t *testing.T, st Store) (*Manager, *applied) {
	t.Helper()
	a := &applied{last: map[string]string{}}
	m := New(Config{
		Store: st, Sealer: sealer{}, Leads: func() bool { return false },
		Await: func(context.Context, uint64) error { return nil }, Apply: a.apply,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return m, a
}

// store stores a state as a leader does.
func (m *Manager) store(t *testing.T, name string, st *State) {
	t.Helper()
	_, version, err := get[State](m.cfg.Sealer, m.cfg.Store.Snapshot(), stateKey(name))
	if err != nil {
		t.Fatal(err)
	}
	st.Format = format
	op, err := put(m.cfg.Sealer, stateKey(name), st, version)
	if err != nil {
		t.Fatal(err)
	}
	index, err := m.commit(t.Context(), "test", op)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitApplied(t.Context(), index); err != nil {
		t.Fatal(err)
	}
}

func certificate(name string, a *resource.ACME) resource.Change {
	return resource.Put(resource.Object{Key: resource.Key{Kind: kindCertificate, Name: name}, Spec: &resource.Certificate{ACME: a}})
}

// Nothing is kept of a certificate that is gone, or for which no authority is asked any
// more, not even by an attempt that ends afterwards.
func TestDeletedCertificatesAreNotCounted(t *testing.T) {
	m := New(Config{Store: store.NewMemory(store.Limits{}), Sealer: sealer{}, Apply: func(*validate.Set, []resource.Change) {}})
	changed := certificate("changed", spec)
	m.Apply(nil, []resource.Change{certificate("gone", spec), certificate("kept", spec), changed})
	for _, name := range []string{"gone", "kept", "changed"} {
		m.count(name, "ok")
		m.count(name, "failed")
		m.held[name] = time.Now()
	}
	changed.Spec = &resource.Certificate{Cert: "cert", Key: "key"}
	m.Apply(nil, []resource.Change{resource.Delete(certificate("gone", spec).Key), changed})
	m.count("gone", "failed")
	if got := m.Orders(); len(got) != 2 || got[OrderCount{"kept", "ok"}] != 1 || got[OrderCount{"kept", "failed"}] != 1 {
		t.Errorf("counts are %v", got)
	}
	if len(m.held) != 1 || m.held["kept"].IsZero() {
		t.Errorf("attempts are held of %v", m.held)
	}
}

// What was issued reaches the data plane over the resource, whichever comes first.
func TestIssuedCertificatesReachTheDataPlane(t *testing.T) {
	st := store.NewMemory(store.Limits{})
	m, a := newFollower(t, st)
	want := func(name, chain string) {
		t.Helper()
		testkit.WaitFor(t, name+" to be "+chain, func() bool { got, ok := a.get(name); return ok && got == chain })
	}
	plain := resource.Put(resource.Object{Key: resource.Key{Kind: kindCertificate, Name: "plain"}, Spec: &resource.Certificate{Cert: "c", Key: "k"}})
	changes := []resource.Change{certificate("one", spec), plain}
	m.Apply(nil, changes)
	want("one", "") // nothing was issued yet
	want("plain", "c|k")
	if changes[0].Delete {
		t.Error("the caller's changes were changed")
	}
	m.store(t, "one", &State{Issued: &Issued{Chain: "first", Key: "key"}})
	want("one", "first|key")
	m.store(t, "two", &State{Issued: &Issued{Chain: "second", Key: "key"}}) // before its resource
	m.Apply(nil, []resource.Change{certificate("two", spec)})
	want("two", "second|key")
	m.store(t, "one", &State{Issued: &Issued{Chain: "renewed", Key: "key"}})
	want("one", "renewed|key")

	filled := m.Filled("one", m.specs["one"])
	if filled == nil || filled.Cert != "renewed" || m.Filled("one", m.specs["one"]) != filled {
		t.Errorf("filled: %+v, another one each time", filled)
	}
	// Another node that starts later has it at once.
	_, b := newFollower(t, st)
	_ = b
	other := New(Config{Store: st, Sealer: sealer{}, Apply: b.apply})
	other.Apply(nil, []resource.Change{certificate("one", spec)})
	if got, _ := b.get("one"); got != "renewed|key" {
		t.Errorf("a node that starts has %q", got)
	}
	m.Apply(nil, []resource.Change{resource.Delete(resource.Key{Kind: kindCertificate, Name: "one"})})
	want("one", "")
	if len(m.Status(time.Now())) != 1 {
		t.Error("a deleted certificate has a status")
	}
}

// Nothing of an entry is readable in the store, and an entry does not open in
// another's place.
func TestEntriesAreSealed(t *testing.T) {
	st := store.NewMemory(store.Limits{})
	m, a := newFollower(t, st)
	m.Apply(nil, []resource.Change{certificate("one", spec), certificate("two", spec)})
	m.store(t, "one", &State{Issued: &Issued{Chain: "chain", Key: "the private key"}})
	e, _ := st.Snapshot().Get(stateKey("one"))
	if bytes.Contains(e.Value, []byte("private")) {
		t.Error("the key is in the store in the clear")
	}
	index, err := m.commit(t.Context(), "test", store.Op{Key: stateKey("two"), Value: e.Value})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.AwaitApplied(t.Context(), index); err != nil {
		t.Fatal(err)
	}
	if got, _ := a.get("two"); got != "" {
		t.Errorf("two is served with the entry of one: %q", got)
	}
}

// A new leader removes what was issued for certificates that are gone, and nothing
// else.
func TestTheLeaderRemovesWhatNobodyNeeds(t *testing.T) {
	st := store.NewMemory(store.Limits{})
	follower, _ := newFollower(t, st)
	follower.store(t, "gone", &State{Issued: &Issued{Chain: "chain"}})
	fresh := issuedUntil(t, time.Now().Add(time.Hour*24*90))
	follower.store(t, "kept", &State{Issued: fresh})
	leader := New(Config{
		Store: st, Sealer: sealer{}, Leads: func() bool { return true }, Await: func(context.Context, uint64) error { return nil },
		Apply: func(*validate.Set, []resource.Change) {},
	})
	leader.Apply(nil, []resource.Change{certificate("kept", spec)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { leader.Run(ctx) })
	defer running.Wait()
	defer cancel()
	testkit.WaitFor(t, "the entry to be removed", func() bool { _, ok := st.Snapshot().Get(stateKey("gone")); return !ok })
	if _, ok := st.Snapshot().Get(stateKey("kept")); !ok {
		t.Error("what is served was removed")
	}
}
