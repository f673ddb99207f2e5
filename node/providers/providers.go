// Package providers runs the endpoint providers of a node. Those of scope
// cluster run on the leader, which stores what they find, so that every node has
// it and the next leader goes on from it. Those of scope node run on each node.
//
//	p := providers.New(providers.Config{Store: st, Source: newSource, Leads: leads, Changed: changed})
//	go p.Run(ctx)
//	p.Apply(changes) // of resources in force
//	found := p.Directory.Lookup(ref)
//
// Endpoints that connected proxies announce come to the leader from each node
// and are stored in the same way:
//
//	withdraw := p.Announce("web", provider.Endpoint{Address: "10.0.0.7:8080", Weight: 1})
//	defer withdraw()
//
// An endpoint is one entry of the store, so that a change costs what changed
// and not what the provider knows.
package providers

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"penstock/consensus/store"
	"penstock/routing"
	"penstock/routing/provider"
	"penstock/routing/resource"
)

// checkInterval is how often Run looks whether this node leads.
const checkInterval = time.Second

// Store is the replicated content.
type Store interface {
	Propose(ctx context.Context, b *store.Batch) (store.Pending, error)
	Snapshot() store.Snapshot
	Wait(ctx context.Context, after uint64) (store.Snapshot, error)
}

// Config configures New.
type Config struct {
	Store Store
	// Source returns the source of a provider, whose spec has its defaults.
	Source func(spec *resource.EndpointProvider) (provider.Source, error)
	// Leads reports whether this node leads and has applied everything committed
	// before.
	Leads func() bool
	// Await waits until the resources of an index of the store are in force here.
	Await func(ctx context.Context, index uint64) error
	// Changed is told of changed endpoints, which are in the Directory. Calls do
	// not overlap.
	Changed func(refs []provider.Ref)
	// Refuse returns why this node must not connect to an endpoint, or nil. It is
	// asked often and must not wait for Providers. nil: no endpoint is refused.
	Refuse func(ref provider.Ref, at netip.AddrPort) error
	// Self is the ID of this node. Leader returns that of the leader, "" if none is
	// known, Members those of all nodes. Tell calls Receive on another node. All
	// three are nil without a cluster.
	Self    string
	Leader  func() string
	Members func() []string
	Tell    func(ctx context.Context, node string, m *Announcements) (*AnnouncementsResult, error)
	// Leaving reports whether this node drains, so that the proxies that leave it
	// stay endpoints until they are connected to another one. nil: never.
	Leaving func() bool
	Log     *slog.Logger // nil: none
}

// Providers runs the providers of a node. Create it with New.
type Providers struct {
	// Directory has the endpoints in force on this node.
	Directory provider.Directory

	cfg       Config
	loaded    store.Snapshot // what the Directory began with
	wake      chan struct{}  // has room for one: what is wanted has changed
	announcer *announcer     // of the proxies that are connected to this node
	collector *collector     // of what all nodes announce, on the leader
	led       bool           // Run alone: this node led when it looked last

	telling sync.Mutex // held while the Directory changes and Changed is told

	refusing sync.Mutex
	refused  map[provider.Ref]refusal // of what the router has looked up

	mu      sync.Mutex
	specs   map[string]*resource.EndpointProvider // with defaults
	uses    map[string][]provider.Ref             // by service
	wanted  map[string]map[provider.Query]int     // by provider: how many services use a query
	running map[string]*running
	faults  map[string]string // providers that cannot run, by name
	tidy    bool              // the store has no endpoints of providers that are gone, as far as this leader knows
}

// running is a provider that runs here.
type running struct {
	spec   *resource.EndpointProvider
	runner *provider.Runner
	cancel context.CancelFunc
	done   chan struct{}
}

