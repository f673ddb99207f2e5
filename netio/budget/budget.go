// Package budget shares a bounded amount, of bytes or of requests, among
// holders. It decides who waits and who is evicted when the amount is used up.
// It does no I/O and starts no goroutine.
//
//	b := budget.New(budget.Config{Limit: 64 << 20, Reserve: 16 << 20})
//	granted, _ := b.Take(&holder, budget.Bulk, party, 4096, budget.MayWait)
//	wake := b.Give(&holder, 4096)
//
// # Classes
//
// Early is for the few bytes that identify a connection. It may use the whole
// limit. Bulk is for everything else and never uses the reserve.
//
// # Shares
//
// Each holder counts under its source address, its listener and its tenant,
// which are its parties. The fair share of a party is the amount that its
// class may use, divided by the number of parties of that kind that hold
// something now. While there is room, shares do not matter. When there is
// none:
//
//   - A holder whose source is under its share gets room from the heaviest source:
//     the oldest holder of that source is evicted.
//   - Where sources do not decide, the same is done for listeners, then for
//     tenants. The victim's source is never lighter than that of whoever asks.
//   - Where shares name nobody, as there are many sources of little each, what is
//     early and stale gives way to a source that would hold no more than its own.
//   - Everybody else waits.
//
// A party at or under its share is never a victim, nor is one that holds less
// than twice what the asking party would hold: equals do not evict one
// another. The last eighth of Bulk is for parties under their share, so that
// heavy parties do not overtake those that wait.
//
// The tables have an entry for each party that holds something now, so the
// number of holders bounds their size.
package budget

import (
	"maps"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Class says what a holder uses its part for.
type Class uint8

// The classes.
const (
	Early Class = iota
	Bulk
	classes
)

// Party names the parties that a holder counts under.
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

// Source returns the address that a client counts under: for IPv6 its /64,
// because one customer has all of it.
func Source(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		p, _ := a.Prefix(64)
		return p.Addr()
	}
	return a
}

// An Owner learns through Evict that its holder is evicted and must give back
// all that it holds. Evict is called without a lock, on the goroutine that
// needs room, so it must not block. It is called once for each eviction,
// possibly after the holder has given everything back by itself.
type Owner interface{ Evict() }

// An Idler is an Owner that knows how long nothing has moved. Of the oldest
// holders of a party, the one that is idle longest is evicted; among Owners
// that are no Idlers, the oldest.
type Idler interface {
	Owner
	// Idle returns how long nothing has moved. A holder of a higher rank is
	// evicted before all of lower ranks. It is called with the budget's lock
	// held.
	Idle() (rank int, d time.Duration)
}

// Config is the configuration of a Budget.
type Config struct {
	// Limit is the whole amount.
	Limit int64
	// Reserve is the part of it that only Early may use.
	Reserve int64
	// Grace is how long a Bulk holder is safe from eviction: one that makes
	// progress gives its part back soon, and waiting for that costs less than
	// an eviction.
	Grace time.Duration
	// Stale is how long an Early holder is safe from a party that would hold
	// no more than its own, if shares name no victim because there are too
	// many sources with one connection each. 0 means for ever.
	Stale time.Duration
}

// A Budget is a bounded amount. It is safe for concurrent use.
type Budget struct {
	cfg  Config
	used atomic.Int64 // written with mu held

	mu      sync.Mutex
	tiers   [classes]tier
	evicted map[string]uint64 // by listener
}

// New returns a budget of which nothing is held.
func New(cfg Config) *Budget {
	b := &Budget{cfg: cfg, evicted: map[string]uint64{}}
	for c := range b.tiers {
		b.tiers[c].parties = map[key]*party{}
	}
	return b
}

// Limit returns the whole amount.
func (b *Budget) Limit() int64 { return b.cfg.Limit }

// MaxBulk returns the most that Bulk may use.
func (b *Budget) MaxBulk() int64 { return b.cfg.Limit - b.cfg.Reserve }

// Used returns how much is held.
func (b *Budget) Used() int64 { return b.used.Load() }

// Low reports whether enough is free for waiting holders to try again.
func (b *Budget) Low() bool { return b.Used() <= b.cfg.Limit-b.cfg.Limit/8 }

// Evictions returns the number of evicted holders, by listener.
func (b *Budget) Evictions() map[string]uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.evicted)
}

// RemoveListener drops the eviction count of a removed listener.
func (b *Budget) RemoveListener(listener string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.evicted, listener)
}

// Mode says what Take does without room.
type Mode uint8

// The modes.
const (
	// MayWait grants nothing.
	MayWait Mode = iota
	// Swap grants the amount if evicted holders will make room, without
	// waiting until they have given it back.
	Swap
	// Must always grants the amount, because the bytes have been read already.
	Must
)

// Take increases what a holder holds by n. If it holds something already, its
// class, party and owner do not change. If granted is false, nothing changed.
// full reports that there is no room; holders may have been evicted.
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

// Crowded reports whether room is short, n more of Early would put the party
// over its share both as a source and as a listener, and nothing stale would
// give way to it.
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

// Give reduces what a holder holds by n. wake reports whether waiting holders
// should try again.
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

// Evicted reports whether the holder must give back what it holds.
func (b *Budget) Evicted(h *Holder) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return h.evicted
}
