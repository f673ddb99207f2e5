package consul

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"penstock/routing/provider"
)

// Source reads endpoints from Consul. Create it with New.
type Source struct {
	cfg    Config
	origin string // of the URLs
	params url.Values
	// transport is used without an http.Client, as Consul neither redirects nor sets
	// cookies.
	transport *http.Transport
}

var _ provider.Source = (*Source)(nil)

// New returns a source, or all faults of its configuration.
func New(cfg Config) (*Source, error) {
	cfg.complete()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	origin, socket, err := parseAddress(cfg.Address)
	if err != nil {
		return nil, err
	}
	s := &Source{cfg: cfg, origin: origin, params: url.Values{}}
	for name, value := range map[string]string{
		"dc": cfg.Datacenter, "ns": cfg.Namespace, "partition": cfg.Partition, "filter": tagFilter(cfg.Tags),
	} {
		if value != "" {
			s.params.Set(name, value)
		}
	}
	if cfg.Stale {
		s.params.Set("stale", "")
	}
	// There is no Proxy: what the environment of the process says is not the
	// configuration of a cluster.
	s.transport = &http.Transport{
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    100,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}
	if cfg.TLS != nil {
		s.transport.TLSClientConfig = cfg.TLS.Clone()
	}
	if socket != "" {
		s.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return s, nil
}

// tagFilter returns the filter expression for instances that have all tags.
func tagFilter(tags []string) string {
	terms := make([]string, len(tags))
	for i, tag := range tags {
		terms[i] = `"` + tag + `" in Service.Tags`
	}
	return strings.Join(terms, " and ")
}

// Run implements provider.Source.
func (s *Source) Run(ctx context.Context, sink provider.Sink) error {
	defer s.transport.CloseIdleConnections()
	watches := map[provider.Query]*watch{}
	defer func() {
		for _, w := range watches {
			<-w.done
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		queries, replaced := sink.Wanted()
		s.follow(ctx, sink, watches, queries)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-replaced:
		}
	}
}

// follow makes the watches those of the queries.
func (s *Source) follow(ctx context.Context, sink provider.Sink, watches map[provider.Query]*watch, queries []provider.Query) {
	wanted := make(map[provider.Query]bool, len(queries))
	for _, q := range queries {
		err := checkService(q.Service)
		if err == nil && len(wanted) == s.cfg.MaxQueries {
			err = fmt.Errorf("there are more than maxQueries (%d) queries: raise it", s.cfg.MaxQueries)
		}
		if err != nil {
			sink.Failed(q, err)
			continue
		}
		wanted[q] = true
	}
	for q, w := range watches {
		if !wanted[q] {
			w.cancel()
		}
	}
	for q, w := range watches {
		if !wanted[q] {
			<-w.done
			delete(watches, q)
		}
	}
	for q := range wanted {
		if watches[q] == nil {
			watches[q] = startWatch(ctx, s, sink, q)
		}
	}
}

// checkService refuses names that would make another path of a URL.
func checkService(name string) error {
	if name == "" || name == "." || name == ".." {
		return fmt.Errorf("%q cannot be the name of a Consul service", name)
	}
	return nil
}