// New returns Providers that know no resource yet, with what the store has in
// the Directory.
func New(cfg Config) *Providers {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Leader == nil {
		cfg.Leader = func() string { return cfg.Self }
		cfg.Members = func() []string { return []string{cfg.Self} }
	}
	p := &Providers{
		cfg: cfg, loaded: cfg.Store.Snapshot(), wake: make(chan struct{}, 1),
		announcer: newAnnouncer(cfg.Leaving), collector: newCollector(),
		specs: map[string]*resource.EndpointProvider{}, uses: map[string][]provider.Ref{},
		wanted: map[string]map[provider.Query]int{}, running: map[string]*running{}, faults: map[string]string{},
		refused: map[provider.Ref]refusal{},
	}
	p.specs[routing.Announced] = announcedSpec()
	p.Directory.Apply(p.updates(store.Snapshot{}, p.loaded))
	return p
}

// Apply records changes of resources that are now in force.
func (p *Providers) Apply(changes []resource.Change) {
	if p.apply(changes) || slices.ContainsFunc(changes, affectsListeners) {
		p.recheck()
	}
}

// apply records what the providers need of changes and reports whether that is
// anything.
func (p *Providers) apply(changes []resource.Change) (relevant bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range changes {
		ch := &changes[i]
		switch spec := ch.Spec.(type) {
		case *resource.EndpointProvider:
			relevant, p.tidy = true, false
			p.specs[ch.Name] = spec.WithDefaults()
			if ch.Delete {
				delete(p.specs, ch.Name)
			}
		case *resource.Service:
			refs := routing.RefsOf(ch.Name, spec)
			if ch.Delete {
				refs = nil
			}
			relevant = p.setUses(ch.Name, refs) || relevant
		case nil:
			switch ch.Kind {
			case resource.KindProvider:
				delete(p.specs, ch.Name)
				relevant, p.tidy = true, false
			case "Service":
				relevant = p.setUses(ch.Name, nil) || relevant
			}
		}
	}
	if relevant {
		p.wakeUp()
	}
	return relevant
}

// setUses records what a service uses and reports whether that changed.
func (p *Providers) setUses(service string, refs []provider.Ref) bool {
	before := p.uses[service]
	if slices.Equal(before, refs) {
		return false
	}
	for _, ref := range refs {
		if p.wanted[ref.Provider] == nil {
			p.wanted[ref.Provider] = map[provider.Query]int{}
		}
		p.wanted[ref.Provider][ref.Query]++
	}
	for _, ref := range before {
		of := p.wanted[ref.Provider]
		if of[ref.Query]--; of[ref.Query] == 0 {
			delete(of, ref.Query)
		}
		if len(of) == 0 {
			delete(p.wanted, ref.Provider)
		}
	}
	if p.uses[service] = refs; len(refs) == 0 {
		delete(p.uses, service)
	}
	return true
}

func (p *Providers) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Run runs the providers and follows the store until ctx ends.
func (p *Providers) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { p.follow(ctx) })
	wg.Go(func() { newTeller(p).run(ctx) })
	defer wg.Wait()
	ticker := time.NewTicker(checkInterval)
	defer ticker.Stop()
	for {
		p.reconcile(ctx)
		select {
		case <-ctx.Done():
			p.stopAll()
			return
		case <-p.wake:
		case <-ticker.C:
		}
	}
}

// reconcile starts and stops providers, so that those run that should run here.
func (p *Providers) reconcile(ctx context.Context) {
	leads := p.leads(ctx)
	p.mu.Lock()
	stop := map[string]*running{}
	for name, r := range p.running {
		spec := p.specs[name]
		if spec != r.spec || spec.Scope == "cluster" && !leads {
			stop[name] = r
			delete(p.running, name)
		}
	}
	p.mu.Unlock()
	p.stop(stop)
	p.removeOrphans(ctx, leads)

	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.faults, func(name string, _ string) bool { return p.specs[name] == nil })
	for name, spec := range p.specs {
		if p.running[name] == nil && (spec.Scope == "node" || leads) {
			p.start(ctx, name, spec)
		}
		if r := p.running[name]; r != nil {
			r.runner.Want(slices.Collect(maps.Keys(p.wanted[name])))
		}
	}
}

// leads reports whether this node leads and knows the resources, without which
// it would remove what it should keep.
func (p *Providers) leads(ctx context.Context) bool {
	leads := p.cfg.Leads()
	if leads && !p.led {
		leads = p.cfg.Await(ctx, p.cfg.Store.Snapshot().Index()) == nil
	}
	p.led = leads
	return leads
}

