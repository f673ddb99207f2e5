// Package dataplane is what a node runs on netio's loops. It decides by
// routing's table where each connection, request of HTTP and connection of Kafka
// goes, counts and logs what became of it, and brings listeners, health checks
// and host names in line with each new table. It knows nothing of the cluster,
// nor of those who operate the node.
//
//	d, err := dataplane.New(dataplane.Config{Bind: "127.0.0.1", Log: log, ...})
//	...
//	d.Apply(set, changes) // it listens and serves as they say
//	...
//	err = d.Engine.Drain(ctx, time.Minute)
//	d.Shutdown()
//	d.Close()
package dataplane

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/kafka"
	"penstock/netio"
	"penstock/netio/tlsstream"
	"penstock/node/accesslog"
	"penstock/routing"
	"penstock/routing/discovery"
	"penstock/routing/endpoint"
)

// Config is what a data plane is made with.
type Config struct {
	Log *slog.Logger
	// Bind is the host of listeners whose address has none.
	Bind string
	// Tags are part of the source of every connection.
	Tags map[string]string
	// Loops, MemoryBudget (bytes) and MaxHandshakes are netio.Config's.
	Loops         int
	MemoryBudget  int64
	MaxHandshakes int
	// MaxRequests bounds the requests of HTTP at once that are routed one by
	// one.
	MaxRequests int
	// Tickets are the keys by which clients resume TLS.
	Tickets *tlsstream.Tickets
	// Access is the access log; nil: off. With AccessAll it has more than one
	// line for each connection.
	Access    *accesslog.Log
	AccessAll bool
	// Self is the ID of the node in its cluster, whose nodes share health
	// checks; "": it shares them with nobody.
	Self string
}

// Dataplane is a running data plane. Its exported fields are the rooms that it
// runs, for those who ask them; only New sets them. Its methods may be called
// from anywhere.
type Dataplane struct {
	Router   *routing.Router
	Engine   *netio.Engine
	Kafka    *kafka.Proxy
	Resolver *discovery.Resolver

	log        *slog.Logger
	reconciler *reconciler
	flows      *flows
	requests   *requests
	access     *accesslog.Log
	sharing    *healthGossip // of health checks; nil: with nobody
}

// New makes a data plane that has nothing to do yet.
func New(cfg Config) (*Dataplane, error) {
	r := newReconciler(&cfg)
	d := &Dataplane{log: cfg.Log, reconciler: r, access: cfg.Access, Resolver: r.resolver}
	r.router = routing.NewRouter(routing.Config{NodeTags: cfg.Tags, Hosts: r.resolver, Observe: d.observe})
	handler := &traffic{router: r.router, gone: &r.gone, client: r.clients.of, access: cfg.Access, accessAll: cfg.AccessAll}
	engine, err := netio.New(netio.Config{
		Handler: handler, Log: cfg.Log, Loops: cfg.Loops,
		MemoryBudget: cfg.MemoryBudget, MaxHandshakes: cfg.MaxHandshakes,
	})
	if err != nil {
		r.checker.Close()
		r.resolver.Close()
		return nil, err
	}
	d.Router, d.Engine, r.engine = r.router, engine, engine
	if cfg.Self != "" {
		d.sharing = &healthGossip{self: cfg.Self}
		r.checker.Share(d.sharing)
	}
	d.flows = newFlows(engine.Loops())
	handler.flows, r.flows = d.flows, d.flows
	d.requests = newRequests(&cfg, r)
	handler.requests, r.requests = d.requests, d.requests
	r.makeKafka(engine.Loops())
	d.Kafka, handler.kafka = r.kafka, r.kafka
	return d, nil
}

// Quiesce tells the clients of HTTP, which keep their connections, to go
// elsewhere with their next request.
func (d *Dataplane) Quiesce() { d.requests.server.Quiesce() }

// Resume takes back Quiesce and a drain of the engine.
func (d *Dataplane) Resume() {
	d.Engine.Resume()
	d.requests.server.Resume()
	d.reconciler.listen()
}

// Shutdown ends every connection. Changes may come until Close.
func (d *Dataplane) Shutdown() {
	d.Engine.Close()
	d.requests.close()
}

// Close ends what watches endpoints and brokers. Nothing may come after it.
func (d *Dataplane) Close() {
	d.reconciler.checker.Close()
	d.Kafka.Close()
	d.Resolver.Close()
}

// Flows are the flows that there are, by listener and service.
func (d *Dataplane) Flows() []*Flow { return d.flows.all() }

// Services are those in force, by name.
func (d *Dataplane) Services() []*routing.Service {
	byName := func(a, b *routing.Service) int { return cmp.Compare(a.Name(), b.Name()) }
	return slices.SortedFunc(d.Router.Table().Services(), byName)
}

// Histograms are the metrics that are counted as things happen.
func (d *Dataplane) Histograms() []prometheus.Collector {
	return []prometheus.Collector{d.flows.connect, d.flows.took}
}

// EvictedRequests counts, for each listener, the requests that were ended to
// make room for others.
func (d *Dataplane) EvictedRequests() map[string]uint64 { return d.requests.places.Evictions() }

// observe logs what happens to endpoints. It is called on loops.
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
}
