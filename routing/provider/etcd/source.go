// Package etcd follows endpoints in etcd: the keys below a prefix, each with one
// endpoint, read once and then watched. Where programs keep their keys alive by
// a lease, an endpoint leaves when its program dies.
//
// Two formats are understood. In [JSON] the key PREFIX/SERVICE/ANY has
// {"address": "10.0.0.1:80", "weight": 1, "tags": {"version": "v2"}, "state":
// "ready"}; only the address is required. [TiDB] is the topology that TiDB's
// servers publish in PD's etcd: the server ADDRESS lives while both
// PREFIX/ADDRESS/info, a JSON object, and PREFIX/ADDRESS/ttl exist.
package etcd

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"penstock/routing/provider"
)

// Format is that of the keys and values.
type Format string

// The formats.
const (
	JSON Format = "json"
	TiDB Format = "tidb"
)

// Defaults and bounds.
const (
	DefaultTimeout = 5 * time.Second
	DefaultMaxKeys = 100_000

	pageSize = 500 // keys of one read
	// maxMessage bounds what etcd sends at once: a page of large values, or an
	// event of a watch, which etcd cuts into fragments of its own limit (2 MiB).
	maxMessage = 16 << 20
	maxValue   = 64 << 10 // of one key
)

// Config configures New.
type Config struct {
	// Endpoints are etcd's servers, each host:port or a URL. Required.
	Endpoints []string
	// Prefix is that of the keys, without what follows a "/" at its end. Required.
	Prefix string
	Format Format
	// Username and Password authenticate, if set.
	Username, Password string
	// TLS is used for https and for endpoints without a scheme; nil: plain text.
	TLS *tls.Config
	// Timeout bounds each request, and is the time between two checks that etcd
	// still answers. Default 5s.
	Timeout time.Duration
	// MaxKeys bounds the keys below the prefix. Default 100,000.
	MaxKeys int
}

// Source follows a prefix. Create it with New.
type Source struct{ cfg Config }

// New returns a source.
func New(cfg Config) (*Source, error) {
	cfg.Prefix = strings.TrimSuffix(cfg.Prefix, "/") + "/"
	switch {
	case len(cfg.Endpoints) == 0:
		return nil, errors.New("etcd: endpoints are missing")
	case cfg.Prefix == "/":
		return nil, errors.New("etcd: the prefix is missing")
	case cfg.Format != JSON && cfg.Format != TiDB && cfg.Format != "":
		return nil, fmt.Errorf("etcd: unknown format %q; use json or tidb", cfg.Format)
	}
	cfg.Format = cmp.Or(cfg.Format, JSON)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	cfg.MaxKeys = cmp.Or(cfg.MaxKeys, DefaultMaxKeys)
	return &Source{cfg}, nil
}

// Run implements provider.Source.
func (s *Source) Run(ctx context.Context, sink provider.Sink) error {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: s.cfg.Endpoints, TLS: s.cfg.TLS, Username: s.cfg.Username, Password: s.cfg.Password,
		DialTimeout: s.cfg.Timeout, DialKeepAliveTime: s.cfg.Timeout, DialKeepAliveTimeout: s.cfg.Timeout,
		MaxCallRecvMsgSize: maxMessage, MaxUnaryRetries: 3, Context: ctx, Logger: zap.NewNop(),
	})
	if err != nil {
		return s.explain(err)
	}
	defer client.Close()
	keys := newKeys(s.cfg.Prefix, s.cfg.Format)
	revision, err := s.load(ctx, client, keys)
	if err != nil {
		return s.explain(err)
	}
	watching, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := client.Watch(watching, s.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1), clientv3.WithFragment())
	queries, replaced := sink.Wanted()
	keys.report(sink, queries, nil)
	alive := time.NewTicker(s.cfg.Timeout)
	defer alive.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-alive.C: // a watch is silent about a lost connection, and waits for it
			if err := s.ping(ctx, client); err != nil {
				return s.explain(err)
			}
			for _, q := range queries {
				sink.Confirm(q)
			}
		case <-replaced:
			queries, replaced = sink.Wanted()
			keys.report(sink, queries, nil)
		case response, open := <-events:
			if err := s.check(ctx, &response, open); err != nil {
				return s.explain(err)
			}
			touched := map[string]bool{}
			for _, event := range response.Events {
				touched[keys.apply(string(event.Kv.Key), event.Kv.Value, event.Type == clientv3.EventTypeDelete)] = true
			}
			if len(keys.values) > s.cfg.MaxKeys {
				return s.tooMany()
			}
			if len(touched) > 0 {
				keys.report(sink, queries, touched)
			}
		}
	}
}

// load reads all keys, page by page as of one revision, which it returns.
func (s *Source) load(ctx context.Context, client *clientv3.Client, keys *keys) (revision int64, err error) {
	end := clientv3.GetPrefixRangeEnd(s.cfg.Prefix)
	for from := s.cfg.Prefix; ; {
		reading, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
		page, err := client.Get(reading, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(revision))
		cancel()
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err != nil:
			return 0, err
		case page.Count > int64(s.cfg.MaxKeys):
			return 0, s.tooMany()
		}
		if revision == 0 {
			revision = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			keys.apply(string(kv.Key), kv.Value, false)
		}
		if !page.More {
			return revision, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// ping returns an error if etcd does not answer.
func (s *Source) ping(ctx context.Context, client *clientv3.Client) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	_, err := client.Get(ctx, s.cfg.Prefix, clientv3.WithCountOnly())
	return err
}

// check returns why a watch ended, or nil.
func (s *Source) check(ctx context.Context, response *clientv3.WatchResponse, open bool) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !open:
		return errors.New("etcd ended the watch")
	case response.CompactRevision != 0:
		return errors.New("etcd has compacted the revisions that the watch needs; reading all keys again")
	}
	return response.Err()
}

func (s *Source) tooMany() error {
	return fmt.Errorf("there are more than %d keys below %s; use a longer prefix", s.cfg.MaxKeys, s.cfg.Prefix)
}

// explain adds to an error what can be done about it.
func (s *Source) explain(err error) error {
	at := "etcd at " + strings.Join(s.cfg.Endpoints, ", ")
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s does not answer within %v: check the address, and whether it has TLS", at, s.cfg.Timeout)
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return fmt.Errorf("%s refuses the username or password", at)
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("%s does not let user %q read %s: grant the role read access to the prefix", at, s.cfg.Username, s.cfg.Prefix)
	case errors.Is(err, rpctypes.ErrUserEmpty):
		return fmt.Errorf("%s wants a user: set username and password", at)
	}
	return fmt.Errorf("%s: %w", at, err)
}
