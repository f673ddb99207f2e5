package quota

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"penstock/routing/limit"
	"penstock/routing/resource"
)

// Config has what a Driver needs.
type Config struct {
	// Self is this node's ID.
	Self string
	// Limits iterates over all rate limits in force on this node, and Clock is the
	// clock of their buckets.
	Limits func() iter.Seq2[*limit.Limit, *resource.RateLimit]
	Clock  func() int64
	// Members lists the IDs of the cluster's members. nil: the node is alone, and the
	// whole of each budget is its own.
	Members func() []string
	// Ask has the leader answer a report: by a Driver's Serve.
	Ask func(context.Context, *Report) (*Answer, error)
	Log *slog.Logger
}

// Driver leases this node's shares, and has the buckets keep to them.
type Driver struct {
	Config
	start  time.Time
	known  map[bucketKey]*measured // Run's
	place  limit.Place             // Run's
	answer chan answered           // one for each report

	mu     sync.Mutex
	holder *Holder
	status Status
}

// bucketKey names a bucket across those that are made anew for the same key.
type bucketKey struct {
	limit *limit.Limit
	key   limit.Key
}

// measured is the demand for a bucket on this node.
type measured struct {
	meters  [dimensions]Meter
	demands [dimensions]Demand // Want is 0 where there is none
	bucket  *limit.Bucket      // nil: it is gone
	turn    uint64             // in which it was seen last
}

const dimensions = len(limit.Dimensions)

type answered struct {
	asked *Asked
	ans   *Answer
	err   error
}

// Status is what a node knows about its shares.
type Status struct {
	Limits   int           // limits with scope cluster
	Keys     int           // budgets with demand
	Unleased int           // of Keys, those beyond MaxKeys
	Leases   int           // in force
	Reports  uint64        // answered
	Failed   uint64        // reports that were not answered in time
	Expired  uint64        // times that leases ended for want of an answer
	Age      time.Duration // since the node asked what was last answered
	Floor    bool          // the floor is in force: there has been no answer for long
}

// New makes the Driver of a node.
func New(cfg Config) *Driver {
	d := &Driver{Config: cfg, start: time.Now().Add(-time.Hour), known: map[bucketKey]*measured{}, answer: make(chan answered)}
	members := []string{cfg.Self}
	if cfg.Members != nil {
		members = cfg.Members()
	}
	d.place = Place(cfg.Self, members)
	d.holder = NewHolder(rand.Uint64()|1, d.now(), len(members))
	return d
}

// now is the time of the node's own clock, for Holder.
func (d *Driver) now() time.Duration { return time.Since(d.start) }

// Status returns the state of the node's shares.
func (d *Driver) Status() Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.status
	now := d.now()
	s.Leases, s.Age = d.holder.Leases(now), d.holder.Contact(now)
	s.Floor = d.Members != nil && s.Limits > 0 && d.holder.OnFloor(now)
	return s
}

// run is the state of Run.
type run struct {
	turn    uint64
	last    time.Duration      // of the last turn
	asked   *Asked             // waits for its answer; nil: none
	drop    context.CancelFunc // ends the wait
	floor   bool               // as logged
	expired bool               // as counted
}

// Run measures demand, asks for shares and sets the rates of buckets until ctx ends.
func (d *Driver) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	r := run{last: d.now()}
	var demands []Demand
	for {
		select {
		case <-timer.C:
		case a := <-d.answer:
			if a.asked != r.asked {
				continue // another has overtaken it
			}
			d.accept(a)
			r.drop()
			r.asked = nil
			d.apply(&r)
			if now := d.now(); d.confirms(now) {
				d.ask(ctx, &r, now, demands)
			}
			continue
		case <-ctx.Done():
			return
		}
		began := d.now()
		demands = d.measure(&r, began)
		if d.Members != nil && d.due(began, demands) {
			d.ask(ctx, &r, began, demands)
		}
		d.apply(&r)
		// A turn takes at most a twentieth of the time.
		timer.Reset(max(tick, 20*(d.now()-began)))
	}
}

// measure reads the demand of all buckets, and returns it with the limits' keys
// together, those with the largest part of their budget first.
func (d *Driver) measure(r *run, now time.Duration) (demands []Demand) {
	dt := now - r.last
	r.turn, r.last = r.turn+1, now
	limits := 0
	for l, spec := range d.Limits() {
		if !l.Divided() {
			continue
		}
		limits++
		for b := range l.Buckets() {
			d.measureBucket(r, l, spec, b, dt)
		}
	}
	for key, m := range d.known {
		wanted := false
		for i := range m.demands {
			if m.turn != r.turn {
				m.meters[i].Add(0, 1, dt, false, 0)
				m.bucket = nil
			}
			if m.demands[i].Want = m.meters[i].Rate(); m.demands[i].Want > 0 {
				wanted = true
				demands = append(demands, m.demands[i])
			}
		}
		if wanted {
			continue
		}
		if m.bucket != nil {
			m.bucket.SetRates(new([dimensions]float64), d.Clock())
		}
		delete(d.known, key)
	}
	keys := len(demands)
	demands = order(demands)
	d.mu.Lock()
	d.status.Limits, d.status.Keys, d.status.Unleased = limits, keys, keys-len(demands)
	d.mu.Unlock()
	return demands
}

