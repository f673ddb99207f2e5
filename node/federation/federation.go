// Package federation keeps the trust bundles of other SPIFFE trust domains, and serves
// the cluster's own (SPIFFE Federation).
//
//	m := federation.New(federation.Config{Store: st, Bundles: bundles, Leads: leads, Await: await, Log: log})
//	m.Apply(changes)   // of resources in force: Bundles has those of TrustBundles
//	go m.Run(ctx)      // fetches, while this node leads, and follows what a leader stored
//
// The leader alone fetches bundles, and stores each change as an entry of the store.
// So all nodes accept the same peers, a publisher is asked once and not by each node,
// other nodes need no access to it, and the last bundle survives a restart and a change
// of leader. An entry holds certificates only and is not encrypted.
//
// A fetched bundle stays in force until another one replaces it, however old it is: its
// authorities expire by themselves. It is dropped when the user changes
// TrustBundle.bundle or the trust domain, or removes the endpoint.
package federation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"penstock/consensus/store"
	"penstock/node/trust"
	"penstock/routing/resource"
)

const (
	// checkInterval is how often Run looks for what is due.
	checkInterval = time.Second
	// maxFetches bounds the fetches at a time.
	maxFetches = 4
	// fetchTimeout bounds one fetch with all its redirects.
	fetchTimeout = 30 * time.Second
	// The time between two fetches is what the bundle hints at, within these bounds,
	// or defaultRefresh, which the standard recommends (section 4.1).
	minRefresh, maxRefresh = time.Minute, 24 * time.Hour
	defaultRefresh         = 5 * time.Minute
	// firstPause is the pause after a fetch that failed while none has succeeded; it
	// doubles up to defaultRefresh. Later ones are repeated at their time (section 6.2).
	firstPause = 5 * time.Second
	// spread is the largest part of a wait by which it is longer or shorter.
	spread = 0.1
	// maxFault bounds the text of a fault, which may quote the publisher, in bytes.
	maxFault = 400
)

// Errors of a fetch.
var (
	// errOlder is the error of a bundle that is older than the one in use.
	errOlder = errors.New("has an earlier spiffe_sequence than the bundle in use: to accept it, change spec.bundle")
	// errReplaced says that the resource or the leader has changed meanwhile.
	errReplaced = errors.New("the TrustBundle has changed meanwhile")
)

// Store is the replicated content.
type Store interface {
	Propose(ctx context.Context, b *store.Batch) (store.Pending, error)
	Snapshot() store.Snapshot
	Wait(ctx context.Context, after uint64) (store.Snapshot, error)
}

// Config configures New.
type Config struct {
	Store Store
	// Bundles gets what is in force, under the names of the TrustBundles. It has the
	// cluster's own bundle under resource.OwnTrustDomain. Required.
	Bundles *trust.Bundles
	// TrustDomain is the cluster's own, which no TrustBundle can stand for; "": none.
	TrustDomain string
	// Leads reports whether this node leads, has applied everything committed before,
	// and can read all resources.
	Leads func() bool
	// Await waits until the resources of an index of the store are in force here.
	Await func(ctx context.Context, index uint64) error
	// Fetch gets the bundle of a TrustBundle with an endpoint. held returns the bundle
	// in force of a trust domain, or nil. Default: by HTTPS.
	Fetch func(ctx context.Context, spec *resource.TrustBundle, held func(domain string) *trust.Bundle) (*resource.Bundle, error)
	Log   *slog.Logger // nil: none
}

// Manager keeps bundles. Create it with New. Its methods are safe for concurrent use.
type Manager struct {
	cfg  Config
	wake chan struct{} // has room for one: something may be due
	led  bool          // Run alone: this node led when it looked last

	mu        sync.Mutex
	relations map[string]*relation  // by TrustBundle
	fetches   map[FetchCount]uint64 // that ended here
	running   int                   // fetches
	applied   uint64                // index that relations are of
	moved     chan struct{}         // closed when applied changes
	loaded    store.Snapshot        // what relations began with
}

