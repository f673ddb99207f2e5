// Package limit holds token buckets in bounded tables: how many connections,
// requests and bytes each key may have. It has no clock, timer or I/O; callers
// bring the time. DESIGN.md says why a flood of keys gains nothing.
//
//	l := limit.New("per-client", limit.Config{MaxKeys: 1000, Connections: limit.Rate{N: 10, Per: time.Second, Burst: 20}})
//	b := l.Bucket(limit.Key{Text: "10.0.0.1"})
//	defer b.Release()
//	if wait, ok := b.Take(limit.Connections, 1, now); ok { ... }
//
// All methods are safe for concurrent use.
package limit

import (
	"math"
	"math/bits"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Dimension is what a bucket counts at a rate.
type Dimension uint8

// The dimensions.
const (
	Connections Dimension = iota
	Requests
	BytesIn
	BytesOut
	Produce // bytes of Kafka's Produce requests
	Fetch   // bytes of Kafka's Fetch responses
	dimensions
)

// Dimensions lists all dimensions.
var Dimensions = [dimensions]Dimension{Connections, Requests, BytesIn, BytesOut, Produce, Fetch}

var names = [dimensions]string{"connections", "requests", "bytes_in", "bytes_out", "produce", "fetch"}

func (d Dimension) String() string { return names[d] }

// Rate is N units in each interval, with a burst of at least 1. N of 0 means no
// bound.
type Rate struct {
	N     int64
	Per   time.Duration
	Burst int64
}

// cost returns the time in which n units come back, in ns rounded up: rounding
// never admits more than the rate.
func (r *Rate) cost(n int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(r.Per))
	lo, carry := bits.Add64(lo, uint64(r.N-1), 0)
	hi += carry
	if hi >= uint64(r.N) {
		return maxCost
	}
	q, _ := bits.Div64(hi, lo, uint64(r.N))
	return int64(min(q, uint64(maxCost)))
}

// maxCost bounds a cost to 36 years, so that sums do not overflow.
const maxCost = math.MaxInt64 / 8

// Config is the configuration of a Limit. It may change while buckets are in use.
type Config struct {
	// Rates are the rates by dimension.
	Rates [dimensions]Rate
	// Concurrent bounds the connections at once; 0: no bound.
	Concurrent int64
	// MaxKeys bounds the buckets, at least 1.
	MaxKeys int
	// MaxWait is how long a connection or request may wait; 0: it does not.
	// MaxQueue bounds how many wait in one bucket; 0: only MaxWait does.
	MaxWait  time.Duration
	MaxQueue int64
	// Divided: this node has a part only (share.go). Place is its place until Divide is
	// called: a limit that is new has no more than the node's part from its beginning.
	Divided bool
	Place   Place

	whole [dimensions]Rate // with Divided, the rates of all nodes together
	place Place            // that the bursts are of
}

// config is a Config in force.
type config struct {
	Config
	since int64             // when it came into force
	burst [dimensions]int64 // time in which a whole burst comes back, ns
	wait  [dimensions]int64 // longest wait, ns; of bytes without a bound
}

func newConfig(c *Config, now int64) *config {
	made := &config{Config: *c, since: now}
	for d := range dimensions {
		r := &made.Rates[d]
		if r.N == 0 {
			continue
		}
		made.burst[d] = r.cost(max(r.Burst, 1))
		made.wait[d] = c.longestWait(d)
		if c.MaxQueue > 0 {
			made.wait[d] = min(made.wait[d], r.cost(c.MaxQueue))
		}
	}
	return made
}

// longestWait returns how long one may have to wait by the rate of now to be let wait. A
// part of a divided limit that is less than an equal share grows to one where there is
// demand, as before the first lease: so it is judged by the wait at an equal share. Who
// waits gives up after MaxWait.
func (c *Config) longestWait(d Dimension) int64 {
	if !c.Divided {
		return int64(c.MaxWait)
	}
	has, equal := unitsPerSecond(&c.Rates[d]), unitsPerSecond(&c.whole[d])/float64(max(c.place.Of, 1))
	return int64(min(float64(c.MaxWait)*max(1, equal/has), maxCost))
}

// Key is what has a bucket of its own.
type Key struct {
	Text    string
	Network netip.Prefix
	Cluster string // Kafka's, whose names mean nothing elsewhere
}

// String returns the key as people read it.
func (k Key) String() string {
	if k.Network.IsValid() {
		return k.Network.String()
	}
	if k.Cluster != "" {
		return k.Cluster + "/" + k.Text
	}
	return k.Text
}

// Counts are the counters of a limit since it exists.
type Counts struct {
	Allowed, Refused [dimensions]uint64 // connections and requests; bytes are not counted
	Queued           [dimensions]uint64 // of Allowed, those that had to wait
	Paced            [dimensions]uint64 // pauses of bytes, and of Kafka's requests
	Concurrent       uint64             // connections refused by Concurrent
	Keys             int                // buckets that exist
	Overflows        uint64             // uses of the shared bucket because there was no room for a key
}

// counts are Counts as loops write them. Each limit's counters are on cache lines
// of their own, apart from those of other limits.
type counts struct {
	_                               [64]byte
	allowed, refused, queued, paced [dimensions]atomic.Uint64
	concurrent, overflows           atomic.Uint64
	_                               [64]byte
}

// Limit is one limit with its buckets.
type Limit struct {
	name     string
	cfg      atomic.Pointer[config]
	division atomic.Pointer[division] // nil: unknown
	table    table
	overflow Bucket // of all keys without room in the table
	counts   counts

	mu   sync.Mutex // guards base and changes of cfg
	base Config     // as it was given
}

// New makes a limit. now is the time as all later calls have it: nanoseconds since
// any fixed moment.
func New(name string, c Config, now int64) *Limit {
	l := &Limit{name: name, base: c}
	l.cfg.Store(newConfig(l.divide(), now))
	l.overflow.init(l, Key{}, now)
	l.table.init(c.MaxKeys)
	return l
}

// Name returns the name that New was given.
func (l *Limit) Name() string { return l.name }

// Has reports whether the limit bounds a rate.
func (l *Limit) Has(d Dimension) bool { return l.cfg.Load().Rates[d].N > 0 }

// Configure changes the limit. Buckets keep what they have used: a changed rate
// fills none. Rates may also be set by whoever divides a budget among nodes.
func (l *Limit) Configure(c Config, now int64) {
	l.mu.Lock()
	l.base = c
	l.cfg.Store(newConfig(l.divide(), now))
	l.mu.Unlock()
	l.table.setMax(c.MaxKeys)
}

// Counts returns the counters.
func (l *Limit) Counts() Counts {
	c := Counts{Keys: l.table.len(), Concurrent: l.counts.concurrent.Load(), Overflows: l.counts.overflows.Load()}
	for d := range dimensions {
		c.Allowed[d], c.Refused[d] = l.counts.allowed[d].Load(), l.counts.refused[d].Load()
		c.Queued[d], c.Paced[d] = l.counts.queued[d].Load(), l.counts.paced[d].Load()
	}
	return c
}

// MaxKeys returns the bound of the keys.
func (l *Limit) MaxKeys() int { return l.cfg.Load().MaxKeys }
