// Package acme obtains and renews the certificates of resources with acme, from
// certificate authorities that speak ACME (RFC 8555).
//
//	m := acme.New(acme.Config{Store: st, Sealer: ring, Leads: leads, Apply: data.Apply, ...})
//	go m.Run(ctx)
//	m.Apply(set, changes)           // of resources in force: the data plane gets them with what was issued
//	config := m.Challenges.TLS(hello) // on every node: answers an authority's check
//
// The leader alone talks to an authority. Its account, the order in progress and
// what was issued are entries of the store, sealed with the cluster's key, so
// that a new leader continues the order rather than begin another one. Each step
// is stored before the next one begins (order.go), on condition that nobody else
// has changed the entry meanwhile; a leader that was replaced can thus overwrite
// nothing.
//
// The authority may connect to any node. So the answers to its challenges are
// entries as well, and it is asked to check only once the nodes have applied
// them (Config.Settle).
//
// A resource is never changed: what was issued is put over its spec on the way to
// the data plane (overlay.go). What is due and when is pure (machine.go).
package acme

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"penstock/consensus/store"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

const (
	// checkInterval is how often Run looks for what is due.
	checkInterval = time.Second
	// maxRunning bounds the orders that are driven at once.
	maxRunning = 4
	// attemptTimeout bounds one attempt; what it has stored is continued by the
	// next one.
	attemptTimeout = 5 * time.Minute
)

// Store is the replicated content.
type Store interface {
	Propose(ctx context.Context, b *store.Batch) (store.Pending, error)
	Snapshot() store.Snapshot
	Wait(ctx context.Context, after uint64) (store.Snapshot, error)
}

// Sealer encrypts what the store keeps. A value sealed with one aad does not open
// with another.
type Sealer interface {
	Seal(aad, plain []byte) ([]byte, error)
	Open(aad, sealed []byte) ([]byte, error)
}

// Config configures New.
type Config struct {
	Store Store
	// Sealer encrypts all entries; nil: they are stored in plaintext, which is for
	// stores that never leave the process.
	Sealer Sealer
	// Leads reports whether this node leads, has applied everything committed
	// before, and can read all resources.
	Leads func() bool
	// Await waits until the resources of an index of the store are in force here.
	Await func(ctx context.Context, index uint64) error
	// Settle waits, for a bounded time, until the nodes that are up have applied an
	// index, and returns those that have not. nil: there are no others.
	Settle func(ctx context.Context, index uint64) (behind []string)
	// Apply puts changes of resources in force, with what was issued. Calls do not
	// overlap.
	Apply func(set *validate.Set, changes []resource.Change)
	// FirstPause is the pause after a failed attempt, which doubles up to maxPause.
	// Default 2 min.
	FirstPause time.Duration
	// UserAgent is what authorities see.
	UserAgent string
	Log       *slog.Logger // nil: none
}

// Manager obtains certificates. Create it with New.
type Manager struct {
	// Challenges answers authorities on this node.
	Challenges Challenges

	cfg    Config
	loaded store.Snapshot // what states began with
	wake   chan struct{}  // has room for one: something may be due
	led    bool           // Run alone: this node led when it looked last

	applying sync.Mutex // held during Config.Apply, so that the latest content wins

	mu      sync.Mutex
	set     *validate.Set                    // as last applied
	specs   map[string]*resource.Certificate // those with acme, as users wrote them
	filled  map[string]filled                // of specs: with what was issued
	states  map[string]*State                // by certificate
	running map[string]context.CancelFunc    // attempts on this node
	held    map[string]time.Time             // no attempt before: a failure that could not be stored
	orders  map[OrderCount]uint64            // attempts that ended here
	applied uint64                           // index that states are of
	moved   chan struct{}                    // closed when applied changes
}

// OrderCount is the label set of the count of attempts.
type OrderCount struct{ Certificate, Result string }

// filled is a certificate with what was issued.
type filled struct {
	spec   *resource.Certificate // as the user wrote it
	issued *Issued
	made   *resource.Certificate
}

// New returns a Manager that knows no resource yet, with the states of the store.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.FirstPause == 0 {
		cfg.FirstPause = firstPause
	}
	m := &Manager{
		cfg: cfg, loaded: cfg.Store.Snapshot(), wake: make(chan struct{}, 1), moved: make(chan struct{}),
		specs: map[string]*resource.Certificate{}, filled: map[string]filled{}, states: map[string]*State{},
		running: map[string]context.CancelFunc{}, held: map[string]time.Time{}, orders: map[OrderCount]uint64{},
	}
	m.update(store.Snapshot{}, m.loaded)
	m.applied = m.loaded.Index()
	return m
}

// Run follows the store and, while this node leads, obtains what is due, until ctx
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
			m.stopAll()
		}
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		case <-ticker.C:
		}
	}
}

// leads reports whether this node leads and knows the resources, without which it
// would remove what it should keep.
func (m *Manager) leads(ctx context.Context) bool {
	leads := m.cfg.Leads()
	if leads && !m.led {
		index := m.cfg.Store.Snapshot().Index()
		leads = m.cfg.Await(ctx, index) == nil && m.AwaitApplied(ctx, index) == nil
	}
	m.led = leads
	return leads
}

// start starts the attempts that are due.
func (m *Manager) start(ctx context.Context, work *sync.WaitGroup, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, spec := range m.specs {
		if len(m.running) == maxRunning {
			return
		}
		if m.running[name] != nil || now.Before(due(spec.ACME, m.states[name])) || now.Before(m.held[name]) {
			continue
		}
		delete(m.held, name)
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		m.running[name] = cancel
		work.Go(func() {
			defer cancel()
			m.attempt(ctx, name, spec.ACME)
			m.mu.Lock()
			delete(m.running, name)
			m.mu.Unlock()
			m.wakeUp()
		})
	}
}

// stopAll cancels the attempts of a node that no longer leads.
func (m *Manager) stopAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, cancel := range m.running {
		cancel()
	}
	clear(m.held)
}

func (m *Manager) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// removeOrphans deletes the states of certificates that are gone, or that an
// authority no longer issues. Accounts stay: a certificate that comes later uses
// them again.
func (m *Manager) removeOrphans(ctx context.Context) {
	m.mu.Lock()
	var ops []store.Op
	for name := range m.states {
		if m.specs[name] == nil && m.running[name] == nil {
			ops = append(ops, store.Op{Key: stateKey(name)})
		}
	}
	m.mu.Unlock()
	if len(ops) == 0 {
		return
	}
	if _, err := m.commit(ctx, "certificates are gone", ops...); err != nil && ctx.Err() == nil {
		m.cfg.Log.Warn("cannot remove what was issued for certificates that are gone; retrying", "error", err)
	}
}