// FetchCount is the label set of the count of fetches.
type FetchCount struct{ Bundle, Result string }

// relation is a TrustBundle with what was fetched for it.
type relation struct {
	spec    *resource.TrustBundle // nil: there is none, only an entry
	given   *resource.Bundle      // of spec.Bundle; nil: none
	stored  *entry                // nil: none
	version uint64                // of the entry in the store; 0: none

	running  bool // a fetch
	next     time.Time
	failures int       // in a row
	fault    string    // of the last fetch; "": none
	failed   time.Time // when
	fetched  time.Time // the last fetch here that did not fail; zero: none
}

// New returns a Manager that knows no resource yet, with the entries of the store.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Fetch == nil {
		cfg.Fetch = fetch
	}
	m := &Manager{
		cfg: cfg, wake: make(chan struct{}, 1), relations: map[string]*relation{}, fetches: map[FetchCount]uint64{},
		moved: make(chan struct{}), loaded: cfg.Store.Snapshot(),
	}
	m.load(m.loaded)
	m.applied = m.loaded.Index()
	return m
}

// Apply puts changes of TrustBundles in force. Other kinds have no effect.
func (m *Manager) Apply(changes []resource.Change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range changes {
		ch := &changes[i]
		if ch.Kind != resource.KindTrustBundle {
			continue
		}
		r := m.relation(ch.Name)
		spec, ok := ch.Spec.(*resource.TrustBundle)
		*r = relation{stored: r.stored, version: r.version, running: r.running}
		if ok && !ch.Delete {
			r.spec = spec
			if given, err := resource.ParseBundle(spec.Bundle); err == nil { // else it is left out: validation has checked it
				r.given = given
			}
		}
		m.put(ch.Name, r)
	}
	m.wakeUp()
}

// relation returns the relation of a TrustBundle, and makes it if there is none. m.mu is
// held.
func (m *Manager) relation(name string) *relation {
	r := m.relations[name]
	if r == nil {
		r = &relation{}
		m.relations[name] = r
	}
	return r
}

// put puts the bundle of a relation in force, and drops an empty relation. m.mu is held.
func (m *Manager) put(name string, r *relation) {
	b := r.inForce()
	if r.spec != nil && r.spec.TrustDomain == m.cfg.TrustDomain {
		b = nil
		m.cfg.Log.Error("a TrustBundle has the cluster's own trust domain and is ignored", "trustBundle", name)
	}
	var next *trust.Bundle
	if b != nil {
		next = trust.NewBundle(r.spec.TrustDomain, b.Authorities)
	}
	if m.cfg.Bundles.Set(name, next) && next != nil {
		m.cfg.Log.Info("a trust bundle is in force", "trustBundle", name, "trustDomain", next.TrustDomain,
			"authorities", len(next.Authorities), "fetched", r.usesStored())
	}
	if r.spec == nil && r.stored == nil {
		delete(m.relations, name)
		for _, result := range []string{"ok", "failed"} {
			delete(m.fetches, FetchCount{name, result})
		}
	}
}

// usesStored reports whether what was fetched is in force.
func (r *relation) usesStored() bool {
	return r.spec != nil && r.spec.Endpoint != nil && r.stored != nil && r.stored.For == origin(r.spec)
}

// inForce returns the bundle in force; nil: none.
func (r *relation) inForce() *resource.Bundle {
	switch {
	case r.spec == nil:
		return nil
	case r.usesStored():
		return r.stored.bundle
	}
	return r.given
}

// Run follows the store and, while this node leads, fetches what is due, until ctx
// ends.
func (m *Manager) Run(ctx context.Context) {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { m.follow(ctx) })
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		if m.leads(ctx) {
			m.removeOrphans(ctx)
			m.start(ctx, &work, time.Now())
		} else {
			m.forget()
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-ticker.C:
		}
	}
}

