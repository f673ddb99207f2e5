package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	nethttp "net/http"
	"slices"
	"time"

	"penstock/routing/provider"
)

// maxHeaderBytes bounds the header of a response.
const maxHeaderBytes = 64 << 10

// Source reads endpoints from a web server. Create it with New.
type Source struct {
	cfg      Config
	template template
	header   nethttp.Header // of each request
	// credentials is true if a request proves who sends it.
	credentials bool
	// transport is used without an http.Client, whose errors contain URLs, which may
	// contain secrets.
	transport *nethttp.Transport
	// slots has room for the requests of Poll that may run at the same time.
	slots chan struct{}
}

var _ provider.Source = (*Source)(nil)

// New returns a source, or all faults of its configuration.
func New(cfg Config) (*Source, error) {
	cfg.complete()
	t, err := parseTemplate(cfg.URL)
	if err = errors.Join(err, cfg.validate()); err != nil {
		return nil, err
	}
	s := &Source{cfg: cfg, template: t, header: nethttp.Header{}, slots: make(chan struct{}, cfg.MaxRequests)}
	for name, value := range cfg.Headers {
		s.header.Set(name, value)
	}
	if cfg.Token != "" {
		s.header.Set("Authorization", "Bearer "+cfg.Token)
	}
	var tlsConfig *tls.Config
	s.credentials = len(s.header) > 0
	if cfg.TLS != nil {
		tlsConfig = cfg.TLS.Clone()
		s.credentials = s.credentials || len(tlsConfig.Certificates) > 0 || tlsConfig.GetClientCertificate != nil
	}
	// There is no Proxy: what the environment of the process says is not the
	// configuration of a cluster.
	s.transport = &nethttp.Transport{
		TLSClientConfig:        tlsConfig,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    cfg.MaxRequests,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return s, nil
}

// Run implements provider.Source.
func (s *Source) Run(ctx context.Context, sink provider.Sink) error {
	defer s.transport.CloseIdleConnections()
	watches := map[string]*watch{}
	defer stop(watches)
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

// follow makes the watches, which are listed by URL, those of the queries.
func (s *Source) follow(ctx context.Context, sink provider.Sink, watches map[string]*watch, queries []provider.Query) {
	byURL := map[string][]provider.Query{}
	for _, q := range queries {
		u, err := s.template.expand(q)
		if err == nil && byURL[u] == nil && len(byURL) == s.cfg.MaxURLs {
			err = fmt.Errorf("the queries make more than maxURLs (%d) URLs: raise it, or serve one document without {service}", s.cfg.MaxURLs)
		}
		if err != nil {
			sink.Failed(q, err)
			continue
		}
		byURL[u] = append(byURL[u], q)
	}
	outdated := map[string]*watch{}
	for u, w := range watches {
		if !slices.Equal(w.queries, byURL[u]) {
			outdated[u] = w
		}
	}
	stop(outdated)
	for u, list := range byURL {
		w := watches[u]
		if w != nil && outdated[u] == nil {
			continue
		}
		if w == nil {
			w = newWatch(s, sink, u)
			watches[u] = w
		}
		w.start(ctx, list)
	}
	for u := range outdated {
		if byURL[u] == nil {
			delete(watches, u)
		}
	}
}

// stop ends watches and waits for them.
func stop(watches map[string]*watch) {
	for _, w := range watches {
		w.cancel()
	}
	for _, w := range watches {
		<-w.done
	}
}
