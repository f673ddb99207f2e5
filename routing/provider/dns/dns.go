// Package dns finds endpoints in DNS. A query for a host name reports its A and
// AAAA records with the port of the query; a query whose name begins with an
// underscore, as in _http._tcp.example.com, reports the targets of its SRV
// records with their ports and weights (RFC 2782).
//
//	source, err := dns.New(dns.Config{Servers: []string{"10.0.0.2:53"}})
//	runner := provider.NewRunner(provider.Config{Source: source, ...})
//	runner.Want([]provider.Query{{Service: "web.example.com", Port: "8080"}})
//
// Each query is looked up again shortly before its answer expires. An answer
// that the name does not exist, or has no such records, reports no endpoints. A
// server that fails is not such an answer: the query fails, and its last answer
// stays. A query is answered from all of its lookups or not at all.
package dns

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"

	"penstock/routing/provider"
)

// Defaults of Config.
const (
	DefaultTimeout      = 2 * time.Second
	DefaultMinTTL       = 5 * time.Second
	DefaultMaxTTL       = 5 * time.Minute
	DefaultNegativeTTL  = 30 * time.Second
	DefaultUDPSize      = 1232 // fits the smallest IPv6 MTU; DNS Flag Day 2020
	DefaultMaxEndpoints = 4096
	DefaultResolvConf   = "/etc/resolv.conf"
)

const (
	// rounds is how often the list of servers is tried for one question.
	rounds = 2
	// maxExchanges bounds the messages in flight, and so the sockets.
	maxExchanges = 64
	// maxChain bounds the CNAMEs between a name and its records.
	maxChain = 16
	// maxTargets bounds the SRV records of a name: each costs two lookups.
	maxTargets = 256
	// maxServers and maxSearch bound Config and resolv.conf.
	maxServers = 16
	maxSearch  = 32

	// A query that fails is retried after firstRetry, then after twice as long each
	// time, up to maxRetry.
	firstRetry = time.Second
	maxRetry   = 30 * time.Second
)

// Config configures New; its zero value asks the servers of /etc/resolv.conf.
type Config struct {
	// Servers are the DNS servers as IP:port or IP (port 53), in the order in which
	// they are tried; at most 16. Empty: those of ResolvConf.
	Servers []string
	// Search lists the domains that complete a name with fewer than NDots dots
	// before it is looked up as it is, and any other name afterwards; a name that
	// ends with a dot is never completed. At most 32. Empty: the domains of
	// ResolvConf if Servers is empty, else none.
	Search []string
	// NDots is 0 for that of ResolvConf if Servers is empty, else 1; at most 15.
	NDots int
	// ResolvConf is read again when it changes. Default /etc/resolv.conf.
	ResolvConf string
	// Timeout is how long one server has to answer one question; then comes the
	// next server. 100ms to 30s, default 2s.
	Timeout time.Duration
	// An answer counts for its TTL, but at least MinTTL (1s to 1h, default 5s) and
	// at most MaxTTL (MinTTL to 24h, default 5m). Up to 10 % earlier, it is looked
	// up again. The answer that there are no records counts for NegativeTTL at most
	// (MinTTL to MaxTTL, default 30s).
	MinTTL, MaxTTL, NegativeTTL time.Duration
	// UDPSize is the largest answer by UDP, in bytes, that servers are told to send
	// (EDNS0): larger ones come by TCP. 512 to 4096, default 1232.
	UDPSize int
	// MaxEndpoints bounds the endpoints of a query; an answer with more is refused.
	// 1 to 100,000, default 4096. A message of DNS has at most 64 KiB in any case.
	MaxEndpoints int
}

// Source is a provider.Source. Create it with New.
type Source struct {
	cfg    Config
	fixed  []netip.AddrPort // servers of Config
	system *resolvConf      // used if there are none
	slots  chan struct{}    // one for each message in flight
	// exchange sends a message to a server and returns its answer. Network is "udp"
	// or "tcp".
	exchange func(ctx context.Context, network string, server netip.AddrPort, m *dns.Msg) (*dns.Msg, error)
}