// leads reports whether this node leads and knows the resources and the entries,
// without which it would remove what it should keep.
func (m *Manager) leads(ctx context.Context) bool {
	leads := m.cfg.Leads()
	if leads && !m.led {
		index := m.cfg.Store.Snapshot().Index()
		leads = m.cfg.Await(ctx, index) == nil && m.awaitApplied(ctx, index) == nil
	}
	m.led = leads
	return leads
}

// start starts the fetches that are due.
func (m *Manager) start(ctx context.Context, work *sync.WaitGroup, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.relations {
		if r.spec == nil || r.spec.Endpoint == nil || r.running || now.Before(r.next) || m.running == maxFetches {
			continue
		}
		spec := r.spec
		r.running = true
		m.running++
		work.Go(func() { m.refresh(ctx, name, spec) })
	}
}

// forget drops the state that a node has only while it leads.
func (m *Manager) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.relations {
		*r = relation{spec: r.spec, given: r.given, stored: r.stored, version: r.version, running: r.running}
	}
}

func (m *Manager) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// refresh fetches a bundle and stores it.
func (m *Manager) refresh(ctx context.Context, name string, spec *resource.TrustBundle) {
	fetching, cancel := context.WithTimeout(ctx, fetchTimeout)
	got, err := m.cfg.Fetch(fetching, spec, m.held)
	cancel()
	if err == nil {
		err = m.adopt(ctx, name, spec, got)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	defer m.wakeUp()
	m.running--
	r := m.relations[name]
	if r == nil {
		return // the resource is gone
	}
	r.running = false
	if r.spec != spec || errors.Is(err, errReplaced) || ctx.Err() != nil {
		return // the next round finds what is due
	}
	m.note(name, r, got, err, time.Now())
}

// held returns the bundle in force of a trust domain; nil: none.
func (m *Manager) held(domain string) *trust.Bundle {
	set, _ := m.cfg.Bundles.Current()
	return set.Of(domain)
}

// note records how a fetch ended. m.mu is held.
func (m *Manager) note(name string, r *relation, got *resource.Bundle, err error, now time.Time) {
	if err == nil {
		m.fetches[FetchCount{name, "ok"}]++
		if r.failures > 0 {
			m.cfg.Log.Info("a trust bundle can be fetched again", "trustBundle", name)
		}
		r.failures, r.fault, r.failed, r.fetched = 0, "", time.Time{}, now
		r.next = now.Add(jitter(refreshOf(got)))
		return
	}
	m.fetches[FetchCount{name, "failed"}]++
	fault := boundedText(err.Error())
	if fault != r.fault {
		m.cfg.Log.Warn("cannot fetch a trust bundle; "+r.kept(), "trustBundle", name, "trustDomain", r.spec.TrustDomain, "error", fault)
	}
	r.fault, r.failed = fault, now
	r.failures++
	pause := min(firstPause<<min(r.failures-1, 10), defaultRefresh)
	if r.usesStored() {
		pause = refreshOf(r.inForce())
	}
	r.next = now.Add(jitter(pause))
}

// kept says what is in force despite a fault.
func (r *relation) kept() string {
	if r.inForce() != nil {
		return "the last one stays in use"
	}
	return "there is none, so no peer of the trust domain is accepted"
}

// refreshOf returns the interval at which a bundle is fetched.
func refreshOf(b *resource.Bundle) time.Duration {
	if b.RefreshHint == 0 {
		return defaultRefresh
	}
	return min(max(b.RefreshHint, minRefresh), maxRefresh)
}

// jitter returns a duration that differs from d by up to the part spread of it, so that
// clusters that started together do not ask together.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration((2*rand.Float64()-1)*spread*float64(d))
}

// boundedText bounds a text that may quote a publisher, and replaces what is not
// printable.
func boundedText(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
	return fmt.Sprintf("%.*s", maxFault, text)
}
