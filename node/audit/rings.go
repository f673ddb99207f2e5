package audit

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/rpc"
)

// The rings. Each has its own bound, so that many changes of resources, or many
// certificates, do not displace what was done to tokens and nodes.
const (
	ringResources = "resources" // apply, delete, rollback, restore, rollout
	ringIssued    = "issued"    // certificates of workloads and proxies
	ringLogins    = "logins"    // at the dashboard, which any token may do often
	ringCluster   = "cluster"   // everything else
)

var ringNames = []string{ringResources, ringIssued, ringLogins, ringCluster}

// ringOf says which ring has the entries of a method.
func ringOf(method string) string {
	switch method {
	case api.MethodApply, api.MethodDelete, api.MethodRollback, api.MethodRestore, api.MethodRollout:
		return ringResources
	case api.MethodIdentityIssue, api.MethodIssueProxy:
		return ringIssued
	case api.ActLogin, api.ActLogout:
		return ringLogins
	}
	return ringCluster
}

// kindOf returns the kind of a ring's entries.
func kindOf(ring string) string { return "_audit_" + ring }

// nameOf returns the name of a ring's nth entry. Names are ordered like numbers.
func nameOf(n uint64) string { return fmt.Sprintf("%020d", n) }

// numberOf is the inverse of nameOf; 0 for any other name.
func numberOf(name string) uint64 {
	n, err := strconv.ParseUint(name, 10, 64)
	if err != nil || nameOf(n) != name {
		return 0
	}
	return n
}

// rings numbers the entries that this node proposes. Numbers have gaps where a
// batch was refused.
type rings struct {
	mu   sync.Mutex
	last map[string]uint64
}

// next returns the number of the next entry of a ring: after all that are stored,
// and after all that this node has proposed since.
func (r *rings) next(ring string, snap store.Snapshot) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]uint64{}
	}
	n := r.last[ring]
	if e, ok := snap.Last(kindOf(ring)); ok {
		n = max(n, numberOf(e.Name))
	}
	n++
	r.last[ring] = n
	return n
}

// format is the format of stored entries. Fields may be added without a new one.
const format = 1

// stored is a stored entry.
type stored struct {
	Format int `json:"format"`
	api.AuditEntry
}

// ops returns the operations that add an entry to its ring and remove the one that
// is too many.
func (l *Log) ops(e *api.AuditEntry, snap store.Snapshot) []store.Op {
	ring := ringOf(e.Act)
	n := l.rings.next(ring, snap)
	value, err := json.Marshal(stored{format, *e})
	if err != nil {
		panic(err) // cannot happen: the fields are strings, numbers and times
	}
	ops := []store.Op{{Key: store.Key{Kind: kindOf(ring), Name: nameOf(n)}, Value: value}}
	if bound := uint64(l.cfg.Entries); n > bound { //nolint:gosec // validated
		ops = append(ops, store.Op{Key: store.Key{Kind: kindOf(ring), Name: nameOf(n - bound)}})
	}
	return ops
}

// Ops returns what a batch contains beside the changes that the request in ctx
// makes: the request's entry. There is none without a request, and after Done.
// changes describes them; nil: the request does.
func (l *Log) Ops(ctx context.Context, changes func() string) []store.Op {
	e, ok := rpc.ToRecord(ctx)
	c := l.cluster.Load()
	if !ok || c == nil {
		return nil
	}
	entry := l.entryOf(&e)
	if changes != nil && (e.Method == api.MethodApply || e.Method == api.MethodDelete) {
		entry.What = cut(changes())
	}
	return l.ops(&entry, c.Store.Snapshot())
}

// Done says that a batch with the Ops of the request in ctx was applied: Record
// takes the request for recorded.
func (l *Log) Done(ctx context.Context) { rpc.Recorded(ctx) }

// Entries returns the stored entries with a version above after, ring by ring.
func Entries(snap store.Snapshot, after uint64, since time.Time) (entries []api.AuditEntry) {
	for _, ring := range ringNames {
		for e := range snap.Kind(kindOf(ring)) {
			var s stored
			// A later release may store what this one does not know.
			if e.Version <= after || json.Unmarshal(e.Value, &s) != nil || s.Format != format || s.At.Before(since) {
				continue
			}
			entries = append(entries, s.AuditEntry)
		}
	}
	return entries
}

// maxBatch bounds the entries of one batch.
const maxBatch = 200

// Add records acts of nodes, on the leader.
func (l *Log) Add(ctx context.Context, acts *api.AuditActs) (*api.Empty, error) {
	if n := len(acts.Entries); n > maxBatch {
		return nil, api.Errorf(api.Invalid, "%d entries, at most %d", n, maxBatch)
	}
	if n := len(acts.ID); n != len(store.ID{}) {
		return nil, api.Errorf(api.Invalid, "an ID of %d bytes, want %d", n, len(store.ID{}))
	}
	c := l.cluster.Load()
	if c == nil || !c.Leads() {
		return nil, store.ErrNotLeader
	}
	snap := c.Store.Snapshot()
	var ops []store.Op
	for i := range acts.Entries {
		e := &acts.Entries[i]
		for _, s := range []*string{&e.Node, &e.Who, &e.Role, &e.Token, &e.From, &e.Via, &e.Act, &e.What, &e.Rule, &e.Outcome, &e.Error} {
			*s = cut(*s)
		}
		ops = append(ops, l.ops(e, snap)...)
	}
	return &api.Empty{}, c.commit(ctx, store.ID(acts.ID), ops)
}