// stopAll stops all providers, when Run ends.
func (p *Providers) stopAll() {
	p.mu.Lock()
	all := p.running
	p.running = map[string]*running{}
	p.mu.Unlock()
	p.stop(all)
}

// stop stops providers and waits until they have ended. What those of scope node
// found here is forgotten, unless they start again.
func (p *Providers) stop(all map[string]*running) {
	for _, r := range all {
		r.cancel()
	}
	for name, r := range all {
		<-r.done
		p.mu.Lock()
		spec := p.specs[name]
		p.mu.Unlock()
		if r.spec.Scope == "node" && (spec == nil || spec.Scope != "node") {
			p.forget(name)
		}
	}
}

// start starts a provider. p.mu is held.
func (p *Providers) start(ctx context.Context, name string, spec *resource.EndpointProvider) {
	if name == routing.Announced {
		p.startAnnounced(ctx, spec)
		return
	}
	source, err := p.cfg.Source(spec)
	if err != nil {
		if p.faults[name] != err.Error() {
			p.cfg.Log.Error("cannot start an endpoint provider", "provider", name, "error", err)
		}
		p.faults[name] = err.Error()
		return
	}
	delete(p.faults, name)
	cfg := provider.Config{
		Name: name, Source: source, Log: p.cfg.Log,
		ChangeRate: spec.ChangesPerSecond, MaxEndpoints: spec.MaxEndpoints, MaxStale: spec.MaxStale.D(),
		HoldShare: *spec.Hold.Share, HoldFor: spec.Hold.For.D(),
	}
	if cfg.HoldFor == 0 {
		cfg.HoldFor = -1
	}
	if spec.Scope == "node" {
		cfg.Known = p.knownHere(name)
		cfg.Apply = func(_ context.Context, changes []provider.Change) error { return p.applyHere(name, changes) }
	} else {
		cfg.Known = p.knownInStore(name)
		cfg.Apply = func(ctx context.Context, changes []provider.Change) error { return p.applyInStore(ctx, name, changes) }
	}
	p.run(ctx, name, spec, cfg)
}

// startAnnounced starts the provider of the announced endpoints. p.mu is held.
func (p *Providers) startAnnounced(ctx context.Context, spec *resource.EndpointProvider) {
	known := p.knownInStore(routing.Announced)
	p.run(ctx, routing.Announced, spec, provider.Config{
		Name: "announced", Log: p.cfg.Log, Known: known, MaxEndpoints: spec.MaxEndpoints, HoldFor: -1,
		Source: &announcedSource{collector: p.collector, members: p.cfg.Members, known: known},
		Apply: func(ctx context.Context, changes []provider.Change) error {
			return p.applyInStore(ctx, routing.Announced, changes)
		},
	})
}

// run runs a provider. p.mu is held.
func (p *Providers) run(ctx context.Context, name string, spec *resource.EndpointProvider, cfg provider.Config) {
	ctx, cancel := context.WithCancel(ctx)
	r := &running{spec: spec, runner: provider.NewRunner(cfg), cancel: cancel, done: make(chan struct{})}
	r.runner.Want(slices.Collect(maps.Keys(p.wanted[name])))
	p.running[name] = r
	go func() {
		defer close(r.done)
		_ = r.runner.Run(ctx) // ends with ctx alone
	}()
}

// announcedSpec is that of the provider of the announced endpoints.
func announcedSpec() *resource.EndpointProvider {
	return &resource.EndpointProvider{Scope: "cluster", MaxEndpoints: maxAnnouncedOfService}
}

// Status returns the state of the providers that run here, and of those that
// cannot, sorted by name.
func (p *Providers) Status() []provider.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []provider.Status
	for name, r := range p.running {
		if s := r.runner.Status(); name != routing.Announced || len(s.Queries) > 0 {
			all = append(all, p.withRefused(s))
		}
	}
	for name, fault := range p.faults {
		all = append(all, provider.Status{Name: name, Err: fault, Failed: true})
	}
	slices.SortFunc(all, func(a, b provider.Status) int { return compareNames(a.Name, b.Name) })
	return all
}
