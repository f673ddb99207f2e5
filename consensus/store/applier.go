package store

import (
	"errors"
	"fmt"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Applier applies log entries in order. Entries applied together share their
// writes: tree nodes are copied once for all of them, not for each. The result
// is the same as with Snapshot.Apply for each, however the entries are split
// among appliers.
type Applier struct {
	limits Limits
	// snapshot is current except for its entries and past, while the fields below
	// are not nil.
	snapshot Snapshot
	entries  *iradix.Txn[Entry]
	past     *pastTxn
}

// NewApplier returns an applier that continues from v.
func NewApplier(v Snapshot, l Limits) *Applier {
	return &Applier{limits: l.withDefaults(), snapshot: v}
}

// Reply is the outcome of one batch of an entry.
type Reply struct {
	Result
	Err error // why the batch was refused
}

// Index returns the index of the last entry.
func (a *Applier) Index() uint64 { return a.snapshot.index }

// Skip takes the index of an entry without batches.
func (a *Applier) Skip(index uint64) { a.snapshot = a.snapshot.Skip(index) }

// Apply applies a log entry and returns a reply for each of its batches. On an
// error, the entry is not understood and has no effect.
func (a *Applier) Apply(index uint64, data []byte) ([]Reply, error) {
	batches, err := decodeEntry(data)
	if err != nil {
		return nil, fmt.Errorf("log entry %d: %w", index, err)
	}
	if index <= a.snapshot.index {
		return nil, fmt.Errorf("log entry %d: %w: the snapshot is at index %d", index, ErrIndex, a.snapshot.index)
	}
	replies := make([]Reply, len(batches))
	var touched []Key
	for i, b := range batches {
		r := &replies[i]
		if a.needsNoRollback(b) {
			r.Result, touched, r.Err = a.applyInPlace(index, b, touched)
		} else {
			touched = a.logTouched(index, touched)
			r.Result, r.Err = a.applyWithRollback(index, b)
		}
		if r.Err != nil && !isRefusal(r.Err) {
			return nil, fmt.Errorf("log entry %d: %w", index, r.Err)
		}
	}
	a.logTouched(index, touched)
	return replies, nil
}

// isRefusal reports whether err is that of a refused batch.
func isRefusal(err error) bool {
	for _, e := range [...]error{ErrVersion, ErrTooLarge, ErrKey, ErrStale} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// needsNoRollback reports whether a batch can fail only before its first
// operation, so that nothing has to be rolled back.
func (a *Applier) needsNoRollback(b *Batch) bool {
	for i := range b.Ops {
		if op := &b.Ops[i]; op.Value == nil || op.IfVersion != nil {
			return false
		}
	}
	n := b.size()
	return a.snapshot.bytes+n <= a.limits.Total && a.snapshot.internal+n <= a.limits.Internal
}

// applyWithRollback applies a batch with Snapshot.apply.
func (a *Applier) applyWithRollback(index uint64, b *Batch) (result Result, err error) {
	a.snapshot, result, err = a.Snapshot().apply(index, b, a.limits)
	return result, err
}

// applyInPlace applies a batch that needs no rollback, and appends the keys it
// touches to touched.
func (a *Applier) applyInPlace(index uint64, b *Batch, touched []Key) (Result, []Key, error) {
	v := &a.snapshot
	v.index = max(v.index, index)
	if first, ok := v.seen.find(b.ID); ok {
		return Result{Index: first, Repeated: true}, touched, nil
	}
	sequence, err := v.nextSequence(b)
	if err == nil {
		err = b.check(a.limits)
	}
	if err != nil {
		return Result{}, touched, err
	}
	v.sequence = sequence
	if a.entries == nil {
		a.entries, a.past = orEmpty(v.entries).Txn(), v.past.txn()
	}
	a.past.keep = a.limits.Revisions - 1
	ops := opApplier{next: v, note: b.Note.bounded(), entries: a.entries, past: a.past}
	for i := range b.Ops {
		k, err := ops.apply(&b.Ops[i])
		if err != nil { // cannot happen: see needsNoRollback
			return Result{}, touched, err
		}
		touched = append(touched, k)
	}
	a.past.trimAll(a.entries, a.limits)
	v.seen = v.seen.with(b.ID, index)
	return Result{Index: index}, touched, nil
}

// logTouched logs the keys that an entry has touched so far.
func (a *Applier) logTouched(index uint64, keys []Key) (none []Key) {
	if len(keys) > 0 {
		a.snapshot.log = a.snapshot.log.with(index, keys)
	}
	return nil
}

// Snapshot returns the snapshot after all applied entries.
func (a *Applier) Snapshot() Snapshot {
	if a.entries != nil {
		a.snapshot.entries, a.snapshot.past = a.entries.CommitOnly(), a.past.commit()
		a.entries, a.past = nil, nil
	}
	return a.snapshot
}
