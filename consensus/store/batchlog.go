package store

import iradix "github.com/hashicorp/go-immutable-radix/v2"

// batchLog holds the keys touched by the last batches, in two parts: when newer
// is full it becomes older, and the batches of older are dropped. Several logs
// may share the same batches.
type batchLog struct {
	newer, older *loggedBatch // the last batch of each part
	// reach is the index above which the log has all batches.
	reach uint64
}

// loggedBatch holds the keys touched by one batch.
type loggedBatch struct {
	index uint64
	keys  []Key
	prev  *loggedBatch // in the same part
	// Totals of this part up to here; total counts keys.
	batches, total int
}

const (
	// maxLog bounds the batches that a snapshot keeps; it keeps at least half as
	// many, unless they have too many keys.
	maxLog = 256
	// maxLogKeys bounds the keys of all these batches except the last.
	maxLogKeys = 1 << 16
)

// with returns a log extended by the batch.
func (l batchLog) with(index uint64, keys []Key) batchLog {
	total := len(keys)
	if n := l.newer; n != nil && (n.batches == maxLog/2 || n.total+total > maxLogKeys/2) {
		l.dropOlder()
		l.older, l.newer = n, nil
	}
	b := &loggedBatch{index: index, keys: keys, batches: 1, total: total}
	if n := l.newer; n != nil {
		b.prev, b.batches, b.total = n, n.batches+1, n.total+total
	}
	l.newer = b
	if o := l.older; o != nil && o.total+b.total-total > maxLogKeys {
		l.dropOlder()
	}
	return l
}

// dropOlder drops the older part.
func (l *batchLog) dropOlder() {
	if l.older != nil {
		l.reach = l.older.index
		l.older = nil
	}
}

// after lists the keys of the batches above that index.
func (l batchLog) after(index uint64) (keys []Key, known bool) {
	if index < l.reach {
		return nil, false
	}
	var batches []*loggedBatch
	n := 0
	for _, part := range [...]*loggedBatch{l.newer, l.older} {
		for b := part; b != nil && b.index > index; b = b.prev {
			batches = append(batches, b)
			n += len(b.keys)
		}
	}
	keys = make([]Key, 0, n)
	for i := len(batches) - 1; i >= 0; i-- {
		keys = append(keys, batches[i].keys...)
	}
	return keys, true
}

// seen holds the IDs of the last maxSeen batches that had one, in two parts as
// in batchLog. IDs of the older part expire one by one, by serial.
type seen struct {
	newer, older *iradix.Tree[seenBatch]
	count        uint64 // IDs ever
}

// seenBatch is the position of an ID.
type seenBatch struct {
	index  uint64 // of its batch
	serial uint64 // of the ID, from 1
}

// maxSeen is how many batches are remembered by ID.
const maxSeen = 10_000

// path returns the ID's path in a tree, in half bytes as in orderKey.
func (id ID) path() []byte {
	p := make([]byte, 0, 2*len(id))
	for _, b := range id {
		p = append(p, b>>4, b&0xf)
	}
	return p
}

func idOf(path []byte) (id ID) {
	for i := range id {
		id[i] = path[2*i]<<4 | path[2*i+1]
	}
	return id
}

// find returns the index of the batch with that ID.
func (s seen) find(id ID) (index uint64, ok bool) {
	if id == (ID{}) {
		return 0, false
	}
	for _, part := range [...]*iradix.Tree[seenBatch]{s.newer, s.older} {
		if part == nil {
			continue
		}
		if b, ok := part.Get(id.path()); ok && b.serial+maxSeen > s.count {
			return b.index, true
		}
	}
	return 0, false
}

// remembered is an ID and the index of its batch.
type remembered struct {
	id    ID
	index uint64
}

// inOrder lists the remembered IDs, oldest first.
func (s seen) inOrder() []remembered {
	ids := make([]remembered, min(s.count, maxSeen))
	for _, part := range [...]*iradix.Tree[seenBatch]{s.newer, s.older} {
		if part == nil {
			continue
		}
		it := part.Root().Iterator()
		for path, b, ok := it.Next(); ok; path, b, ok = it.Next() {
			if back := s.count - b.serial; back < uint64(len(ids)) {
				ids[uint64(len(ids))-1-back] = remembered{idOf(path), b.index}
			}
		}
	}
	return ids
}

// with returns seen extended by an ID that it does not contain.
func (s seen) with(id ID, index uint64) seen {
	if id == (ID{}) {
		return s
	}
	if s.newer != nil && s.newer.Len() >= maxSeen {
		s.newer, s.older = nil, s.newer
	}
	s.count++
	s.newer, _, _ = orEmpty(s.newer).Insert(id.path(), seenBatch{index, s.count})
	return s
}