func (c *Cluster) commit(ctx context.Context, id store.ID, ops []store.Op) error {
	pending, err := c.Store.Propose(ctx, &store.Batch{
		ID: id, Ops: ops, Note: store.Note{Who: c.Node, What: "audit", At: time.Now().UTC()},
	})
	if err != nil {
		return err
	}
	_, err = pending.Wait(ctx)
	return err
}

const (
	// cleanUpInterval is how often the leader removes what is too old.
	cleanUpInterval = time.Minute
	// recordTimeout bounds one attempt to record acts, retryAfter is the pause after
	// one that failed.
	recordTimeout = 15 * time.Second
	retryAfter    = time.Second
)

// Run records the acts that changed nothing in the store, and removes old entries
// while this node leads, until ctx ends.
func (l *Log) Run(ctx context.Context) {
	tick := time.NewTicker(cleanUpInterval)
	defer tick.Stop()
	for {
		select {
		case <-l.wake:
			l.flush(ctx)
		case now := <-tick.C:
			l.cleanUp(ctx, now)
		case <-ctx.Done():
			return
		}
	}
}

// Now records the request in ctx, of a node that may be gone by the end of it: before
// it is carried out. It waits for a leader until ctx ends.
func (l *Log) Now(ctx context.Context) error {
	e, ok := rpc.ToRecord(ctx)
	if !ok {
		return nil
	}
	acts := &api.AuditActs{Entries: []api.AuditEntry{l.entryOf(&e)}, ID: newID()}
	if err := l.send(ctx, acts, false); isUnknown(err) {
		return nil // the leader is of an earlier version: Record takes it
	} else if err != nil {
		return fmt.Errorf("it cannot be recorded in the audit log, so it is not done: %w", err)
	}
	rpc.Recorded(ctx)
	return nil
}

// Flush waits until the acts that wait are recorded, or ctx ends.
func (l *Log) Flush(ctx context.Context) { l.flush(ctx) }

func newID() []byte {
	id := make([]byte, len(store.ID{}))
	_, _ = rand.Read(id) // never fails
	return id
}

// flush records the acts that wait. It tries again while there is no leader, under
// the same ID, so that an entry whose acknowledgement was lost is not repeated.
func (l *Log) flush(ctx context.Context) {
	select {
	case l.flushing <- struct{}{}:
		defer func() { <-l.flushing }()
	case <-ctx.Done():
		return
	}
	for {
		l.mu.Lock()
		part := &api.AuditActs{Entries: slices.Clone(l.queue[:min(len(l.queue), maxBatch)]), ID: newID()}
		l.mu.Unlock()
		if len(part.Entries) == 0 {
			return
		}
		for i := range part.Entries { // those of before Join have none yet
			part.Entries[i].Node = cmp.Or(part.Entries[i].Node, l.node())
		}
		err := l.send(ctx, part, true)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.cfg.Log.Warn("cannot record in the audit log", "entries", len(part.Entries), "error", err)
			l.dropped.Add(uint64(len(part.Entries)))
		}
		l.mu.Lock()
		l.queue = l.queue[len(part.Entries):]
		l.mu.Unlock()
	}
}

// send has the leader record acts, and returns an error that will not pass. upgrade:
// it waits for a leader that knows how to.
func (l *Log) send(ctx context.Context, acts *api.AuditActs, upgrade bool) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, recordTimeout)
		err := store.ErrNotLeader
		if c := l.cluster.Load(); c != nil {
			err = c.ToLeader(attempt, acts)
		}
		cancel()
		if err == nil || !passes(err) || !upgrade && isUnknown(err) || ctx.Err() != nil {
			return err
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// passes reports whether an attempt that failed may succeed later.
func passes(err error) bool {
	var refused *api.Error
	if errors.As(err, &refused) {
		switch refused.Code {
		case api.NoLeader, api.NotLeader, api.Unavailable, api.UnknownOutcome, api.Busy, api.Unknown: // Unknown: the leader is to be upgraded
			return true
		}
		return false
	}
	return true // the connection, or the store while it has no leader
}

// isUnknown reports whether the leader does not know the method, since it is of an
// earlier version.
func isUnknown(err error) bool {
	var refused *api.Error
	return errors.As(err, &refused) && refused.Code == api.Unknown
}

// cleanUp removes entries beyond the bounds, on the leader: those that are too old,
// and those of a time when the bound was higher.
func (l *Log) cleanUp(ctx context.Context, now time.Time) {
	c := l.cluster.Load()
	if c == nil || !c.Leads() {
		return
	}
	ops := l.outdated(c.Store.Snapshot(), now)
	if len(ops) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	if err := c.commit(ctx, store.ID{}, ops); err != nil && !errors.Is(err, store.ErrNotLeader) {
		l.cfg.Log.Warn("cannot remove old entries of the audit log; retrying", "error", err)
	}
}

// maxRemoved bounds the entries that one batch removes.
const maxRemoved = 1000

func (l *Log) outdated(snap store.Snapshot, now time.Time) (ops []store.Op) {
	oldest := now.Add(-l.cfg.Age)
	for _, ring := range ringNames {
		last, ok := snap.Last(kindOf(ring))
		if !ok {
			continue
		}
		n := numberOf(last.Name)
		for e := range snap.Kind(kindOf(ring)) {
			beyond := n-numberOf(e.Name) >= uint64(l.cfg.Entries) //nolint:gosec // validated
			// The last one stays: its number is where the next leader goes on.
			if len(ops) < maxRemoved && e.Name != last.Name && (beyond || e.At.Before(oldest)) {
				ops = append(ops, store.Op{Key: e.Key})
			}
		}
	}
	return ops
}
