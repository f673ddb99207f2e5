package consensus

import (
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix/v2"
)

// View is the content of a store as of one index. It never changes, shares
// what it can with the views before and after it, and may be kept. The zero
// View is empty.
type View struct {
	index uint64
	bytes int
	tree  *iradix.Tree[Entry]
	log   []batch // the last batches, in order
}

// batch is what one batch touched.
type batch struct {
	index uint64
	keys  []Key
}

// Index is the index of the last batch in the view; 0 before the first.
func (v View) Index() uint64 { return v.index }

// Len is the number of entries.
func (v View) Len() int {
	if v.tree == nil {
		return 0
	}
	return v.tree.Len()
}

// Bytes is the size of all keys and values.
func (v View) Bytes() int { return v.bytes }

// Get returns the entry of that key.
func (v View) Get(k Key) (Entry, bool) {
	if v.tree == nil {
		return Entry{}, false
	}
	return v.tree.Get(k.path())
}

// Changed lists the keys that the batches after that index touched, each once
// for each batch. It returns false when the view does not reach back so far:
// then everything may have changed.
func (v View) Changed(after uint64) (keys []Key, known bool) {
	if after >= v.index {
		return nil, true
	}
	if len(v.log) == 0 || v.log[0].index > after+1 {
		return nil, false
	}
	for _, b := range v.log[after+1-v.log[0].index:] {
		keys = append(keys, b.keys...)
	}
	return keys, true
}

// remember is a log that ends with the batch; logs of earlier views stay as
// they are, since appending never writes where they read.
func remember(log []batch, b batch) []batch {
	from, keys := len(log), len(b.keys)
	for from > 0 && len(log)-from < maxLog-1 && keys+len(log[from-1].keys) <= maxLogKeys {
		from--
		keys += len(log[from].keys)
	}
	if from > 0 { // what is dropped must not stay in the array
		log = append(make([]batch, 0, maxLog), log[max(from, len(log)-maxLog/2):]...)
	}
	return append(log, b)
}

const (
	// maxLog bounds how many batches a view can look back; at least half as
	// many are there, unless they have too many keys.
	maxLog = 256
	// maxLogKeys bounds the keys of all these batches, the last one excepted.
	maxLogKeys = 1 << 16
)

// All yields every entry, ordered by kind and name.
func (v View) All() iter.Seq[Entry] { return v.under(nil) }

// Kind yields the entries of one kind, ordered by name.
func (v View) Kind(kind string) iter.Seq[Entry] {
	return v.under(Key{Kind: kind}.path())
}

func (v View) under(prefix []byte) iter.Seq[Entry] {
	return func(yield func(Entry) bool) {
		if v.tree == nil {
			return
		}
		it := v.tree.Root().Iterator()
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

// size is what an entry counts against the store's bound.
func (e Entry) size() int { return len(e.Kind) + len(e.Name) + len(e.Value) }
