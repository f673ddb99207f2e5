package limit

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
)

const (
	// maxShards bounds the parts of a table, each with a lock of its own.
	maxShards = 64
	// shardKeys is how many keys are worth a part of their own.
	shardKeys = 256
	// tidyEach is how many old buckets a new key looks at, to free those that are
	// idle, in a shard that is more than half full; with a full shard it looks at searchFull for one to take the place of.
	tidyEach   = 2
	searchFull = 8
)

// table has the buckets of a limit by key.
type table struct {
	seed   maphash.Seed
	shards []shard
	keys   atomic.Int64
}

// shard is a part of a table. Its list has the buckets in the order in which they
// were made or last looked at.
type shard struct {
	mu         sync.Mutex
	m          map[Key]*Bucket
	head, tail *Bucket
	room       int // bound of m
	_          [64]byte
}

func (t *table) init(keys int) {
	t.seed = maphash.MakeSeed()
	t.shards = make([]shard, min(max(keys/shardKeys, 1), maxShards))
	for i := range t.shards {
		t.shards[i].m = map[Key]*Bucket{}
	}
	t.setMax(keys)
}

// setMax changes the bound. Buckets beyond a lower one go as they become idle.
func (t *table) setMax(keys int) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		s.room = max((keys+i)/len(t.shards), 1)
		s.mu.Unlock()
	}
}

func (t *table) len() int { return int(t.keys.Load()) }

func (t *table) shard(k Key) *shard {
	if len(t.shards) == 1 {
		return &t.shards[0]
	}
	return &t.shards[maphash.Comparable(t.seed, k)%uint64(len(t.shards))]
}

// Bucket returns the bucket of a key, which the caller must Release. A key for
// which there is no room gets the bucket that all such keys share.
func (l *Limit) Bucket(k Key, now int64) *Bucket {
	s := l.table.shard(k)
	s.mu.Lock()
	b := s.m[k]
	if b == nil {
		b = l.add(s, k, now)
	}
	b.users.Add(1)
	s.mu.Unlock()
	if b == &l.overflow {
		l.counts.overflows.Add(1)
	}
	return b
}

// add makes the bucket of a key, if there is room.
func (l *Limit) add(s *shard, k Key, now int64) *Bucket {
	looks := 0
	switch {
	case len(s.m) >= s.room:
		looks = searchFull
	case len(s.m) > s.room/2: // below, a key that comes again finds its bucket
		looks = tidyEach
	}
	for range min(looks, len(s.m)) {
		old := s.head
		s.unlink(old)
		if old.idle(now) {
			delete(s.m, old.key)
			l.table.keys.Add(-1)
			continue
		}
		s.append(old)
	}
	if len(s.m) >= s.room {
		return &l.overflow
	}
	b := new(Bucket)
	k.Text, k.Cluster = strings.Clone(k.Text), strings.Clone(k.Cluster) // rather than keep what they are a part of
	b.init(l, k, now)
	if l.Divided() {
		b.share = new(share)
	}
	s.m[k] = b
	s.append(b)
	l.table.keys.Add(1)
	return b
}

func (s *shard) append(b *Bucket) {
	b.next, b.prev = nil, s.tail
	if s.tail != nil {
		s.tail.next = b
	} else {
		s.head = b
	}
	s.tail = b
}

func (s *shard) unlink(b *Bucket) {
	if b.prev != nil {
		b.prev.next = b.next
	} else {
		s.head = b.next
	}
	if b.next != nil {
		b.next.prev = b.prev
	} else {
		s.tail = b.prev
	}
	b.next, b.prev = nil, nil
}
