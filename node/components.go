package node

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/node/acme"
	"penstock/node/api"
	"penstock/node/catalog"
	"penstock/node/dataplane"
	"penstock/node/kinds"
	"penstock/node/metrics"
	"penstock/node/ops"
	"penstock/node/providers"
	"penstock/node/quota"
	"penstock/node/rollout"
	"penstock/node/rpc"
	"penstock/node/tlsconfig"
	"penstock/routing/limit"
	"penstock/routing/resource"
)

// makeComponents makes the components and connects them.
func (n *Node) makeComponents() (err error) {
	if err := n.openAccessLog(); err != nil {
		return err
	}
	n.watchOwnExpiry()
	n.otlp = n.newOTLP()
	n.providers = providers.New(n.providersConfig())
	n.acme = acme.New(n.acmeConfig())
	n.openFederation()
	if n.data, err = dataplane.New(n.dataplaneConfig()); err != nil {
		return err
	}
	n.catalog = catalog.New(n.catalogConfig())
	n.xds = n.newXDS()
	n.tracker = new(rollout.Tracker)
	n.openQuota()
	n.openWorkloads()
	n.openKubernetes()
	n.ops = ops.New(n.opsConfig())
	n.admin = newAdmin(n)
	n.events = n.newEvents()
	n.metrics = n.newMetrics()
	n.componentsReady.Store(true)
	handlers := ops.HTTP{
		Admin: n.admin, Metrics: n.metrics.Registry, Ready: n.readiness(), Peers: n.ops.Peers, Log: n.log, Dev: n.cfg.Dev, Pprof: n.cfg.Pprof,
		Bundle: n.bundle, CaughtUp: &n.caughtUp, Started: n.started, NoServer: ops.NoMySQLServer(n.data),
		Sessions: n.newSessions(), Events: n.events,
	}
	n.gate.Set(handlers.Handler())
	return nil
}

// newMetrics makes the metrics that /metrics serves, and of which there is a history.
func (n *Node) newMetrics() *metrics.Metrics {
	all := []prometheus.Collector{
		metrics.Dataplane(n.data), metrics.Rollouts(n.data.Router, n.tracker, n.ops.Rollouts),
		metrics.Node(n.cfg.Version, n.started, &n.state, n.readiness()),
		metrics.Files(n.followed), metrics.Catalog(n.catalog), metrics.Providers(n.providers), metrics.ACME(n.acme), n.changes,
		metrics.Audit(n.audit), metrics.AccessLog(n.access), metrics.Logs(n.logs), metrics.History(n.history), metrics.Expiry(n.expiry),
		metrics.Quota(n.shares, n.leases), metrics.Store(n.store), metrics.Admin(n.admin), metrics.Events(n.events), metrics.Cluster(n.cluster),
		metrics.Workloads(n.identities, n.spiffe), metrics.Sources(n.svids), metrics.Federation(n.bundles, n.federation, n.bundle),
		metrics.OTLP(n.otlp),
	}
	if f := n.cfg.ResourceFiles; f != nil && f.Sync {
		all = append(all, metrics.ResourceFiles(&n.reread.synced))
	}
	if n.kubernetes != nil {
		all = append(all, metrics.Kubernetes(n.kubernetes))
	}
	if n.xdsPort != nil {
		all = append(all, metrics.XDSPort(n.xdsPort))
	}
	return metrics.New(append(append(all, n.data.Histograms()...), metrics.XDS(n.xds)...)...)
}

// newAdmin makes the server of the admin methods.
func newAdmin(n *Node) *rpc.Server {
	cfg := rpc.Config{Logger: n.log, Authenticate: n.authenticate, Audit: n.recordAct}
	if n.cluster != nil {
		cfg.Check = n.cluster.Tokens.Check
	}
	s := rpc.NewServer(cfg)
	n.ops.Register(s)
	// Methods that act on the node itself.
	rpc.Handle(s, api.MethodDrain, api.RoleOperator, n.drainMethod, rpc.Changing())
	rpc.Handle(s, api.MethodLeave, api.RoleAdmin, n.leave, rpc.Changing())
	rpc.Handle(s, api.MethodLeaving, api.RoleAdmin, n.leaveProgress)
	if n.cluster != nil {
		n.cluster.Register(s)
		rpc.Handle(s, api.MethodChallenges, api.RoleNode, n.awaitChallenges)
		n.registerQuota(s)
		rpc.Handle(s, api.MethodEndpointsAnnounced, api.RoleNode,
			func(ctx context.Context, m *providers.Announcements) (*providers.AnnouncementsResult, error) {
				return n.providers.Receive(rpc.Caller(ctx).Node, m)
			})
	}
	return s
}

