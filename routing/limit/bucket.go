package limit

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Bucket is the budget of one key. It is the generic cell rate algorithm (ITU-T
// I.371, annex A): the one number of a dimension is the time at which the bucket
// would be full again, its theoretical arrival time (TAT).
type Bucket struct {
	limit      *Limit
	key        Key
	share      *share                   // nil: the limit is not divided, or the bucket has no key
	cfg        atomic.Pointer[config]   // by which full is counted; nil: it is being converted
	converting sync.Mutex               // held meanwhile
	full       [dimensions]atomic.Int64 // TAT, ns
	concurrent atomic.Int64             // connections at once
	users      atomic.Int64             // that hold the pointer; raised under the table's lock
	next, prev *Bucket                  // in its shard, the oldest first
	hash       uint64                   // of key
	chain      *Bucket                  // the next one of the same hash
}

func (b *Bucket) init(l *Limit, k Key, now int64) {
	b.limit, b.key = l, k
	b.cfg.Store(l.cfg.Load())
	for d := range dimensions {
		b.full[d].Store(now)
	}
}

// Release gives back what Limit.Bucket returned.
func (b *Bucket) Release() { b.users.Add(-1) }

// Key returns the key; the zero Key for the shared bucket.
func (b *Bucket) Key() Key { return b.key }

// Take takes n units, at once or after a wait that the limit's configuration
// allows. What waits has its place: the units are taken now, so those that come later
// wait behind it. Who has waited for MaxWait calls GiveUp. Without ok nothing is taken,
// and wait says after which time it would have been.
func (b *Bucket) Take(d Dimension, n, now int64) (wait time.Duration, ok bool) {
	count := &b.limit.counts
	for cfg := b.config(now); cfg.Rates[d].N > 0; cfg = b.config(now) {
		full := b.full[d].Load()
		next := ahead(full, now, cfg.Rates[d].cost(n))
		late := next - cfg.burst[d] - now
		if late > cfg.wait[d] {
			b.want(d, n)
			count.refused[d].Add(1)
			return time.Duration(late), false
		}
		if !b.move(d, cfg, full, next) {
			continue
		}
		b.want(d, n)
		count.allowed[d].Add(1)
		if late <= 0 {
			return 0, true
		}
		count.queued[d].Add(1)
		return time.Duration(late), true
	}
	return 0, true
}

// ahead returns a bucket's number after a cost. It is bounded to maxAhead, so that debts
// that add up end there: past the end of int64 the bucket would be full.
func ahead(full, now, cost int64) int64 { return min(max(full, now)+cost, now+maxAhead) }

// maxAhead is how far a bucket may lie ahead: 146 years.
const maxAhead = 4 * maxCost

// move sets a bucket's number, unless another has moved it or it has been converted from
// cfg meanwhile. The caller has loaded full after cfg.
func (b *Bucket) move(d Dimension, cfg *config, full, next int64) bool {
	return b.cfg.Load() == cfg && b.full[d].CompareAndSwap(full, next)
}

// Return gives units back that Take took, because another limit refused them. They stay
// counted as allowed: by this limit they were.
func (b *Bucket) Return(d Dimension, n, now int64) {
	for cfg := b.config(now); cfg.Rates[d].N > 0; cfg = b.config(now) {
		if full := b.full[d].Load(); b.move(d, cfg, full, full-cfg.Rates[d].cost(n)) {
			return
		}
	}
}

// GiveUp returns n units that Take took, by one that waited for its turn and is refused as
// MaxWait has passed. It counts as refused, beside what Take has counted.
func (b *Bucket) GiveUp(d Dimension, n, now int64) {
	b.Return(d, n, now)
	b.limit.counts.refused[d].Add(1)
}

// MaxWait returns how long one may wait.
func (b *Bucket) MaxWait() time.Duration { return b.inForce().MaxWait }

// Charge takes n units that have been used already, and returns how long to wait
// before more are used. The bucket may owe units meanwhile; others that charge it
// wait behind.
func (b *Bucket) Charge(d Dimension, n, now int64) (wait time.Duration) {
	for cfg := b.config(now); cfg.Rates[d].N > 0; cfg = b.config(now) {
		full := b.full[d].Load()
		next := ahead(full, now, cfg.Rates[d].cost(n))
		if !b.move(d, cfg, full, next) {
			continue
		}
		b.want(d, n)
		if d == Requests {
			b.limit.counts.allowed[d].Add(1)
		}
		late := next - cfg.burst[d] - now
		if late <= 0 {
			return 0
		}
		b.limit.counts.paced[d].Add(1)
		b.hold(d)
		return time.Duration(late)
	}
	return 0
}

// Debt returns for how long a bucket must not be used that Charge was called for.
func (b *Bucket) Debt(d Dimension, now int64) time.Duration {
	cfg := b.config(now)
	if cfg.Rates[d].N == 0 {
		return 0
	}
	return time.Duration(max(b.full[d].Load()-cfg.burst[d]-now, 0))
}

// Bounds reports whether the limit bounds what the bucket counts.
func (b *Bucket) Bounds(d Dimension) bool { return b.limit.Has(d) }

// Room returns how many units the bucket has now.
func (b *Bucket) Room(d Dimension, now int64) int64 {
	cfg := b.config(now)
	if cfg.Rates[d].N == 0 {
		return math.MaxInt64
	}
	free := now + cfg.burst[d] - max(b.full[d].Load(), now)
	if free <= 0 {
		return 0
	}
	return int64(float64(free) / float64(cfg.Rates[d].Per) * float64(cfg.Rates[d].N))
}

// Enter adds a connection to those at once, unless there are as many as may be.
func (b *Bucket) Enter() bool {
	bound := b.limit.cfg.Load().Concurrent
	if n := b.concurrent.Add(1); bound > 0 && n > bound {
		b.concurrent.Add(-1)
		b.limit.counts.concurrent.Add(1)
		return false
	}
	return true
}

// Leave removes a connection that Enter added.
func (b *Bucket) Leave() { b.concurrent.Add(-1) }

// Concurrent returns the number of connections at once.
func (b *Bucket) Concurrent() int64 { return b.concurrent.Load() }

// config returns the configuration in force, and converts the bucket to it first. While
// that goes on no unit is counted: who has the configuration before fails in move, as
// convert changes each number whose cost changes, and who wants the new one waits here.
func (b *Bucket) config(now int64) *config {
	if was := b.cfg.Load(); was == b.inForce() {
		return was
	}
	b.converting.Lock()
	defer b.converting.Unlock()
	was, cfg := b.cfg.Load(), b.inForce() // in this order: a bucket never goes back
	if was != cfg {
		b.cfg.Store(nil)
		b.convert(was, cfg, now)
		b.cfg.Store(cfg)
	}
	return cfg
}

// convert keeps the units that were used when the configuration changed, and lets
// them come back at the new rate from then on.
func (b *Bucket) convert(was, cfg *config, now int64) {
	for d := range dimensions {
		before, after := &was.Rates[d], &cfg.Rates[d]
		if after.N == 0 {
			b.full[d].Store(now)
			continue
		}
		if before.N == 0 || *before == *after {
			continue
		}
		for {
			full := b.full[d].Load()
			owed := full - cfg.since
			if owed <= 0 { // a number in the past is as good as any other there
				if b.full[d].CompareAndSwap(full, full-1) {
					break
				}
				continue
			}
			ns := float64(owed) * (float64(before.N) / float64(before.Per)) * (float64(after.Per) / float64(after.N))
			if b.full[d].CompareAndSwap(full, cfg.since+int64(min(ns, maxCost))) {
				break
			}
		}
	}
}

// idle reports whether the bucket is as good as a new one. The caller holds the
// lock of its shard, so that nobody becomes a user meanwhile.
func (b *Bucket) idle(now int64) bool {
	if b.users.Load() != 0 || b.concurrent.Load() != 0 {
		return false
	}
	b.config(now)
	for d := range dimensions {
		if b.full[d].Load() > now {
			return false
		}
	}
	return true
}
