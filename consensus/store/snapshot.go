package store

import (
	"iter"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Snapshot is the immutable content of a store as of one index. Successive
// snapshots share memory; a snapshot may be kept. The zero Snapshot is empty.
type Snapshot struct {
	index    uint64 // of the last batch or Skip
	sequence uint64 // Batch.Sequence of the last batch with IfSequence
	bytes    int    // keys and values of the entries, excluding internal ones
	internal int    // keys and values of the internal entries
	entries  *iradix.Tree[Entry]
	past     past     // earlier revisions
	seen     seen     // IDs of the last batches
	log      batchLog // keys touched by the last batches
}

// Index returns the index of the last batch, or the one set by a later Skip; 0
// before the first.
func (v Snapshot) Index() uint64 { return v.index }

// Sequence returns the Batch.Sequence of the last batch with IfSequence.
func (v Snapshot) Sequence() uint64 { return v.sequence }

// Find returns the index of the batch with that ID, while the ID is remembered.
func (v Snapshot) Find(id ID) (index uint64, ok bool) { return v.seen.find(id) }

// Len returns the number of entries, including internal ones.
func (v Snapshot) Len() int {
	if v.entries == nil {
		return 0
	}
	return v.entries.Len()
}

// Bytes returns the size of all keys and values, excluding internal entries.
func (v Snapshot) Bytes() int { return v.bytes }

// Get returns the entry with that key.
func (v Snapshot) Get(k Key) (Entry, bool) {
	if v.entries == nil {
		return Entry{}, false
	}
	return v.entries.Get(k.path())
}

// History lists the revisions of a key, the current one included, newest first.
// A deletion has no Value. The list is empty for a key that never existed or
// whose history has been evicted. Internal entries have no past revisions.
func (v Snapshot) History(k Key) []Revision {
	path := k.path()
	old := v.past.lookup(path)
	revisions := make([]Revision, 0, len(old)+1)
	if v.entries != nil {
		if e, ok := v.entries.Get(path); ok {
			revisions = append(revisions, e.revision())
		}
	}
	for i := len(old) - 1; i >= 0; i-- {
		revisions = append(revisions, old[i].Revision)
	}
	return revisions
}

// Changed lists the keys touched by the batches with an index above after, in
// order, one for each operation. It returns false if the snapshot does not
// reach back that far: then everything may have changed. Indexes without a
// batch are allowed.
func (v Snapshot) Changed(after uint64) (keys []Key, known bool) {
	if after >= v.index {
		return nil, true
	}
	return v.log.after(after)
}

// All yields every entry, ordered by kind and name.
func (v Snapshot) All() iter.Seq[Entry] { return v.withPrefix(nil) }

// Kind yields the entries of one kind, ordered by name.
func (v Snapshot) Kind(kind string) iter.Seq[Entry] {
	return v.withPrefix(Key{Kind: kind}.path())
}

// Last returns the entry of a kind whose name is the last in order, in time that
// does not depend on how many there are.
func (v Snapshot) Last(kind string) (Entry, bool) {
	if v.entries == nil {
		return Entry{}, false
	}
	it := v.entries.Root().ReverseIterator()
	it.SeekPrefix(Key{Kind: kind}.path())
	_, e, ok := it.Previous()
	return e, ok
}

func (v Snapshot) withPrefix(prefix []byte) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if v.entries == nil {
			return
		}
		it := v.entries.Root().Iterator()
		it.SeekPrefix(prefix)
		for _, e, ok := it.Next(); ok; _, e, ok = it.Next() {
			if !yield(e) {
				return
			}
		}
	}
}

// path returns the key's path in the tree. A zero byte separates kind and name,
// so that no kind is a prefix of another; Key.check keeps it out of both.
func (k Key) path() []byte {
	p := make([]byte, 0, len(k.Kind)+1+len(k.Name))
	p = append(p, k.Kind...)
	p = append(p, 0)
	return append(p, k.Name...)
}

// keyOf returns the key of a path whose first kind bytes are the kind.
func keyOf(path []byte, kind int) Key {
	s := string(path)
	return Key{s[:kind], s[kind+1:]}
}

// Internal reports whether the key belongs to the cluster itself.
func (k Key) Internal() bool { return strings.HasPrefix(k.Kind, "_") }

func (e Entry) revision() Revision {
	return Revision{Version: e.Version, Value: e.Value, Note: e.Note}
}

// size returns the bytes that the entry counts against the store's limit.
func (e Entry) size() int { return len(e.Kind) + len(e.Name) + len(e.Value) }
