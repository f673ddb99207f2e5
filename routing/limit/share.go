package limit

import (
	"iter"
	"math"
	"sync/atomic"
	"time"
)

// A limit of which this node has a part only (Config.Divided) is measured and set by
// whoever divides it: Demand says what clients want of each bucket, Divide sets what a
// bucket may have for which SetRates has set nothing.
//
// A node's part of the burst is the same whatever its part of the rate. So rates that
// move between nodes make no burst: together they are never more than the whole.

// Place is a node's among those that share a burst: Index, from 0, of Of.
type Place struct{ Index, Of int }

// burst returns the node's part of a burst: the parts of all nodes add up to it, but that
// each has one unit at least.
func (p Place) burst(whole int64) int64 {
	of := int64(max(p.Of, 1))
	own := whole / of
	if int64(p.Index) < whole%of {
		own++
	}
	return max(own, 1)
}

// division is this node's part of a limit.
type division struct {
	part  float64 // of each rate, for a bucket without one of its own
	place Place
}

// undivided is the part until Divide is called: that of a node without demand.
func undivided(p Place) *division { return &division{part: 0.0025 / float64(max(p.Of, 1)), place: p} }

// share is what a bucket of a divided limit has beside others.
type share struct {
	own    atomic.Pointer[config] // rates of its own; nil: those of the limit
	wanted [dimensions]atomic.Int64
	held   [dimensions]atomic.Int64 // times that bytes had to wait
	of     *config                  // the limit's configuration that own was made of; only the divider uses it
	rates  [dimensions]float64      // of own, as set; only the divider uses them
}

// Divided reports whether this node has a part of the limit only.
func (l *Limit) Divided() bool { return l.cfg.Load().Divided }

// Budget returns the whole rate in units per second; 0: no bound.
func (l *Limit) Budget(d Dimension) float64 {
	r := &l.cfg.Load().whole[d]
	return unitsPerSecond(r)
}

func unitsPerSecond(r *Rate) float64 {
	if r.N == 0 {
		return 0
	}
	return float64(r.N) / r.Per.Seconds()
}

// Divide sets this node's part of each rate, of 0 to 1, for buckets for which SetRates
// has set none, and its part of the burst.
func (l *Limit) Divide(part float64, place Place, now int64) {
	next := division{part, place}
	if was := l.division.Swap(&next); was != nil && *was == next {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cfg.Store(newConfig(l.divide(), now))
}

// divide returns the configuration for this node's part. The caller holds l.mu.
func (l *Limit) divide() *Config {
	c := l.base
	if !c.Divided {
		return &c
	}
	by := l.divided()
	for d := range dimensions {
		if r := &c.Rates[d]; r.N > 0 {
			*r = part(r, unitsPerSecond(r)*by.part, by.place)
		}
	}
	c.whole, c.place = l.base.Rates, by.place
	return &c
}

// divided returns this node's part.
func (l *Limit) divided() *division {
	if by := l.division.Load(); by != nil {
		return by
	}
	return undivided(l.base.Place)
}

// part returns a rate of some units per second, with the node's part of the burst of
// whole.
func part(whole *Rate, rate float64, place Place) Rate {
	burst := place.burst(whole.Burst)
	rate = max(rate, leastRate)
	// N is large where Per would be too short to be exact.
	n := max(int64(1), int64(math.Ceil(rate)))
	return Rate{N: n, Per: time.Duration(float64(n) / rate * float64(time.Second)), Burst: burst}
}

// leastRate is used for 0, which would mean no bound: one in eleven days.
const leastRate = 1e-6

// SetRates sets the rates of a bucket, in units per second; 0: that of Divide. Only
// the divider calls it.
func (b *Bucket) SetRates(rates *[dimensions]float64, now int64) {
	s, cfg := b.share, b.limit.cfg.Load()
	if s == nil || s.of == cfg && near(&s.rates, rates) || s.of == nil && *rates == [dimensions]float64{} {
		return
	}
	s.of, s.rates = cfg, *rates
	place := cfg.place
	c := cfg.Config
	for d := range dimensions {
		if c.Rates[d].N > 0 && rates[d] > 0 {
			c.Rates[d] = part(&cfg.whole[d], rates[d], place)
		}
	}
	s.own.Store(newConfig(&c, now))
	b.config(now) // what comes back until now does at the rates until now
}

// near reports whether rates are the same but for a thousandth.
func near(a, b *[dimensions]float64) bool {
	for d := range dimensions {
		if math.Abs(a[d]-b[d]) > b[d]/1000 {
			return false
		}
	}
	return true
}

// Rate returns what the bucket may have now of a dimension, in units per second.
func (b *Bucket) Rate(d Dimension) float64 { return unitsPerSecond(&b.inForce().Rates[d]) }

// EqualDebt returns Debt; if the bucket has less than an equal share of a divided budget, as
// it has until demand for it is known, what Debt would be with such a share.
func (b *Bucket) EqualDebt(d Dimension, now int64) time.Duration {
	debt, cfg := b.Debt(d, now), b.inForce()
	if !cfg.Divided || debt == 0 {
		return debt
	}
	has, equal := unitsPerSecond(&cfg.Rates[d]), unitsPerSecond(&cfg.whole[d])/float64(max(cfg.place.Of, 1))
	if has >= equal {
		return debt
	}
	return time.Duration(float64(debt) * has / equal)
}

// inForce returns the bucket's configuration.
func (b *Bucket) inForce() *config {
	if b.share != nil {
		if own := b.share.own.Load(); own != nil {
			return own
		}
	}
	return b.limit.cfg.Load()
}

// Demand returns how many units were wanted since the last call, those that were
// refused included, and whether bytes were held back meanwhile. Only the divider calls
// it.
func (b *Bucket) Demand(d Dimension) (units int64, held bool) {
	if b.share == nil {
		return 0, false
	}
	if b.share.wanted[d].Load() == 0 { // most buckets, most of the time
		return 0, false
	}
	return b.share.wanted[d].Swap(0), b.share.held[d].Swap(0) > 0
}

// want counts demand.
func (b *Bucket) want(d Dimension, n int64) {
	if b.share != nil {
		b.share.wanted[d].Add(n)
	}
}

// hold counts that bytes had to wait.
func (b *Bucket) hold(d Dimension) {
	if b.share != nil {
		b.share.held[d].Add(1)
	}
}

// Buckets iterates over all buckets but that which keys without room share. Buckets
// that come or go meanwhile may be left out. A bucket is valid until the next yield.
func (l *Limit) Buckets() iter.Seq[*Bucket] {
	return func(yield func(*Bucket) bool) {
		var all []*Bucket
		for i := range l.table.shards {
			s := &l.table.shards[i]
			all = all[:0]
			s.mu.Lock()
			for b := s.head; b != nil; b = b.next {
				b.users.Add(1)
				all = append(all, b)
			}
			s.mu.Unlock()
			done := false
			for _, b := range all {
				done = done || !yield(b)
				b.Release()
			}
			if done {
				return
			}
		}
	}
}
