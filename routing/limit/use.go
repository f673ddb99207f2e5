package limit

import (
	"cmp"
	"slices"
	"time"
)

// Use is how much of a budget is used.
type Use struct {
	Key Key
	Of  Dimension
	// Concurrent: the use is of the connections at once, and Of means nothing.
	Concurrent bool
	// Used is the part of the burst that is used; over 1 someone waits.
	Used float64
	// Wait is for how long one more has to wait.
	Wait time.Duration
}

// Fullest returns the budgets of which most is used, at most most, the fullest first. It
// looks at all buckets. Unused ones are left out.
func (l *Limit) Fullest(most int, now int64) (list []Use) {
	add := func(u Use) {
		if u.Used <= 0 || len(list) == most && u.Used <= list[most-1].Used {
			return
		}
		at, _ := slices.BinarySearchFunc(list, u, func(a, b Use) int { return cmp.Compare(b.Used, a.Used) })
		if list = slices.Insert(list, at, u); len(list) > most {
			list = list[:most]
		}
	}
	bound := l.cfg.Load().Concurrent
	for b := range l.Buckets() {
		for d := range dimensions {
			used, wait := b.Used(d, now)
			add(Use{Key: b.key, Of: d, Used: used, Wait: wait})
		}
		if bound > 0 {
			add(Use{Key: b.key, Concurrent: true, Used: float64(b.Concurrent()) / float64(bound)})
		}
	}
	return list
}

// Find returns the bucket that a key has of its own, which the caller must Release; false:
// it has none, as nobody has used it.
func (l *Limit) Find(k Key) (*Bucket, bool) {
	s, hash := l.table.shard(&k)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.find(&k, hash)
	if b == nil {
		return nil, false
	}
	b.users.Add(1)
	return b, true
}

// Would reports whether Take would take a unit now, at once or after a wait. It takes none.
func (b *Bucket) Would(d Dimension, now int64) bool {
	cfg := b.config(now)
	if cfg.Rates[d].N == 0 {
		return true
	}
	return max(b.full[d].Load(), now)+cfg.Rates[d].cost(1)-cfg.burst[d]-now <= cfg.wait[d]
}

// Used returns the part of the burst that is used, and for how long one more unit has to
// wait; 0 without a rate.
func (b *Bucket) Used(d Dimension, now int64) (part float64, wait time.Duration) {
	cfg := b.config(now)
	if cfg.Rates[d].N == 0 {
		return 0, 0
	}
	ahead := max(b.full[d].Load()-now, 0)
	return float64(ahead) / float64(cfg.burst[d]), time.Duration(max(ahead+cfg.Rates[d].cost(1)-cfg.burst[d], 0))
}
