// Package load reads how busy servers are from their metrics, and decides which of them
// are to lose sessions because of it.
//
//	s := load.New(load.Config{})
//	s.Set([]load.Target{{Group: g, Endpoint: e, Address: "10.0.0.7:10080", Check: check}, ...})
//	s.Close()
//
// The result is each Endpoint's Load. A server whose metrics cannot be read, or have not
// been for three intervals, has an unknown load: it counts as the others do on average.
// Relief decides about the sessions.
package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"penstock/routing/endpoint"
	"penstock/routing/health"
	"penstock/routing/scheduler"
)

// concurrency bounds the servers that are asked at once.
const concurrency = 16

// Config configures New; its zero value is ready to use.
type Config struct {
	// Dial connects; nil: net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Check says how the servers of a service are asked. It must not be changed once a Target
// holds it.
type Check struct {
	Path    string
	Timeout time.Duration // of one answer, including the connect
	Rules   Rules
}

// Target is a server that is to be asked.
type Target struct {
	Group    *endpoint.Group
	Endpoint *endpoint.Endpoint
	Address  string // IP:port of its metrics
	Check    *Check
}

// Scraper asks servers for their metrics. Create it with New.
type Scraper struct {
	client    *http.Client
	scheduler *scheduler.Scheduler

	mu      sync.Mutex
	servers map[serverKey]*server
	groups  map[*endpoint.Group]map[serverKey]*server
}

// serverKey identifies an endpoint of a group; its tags may change.
type serverKey struct {
	group   *endpoint.Group
	address string
	addr    netip.AddrPort
}

// server is a Target with what is known about it. The Scraper's mutex guards it.
type server struct {
	Target
	entry *scheduler.Entry
	meter meter
	load  endpoint.Load // without the Share of those whose load is unknown
	seen  bool          // used by Set: it is in the new targets
}

// New returns a Scraper without targets.
func New(cfg Config) *Scraper {
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	return &Scraper{
		client: &http.Client{
			// A connection of its own for each answer, as health checks have: an idle one
			// would be held at each server by every node. Without compression, which would
			// cost the busy server more than the bytes.
			Transport: &http.Transport{
				DialContext: cfg.Dial, DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		scheduler: scheduler.New(concurrency),
		servers:   map[serverKey]*server{},
		groups:    map[*endpoint.Group]map[serverKey]*server{},
	}
}

// Close stops asking, and waits for what is under way.
func (s *Scraper) Close() { s.scheduler.Close() }

// Set replaces the targets. What is known about those that stay remains, and the new ones
// are asked at once. The load of an endpoint that is no longer asked does not count.
func (s *Scraper) Set(targets []Target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range targets {
		s.keep(t)
	}
	changed := map[*endpoint.Group]bool{}
	for key, v := range s.servers {
		if !v.seen {
			s.drop(key, v)
			changed[key.group] = true
		}
		v.seen = false
	}
	for g := range changed {
		s.share(g)
	}
}

func (s *Scraper) keep(t Target) {
	key := serverKey{t.Group, t.Endpoint.Address, t.Endpoint.Addr}
	if old := s.servers[key]; old != nil {
		if old.Address == t.Address && *old.Check == *t.Check {
			old.Target, old.seen = t, true
			return
		}
		s.drop(key, old)
	}
	v := &server{Target: t, seen: true}
	s.servers[key] = v
	if s.groups[t.Group] == nil {
		s.groups[t.Group] = map[serverKey]*server{}
	}
	s.groups[t.Group][key] = v
	v.load = v.meter.load(&t.Check.Rules, time.Now())
	s.share(t.Group)
	v.entry = s.scheduler.Add(func(ctx context.Context) (time.Duration, bool) { return s.run(ctx, v) })
}

func (s *Scraper) drop(key serverKey, v *server) {
	s.scheduler.Remove(v.entry)
	v.Endpoint.SetLoad(nil)
	delete(s.servers, key)
	delete(s.groups[key.group], key)
	if len(s.groups[key.group]) == 0 {
		delete(s.groups, key.group)
	}
}

// run asks a server once.
func (s *Scraper) run(ctx context.Context, v *server) (again time.Duration, ok bool) {
	s.mu.Lock()
	address, check := v.Address, v.Check
	s.mu.Unlock()
	start := time.Now()
	sample, err := s.ask(ctx, address, check)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return 0, false // dropped, or closed
	}
	if err != nil {
		v.meter.fail(health.ErrorText(err))
	} else {
		v.meter.add(sample, start, check.Rules.Interval) // servers gather the values when they are asked
	}
	v.load = v.meter.load(&check.Rules, time.Now())
	s.share(v.Group)
	return scheduler.Jitter(check.Rules.Interval), err == nil
}

// share gives the servers of a group their loads. One whose load is unknown counts as the
// others do on average, so it is neither preferred nor avoided.
func (s *Scraper) share(g *endpoint.Group) {
	sum, known := 0.0, 0
	for _, v := range s.groups[g] {
		if v.load.Share > 0 {
			sum += v.load.Share
			known++
		}
	}
	mean := 1.0
	if known > 0 {
		mean = sum / float64(known)
	}
	for _, v := range s.groups[g] {
		l := v.load
		if l.Share == 0 {
			l.Share = mean
		}
		if old := v.Endpoint.Load(); old == nil || *old != l {
			v.Endpoint.SetLoad(&l)
		}
	}
}

var errStatus = errors.New("status not accepted")

// ask asks a server for its metrics.
func (s *Scraper) ask(ctx context.Context, address string, check *Check) (Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, check.Timeout)
	defer cancel()
	sample, err := s.get(ctx, "http://"+address+check.Path)
	var at *url.Error
	switch {
	case err == nil:
		return sample, nil
	case ctx.Err() != nil:
		return Sample{}, fmt.Errorf("metrics: no answer within %v", check.Timeout)
	case errors.As(err, &at):
		err = at.Err
	}
	return Sample{}, fmt.Errorf("metrics: %w", err)
}

func (s *Scraper) get(ctx context.Context, target string) (Sample, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return Sample{}, err
	}
	req.Header.Set("User-Agent", "penstock-load")
	resp, err := s.client.Do(req)
	if err != nil {
		return Sample{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return Sample{}, fmt.Errorf("%w (%d)", errStatus, resp.StatusCode)
	}
	return Parse(resp.Body)
}