// New returns a source, or an error that lists all faults of the configuration.
func New(cfg Config) (*Source, error) {
	cfg.ResolvConf = cmp.Or(cfg.ResolvConf, DefaultResolvConf)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.MinTTL = cmp.Or(cfg.MinTTL, DefaultMinTTL)
	cfg.MaxTTL = cmp.Or(cfg.MaxTTL, max(DefaultMaxTTL, cfg.MinTTL))
	cfg.NegativeTTL = cmp.Or(cfg.NegativeTTL, min(max(DefaultNegativeTTL, cfg.MinTTL), cfg.MaxTTL))
	cfg.UDPSize = cmp.Or(cfg.UDPSize, DefaultUDPSize)
	cfg.MaxEndpoints = cmp.Or(cfg.MaxEndpoints, DefaultMaxEndpoints)
	servers, err := parseServers(cfg.Servers)
	if err := errors.Join(err, cfg.check()); err != nil {
		return nil, err
	}
	return &Source{
		cfg: cfg, fixed: servers, system: &resolvConf{path: cfg.ResolvConf},
		slots: make(chan struct{}, maxExchanges), exchange: exchange,
	}, nil
}

func (c *Config) check() error {
	var faults []error
	within := func(field string, value, least, most any, ok bool) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s %v must be %v to %v", field, value, least, most))
		}
	}
	duration := func(field string, d, least, most time.Duration) {
		within(field, d, least, most, d >= least && d <= most)
	}
	number := func(field string, n, least, most int) {
		within(field, n, least, most, n >= least && n <= most)
	}
	number("the number of servers", len(c.Servers), 0, maxServers)
	number("the number of search domains", len(c.Search), 0, maxSearch)
	for _, domain := range c.Search {
		if err := checkName(domain); err != nil {
			faults = append(faults, fmt.Errorf("search: %w", err))
		}
	}
	number("ndots", c.NDots, 0, 15)
	duration("timeout", c.Timeout, 100*time.Millisecond, 30*time.Second)
	duration("minTTL", c.MinTTL, time.Second, time.Hour)
	duration("maxTTL", c.MaxTTL, c.MinTTL, 24*time.Hour)
	duration("negativeTTL", c.NegativeTTL, c.MinTTL, c.MaxTTL)
	number("udpSize", c.UDPSize, dns.MinMsgSize, 4096)
	number("maxEndpoints", c.MaxEndpoints, 1, 100_000)
	return errors.Join(faults...)
}

// Run implements provider.Source.
func (s *Source) Run(ctx context.Context, sink provider.Sink) error {
	var followers sync.WaitGroup
	defer followers.Wait()
	following := map[provider.Query]context.CancelFunc{}
	defer func() {
		for _, cancel := range following {
			cancel()
		}
	}()
	for {
		queries, replaced := sink.Wanted()
		wanted := make(map[provider.Query]bool, len(queries))
		for _, q := range queries {
			wanted[q] = true
			if following[q] == nil {
				followed, cancel := context.WithCancel(ctx)
				following[q] = cancel
				followers.Go(func() { s.follow(followed, q, sink) })
			}
		}
		for q, cancel := range following {
			if !wanted[q] {
				cancel()
				delete(following, q)
			}
		}
		select {
		case <-replaced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// follow looks a query up, again and again, until ctx ends.
func (s *Source) follow(ctx context.Context, q provider.Query, sink provider.Sink) {
	if err := check(q); err != nil {
		sink.Failed(q, err) // until the query is replaced by a valid one
		return
	}
	for failures := 0; ; {
		found, err := s.lookUp(ctx, q)
		if ctx.Err() != nil {
			return
		}
		again := found.ttl
		if err != nil {
			again = min(firstRetry<<min(failures, 10), maxRetry)
			failures++
			sink.Failed(q, err)
		} else {
			failures = 0
			sink.Report(q, found.endpoints)
			if found.warning != nil {
				sink.Warn(q, found.warning)
			}
		}
		select {
		case <-time.After(again - rand.N(again/10)):
		case <-ctx.Done():
			return
		}
	}
}
