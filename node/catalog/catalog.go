// Package catalog keeps the resources that are in force. A change goes through
// three steps: it is checked against what is in force and what is on its way
// already, proposed to the store, and acts when the follower has brought the
// store's new content to the rooms; only then its writer is answered. What
// another node proposes comes the same way, without the first step.
//
//	c := catalog.New(catalog.Config{Store: store, Kinds: kinds})
//	go c.Follow(ctx, func(set *resource.Set, changes []resource.Change) error { ... })
//	result, err := c.Apply(ctx, catalog.Change{Objects: objects})
//
// Changes do not wait for one another: each is checked against all before it,
// says so to the store (consensus.Batch.IfSequence), and is proposed at once.
// When one of them fails, those after it are refused by the store, and checked
// anew against what is in force. So what acts has always been checked against
// exactly the content that it acts upon, whoever leads.
//
// No answer rests on what may never act: a refusal, or that there is nothing
// to do, is given when all that it was found against is in force.
//
// Kinds that begin with "_" are the cluster's own; the catalog passes them by.
package catalog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"penstock/consensus"
	"penstock/routing/resource"
)

// Store is what is needed of the agreed content. Nobody else may change
// resources in it without Batch.IfSequence.
type Store interface {
	// Propose takes a batch, which acts before any that is proposed later.
	Propose(ctx context.Context, b *consensus.Batch) (consensus.Pending, error)
	// Snapshot is the content now.
	Snapshot() consensus.Snapshot
	// Wait returns a view whose index is above after.
	Wait(ctx context.Context, after uint64) (consensus.Snapshot, error)
}

// Config is what a catalog works with.
type Config struct {
	Store Store
	Kinds []resource.Kind
	// Sealer seals the kinds that hold secrets; nil: they are stored in the
	// clear, which is for stores that never leave the process.
	Sealer Sealer
	// Barrier returns when the store's Snapshot has everything that was agreed
	// before it was called, or with consensus.ErrNotLeader; nil: the Snapshot
	// always has. It is called before a change is refused, or answered
	// without having been proposed, and when a pipeline starts.
	Barrier func(ctx context.Context) error
	// Admit may refuse an object that is to be created or changed, such as
	// one that not every node understands; nil: all are admitted.
	Admit func(resource.Object) error
	// Status makes what tells the status of objects of a set, as JSON, for the
	// kinds that have one; since is when an object was last changed. Nil: none
	// has.
	Status func(*resource.Set) func(o *resource.Object, since time.Time) []byte
	Log    *slog.Logger // nil: none
}

// Catalog is what is in force: the store's content as objects. Its methods may
// be called from anywhere.
type Catalog struct {
	cfg     Config
	sealing map[string]bool // kinds that are sealed
	kept    map[string]bool // kinds that users do not write
	reopen  time.Duration   // between two attempts to open what could not be opened

	// admitting holds one token: whoever has it checks and proposes, so that
	// changes are proposed in the order in which they are checked.
	admitting chan struct{}

	mu   sync.Mutex
	set  *resource.Set // what acts
	view consensus.Snapshot
	// unread has what the set has in an older state, or not at all, because
	// it could not be opened. The map is replaced, never changed.
	unread  map[consensus.Key]unread
	changed chan struct{} // closed when view, set or flights are replaced
	// ahead is what will be in force; nil: not known.
	ahead *ahead
	// flights are the changes between set and ahead, in order. The slice is
	// replaced or appended to, never changed.
	flights []*pendingChange
	// undecided are the flights that were proposed and have no result, in
	// order; unsettled those that will act, and do not yet.
	undecided, unsettled []*pendingChange
}

// New makes a catalog with nothing in force. Until Follow runs, changes wait.
func New(cfg Config) *Catalog {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Catalog{
		cfg: cfg, sealing: map[string]bool{}, kept: map[string]bool{}, reopen: reopenEvery,
		admitting: make(chan struct{}, 1), set: new(resource.Set), changed: make(chan struct{}),
	}
	for _, k := range cfg.Kinds {
		c.sealing[k.Name] = cfg.Sealer != nil && k.HasSecrets()
		c.kept[k.Name] = k.ReadOnly != ""
	}
	return c
}

// InForce is the content that acts now.
func (c *Catalog) InForce() (*resource.Set, consensus.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set, c.view
}

// Await waits until the store's content of that index acts here.
func (c *Catalog) Await(ctx context.Context, index uint64) error {
	return c.until(ctx, func() bool { return c.view.Index() >= index })
}

// until waits for a condition of what c.mu guards.
func (c *Catalog) until(ctx context.Context, met func() bool) error {
	for {
		c.mu.Lock()
		ok, changed := met(), c.changed
		c.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// notify wakes those who wait in until. Its caller holds c.mu.
func (c *Catalog) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}
