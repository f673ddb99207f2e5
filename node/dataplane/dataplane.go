// Package dataplane runs a node's traffic on netio's loops. It routes each
// connection, HTTP request and Kafka connection by the routing table, counts and
// logs the outcome, and reconciles listeners, health checks and host names with
// each new table. It does not depend on the cluster or on the admin methods.
//
//	d, err := dataplane.New(dataplane.Config{Bind: "127.0.0.1", Log: log, ...})
//	...
//	d.Apply(set, changes) // listens and serves accordingly
//	...
//	err = d.Engine.Drain(ctx, time.Minute)
//	d.Shutdown()
//	d.Close()
package dataplane

import (
	"cmp"
	"context"
	"crypto/x509"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/kafka"
	"penstock/netio"
	"penstock/netio/tlsstream"
	"penstock/node/accesslog"
	"penstock/node/audit"
	"penstock/node/tlsconfig"
	"penstock/node/trace"
	"penstock/node/trust"
	"penstock/routing"
	"penstock/routing/discovery"
	"penstock/routing/endpoint"
	"penstock/routing/limit"
)

// Config is the configuration of a Dataplane.
type Config struct {
	Log *slog.Logger
	// Bind is the host of listeners whose address has none.
	Bind string
	// Tags are part of the source of every connection.
	Tags map[string]string
	// Loops, MemoryBudget (bytes) and MaxHandshakes are passed to netio.Config.
	Loops         int
	MemoryBudget  int64
	MaxHandshakes int
	// MaxRequests bounds the concurrent HTTP requests that are routed
	// individually.
	MaxRequests int
	// Tickets holds the session ticket keys for TLS resumption.
	Tickets *tlsstream.Tickets
	// Access is the access log; nil: none. With AccessAll it has more than one
	// line for each connection.
	Access    *accesslog.Log
	AccessAll bool
	// Tracer has the policies by which spans of connections and requests are made; nil:
	// none are.
	Tracer *trace.Tracer
	// Audit takes each denial by a permission; nil: none does. It is called on loops.
	Audit func(*audit.Denial)
	// LimitPlace is passed to routing.Config.
	LimitPlace func() limit.Place
	// Self is the ID of the node in its cluster, whose nodes share health
	// checks; "": the node runs all of its checks itself.
	Self string
	// Revoked reports whether the cluster has revoked a certificate; nil: none is.
	Revoked func(*x509.Certificate) bool
	// Mesh makes the TLS between nodes that carries connections of clients; nil: the
	// node is in no cluster.
	Mesh *tlsconfig.Mesh
	// Bundles are those of the trust domains whose workloads peers may be; nil: none.
	Bundles *trust.Bundles
	// Discovered has the endpoints that providers found; nil: none.
	Discovered routing.Discovered
	// Challenges answers the checks of certificate authorities; nil: none are
	// answered.
	Challenges Challenges
}

// Dataplane is a running data plane. New sets the exported fields, which give
// callers access to the components. Its methods are safe for concurrent use.
type Dataplane struct {
	Router   *routing.Router
	Engine   *netio.Engine
	Kafka    *kafka.Proxy
	Resolver *discovery.Resolver

	log          *slog.Logger
	reconciler   *reconciler
	flows        *flows
	requests     *requests
	traffic      *traffic
	streams      *streams
	access       *accesslog.Log
	healthGossip *healthGossip // shares health checks; nil: not shared
}

