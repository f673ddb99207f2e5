package store

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Limits bound a store, in bytes unless noted. Zero fields take the defaults.
// The limits affect the outcome of batches, so stores that apply the same
// batches must have the same limits.
type Limits struct {
	Entry int // one entry with its key: 8 MiB
	Total int // all entries with their keys, except internal ones: 256 MiB
	// Internal bounds the entries of kinds that begin with "_", with their keys:
	// 64 MiB. It is separate from Total so that a store filled by users does not
	// block changes of the cluster's members.
	Internal int
	// Revisions bounds the revisions of a key, including the current one: 10.
	Revisions int
	// Past bounds all revisions no longer in force, with their keys, notes and 256
	// bytes each: 64 MiB. The ones replaced first are evicted first.
	Past int
}

const (
	// maxKey bounds a kind and a name, in bytes each.
	maxKey = 512
	// maxNote bounds each string of a note, in bytes; longer ones are cut.
	maxNote = 256
)

func (l Limits) withDefaults() Limits {
	for _, d := range []struct {
		field *int
		value int
	}{
		{&l.Entry, 8 << 20},
		{&l.Total, 256 << 20},
		{&l.Internal, 64 << 20},
		{&l.Revisions, 10},
		{&l.Past, 64 << 20},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	return l
}

// Apply returns the snapshot after a batch and leaves v unchanged. The result
// depends on the arguments alone, so the same batches produce the same
// snapshots everywhere.
//
// The index must be above the snapshot's but need not be the next. If the batch
// is refused (ErrVersion, ErrTooLarge, ErrKey or ErrStale) or its ID is
// remembered, only the index changes. A refused batch is not remembered: a
// retry is evaluated again.
//
// The result shares no memory with the batch.
func (v Snapshot) Apply(index uint64, b *Batch, l Limits) (Snapshot, Result, error) {
	if index <= v.index {
		return v, Result{}, fmt.Errorf("%w: batch %d, the snapshot is at index %d", ErrIndex, index, v.index)
	}
	return v.apply(index, b, l)
}

// apply is Apply without the index check, for the later batches of a group.
func (v Snapshot) apply(index uint64, b *Batch, l Limits) (Snapshot, Result, error) {
	if first, ok := v.seen.find(b.ID); ok {
		return v.Skip(index), Result{Index: first, Repeated: true}, nil
	}
	next, err := v.applyOps(index, b, l.withDefaults())
	if err != nil {
		return v.Skip(index), Result{}, err
	}
	return next, Result{Index: index}, nil
}

// Skip returns the same content at that index, for indexes without a batch. The
// index never decreases: one not above the current one changes nothing.
func (v Snapshot) Skip(index uint64) Snapshot {
	v.index = max(v.index, index)
	return v
}

// applyOps applies a batch whose ID is not remembered. On an error it returns v
// unchanged.
func (v Snapshot) applyOps(index uint64, b *Batch, l Limits) (Snapshot, error) {
	next := v.Skip(index)
	var err error
	if next.sequence, err = v.nextSequence(b); err != nil {
		return v, err
	}
	if err := b.check(l); err != nil {
		return v, err
	}
	next.entries = orEmpty(v.entries)
	ops := opApplier{next: &next, note: b.Note.bounded(), entries: next.entries.Txn(), past: v.past.txn()}
	touched := make([]Key, len(b.Ops))
	for i := range b.Ops {
		k, err := ops.apply(&b.Ops[i])
		if err != nil {
			return v, err
		}
		touched[i] = k
	}
	// Content beyond the limit, after that was lowered, may shrink.
	if next.bytes > l.Total && next.bytes > v.bytes {
		return v, fmt.Errorf("store: %w: %d bytes, the limit is %d", ErrTooLarge, next.bytes, l.Total)
	}
	if next.internal > l.Internal && next.internal > v.internal {
		return v, fmt.Errorf("store: %w: %d bytes of internal entries, the limit is %d", ErrTooLarge, next.internal, l.Internal)
	}
	ops.past.trimAll(ops.entries, l)
	next.entries, next.past = ops.entries.CommitOnly(), ops.past.commit()
	next.seen = v.seen.with(b.ID, index)
	next.log = v.log.with(index, touched)
	return next, nil
}

// nextSequence returns the snapshot's sequence after the batch, or ErrStale if
// the batch was checked against another snapshot.
func (v Snapshot) nextSequence(b *Batch) (sequence uint64, err error) {
	switch {
	case b.IfSequence == nil:
		return v.sequence, nil
	case *b.IfSequence != v.sequence:
		return 0, fmt.Errorf("%w: checked at sequence %d, the store is at %d", ErrStale, *b.IfSequence, v.sequence)
	case b.Sequence == 0:
		return v.sequence + 1, nil
	}
	return b.Sequence, nil
}

// check returns an error for a batch that no store could apply.
func (b *Batch) check(l Limits) error {
	if n := b.size(); n > maxBatch {
		return fmt.Errorf("batch: %w: %d bytes, the limit is %d", ErrTooLarge, n, maxBatch)
	}
	for i := range b.Ops {
		op := &b.Ops[i]
		if err := op.check(len(op.Value), l); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error for an invalid key, or one whose entry is too large
// with a value of that many bytes.
func (k Key) check(value int, l Limits) error {
	for _, s := range [...]string{k.Kind, k.Name} {
		if s == "" || len(s) > maxKey || strings.IndexByte(s, 0) >= 0 {
			return fmt.Errorf("%w: kind %.80q, name %.80q", ErrKey, k.Kind, k.Name)
		}
	}
	if n := len(k.Kind) + len(k.Name) + value; n > l.Entry {
		return fmt.Errorf("%s/%s: %w: %d bytes, the limit is %d", k.Kind, k.Name, ErrTooLarge, n, l.Entry)
	}
	return nil
}

// opApplier performs the operations of one batch.
type opApplier struct {
	next    *Snapshot // the next snapshot: index and counts so far; the rest as before the batch
	note    Note
	entries *iradix.Txn[Entry]
	past    *pastTxn
}

// apply performs one operation and returns its key in memory of its own: the
// op's key may point into a large document.
func (s *opApplier) apply(op *Op) (Key, error) {
	path := op.path()
	old, exists := s.entries.Get(path)
	if op.IfVersion != nil && *op.IfVersion != old.Version {
		return Key{}, fmt.Errorf("%s/%s: %w: it is at version %d, not %d",
			op.Kind, op.Name, ErrVersion, old.Version, *op.IfVersion)
	}
	k := old.Key
	if !exists {
		k = keyOf(path, len(op.Kind))
	}
	total := &s.next.bytes
	if k.Internal() {
		total = &s.next.internal
	}
	switch {
	case op.Value != nil:
		e := Entry{Key: k, Version: s.next.index, Value: bytes.Clone(op.Value), Note: s.note}
		*total += e.size() - old.size()
		s.entries.Insert(path, e)
		s.past.put(path, old, e)
	case exists:
		*total -= old.size()
		s.entries.Delete(path)
		if old.Version == s.next.index { // written by this batch: did it replace an entry?
			_, exists = s.next.entries.Get(path)
		}
		if exists {
			s.past.delete(path, old, Revision{Version: s.next.index, Note: s.note})
		}
	}
	return k, nil
}

// bounded returns the note as stored: its strings cut to the limit and copied,
// its time in UTC without a monotonic reading.
func (n Note) bounded() Note {
	cut := func(s string) string {
		if len(s) > maxNote {
			s = s[:maxNote]
			for len(s) > maxNote-utf8.UTFMax && !utf8.ValidString(s) {
				s = s[:len(s)-1]
			}
		}
		return strings.Clone(s)
	}
	return Note{Who: cut(n.Who), What: cut(n.What), At: n.At.Round(0).UTC()}
}

// orEmpty returns t, or an empty tree if t is nil.
func orEmpty[T any](t *iradix.Tree[T]) *iradix.Tree[T] {
	if t == nil {
		return iradix.New[T]()
	}
	return t
}
