// Package health probes endpoints and stores the results as their health.
//
//	c := health.New(health.Config{})
//	c.Set([]health.Target{{Group: g, Endpoint: e, Check: check}, ...}) // at each change
//	c.Close()
//
// Endpoints of several services with the same address and an equal check share
// one probe. An endpoint is Unchecked, and usable, until the first result,
// which decides at once; from then on Rise and Fall apply.
//
// A probe is a short connection of its own. It ends with an orderly close
// instead of a reset, because endpoints log resets as client errors. It never
// reads more than it needs to decide.
package health

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"penstock/routing/endpoint"
	"penstock/routing/scheduler"
)

// DefaultConcurrency is the default of Config.Concurrency.
const DefaultConcurrency = 64

// Config configures New; its zero value is ready to use.
type Config struct {
	// Concurrency bounds the probes in progress; 0: DefaultConcurrency.
	Concurrency int
	// Dial connects; nil: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Target is an endpoint of a group that is to be probed.
type Target struct {
	Group    *endpoint.Group
	Endpoint *endpoint.Endpoint
	Check    *Check
}

// Status is the result of the latest probes of one target.
type Status struct {
	Service string
	Address string // as configured
	Addr    string // as probed: IP:port, or a path
	Type    Type
	Health  endpoint.Health
	// Since is the time of the last change of Health, Checked the end of the last
	// probe, Took its duration. Zero: no probe has ended.
	Since, Checked time.Time
	Took           time.Duration
	// Err is the error of the last failed probe, at ErrAt. It remains after later
	// successes.
	Err   string
	ErrAt time.Time
}

// Checker probes endpoints. Create it with New.
type Checker struct {
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	scheduler *scheduler.Scheduler

	mu          sync.Mutex
	targets     []Target // of the last Set
	subscribers map[targetKey]*subscriber
	probes      map[probeKey]*probe
	peers       Peers // nil if probes are not shared
}

// targetKey identifies an endpoint of a group; its tags may change.
type targetKey struct {
	group   *endpoint.Group
	address string
	addr    netip.AddrPort
	unix    string
}

// subscriber is a target that gets its health from a probe.
type subscriber struct {
	Target
	probe *probe
	seen  bool // used by Set: it is in the new targets
}

// New returns a Checker without targets.
func New(cfg Config) *Checker {
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = DefaultConcurrency
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	return &Checker{
		dial:        cfg.Dial,
		scheduler:   scheduler.New(cfg.Concurrency),
		subscribers: map[targetKey]*subscriber{},
		probes:      map[probeKey]*probe{},
	}
}

// Close stops all probes and waits for them.
func (c *Checker) Close() { c.scheduler.Close() }

// Set replaces the targets. Probes of unchanged targets continue undisturbed;
// new ones start at once. If the check of an endpoint changed, its health stays
// until the new check decides. An endpoint that is no longer probed becomes
// Unchecked.
func (c *Checker) Set(targets []Target) {
	c.mu.Lock()
	if slices.Equal(targets, c.targets) {
		c.mu.Unlock()
		return
	}
	c.targets = slices.Clone(targets)
	now := time.Now()
	var events []change
	keys := map[*Check]string{}
	for _, t := range targets {
		events = append(events, c.subscribe(t, keys, now)...)
	}
	for key, f := range c.subscribers {
		if !f.seen {
			delete(c.subscribers, key)
			c.unsubscribe(f.probe, key)
			f.Endpoint.SetHealth(endpoint.Unchecked, now)
		}
		f.seen = false
	}
	c.mu.Unlock()

	notify(events)
}

// subscribe connects t to the probe that its check needs.
func (c *Checker) subscribe(t Target, keys map[*Check]string, now time.Time) []change {
	key := targetKey{t.Group, t.Endpoint.Address, t.Endpoint.Addr, t.Endpoint.Unix}
	f := c.subscribers[key]
	if f != nil && f.Target == t {
		f.seen = true
		return nil
	}
	check, ok := keys[t.Check]
	if !ok {
		check = t.Check.key()
		keys[t.Check] = check
	}
	if f != nil && f.probe.key.check == check {
		// An equal check in another Check, an endpoint with other tags, or one that
		// was removed and added again and has no health yet.
		f.Target, f.seen = t, true
		return f.adopt(now)
	}
	shared := keyOf(t, check)
	p := c.probes[shared]
	if p == nil {
		p = newProbe(shared, t)
		c.probes[shared] = p
		p.entry = c.scheduler.Add(func(ctx context.Context) (time.Duration, bool) { return c.run(ctx, p) })
	}
	if f != nil {
		c.unsubscribe(f.probe, key)
	}
	f = &subscriber{Target: t, probe: p, seen: true}
	c.subscribers[key], p.subscribers[key] = f, f
	return f.adopt(now)
}

// adopt sets the endpoint's health to the known result of its probe.
func (f *subscriber) adopt(now time.Time) []change {
	if f.probe.health == endpoint.Unchecked {
		return nil
	}
	return f.setHealth(f.probe.health, "", now)
}

// unsubscribe removes a subscriber and stops the probe if it was the last one.
func (c *Checker) unsubscribe(p *probe, key targetKey) {
	delete(p.subscribers, key)
	if len(p.subscribers) == 0 {
		delete(c.probes, p.key)
		c.scheduler.Remove(p.entry)
	}
}

// run probes p's endpoint once, or uses the verdict of other nodes, and updates
// all subscribers.
func (c *Checker) run(ctx context.Context, p *probe) (again time.Duration, ok bool) {
	if again, done := c.usePeerVerdict(p); done {
		return again, true
	}
	start := time.Now()
	err := p.run(ctx, c.dial)
	if ctx.Err() != nil {
		return 0, false // removed or closed: no result
	}
	now := time.Now()
	c.mu.Lock()
	p.ownResult, p.checked, p.took = true, now, now.Sub(start)
	cause := ""
	if err != nil {
		p.errText, p.errAt = ErrorText(err), now
		cause = p.errText
	}
	var events []change
	changed := p.add(err == nil, p.check.Rise, p.check.Fall)
	if changed {
		p.since = now
	}
	for _, f := range p.subscribers {
		if changed {
			events = append(events, f.setHealth(p.health, cause, now)...)
		}
		if err == nil {
			f.Endpoint.EndPause(start, now)
		} else {
			f.Group.NoteError(f.Endpoint, "health check: "+cause, now)
		}
	}
	c.mu.Unlock()

	notify(events)
	return scheduler.Jitter(p.check.interval()), err == nil
}

// change is an event to deliver without the lock.
type change struct {
	group *endpoint.Group
	event endpoint.Event
}

func notify(changes []change) {
	for _, ch := range changes {
		ch.group.Notify(ch.event)
	}
}

// setHealth writes the endpoint's health. The caller holds the Checker's lock, so
// that a late probe cannot overwrite what Set did.
func (f *subscriber) setHealth(h endpoint.Health, cause string, now time.Time) []change {
	was := f.Endpoint.Health()
	if !f.Endpoint.SetHealth(h, now) {
		return nil
	}
	ev := endpoint.Event{Endpoint: f.Endpoint, Change: endpoint.EventHealthy, At: now, Cause: cause}
	if h == endpoint.Unhealthy {
		ev.Change = endpoint.EventUnhealthy
	}
	events := []change{{f.Group, ev}}
	if was == endpoint.Unhealthy && h == endpoint.Healthy {
		for _, ev := range f.Group.Recovered(f.Endpoint, now) {
			events = append(events, change{f.Group, ev})
		}
	}
	return events
}

// Status returns the status of all targets, sorted by service and address.
func (c *Checker) Status() []Status {
	c.mu.Lock()
	all := make([]Status, 0, len(c.subscribers))
	for _, f := range c.subscribers {
		all = append(all, f.status())
	}
	c.mu.Unlock()

	slices.SortFunc(all, func(a, b Status) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Addr, b.Addr))
	})
	return all
}

// StatusOf returns the status of one endpoint of a group, or false if it is not
// probed.
func (c *Checker) StatusOf(g *endpoint.Group, e *endpoint.Endpoint) (Status, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.subscribers[targetKey{g, e.Address, e.Addr, e.Unix}]
	if f == nil {
		return Status{}, false
	}
	return f.status(), true
}

func (f *subscriber) status() Status {
	p := f.probe
	return Status{
		Service: f.Group.Service(), Address: f.Endpoint.Address, Addr: p.key.address, Type: p.check.Type,
		Health: f.Endpoint.Health(), Since: p.since, Checked: p.checked, Took: p.took, Err: p.errText, ErrAt: p.errAt,
	}
}
