// Package budget shares a bounded amount, of bytes or of requests, among those
// who hold parts of it. It decides who waits and who is evicted when the amount
// is used up; it opens nothing and starts nothing.
//
//	b := budget.New(budget.Config{Limit: 64 << 20, Reserve: 16 << 20})
//	granted, _ := b.Take(&holder, budget.Bulk, party, 4096, budget.MayWait)
//	wake := b.Give(&holder, 4096)
//
// # Classes
//
// Early is for what is small and comes first: the bytes that tell where a
// connection wants to go. It may use all of the limit. Bulk is for everything
// else, and never uses the reserve.
//
// # Shares
//
// Each holder counts under its source address, its listener and its tenant.
// The fair share of a party is what its class may use, divided by the number of
// parties of that kind that hold something now. While there is room, nobody is
// held to a share. When there is none:
//
//   - A holder whose source is under its share gets room from the heaviest source:
//     the oldest holder of that source is evicted.
//   - Where sources do not decide, the same is done for listeners, then for
//     tenants. The victim's source is never lighter than that of whoever asks.
//   - Where shares name nobody, as there are many sources of little each, what is
//     early and stale gives way to a source that would hold no more than its own.
//   - Everybody else waits.
//
// A party at or under its share is never a victim, nor one that holds less than
// twice what the party that asks would hold: equals do not evict one another. The last eighth of Bulk is
// for parties under their share, so that whoever waits is not overtaken by those
// who hold most.
//
// The tables have an entry for each party that holds something now, so their
// size is bounded by the number of holders.
package budget

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Class is what a holder holds.
type Class uint8

// The classes.
const (
	Early Class = iota
	Bulk
	classes
)

// Party is whom a holder counts under.
type Party struct {
	Source           netip.Addr // see Source; invalid: clients without an address
	Listener, Tenant string
}

// The levels of parties, in the order in which they decide.
const (
	bySource = iota
	byListener
	byTenant
	ofAll // everybody, so that there is an order by age
	levels
)

func (p *Party) key(level int) key {
	switch level {
	case bySource:
		return key{level: bySource, source: p.Source}
	case byListener:
		return key{level: byListener, name: p.Listener}
	case ofAll:
		return key{level: ofAll}
	}
	return key{level: byTenant, name: p.Tenant}
}

type key struct {
	level  int
	source netip.Addr
	name   string
}

// Source is the address that a client counts under. A single IPv6 customer has
// a /64 to choose from.
func Source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64)
		return p.Addr()
	}
	return a
}

// An Owner is told that its holder is evicted: it has to give back all that it
// holds. It is called without a lock, on the goroutine of whoever needs room, so
// it must not block. It is called once for each eviction, and may be late: the
// holder may have given everything back by itself.
type Owner interface{ Evict() }

// Idler is an Owner that knows how long nothing has moved. Of the oldest holders
// of a party, the one that is idle longest is evicted; without Idler, the oldest.
type Idler interface {
	Owner
	// Idle is called with the budget's lock held. Rank comes first: a higher
	// one is evicted before any lower one.
	Idle() (rank int, d time.Duration)
}

// Config is for New.
type Config struct {
	// Limit is how much there is.
	Limit int64
	// Reserve is the part of it that only Early may use.
	Reserve int64
	// Grace is how long what Bulk holds is safe from eviction: what moves will
	// be given back by itself, and waiting costs less than what is evicted.
	Grace time.Duration
	// Stale is how long what Early holds is safe from a party that would hold no
	// more than its own, where shares name nobody: there are too many sources of
	// one connection each. 0: for ever.
	Stale time.Duration
}

// Budget is the amount. It is safe for use from several goroutines.
type Budget struct {
	cfg  Config
	used atomic.Int64 // written with mu held

	mu      sync.Mutex
	tiers   [classes]tier
	evicted map[string]uint64 // by listener
}

// New makes a budget of which nothing is held.
func New(cfg Config) *Budget {
	b := &Budget{cfg: cfg, evicted: map[string]uint64{}}
	for c := range b.tiers {
		b.tiers[c].parties = map[key]*party{}
	}
	return b
}

// Limit is how much there is.
func (b *Budget) Limit() int64 { return b.cfg.Limit }

// MaxBulk is the most that Bulk may use.
func (b *Budget) MaxBulk() int64 { return b.cfg.Limit - b.cfg.Reserve }

// Used is how much is held.
func (b *Budget) Used() int64 { return b.used.Load() }

// Low tells whether enough is free that those who wait should try again.
func (b *Budget) Low() bool { return b.Used() <= b.cfg.Limit-b.cfg.Limit/8 }

