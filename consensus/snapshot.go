package consensus

import (
	"iter"
	"strings"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// Snapshot is the content of a store as of one index. It never changes, shares
// what it can with the views before and after it, and may be kept. The zero
// Snapshot is empty.
type Snapshot struct {
	index    uint64 // of the last batch, or of the last Skip
	sequence uint64 // Batch.Sequence of the last batch with IfSequence
	bytes    int    // keys and values of the entries, internal ones apart
	internal int    // keys and values of the internal entries
	entries  *iradix.Tree[Entry]
	past     past     // what entries were
	seen     seen     // IDs of the last batches
	log      batchLog // what the last batches touched
}

// Index is the index of the last batch in the view, or the one it has been
// moved to since; 0 before the first.
func (v Snapshot) Index() uint64 { return v.index }

// Sequence tells which batch with IfSequence was the last that acted; see
// Batch.Sequence.
func (v Snapshot) Sequence() uint64 { return v.sequence }

// Find returns the index of the batch with that ID, while it is remembered.
func (v Snapshot) Find(id ID) (index uint64, ok bool) { return v.seen.find(id) }

// Len is the number of entries, internal ones included.
func (v Snapshot) Len() int {
	if v.entries == nil {
		return 0
	}
	return v.entries.Len()
}

// Bytes is the size of all keys and values, those of internal entries apart.
func (v Snapshot) Bytes() int { return v.bytes }

// Get returns the entry of that key.
func (v Snapshot) Get(k Key) (Entry, bool) {
	if v.entries == nil {
		return Entry{}, false
	}
	return v.entries.Get(k.path())
}

// History lists what the entry of that key is and was, newest first; a
// deletion has no Value. It is empty for a key that has never been, or whose
// history has been pushed out, and for internal entries that do not exist: of
// those only what is now is kept.
func (v Snapshot) History(k Key) []Revision {
	path := k.path()
	old := v.past.of(path)
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

// Changed lists the keys that the batches with an index above after touched,
// in order, each once for each operation. It returns false when the view does
// not reach back so far: then everything may have changed. Indexes that no
// batch has are nothing special.
func (v Snapshot) Changed(after uint64) (keys []Key, known bool) {
	if after >= v.index {
		return nil, true
	}
	return v.log.after(after)
}

// All yields every entry, ordered by kind and name.
func (v Snapshot) All() iter.Seq[Entry] { return v.under(nil) }

// Kind yields the entries of one kind, ordered by name.
func (v Snapshot) Kind(kind string) iter.Seq[Entry] {
	return v.under(Key{Kind: kind}.path())
}

func (v Snapshot) under(prefix []byte) iter.Seq[Entry] {
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

// path is the key's place in the tree. A zero byte parts kind and name, so
// that no kind is the prefix of another; checkKey keeps it out of both.
func (k Key) path() []byte {
	p := make([]byte, 0, len(k.Kind)+1+len(k.Name))
	p = append(p, k.Kind...)
	p = append(p, 0)
	return append(p, k.Name...)
}

// keyOf is the key of a path, of which the kind takes the first bytes.
func keyOf(path []byte, kind int) Key {
	s := string(path)
	return Key{s[:kind], s[kind+1:]}
}

// Internal says that the entries of that kind belong to the cluster itself.
func (k Key) Internal() bool { return strings.HasPrefix(k.Kind, "_") }

func (e Entry) revision() Revision {
	return Revision{Version: e.Version, Value: e.Value, Note: e.Note}
}

// size is what an entry counts against the store's bound.
func (e Entry) size() int { return len(e.Kind) + len(e.Name) + len(e.Value) }
