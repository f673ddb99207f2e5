package consensus

import iradix "github.com/hashicorp/go-immutable-radix/v2"

// batchLog is what the last batches touched. It is in two parts so that it can
// forget: when the newer is full it becomes the older one, whose batches go.
// Many logs may continue the same one.
type batchLog struct {
	newer, older *loggedBatch // the last batch of each part
	// reach: every batch with an index above it is here.
	reach uint64
}

// loggedBatch is what one batch touched.
type loggedBatch struct {
	index uint64
	keys  []Key
	prev  *loggedBatch // in the same part
	// Of this part up to here:
	batches, total int // total counts keys
}

const (
	// maxLog bounds how many batches a view can look back; at least half as
	// many are there, unless they have too many keys.
	maxLog = 256
	// maxLogKeys bounds the keys of all these batches, the last one excepted.
	maxLogKeys = 1 << 16
)

// with is a log that ends with the batch.
func (l batchLog) with(index uint64, keys []Key) batchLog {
	total := len(keys)
	if n := l.newer; n != nil && (n.batches == maxLog/2 || n.total+total > maxLogKeys/2) {
		l.forget()
		l.older, l.newer = n, nil
	}
	b := &loggedBatch{index: index, keys: keys, batches: 1, total: total}
	if n := l.newer; n != nil {
		b.prev, b.batches, b.total = n, n.batches+1, n.total+total
	}
	l.newer = b
	if o := l.older; o != nil && o.total+b.total-total > maxLogKeys {
		l.forget()
	}
	return l
}

// forget drops the older part.
func (l *batchLog) forget() {
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

// seen is the IDs of the last maxSeen batches that had one, in two parts as
// batchLog is; IDs of the older part end one by one, by their serial.
type seen struct {
	newer, older *iradix.Tree[seenBatch]
	count        uint64 // IDs ever
}

// seenBatch is where an ID came.
type seenBatch struct {
	index  uint64 // of its batch
	serial uint64 // of the ID: the first has 1
}

// maxSeen is how many batches are remembered by their ID.
const maxSeen = 10_000

// path is the ID's place in a tree, in half bytes as orderKey has it.
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

// inOrder lists the IDs that are remembered, oldest first.
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

// with is these IDs and that one, which is not among them.
func (s seen) with(id ID, index uint64) seen {
	if id == (ID{}) {
		return s
	}
	if s.newer != nil && s.newer.Len() >= maxSeen {
		s.newer, s.older = nil, s.newer
	}
	s.count++
	s.newer, _, _ = rooted(s.newer).Insert(id.path(), seenBatch{index, s.count})
	return s
}