func (n *Node) readiness() ops.Readiness {
	return ops.Readiness{State: &n.state, Engine: n.data.Engine}
}

func (n *Node) gateways() *ops.Gateways {
	return &ops.Gateways{Node: n.cfg.Name, Bind: n.cfg.Bind, Engine: n.data.Engine}
}

// dataplaneConfig derives the data plane's configuration from the settings.
func (n *Node) dataplaneConfig() dataplane.Config {
	c := dataplane.Config{
		Log: n.log, Bind: n.cfg.Bind, Tags: n.cfg.Tags, Loops: n.cfg.Loops, MemoryBudget: n.cfg.MemoryBudget,
		MaxHandshakes: n.cfg.MaxHandshakes, MaxRequests: n.cfg.MaxRequests, Tickets: n.tickets,
		Access: n.access, AccessAll: n.cfg.AccessLog == AccessAll, Audit: n.audit.Denied, Discovered: n.providers, Challenges: &n.acme.Challenges,
		Bundles: n.bundles, Tracer: n.otlp.Tracer(),
	}
	if n.cluster != nil {
		c.Self, c.Revoked = n.id, n.cluster.Identities.Revoked
		c.LimitPlace = func() limit.Place { return quota.Place(n.id, n.cluster.Directory.MemberIDs()) }
		c.Mesh = tlsconfig.NewMesh(n.cluster.Identity, n.cluster.Directory.Departed, n.tickets)
	}
	return c
}

// opsConfig makes the configuration of the operators' methods.
func (n *Node) opsConfig() ops.Config {
	return ops.Config{
		Self: ops.Self{
			ID: n.id, Name: n.cfg.Name, Version: n.cfg.Version, Cluster: n.adminAddr, HTTP: n.httpAddr, Started: n.started,
		},
		Data: n.data, Catalog: n.catalog, Cluster: n.cluster, Tracker: n.tracker, Providers: n.providers, ACME: n.acme, XDS: n.xds, State: &n.state,
		Followed: n.followed, OTLP: n.otlp, Expiry: n.expiry, Federation: n.federation,
		Shares: n.shares, Audit: n.audit, Logs: n.logs, History: n.history, Identities: n.identities, Sources: n.svids, Kubernetes: n.kubernetes,
		Gateways: n.gateways(), Changes: n.changes, Uploads: n.cfg.DataDir, Log: n.log,
		Settings: n.cfg.shown(), Metrics: func() prometheus.Gatherer { return n.metrics.Registry },
	}
}

// catalogConfig makes the catalog's configuration; a node in a cluster adds
// encryption, feature checks and the read barrier.
func (n *Node) catalogConfig() catalog.Config {
	c := catalog.Config{Store: n.store, Kinds: kinds.All(), Log: n.log, Status: n.resourceStatus, Audit: n.audit}
	if n.cfg.Kubernetes.Enabled {
		c.Reserved = resource.AppliedByKubernetes
	}
	if n.cluster == nil {
		return c
	}
	c.Sealer = n.cluster.Sealer()
	c.Admit = func(o resource.Object) error {
		if err := n.admitTrustBundle(o); err != nil {
			return err
		}
		return kinds.CheckSupported(o, n.cluster.Directory.MembersBelow)
	}
	c.Barrier = func(ctx context.Context) error {
		index, err := n.cluster.Store().ReadIndex(ctx)
		if err != nil {
			return err
		}
		_, err = n.store.Wait(ctx, index-1)
		return err
	}
	return c
}
