package limit

import (
	"hash/maphash"
	"math/bits"
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
	m          map[uint64]*Bucket // by hash of key; those of the same hash are a chain
	n          int                // buckets
	head, tail *Bucket
	room       int // bound of n
	_          [64]byte
}

func (t *table) init(keys int) {
	t.seed = maphash.MakeSeed()
	t.shards = make([]shard, min(max(keys/shardKeys, 1), maxShards))
	for i := range t.shards {
		t.shards[i].m = map[uint64]*Bucket{}
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

// shard returns the part that has a key, and the key's hash. The key is hashed once, and
// only what it has is: that costs most of finding a bucket. The seed is secret, so nobody
// can choose keys of one hash; those that meet by chance are a chain.
func (t *table) shard(k *Key) (*shard, uint64) {
	h := maphash.String(t.seed, k.Text)
	if k.Network.IsValid() { // all of a limit have a length for each family, so the address tells them apart
		a := k.Network.Addr().As16()
		h = maphash.Bytes(t.seed, a[:])
	}
	if k.Cluster != "" {
		h = bits.RotateLeft64(h, 32) ^ maphash.String(t.seed, k.Cluster)
	}
	// The upper half chooses, as the map within the shard goes by its own hash of all of it.
	return &t.shards[(h>>32)*uint64(len(t.shards))>>32], h
}

// find returns the bucket of a key; nil: it has none. The caller holds the lock.
func (s *shard) find(k *Key, hash uint64) *Bucket {
	b := s.m[hash]
	for b != nil && b.key != *k {
		b = b.chain
	}
	return b
}

// Bucket returns the bucket of a key, which the caller must Release. A key for
// which there is no room gets the bucket that all such keys share.
func (l *Limit) Bucket(k Key, now int64) *Bucket {
	s, hash := l.table.shard(&k)
	s.mu.Lock()
	b := s.find(&k, hash)
	if b == nil {
		b = l.add(s, k, hash, now)
	}
	b.users.Add(1)
	s.mu.Unlock()
	if b == &l.overflow {
		l.counts.overflows.Add(1)
	}
	return b
}

// add makes the bucket of a key, if there is room.
func (l *Limit) add(s *shard, k Key, hash uint64, now int64) *Bucket {
	looks := 0
	switch {
	case s.n >= s.room:
		looks = searchFull
	case s.n > s.room/2: // below, a key that comes again finds its bucket
		looks = tidyEach
	}
	for range min(looks, s.n) {
		old := s.head
		s.unlink(old)
		if old.idle(now) {
			s.remove(old)
			l.table.keys.Add(-1)
			continue
		}
		s.append(old)
	}
	if s.n >= s.room {
		return &l.overflow
	}
	b := new(Bucket)
	k.Text, k.Cluster = strings.Clone(k.Text), strings.Clone(k.Cluster) // rather than keep what they are a part of
	b.init(l, k, now)
	if l.Divided() {
		b.share = new(share)
	}
	b.hash, b.chain = hash, s.m[hash]
	s.m[hash] = b
	s.n++
	s.append(b)
	l.table.keys.Add(1)
	return b
}

// remove takes a bucket out of the map.
func (s *shard) remove(b *Bucket) {
	s.n--
	switch first := s.m[b.hash]; {
	case first != b:
		for first.chain != b {
			first = first.chain
		}
		first.chain = b.chain
	case b.chain != nil:
		s.m[b.hash] = b.chain
	default:
		delete(s.m, b.hash)
	}
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
