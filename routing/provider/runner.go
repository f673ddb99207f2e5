package provider

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Defaults of Config.
const (
	DefaultMaxEndpoints = 100_000
	DefaultHoldShare    = 50
	DefaultHoldFor      = 30 * time.Second
	DefaultInterval     = 100 * time.Millisecond
	DefaultChangeRate   = 1000
	// applyRetry is the pause after changes could not be applied.
	applyRetry = time.Second
)

// Change is what is new in the answer to a query.
type Change struct {
	Query Query
	Put   []Endpoint // new or changed
	Gone  []string   // addresses
}

// Config configures NewRunner.
type Config struct {
	// Name is the provider's name, for the log.
	Name   string
	Source Source
	// Known is what is in force already, from an earlier Runner for the same
	// provider. Nothing of it is applied again.
	Known map[Query][]Endpoint
	// Apply puts changes in force, all or none. After an error the changes are
	// computed anew and tried again. Calls do not overlap.
	Apply func(ctx context.Context, changes []Change) error
	// Interval is the least time between two calls of Apply; ChangeRate the number
	// of endpoints per second that may change in the long run, beyond a burst of
	// MaxEndpoints. Changes over either wait, and only the last one counts.
	Interval   time.Duration
	ChangeRate int
	// MaxEndpoints bounds the endpoints of a query; the first ones by address are
	// used.
	MaxEndpoints int
	// An answer that would remove more than HoldShare percent of a query's
	// endpoints at once takes effect after HoldFor, unless another comes first;
	// what it adds takes effect at once. A negative HoldFor switches this off.
	HoldShare int
	HoldFor   time.Duration
	// MaxStale is how long the last answer counts while there is no newer one; 0
	// is for ever.
	MaxStale time.Duration
	Log      *slog.Logger // nil: none
}

// Runner runs one Source and applies what it reports. Create it with NewRunner.
type Runner struct {
	cfg     Config
	limiter *rate.Limiter
	wake    chan struct{} // has room for one: there may be something to apply

	mu       sync.Mutex
	queries  map[Query]*query
	dropped  map[Query]*query // no longer wanted, with endpoints in force
	wanted   []Query
	replaced chan struct{}
	counts   Counts
	restarts int    // runs of the source in a row that reported nothing
	err      string // why the source ended last; "" while it runs
}

// NewRunner returns a runner that wants nothing yet.
func NewRunner(cfg Config) *Runner {
	cfg.Interval = cmp.Or(cfg.Interval, DefaultInterval)
	cfg.ChangeRate = cmp.Or(cfg.ChangeRate, DefaultChangeRate)
	cfg.MaxEndpoints = cmp.Or(cfg.MaxEndpoints, DefaultMaxEndpoints)
	cfg.HoldShare = cmp.Or(cfg.HoldShare, DefaultHoldShare)
	cfg.HoldFor = cmp.Or(cfg.HoldFor, DefaultHoldFor)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runner{
		cfg:     cfg,
		limiter: rate.NewLimiter(rate.Limit(cfg.ChangeRate), cfg.MaxEndpoints),
		wake:    make(chan struct{}, 1),
		queries: map[Query]*query{}, dropped: map[Query]*query{}, replaced: make(chan struct{}),
	}
	now := time.Now()
	for q, endpoints := range cfg.Known {
		r.dropped[q] = newQuery(q, endpoints, now)
	}
	return r
}

// Want replaces the queries. Endpoints of a query that is no longer wanted are
// removed at once.
func (r *Runner) Want(queries []Query) {
	queries = slices.Clone(queries)
	slices.SortFunc(queries, compareQueries)
	queries = slices.Compact(queries)
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(queries, r.wanted) {
		return
	}
	next := make(map[Query]*query, len(queries))
	for _, q := range queries {
		switch {
		case r.queries[q] != nil:
			next[q] = r.queries[q]
		case r.dropped[q] != nil:
			next[q] = r.dropped[q]
			next[q].dirty = next[q].known // some may be removed already
			delete(r.dropped, q)
		default:
			next[q] = newQuery(q, nil, time.Now())
		}
	}
	for q, state := range r.queries {
		if next[q] == nil && len(state.applied) > 0 {
			r.dropped[q] = state
		}
	}
	r.queries, r.wanted = next, queries
	close(r.replaced)
	r.replaced = make(chan struct{})
	r.wakeUp()
}

func compareQueries(a, b Query) int {
	return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Port, b.Port))
}

// Run runs the source and applies its answers until ctx ends, whose error it
// returns.
func (r *Runner) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { r.runSource(ctx) })
	defer wg.Wait()
	timer := time.NewTimer(0) // fires at once, for what is known and no longer wanted
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.wake:
		case <-timer.C:
		}
		next, pause := r.step(ctx)
		if !Sleep(ctx, pause) {
			return ctx.Err()
		}
		if next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
	}
}

// runSource runs the source, again and again.
func (r *Runner) runSource(ctx context.Context) {
	for {
		err := r.cfg.Source.Run(ctx, (*sink)(r))
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			err = errors.New("the source ended")
		}
		r.mu.Lock()
		first := r.err == ""
		r.err = err.Error()
		pause := Backoff(r.restarts)
		r.restarts++
		r.mu.Unlock()
		(*sink)(r).FailedAll(err)
		if first {
			r.cfg.Log.Warn("endpoint provider failed; its last answers stay in force, retrying", "provider", r.cfg.Name, "error", err)
		}
		if !Sleep(ctx, pause) {
			return
		}
	}
}

// wakeUp makes Run look for something to apply.
func (r *Runner) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// step applies what is due. It returns when the next thing is due, zero if
// nothing is, and how long to wait before another step at least.
func (r *Runner) step(ctx context.Context) (next time.Time, pause time.Duration) {
	now := time.Now()
	r.mu.Lock()
	b := batch{runner: r, now: now, tokens: int(r.limiter.TokensAt(now))}
	b.collect()
	r.mu.Unlock()
	if len(b.changes) == 0 {
		return b.next, r.cfg.Interval
	}
	if err := r.cfg.Apply(ctx, b.changes); err != nil {
		if ctx.Err() == nil {
			r.cfg.Log.Warn("endpoints of a provider could not be applied; retrying", "provider", r.cfg.Name, "error", err)
		}
		r.mu.Lock()
		b.undo()
		r.mu.Unlock()
		return now.Add(applyRetry), applyRetry
	}
	r.limiter.AllowN(now, b.spent)
	r.mu.Lock()
	b.applied()
	r.mu.Unlock()
	r.wakeUp() // what it added may end a hold
	return b.next, r.cfg.Interval
}
