// Package ops is what operators ask of a node: the admin methods that read and
// change resources, tell status and members, explain and simulate decisions, and
// look after rollouts; and /healthz, /readyz, /metrics and /v1 of HTTP.
//
//	methods := ops.New(ops.Config{Self: self, Data: d, Catalog: c, ...})
//	methods.Register(server)
//
// What a node does of itself because it is asked to, a drain or its leaving, is
// the node's.
package ops

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/node/cluster"
	"penstock/node/dataplane"
	"penstock/node/lifecycle"
	"penstock/node/rollout"
)

// Self is what a node says of itself, and does not change while it runs.
type Self struct {
	ID, Name, Version string
	Cluster, HTTP     string // the addresses that it listens on
	Started           time.Time
}

// Config is what the methods work with.
type Config struct {
	Self    Self
	Data    *dataplane.Dataplane
	Catalog *catalog.Catalog
	Cluster *cluster.Cluster // nil: with --dev
	Tracker *rollout.Tracker
	State   *lifecycle.State
	// Gateways tell how the objects of the Gateway API do.
	Gateways *Gateways
	// Changes counts changes by their result: done or refused.
	Changes *prometheus.CounterVec
	// Uploads is the folder for snapshots that are on their way here.
	Uploads string
	Log     *slog.Logger
}

// Methods are the admin methods.
type Methods struct {
	Peers    *Peers          // how this node reaches the others
	Rollouts *rollout.Driver // looks after rollouts where this node leads; to be run

	reader    reader
	changes   *changes
	status    *status
	decisions decisions
	rollouts  *rollouts
	top       top
}

// New makes the methods.
func New(cfg Config) *Methods {
	peers := &Peers{self: cfg.Self, cluster: cfg.Cluster, catalog: cfg.Catalog}
	m := &Methods{Peers: peers, reader: reader{peers, cfg.Catalog}, top: top{peers, cfg.Data}}
	m.changes = &changes{
		peers: peers, data: cfg.Data, catalog: cfg.Catalog, counted: cfg.Changes,
		uploads: uploads{dir: cfg.Uploads, open: map[string]*upload{}},
	}
	m.rollouts = newRollouts(&cfg, peers, m.changes)
	m.Rollouts = m.rollouts.driver
	m.status = &status{peers, cfg.Data, cfg.Catalog, cfg.State, cfg.Gateways, m.rollouts}
	m.decisions = decisions{peers, cfg.Data, cfg.Catalog, m.status}
	return m
}

// Register adds the methods to a server. What each does is told by the types of
// package admin.
func (m *Methods) Register(s *admin.Server) {
	m.reader.register(s)
	m.changes.register(s)
	m.status.register(s)
	m.decisions.register(s)
	m.rollouts.register(s)
	admin.HandleStream(s, admin.MethodTop, admin.RoleReader, m.top.top)
	admin.Handle(s, admin.MethodVersion, admin.RoleReader, m.version)
}

// Tidy does what is not urgent, about once a second.
func (m *Methods) Tidy(now time.Time) { m.changes.uploads.sweep(now) }

// Ask connects to a server of this process, in somebody's name.
func Ask(ctx context.Context, s *admin.Server, p admin.Principal) (*admin.Client, error) {
	near, far := net.Pipe()
	go s.ServeConn(far, p)
	return admin.Connect(ctx, "this node", near)
}
