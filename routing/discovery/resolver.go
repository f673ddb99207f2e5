// Package discovery keeps the addresses of host names up to date.
//
//	r := discovery.New(discovery.Config{Changed: func(hosts []string) { ... }})
//	r.Set([]discovery.Name{{Host: "db.example.com", Interval: 10 * time.Second}})
//	addrs, ok := r.Lookup("db.example.com")
//	r.Close()
//
// The system's resolver reports no TTL, so names are looked up at an interval,
// +-10 %. A failed lookup removes no address: the last good answer remains,
// marked stale, until there is a new one. This includes NXDOMAIN, because an
// outage of DNS or a partially loaded zone looks the same, and endpoints that
// are really gone fail their health checks.
//
// If a name has IPv4 and IPv6 addresses, one family is used (family.go).
package discovery

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"penstock/routing/scheduler"
)

// Defaults and bounds.
const (
	DefaultInterval    = 10 * time.Second
	MinInterval        = time.Second
	DefaultConcurrency = 16
	DefaultTimeout     = 5 * time.Second
	DefaultMaxAddrs    = 256
	DefaultSettle      = 20 * time.Millisecond

	// A failed lookup is retried after firstRetry, then after twice as long each
	// time, up to maxRetry or the name's interval, whichever is longer.
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// errNoAddress reports an answer without an address.
var errNoAddress = errors.New("the lookup returned no address")

// LookupFunc resolves a host to its IPv4 and IPv6 addresses. It must return
// when ctx ends.
type LookupFunc func(ctx context.Context, host string) ([]netip.Addr, error)

// Config configures New; its zero value is ready to use.
type Config struct {
	// Lookup resolves names; nil: the system's resolver.
	Lookup LookupFunc
	// Concurrency bounds the lookups in progress, Timeout the duration of each.
	Concurrency int
	Timeout     time.Duration
	// MaxAddrs bounds the used addresses per name; the lowest ones are used.
	MaxAddrs int
	// Changed receives the names whose addresses changed, including the first
	// answer. Changes within Settle are batched; calls do not overlap. It must not
	// call Close.
	Changed func(hosts []string)
	Settle  time.Duration
	// Log gets a line when a name starts or stops failing or exceeding MaxAddrs;
	// nil: none.
	Log *slog.Logger
}

// Name is a host to resolve periodically.
type Name struct {
	Host string
	// Interval is 0 for DefaultInterval, and at least MinInterval. If a host is
	// given several times the shortest applies.
	Interval time.Duration
}

// Status is the state of a name.
type Status struct {
	Host     string
	Interval time.Duration
	// Addrs is the last good answer; nil: none yet.
	Addrs []netip.Addr
	// Stale is true if the last lookup failed and Addrs are older.
	Stale bool
	// Answered is the time of the last good answer, Changed that of the last one
	// with other addresses.
	Answered, Changed time.Time
	// Err is the error of the last lookup, "" after a success; Failures is the
	// number of consecutive failures. NotFound: the name does not exist.
	Err      string
	Failures int
	NotFound bool
	// Unused is the number of addresses of the last answer beyond MaxAddrs.
	Unused int
}

// Resolver keeps the addresses of names up to date. Create it with New.
type Resolver struct {
	cfg       Config
	scheduler *scheduler.Scheduler
	debouncer *debouncer
	names     sync.Map // lower-case host -> *name; written under mu

	mu sync.Mutex
}

// name is a host that is resolved. The Resolver's mutex guards status; addrs is
// a copy of Status.Addrs for readers without the mutex.
type name struct {
	entry  *scheduler.Entry
	addrs  atomic.Pointer[[]netip.Addr]
	status Status
}

// New returns a Resolver without names.
func New(cfg Config) *Resolver {
	cfg.Concurrency = cmp.Or(cfg.Concurrency, DefaultConcurrency)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.MaxAddrs = cmp.Or(cfg.MaxAddrs, DefaultMaxAddrs)
	cfg.Settle = cmp.Or(cfg.Settle, DefaultSettle)
	if cfg.Lookup == nil {
		cfg.Lookup = system
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Resolver{
		cfg:       cfg,
		scheduler: scheduler.New(cfg.Concurrency),
		debouncer: newDebouncer(cfg.Changed, cfg.Settle),
	}
}

// system looks a host up with Go's own resolver: a lookup of the C library
// blocks a thread and cannot be canceled.
func system(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := (&net.Resolver{PreferGo: true}).LookupNetIP(ctx, "ip", host)
	return oneFamily(addrs, routed), err
}

// Close stops all lookups and calls of Changed, and waits for them. Lookup
// still returns the last addresses.
func (r *Resolver) Close() {
	r.scheduler.Close()
	r.debouncer.close()
}

// Set replaces the names to resolve. New ones are looked up at once, those that
// were there before keep their answers, and removed ones are forgotten. IP
// addresses are ignored.
func (r *Resolver) Set(names []Name) {
	want := map[string]time.Duration{}
	for _, n := range names {
		host := strings.ToLower(n.Host)
		every := max(cmp.Or(n.Interval, DefaultInterval), MinInterval)
		if old, twice := want[host]; twice {
			every = min(every, old)
		}
		if _, literal := Literal(host); !literal && host != "" {
			want[host] = every
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names.Range(func(host, v any) bool {
		n := v.(*name)
		every, keep := want[host.(string)]
		if keep && every == n.status.Interval {
			delete(want, host.(string))
			return true
		}
		r.scheduler.Remove(n.entry)
		if keep { // restart with the new interval
			delete(want, host.(string))
			n.status.Interval = every
			r.start(n)
			return true
		}
		r.names.Delete(host)
		return true
	})
	for host, every := range want {
		host = strings.Clone(host) // host would keep the whole document alive
		n := &name{status: Status{Host: host, Interval: every}}
		r.names.Store(host, n)
		r.start(n)
	}
}

// start looks n up now and then at its interval.
func (r *Resolver) start(n *name) {
	n.entry = r.scheduler.Add(func(ctx context.Context) (time.Duration, bool) { return r.resolve(ctx, n) })
}

// Lookup returns the last good addresses of a host, sorted, and whether there
// are any. For an IP address it returns that address. It takes no lock. The
// result must not be changed.
func (r *Resolver) Lookup(host string) (addrs []netip.Addr, ok bool) {
	v, known := r.names.Load(strings.ToLower(host))
	if !known {
		if addr, literal := Literal(host); literal {
			return []netip.Addr{addr}, true
		}
		return nil, false
	}
	p := v.(*name).addrs.Load()
	if p == nil {
		return nil, false
	}
	return *p, true
}

// Literal parses a host that is an IP address, as in "10.0.0.1" or
// "fe80::1%eth0".
func Literal(host string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(host)
	return addr.Unmap(), err == nil
}

// Status returns the state of all names, sorted.
func (r *Resolver) Status() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Status
	r.names.Range(func(_, v any) bool {
		all = append(all, v.(*name).status)
		return true
	})
	slices.SortFunc(all, func(a, b Status) int { return cmp.Compare(a.Host, b.Host) })
	return all
}

// StatusOf returns the state of one name, or false if it is not resolved.
func (r *Resolver) StatusOf(host string) (Status, bool) {
	v, ok := r.names.Load(strings.ToLower(host))
	if !ok {
		return Status{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return v.(*name).status, true
}

// resolve looks n up once.
func (r *Resolver) resolve(ctx context.Context, n *name) (again time.Duration, ok bool) {
	lookupCtx, cancel := context.WithTimeout(ctx, r.cfg.Timeout)
	defer cancel()
	addrs, err := r.cfg.Lookup(lookupCtx, n.status.Host)
	addrs, unused := normalise(addrs, r.cfg.MaxAddrs)
	if err == nil && len(addrs) == 0 {
		err = errNoAddress
	}
	r.mu.Lock()
	if ctx.Err() != nil { // removed or closed meanwhile
		r.mu.Unlock()
		return 0, false
	}
	before := n.status
	if err != nil {
		n.recordFailure(err)
	} else if n.recordAnswer(addrs, unused) {
		r.debouncer.add(n.status.Host)
	}
	after := n.status
	r.mu.Unlock()

	r.log(before, after)
	if err != nil {
		return scheduler.Jitter(retryAfter(after.Failures, after.Interval)), false
	}
	return scheduler.Jitter(after.Interval), true
}

// recordFailure records a failed lookup.
func (n *name) recordFailure(err error) {
	s := &n.status
	var dns *net.DNSError
	s.Failures++
	s.Err = err.Error()
	s.NotFound = errors.As(err, &dns) && dns.IsNotFound
	s.Stale = s.Addrs != nil
}

// recordAnswer records an answer with that many further, unused addresses. It
// reports whether the addresses changed.
func (n *name) recordAnswer(addrs []netip.Addr, unused int) (changed bool) {
	s := &n.status
	s.Failures, s.Err, s.NotFound, s.Stale, s.Unused = 0, "", false, false, unused
	s.Answered = time.Now()
	if slices.Equal(addrs, s.Addrs) {
		return false
	}
	s.Addrs, s.Changed = addrs, s.Answered
	n.addrs.Store(&addrs)
	return true
}

// log writes a line when a condition starts or ends.
func (r *Resolver) log(before, after Status) {
	switch {
	case before.Failures == 0 && after.Failures > 0:
		r.cfg.Log.Warn("host lookup failed", "host", after.Host, "error", after.Err, "addresses_kept", len(after.Addrs))
	case before.Failures > 0 && after.Failures == 0:
		r.cfg.Log.Info("host lookup recovered", "host", after.Host, "failures", before.Failures)
	}
	switch {
	case before.Unused == 0 && after.Unused > 0:
		r.cfg.Log.Warn("host has more addresses than the limit", "host", after.Host, "limit", r.cfg.MaxAddrs, "unused", after.Unused)
	case before.Unused > 0 && after.Unused == 0:
		r.cfg.Log.Info("host is within the address limit again", "host", after.Host)
	}
}

// retryAfter returns the delay after that many consecutive failures.
func retryAfter(failures int, every time.Duration) time.Duration {
	longest := max(maxRetry, every)
	if failures > 10 { // bounds the shift; 1s << 10 exceeds maxRetry
		return longest
	}
	return min(firstRetry<<(failures-1), longest)
}

// normalise sorts an answer, removes duplicates, and cuts it to limit.
func normalise(answer []netip.Addr, limit int) (addrs []netip.Addr, unused int) {
	addrs = make([]netip.Addr, 0, len(answer))
	for _, a := range answer {
		if a.IsValid() {
			addrs = append(addrs, a.Unmap())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	if len(addrs) > limit {
		addrs, unused = slices.Clip(addrs[:limit]), len(addrs)-limit
	}
	return addrs, unused
}
