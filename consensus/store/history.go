package store

import (
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// past holds the revisions that are no longer in force, including deletions.
// Internal entries have none: one that changes every minute would evict
// revisions that users may want to restore.
type past struct {
	// revisions of each key, oldest first, by its path. The slices never change.
	revisions *iradix.Tree[[]pastRevision]
	// order has the until and the path of each revision, so the first key is the
	// revision replaced first. A deletion shares its key with the revision that it
	// deleted.
	order *iradix.Tree[struct{}]
	bytes int // sum of pastRevision.size
}

// pastRevision is a revision that is no longer in force.
type pastRevision struct {
	Revision
	// until is the index of the batch that replaced the revision. For a deletion,
	// which may stay the last for long, it is the deletion's own.
	until uint64
}

// revisionOverhead approximates the memory of a revision beside its strings and
// value.
const revisionOverhead = 256

func (r *pastRevision) size(path []byte) int {
	return revisionOverhead + len(path) + len(r.Value) + len(r.Who) + len(r.What)
}

// lookup returns the past revisions of the key with that path, oldest first.
func (p past) lookup(path []byte) []pastRevision {
	if p.revisions == nil {
		return nil
	}
	revisions, _ := p.revisions.Get(path)
	return revisions
}

// all yields the path and the past revisions of each key, ordered by path.
func (p past) all() iter.Seq2[[]byte, []pastRevision] {
	return func(yield func([]byte, []pastRevision) bool) {
		if p.revisions == nil {
			return
		}
		it := p.revisions.Root().Iterator()
		for path, revisions, ok := it.Next(); ok; path, revisions, ok = it.Next() {
			if !yield(path, revisions) {
				return
			}
		}
	}
}

// mayFollow reports whether the revision may come after those in before, in a
// snapshot of that index.
func (r *pastRevision) mayFollow(before []pastRevision, index uint64) bool {
	if r.until > index || r.until < r.Version || (r.until == r.Version) != (r.Value == nil) {
		return false
	}
	n := len(before)
	return n == 0 || r.Version > before[n-1].Version && r.Version >= before[n-1].until
}

// pastTxn builds the next past. It allocates trees at the first change only.
type pastTxn struct {
	past
	revisions *iradix.Txn[[]pastRevision]
	order     *iradix.Txn[struct{}]
	toTrim    [][]byte // paths that may exceed the revision limit after the batch
	// keep bounds the past revisions of a key that exists after the batch. It is
	// set, above 0, only if all keys that the batch touches will exist.
	keep int
}

func (p past) txn() *pastTxn { return &pastTxn{past: p} }

func (t *pastTxn) begin() {
	if t.revisions == nil {
		t.revisions = orEmpty(t.past.revisions).Txn()
		t.order = orEmpty(t.past.order).Txn()
	}
}

// put records the replacement of an entry; old is the zero Entry for a new one.
func (t *pastTxn) put(path []byte, old, now Entry) {
	if now.Internal() || old.Version == now.Version { // no snapshot had old: no history
		return
	}
	revisions := t.get(path)
	if old.Version == 0 && len(revisions) == 0 { // a new key
		return
	}
	t.begin()
	if n := len(revisions); n > 0 && revisions[n-1].Version == now.Version {
		// The last revision is a deletion by this same batch, which replaces the
		// entry instead.
		t.bytes -= revisions[n-1].size(path)
		if revisions = revisions[:n-1]; n == 1 || revisions[n-2].until != now.Version {
			t.order.Delete(orderKey(now.Version, path))
		}
	}
	if old.Version != 0 {
		revisions = t.add(path, revisions, pastRevision{old.revision(), now.Version})
	}
	t.set(path, revisions)
	t.toTrim = append(t.toTrim, path)
}

// delete records a deletion of an entry that existed before the batch.
func (t *pastTxn) delete(path []byte, old Entry, deletion Revision) {
	if old.Internal() {
		return
	}
	revisions := t.get(path)
	t.begin()
	if old.Version != deletion.Version {
		revisions = t.add(path, revisions, pastRevision{old.revision(), deletion.Version})
	}
	revisions = t.add(path, revisions, pastRevision{deletion, deletion.Version})
	t.set(path, revisions)
	t.toTrim = append(t.toTrim, path)
}

func (t *pastTxn) get(path []byte) []pastRevision {
	if t.revisions == nil {
		return t.lookup(path)
	}
	revisions, _ := t.revisions.Get(path)
	return revisions
}

// add returns a new slice that ends with r and has at most keep revisions.
func (t *pastTxn) add(path []byte, revisions []pastRevision, r pastRevision) []pastRevision {
	t.bytes += r.size(path)
	t.order.Insert(orderKey(r.until, path), struct{}{})
	if drop := len(revisions) + 1 - t.keep; t.keep > 0 && drop > 0 {
		t.dropOldest(path, revisions, drop)
		revisions = revisions[drop:]
	}
	next := make([]pastRevision, len(revisions)+1)
	next[copy(next, revisions)] = r
	return next
}

func (t *pastTxn) set(path []byte, revisions []pastRevision) {
	if len(revisions) == 0 {
		t.revisions.Delete(path)
		return
	}
	t.revisions.Insert(path, revisions)
}

// trim returns the newest revisions in an array of their own.
func (t *pastTxn) trim(path []byte, revisions []pastRevision, limit int) []pastRevision {
	drop := len(revisions) - max(limit, 0)
	if drop <= 0 {
		return revisions
	}
	t.dropOldest(path, revisions, drop)
	return append([]pastRevision(nil), revisions[drop:]...)
}

// dropOldest removes the oldest revisions from the byte count and the order.
func (t *pastTxn) dropOldest(path []byte, revisions []pastRevision, drop int) {
	for i := range revisions[:drop] {
		r := &revisions[i]
		t.bytes -= r.size(path)
		if i+1 == len(revisions) || revisions[i+1].until != r.until {
			t.order.Delete(orderKey(r.until, path))
		}
	}
}

// entryGetter looks up current entries.
type entryGetter interface {
	Get(path []byte) (Entry, bool)
}

// trimAll evicts past revisions beyond the limits, after each batch.
func (t *pastTxn) trimAll(now entryGetter, l Limits) {
	if t.revisions == nil {
		return
	}
	for _, path := range t.toTrim {
		revisions, limit := t.get(path), l.Revisions
		if _, exists := now.Get(path); exists {
			limit--
		}
		if len(revisions) > limit {
			t.set(path, t.trim(path, revisions, limit))
		}
	}
	t.toTrim = t.toTrim[:0]
	for t.bytes > l.Past {
		first, _, ok := t.order.Root().Minimum()
		if !ok {
			break
		}
		t.order.Delete(first)
		until, path := orderOf(first)
		revisions := t.get(path)
		n := 0
		for n < len(revisions) && revisions[n].until <= until {
			n++
		}
		t.set(path, t.trim(path, revisions, len(revisions)-n))
	}
}

// commit returns the resulting past.
func (t *pastTxn) commit() past {
	if t.revisions == nil {
		return t.past
	}
	return past{t.revisions.CommitOnly(), t.order.CommitOnly(), t.bytes}
}

// orderKey encodes until in half bytes, before the path: a tree node then has
// at most 16 edges to copy, not 256.
func orderKey(until uint64, path []byte) []byte {
	k := make([]byte, 0, 16+len(path))
	for shift := 60; shift >= 0; shift -= 4 {
		k = append(k, byte(until>>shift&0xf))
	}
	return append(k, path...)
}

func orderOf(key []byte) (until uint64, path []byte) {
	for _, half := range key[:16] {
		until = until<<4 | uint64(half)
	}
	return until, key[16:]
}
