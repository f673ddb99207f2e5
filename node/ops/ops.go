// Package ops implements the operators' interface to a node: the admin methods
// that read and change resources, report status and members, explain and simulate
// routing decisions, and control rollouts; and /healthz, /readyz, /metrics and /v1
// of HTTP.
//
//	methods := ops.New(ops.Config{Self: self, Data: d, Catalog: c, ...})
//	methods.Register(server)
//
// The methods that act on the node itself, to drain it or to leave the cluster,
// are in package node.
package ops

import (
	"context"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/acme"
	"penstock/node/api"
	"penstock/node/audit"
	"penstock/node/catalog"
	"penstock/node/cluster"
	"penstock/node/dataplane"
	"penstock/node/expiry"
	"penstock/node/federation"
	"penstock/node/follow"
	"penstock/node/kubernetes"
	"penstock/node/lifecycle"
	"penstock/node/logs"
	"penstock/node/otlp"
	"penstock/node/providers"
	"penstock/node/quota"
	"penstock/node/rollout"
	"penstock/node/rpc"
	"penstock/node/svid"
	"penstock/node/telemetry"
	"penstock/node/workload"
	"penstock/node/xds"
)

// Self describes the node. It does not change while the node runs.
type Self struct {
	ID, Name, Version string
	Cluster, HTTP     string // listen addresses
	Started           time.Time
}

// Config is the configuration of Methods.
type Config struct {
	Self    Self
	Data    *dataplane.Dataplane
	Catalog *catalog.Catalog
	Cluster *cluster.Cluster // nil: with --dev
	Tracker *rollout.Tracker
	// Providers run the endpoint providers of this node.
	Providers *providers.Providers
	// ACME obtains the certificates that an authority issues.
	ACME *acme.Manager
	// Federation keeps the bundles of other trust domains.
	Federation *federation.Manager
	// Followed reads the files that resources leave to the nodes.
	Followed *follow.Manager
	// OTLP exports to OpenTelemetry collectors; nil: nothing does.
	OTLP *otlp.Manager
	// Expiry knows how long the certificates in force are valid.
	Expiry *expiry.Tracker
	// XDS is the discovery server; nil: there is none.
	XDS   *xds.Server
	State *lifecycle.State
	// Gateways computes the status of Gateway API objects.
	Gateways *Gateways
	// Shares has this node's shares of rate limits with scope cluster.
	Shares *quota.Driver
	// Identities are the certificates that this node holds; nil with --dev.
	Identities *workload.Source
	// Sources have the certificates that come from SPIFFE.
	Sources *svid.Manager
	// Kubernetes applies resources from there; nil: none does.
	Kubernetes *kubernetes.Manager
	// Changes counts changes by result: done or refused.
	Changes *prometheus.CounterVec
	Audit   *audit.Log
	// Logs has the last lines of this node's logs.
	Logs *logs.Logs
	// History is what this node has measured.
	History *telemetry.History
	// Settings are the node's settings without secrets, Metrics what /metrics serves.
	Settings []api.Setting
	Metrics  func() prometheus.Gatherer
	// Uploads is the folder for snapshots that are being uploaded.
	Uploads string
	Log     *slog.Logger
}

// Methods holds the admin methods.
type Methods struct {
	Peers    *Peers          // reaches the other nodes
	Rollouts *rollout.Driver // drives rollouts while this node leads; the caller runs it

	reader    reader
	changes   *changes
	status    *status
	decisions decisions
	rollouts  *rollouts
	top       top
	audit     auditLog
	logs      logLines
	history   history
	endpoints endpoints
	sessions  sessions
	conns     connections
	proxies   proxies
	debugger  *debugger
	problems  *problems

	proxyCertificates proxyCertificates
	local             *rpc.Server // has the methods
}

// New makes the methods.
func New(cfg Config) *Methods {
	peers := &Peers{self: cfg.Self, cluster: cfg.Cluster, catalog: cfg.Catalog}
	m := &Methods{
		Peers: peers, reader: reader{peers, cfg.Catalog}, top: top{peers, cfg.Data}, audit: auditLog{peers, cfg.Audit}, logs: logLines{peers, cfg.Logs},
		history: history{peers, cfg.History}, endpoints: endpoints{cfg.Data, cfg.Providers}, sessions: sessions{peers, cfg.Data},
	}
	m.changes = &changes{
		peers: peers, data: cfg.Data, catalog: cfg.Catalog, counter: cfg.Changes,
		uploads: uploads{dir: cfg.Uploads, open: map[string]*upload{}},
	}
	m.rollouts = newRollouts(&cfg, peers, m.changes)
	m.Rollouts = m.rollouts.driver
	m.status = &status{
		peers, cfg.Data, cfg.Catalog, cfg.State, cfg.Gateways, m.rollouts, cfg.Providers, cfg.ACME, cfg.Followed, cfg.OTLP, cfg.Expiry, cfg.Federation, cfg.XDS,
		cfg.Shares, cfg.Identities, cfg.Sources, cfg.Kubernetes, recent[[]string]{},
	}
	m.problems = &problems{status: m.status, history: &m.history, progress: m.progress}
	m.proxies, m.proxyCertificates = proxies{peers, cfg.XDS}, proxyCertificates{peers, cfg.Catalog}
	m.decisions = decisions{peers, cfg.Data, cfg.Catalog, m.status}
	m.debugger = newDebugger(peers, &cfg)
	m.conns = connections{peers, cfg.Data, &m.decisions, cfg.Logs}
	return m
}

// Register adds the methods to a server. The types of package admin document
// them.
func (m *Methods) Register(s *rpc.Server) {
	m.local = s
	m.reader.register(s)
	m.changes.register(s)
	m.status.register(s)
	m.decisions.register(s)
	m.rollouts.register(s)
	m.endpoints.register(s)
	m.sessions.register(s)
	m.conns.register(s)
	m.proxies.register(s)
	m.problems.register(s)
	m.proxyCertificates.register(s)
	m.audit.register(s)
	m.logs.register(s)
	m.history.register(s)
	m.debugger.register(s)
	rpc.HandleStream(s, api.MethodTop, api.RoleReader, m.top.top)
	rpc.Handle(s, api.MethodVersion, api.RoleReader, m.version)
}

// Sweep does the periodic work, about once a second: it drops abandoned uploads.
func (m *Methods) Sweep(now time.Time) { m.changes.uploads.sweep(now) }

// ConnectLocal connects to a server of this process as the given principal.
func ConnectLocal(ctx context.Context, s *rpc.Server, p api.Principal) (*rpc.Client, error) {
	near, far := net.Pipe()
	go s.ServeConn(far, p)
	return rpc.Connect(ctx, "this node", near)
}