// Evictions counts the holders that were evicted, by listener.
func (b *Budget) Evictions() map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.evicted)
}

// Forget drops the count of a listener that is gone.
func (b *Budget) Forget(listener string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.evicted, listener)
}

// Mode says what Take does where there is no room.
type Mode uint8

// The modes.
const (
	// MayWait grants nothing then.
	MayWait Mode = iota
	// Swap grants it where those who were evicted make room, without waiting until
	// they have given it back.
	Swap
	// Must grants it all the same: it has been read already.
	Must
)

// Take has a holder hold n more for its owner. The class, the party and the
// owner of a holder that holds something already stay as they are. granted false:
// nothing changed. full: there is no room, and holders may have been evicted.
func (b *Budget) Take(h *Holder, c Class, o Owner, p *Party, n int64, m Mode) (granted, full bool) {
	var victims []Owner
	b.mu.Lock()
	granted, full, victims = b.take(h, c, o, p, n, m)
	b.mu.Unlock()
	for _, v := range victims {
		v.Evict()
	}
	return granted, full
}

func (b *Budget) take(h *Holder, c Class, o Owner, p *Party, n int64, m Mode) (granted, full bool, victims []Owner) {
	if h.evicted {
		if m == Must {
			h.n += n
			b.tiers[h.class].used += n
			b.tiers[h.class].leaving += n
			b.used.Add(n)
		}
		return m == Must, true, nil
	}
	if h.n == 0 {
		h.enter(b, c, o, p)
	}
	over := b.over(h.class, n)
	if over <= 0 && !b.keptFree(h, n) {
		h.add(b, n)
		return true, false, nil
	}
	if over > 0 {
		victims = b.makeRoom(h, n, over)
	}
	switch {
	case m == Must, m == Swap && over > 0 && over <= b.leaving():
		h.add(b, n)
		return true, true, victims
	case h.n == 0:
		h.leave(b)
	}
	return false, true, victims
}

// over is by how much n more would be too much, without what is about to be
// given back; 0 or less: it fits.
func (b *Budget) over(c Class, n int64) int64 {
	over := b.used.Load() + n - b.cfg.Limit
	if c == Bulk {
		over = max(over, b.tiers[Bulk].used+n-b.MaxBulk())
	}
	return over
}

// leaving is what is about to be given back.
func (b *Budget) leaving() int64 { return b.tiers[Early].leaving + b.tiers[Bulk].leaving }

// keptFree tells that what is left of Bulk is for others.
func (b *Budget) keptFree(h *Holder, n int64) bool {
	t := &b.tiers[Bulk]
	return h.class == Bulk && t.used+n > b.MaxBulk()-b.MaxBulk()/8 && !b.entitled(h, bySource, n)
}

// quota is what a class may use in all.
func (b *Budget) quota(c Class) int64 {
	if c == Bulk {
		return b.MaxBulk()
	}
	return b.cfg.Limit - b.tiers[Bulk].used
}

// share is the fair share of a party of that level.
func (b *Budget) share(c Class, level int) int64 {
	return b.quota(c) / int64(max(len(b.tiers[c].heaps[level]), 1))
}

// entitled tells whether a holder's party stays within its share with n more.
func (b *Budget) entitled(h *Holder, level int, n int64) bool {
	return h.at[level].used+n <= b.share(h.class, level)
}

// Crowded tells whether room is short, a party that has n more of Early would be
// over its share both as a source and as a listener, and nothing stale would give
// way to it.
func (b *Budget) Crowded(p *Party, n int64) bool {
	if b.Low() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := &b.tiers[Early]
	after := n
	if at := t.parties[p.key(bySource)]; at != nil {
		after += at.used
	}
	if b.stale(nil, after) != nil {
		return false
	}
	for level := bySource; level <= byListener; level++ {
		have, parties := int64(0), len(t.heaps[level])
		if at := t.parties[p.key(level)]; at != nil {
			have = at.used
		} else {
			parties++
		}
		if have+n <= b.quota(Early)/int64(parties) {
			return false
		}
	}
	return true
}

// Give has a holder hold n less. wake tells that those who wait should try
// again.
func (b *Budget) Give(h *Holder, n int64) (wake bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n = min(n, h.n); n <= 0 {
		return false
	}
	t := &b.tiers[h.class]
	t.used -= n
	b.used.Add(-n)
	h.n -= n
	if !h.evicted {
		h.count(t, -n)
		if h.n == 0 {
			h.leave(b)
		}
		return b.Low()
	}
	t.leaving -= n
	if h.n == 0 {
		h.evicted = false
	}
	return true
}

// Evicted tells whether the holder is to give back what it holds.
func (b *Budget) Evicted(h *Holder) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.evicted
}
