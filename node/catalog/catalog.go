// Package catalog maintains the resources in force. A change passes three
// steps: the catalog checks it against the resources in force and all pending
// changes, proposes it to the store, and applies it when Follow delivers the
// store's new content; only then does the writer get its result. Changes
// proposed by other nodes pass only the last step.
//
//	c := catalog.New(catalog.Config{Store: store, Kinds: kinds})
//	go c.Follow(ctx, func(set *validate.Set, changes []resource.Change) error { ... })
//	result, err := c.Apply(ctx, catalog.Change{Objects: objects})
//
// Changes are pipelined: each is checked against all before it, proposed at
// once, and carries the sequence number that it was checked against
// (store.Batch.IfSequence). If one of them fails, the store rejects those
// after it, and the catalog checks them again against the resources in force.
// So a change in force was always checked against exactly the content that it
// applies to, whichever node leads.
//
// No result depends on a change that may never apply: an error, or the finding
// that there is nothing to do, is returned only once everything that it was
// found against is in force.
//
// Kinds that begin with "_" are internal to the cluster; the catalog ignores
// them.
package catalog

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"penstock/consensus/store"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// Store is the replicated content. All other writers of resources must use
// Batch.IfSequence.
type Store interface {
	// Propose proposes a batch. Batches apply in the order of their proposals.
	Propose(ctx context.Context, b *store.Batch) (store.Pending, error)
	// Snapshot returns the current content.
	Snapshot() store.Snapshot
	// Wait returns a snapshot whose index is above after.
	Wait(ctx context.Context, after uint64) (store.Snapshot, error)
}

// Config configures a catalog.
type Config struct {
	Store Store
	Kinds []resource.Kind
	// Sealer encrypts the kinds that hold secrets; nil: they are stored in
	// plaintext, which is for stores that never leave the process.
	Sealer Sealer
	// Barrier returns nil once the store's Snapshot includes everything committed
	// before the call, or store.ErrNotLeader; nil: the Snapshot always does.
	// It is called before a change is refused, or answered without a proposal, and
	// when a pipeline starts.
	Barrier func(ctx context.Context) error
	// Admit may reject an object to be created or changed, such as one that not
	// every node supports; nil: all are admitted.
	Admit func(resource.Object) error
	// Status returns a function that gives the status, as JSON, of the objects of
	// a set whose kind has one. since is the time of an object's last change. Nil:
	// no kind has a status.
	Status func(*validate.Set) func(o *resource.Object, since time.Time) []byte
	// Reserved is the resource.LabelAppliedBy of resources that only the writer with
	// that Change.Owner may change; "": none.
	Reserved string
	Audit    Auditor      // nil: none
	Log      *slog.Logger // nil: none
}

// Auditor records who changed what, in the same batches as the changes.
type Auditor interface {
	// Ops returns the operations to add to a batch. It is called again, for another
	// batch, if the change is overtaken.
	Ops(ctx context.Context, changes func() string) []store.Op
	// Done is called once such a batch was applied.
	Done(ctx context.Context)
}

// Catalog holds the resources in force: the store's content as objects. Its
// methods are safe for concurrent use.
type Catalog struct {
	cfg           Config
	sealing       map[string]bool // kinds that are encrypted
	managed       map[string]bool // kinds that users cannot write
	retryInterval time.Duration   // interval of the attempts to decrypt unread entries

	// admitting is a lock that is held to check and propose a change, so that
	// changes are proposed in the order in which they are checked.
	admitting chan struct{}

	mu   sync.Mutex
	set  *validate.Set // in force
	view store.Snapshot
	// unread has the entries that could not be decrypted, which the set has in an
	// older version or not at all. The map is replaced, never modified.
	unread  map[store.Key]unreadEntry
	changed chan struct{} // closed when view, set or pending are replaced
	// ahead is the content after all pending changes; nil: unknown.
	ahead *ahead
	// pending are the pending changes between set and ahead, in order. The slice
	// is replaced or appended to, never modified.
	pending []*pendingChange
	// undecided are the pending changes without a result, in order;
	// unsettled those that are committed but not in force here yet.
	undecided, unsettled []*pendingChange
}

// New returns an empty catalog. Changes wait until Follow runs.
func New(cfg Config) *Catalog {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	c := &Catalog{
		cfg: cfg, sealing: map[string]bool{}, managed: map[string]bool{}, retryInterval: decryptRetryInterval,
		admitting: make(chan struct{}, 1), set: new(validate.Set), changed: make(chan struct{}),
	}
	for _, k := range cfg.Kinds {
		c.sealing[k.Name] = cfg.Sealer != nil && k.HasSecrets()
		c.managed[k.Name] = k.ReadOnly != ""
	}
	return c
}

// InForce returns the content in force.
func (c *Catalog) InForce() (*validate.Set, store.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.set, c.view
}

// Await waits until the store's content of the index is in force here.
func (c *Catalog) Await(ctx context.Context, index uint64) error {
	return c.until(ctx, func() bool { return c.view.Index() >= index })
}

// until waits for a condition on state guarded by c.mu.
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

// notify wakes the waiters in until. The caller holds c.mu.
func (c *Catalog) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}