// chunks are how many units of a dimension come together.
var chunks = [dimensions]float64{
	limit.Connections: 1, limit.Requests: 1, limit.BytesIn: 16 << 10, limit.BytesOut: 16 << 10,
	limit.Produce: 16 << 10, limit.Fetch: 16 << 10,
}

// measureBucket reads the demand for a bucket.
func (d *Driver) measureBucket(r *run, l *limit.Limit, spec *resource.RateLimit, b *limit.Bucket, dt time.Duration) {
	key := bucketKey{l, b.Key()}
	m := d.known[key]
	for _, dim := range limit.Dimensions {
		if !b.Bounds(dim) {
			continue
		}
		units, held := b.Demand(dim)
		if m == nil {
			if units == 0 {
				continue
			}
			m = new(measured)
			d.known[key] = m
		}
		of := &m.demands[dim]
		of.Budget = Budget{l.Budget(dim), float64(spec.FloorPercent())}
		if of.Key.Limit == "" && units > 0 {
			of.Key = Key{l.Name(), uint8(dim), wireKey(b.Key().String())}
		}
		m.meters[dim].owes = b.Debt(dim, d.Clock()) > 0
		m.meters[dim].Add(float64(units), chunks[dim], dt, held, b.Rate(dim))
	}
	if m != nil {
		m.turn, m.bucket = r.turn, b
	}
}

// wireKey returns a key as it is reported.
func wireKey(text string) string {
	if len(text) <= maxKeyLength {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// order keeps the MaxKeys demands with the largest part of their budget, and puts
// those of each limit's dimension together.
func order(demands []Demand) []Demand {
	if len(demands) > MaxKeys {
		slices.SortFunc(demands, func(a, b Demand) int { return cmp.Compare(b.Want/b.Budget.Rate, a.Want/a.Budget.Rate) })
		demands = demands[:MaxKeys]
	}
	slices.SortFunc(demands, func(a, b Demand) int {
		return cmp.Or(cmp.Compare(a.Key.Limit, b.Key.Limit), cmp.Compare(a.Key.Dimension, b.Key.Dimension), cmp.Compare(a.Key.Text, b.Key.Text))
	})
	return demands
}

func (d *Driver) due(now time.Duration, demands []Demand) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status.Limits > 0 && d.holder.Due(now, demands)
}

// confirms reports whether the last answer is to be confirmed at once.
func (d *Driver) confirms(now time.Duration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status.Limits > 0 && d.holder.Confirms(now)
}

// ask sends a report, and drops the one before it if that still waits. Its answer comes to
// Run.
func (d *Driver) ask(ctx context.Context, r *run, now time.Duration, demands []Demand) {
	d.mu.Lock()
	members := d.Members()
	d.place = Place(d.Self, members)
	asked := d.holder.Ask(now, len(members), demands)
	d.mu.Unlock()
	if r.asked != nil {
		r.drop()
	}
	wait, drop := context.WithTimeout(ctx, LeaseTime/2)
	r.asked, r.drop = asked, drop
	go func() {
		ans, err := d.Ask(wait, &asked.Report)
		select {
		case d.answer <- answered{asked, ans, err}:
		case <-ctx.Done():
		}
	}()
}

// accept takes the answer to a report.
func (d *Driver) accept(a answered) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.err == nil && d.holder.Accept(d.now(), a.asked, a.ans) {
		d.status.Reports++
		return
	}
	d.status.Failed++
	d.holder.Fail(a.asked)
	if a.err != nil {
		d.Log.Debug("no answer to a report of demand for rate limits", "error", a.err)
	}
}

// apply has the buckets keep to what the node holds.
func (d *Driver) apply(r *run) {
	now, clock := d.now(), d.Clock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for l, spec := range d.Limits() {
		if !l.Divided() {
			continue
		}
		part := 1.0
		if d.Members != nil {
			part = d.holder.Rate(now, Key{}, Budget{1, float64(spec.FloorPercent())})
		}
		l.Divide(part, d.place, clock)
	}
	if d.Members == nil {
		return
	}
	for _, m := range d.known {
		if m.bucket == nil {
			continue
		}
		var rates [dimensions]float64
		for i := range m.demands {
			if of := &m.demands[i]; of.Want > 0 {
				rates[i] = max(d.holder.Rate(now, of.Key, of.Budget), math.SmallestNonzeroFloat32)
			}
		}
		m.bucket.SetRates(&rates, clock)
	}
	d.note(r, now)
}

// note counts and logs that leases have ended for want of an answer. The caller holds
// d.mu.
func (d *Driver) note(r *run, now time.Duration) {
	if d.status.Limits == 0 {
		return
	}
	expired, floor := d.holder.Contact(now) > LeaseTime, d.holder.OnFloor(now)
	if expired && !r.expired {
		d.status.Expired++
	}
	if floor != r.floor && floor {
		d.Log.Warn("no leader answers: rate limits with scope cluster use their floor", "for", d.holder.Contact(now))
	} else if floor != r.floor {
		d.Log.Info("rate limits with scope cluster follow demand again")
	}
	r.expired, r.floor = expired, floor
}