// New makes a data plane without any configuration yet.
func New(cfg Config) (*Dataplane, error) {
	r := newReconciler(&cfg)
	d := &Dataplane{log: cfg.Log, reconciler: r, access: cfg.Access, Resolver: r.resolver}
	r.router = routing.NewRouter(routing.Config{NodeTags: cfg.Tags, Hosts: r.resolver, Discovered: cfg.Discovered, Observe: d.observe,
		LimitPlace: cfg.LimitPlace})
	handler := &traffic{router: r.router, removed: &r.removed, clients: r.clients, access: cfg.Access, accessAll: cfg.AccessAll,
		certs: r.certs, mesh: cfg.Mesh, audit: cfg.Audit, tracing: tracing{tracer: cfg.Tracer, node: cfg.Self}}
	handler.mysql.init(cfg.Log, r.router)
	handler.mysql.versions.init(r.askVersion)
	r.sessions = &handler.mysql
	engine, err := netio.New(netio.Config{
		Handler: handler, Log: cfg.Log, Loops: cfg.Loops,
		MemoryBudget: cfg.MemoryBudget, MaxHandshakes: cfg.MaxHandshakes,
	})
	if err != nil {
		r.checker.Close()
		r.loads.scraper.Close()
		r.resolver.Close()
		return nil, err
	}
	d.Router, d.Engine, r.engine = r.router, engine, engine
	handler.mysql.run()
	if cfg.Self != "" {
		d.healthGossip = &healthGossip{self: cfg.Self}
		r.checker.Share(d.healthGossip)
	}
	d.flows = newFlows(engine.Loops())
	handler.flows, r.flows = d.flows, d.flows
	handler.tracing.kept = make([]keptSpan, engine.Loops())
	d.traffic, handler.ended = handler, newEnded(engine.Loops())
	d.streams = newStreams(handler, engine)
	handler.streams = d.streams
	d.requests = newRequests(&cfg, r)
	handler.requests, r.requests = d.requests, d.requests
	r.challenges, d.requests.challenges = cfg.Challenges, cfg.Challenges
	r.makeKafka(engine.Loops(), cfg.Audit, &handler.tracing)
	d.Kafka, handler.kafka = r.kafka, r.kafka
	return d, nil
}

// Quiesce makes HTTP clients, which keep their connections, open another one for
// their next request (Connection: close, GOAWAY).
func (d *Dataplane) Quiesce() { d.requests.server.Quiesce() }

// Resume undoes Quiesce and a drain of the engine.
func (d *Dataplane) Resume() {
	d.Engine.Resume()
	d.requests.server.Resume()
	d.reconciler.relisten()
}

// Shutdown ends every connection. Apply may be called until Close.
func (d *Dataplane) Shutdown() {
	d.Engine.Close()
	d.requests.close()
}

// Close stops health checks, the reading of load, Kafka and DNS resolution. No method may be called
// after it.
func (d *Dataplane) Close() {
	d.streams.close()
	d.reconciler.sessions.close()
	d.reconciler.checker.Close()
	d.reconciler.loads.scraper.Close()
	d.Kafka.Close()
	d.Resolver.Close()
}

// CloseRevoked closes the connections of clients whose certificate has been revoked
// since their handshake. It returns at once.
func (d *Dataplane) CloseRevoked() {
	d.Engine.DrainSome(0, netio.IdentityRevoked, func(c *netio.Conn) bool { return d.reconciler.certs.IsRevoked(c.TLS()) })
}

// Certificates returns the certificates in force.
func (d *Dataplane) Certificates() *tlsconfig.Store { return d.reconciler.certs }

// Flows returns the flows, sorted by listener and service.
func (d *Dataplane) Flows() []*Flow { return d.flows.all() }

// Services returns the services of the current table, sorted by name.
func (d *Dataplane) Services() []*routing.Service {
	byName := func(a, b *routing.Service) int { return cmp.Compare(a.Name(), b.Name()) }
	return slices.SortedFunc(d.Router.Table().Services(), byName)
}

// Histograms returns the collectors that loops and requests observe directly.
func (d *Dataplane) Histograms() []prometheus.Collector {
	return []prometheus.Collector{d.flows.connectDuration, d.flows.requestDuration}
}

// EvictedRequests returns, for each listener, the number of requests that were
// ended to make room for others.
func (d *Dataplane) EvictedRequests() map[string]uint64 { return d.requests.places.Evictions() }

// observe logs the state changes of endpoints. It is called on loops.
func (d *Dataplane) observe(e endpoint.Event) {
	args := []any{"service", e.Service, "endpoint", EndpointName(e.Endpoint)}
	level := slog.LevelInfo
	switch e.Change {
	case endpoint.EventEjected:
		level = slog.LevelWarn
		args = append(args, "cause", e.Cause, "until", e.Until.Format(time.RFC3339))
	case endpoint.EventUnhealthy, endpoint.EventPaused:
		level = slog.LevelWarn
		args = append(args, "cause", e.Cause)
	}
	d.log.Log(context.Background(), level, "endpoint "+e.Change.String(), args...)
	if e.Change == endpoint.EventHealthy || e.Change == endpoint.EventUnhealthy {
		d.reconciler.sessions.review()
	}
}
