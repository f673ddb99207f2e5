// Package node assembles a node: it starts the components in order, drains them
// and stops them. Package dataplane handles the traffic, ops the requests of
// operators, cluster and catalog the replicated state.
//
//	n, err := node.Start(ctx, node.Config{Dev: true, Cluster: "127.0.0.1:7947", HTTP: "127.0.0.1:7948", ...})
//	...
//	err = n.Stop(ctx) // drains
package node

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/consensus/store"
	"penstock/netio/reactor"
	"penstock/netio/tlsstream"
	"penstock/node/accesslog"
	"penstock/node/acme"
	"penstock/node/api"
	"penstock/node/audit"
	"penstock/node/catalog"
	"penstock/node/cluster"
	"penstock/node/cluster/directory"
	"penstock/node/dataplane"
	"penstock/node/expiry"
	"penstock/node/federation"
	"penstock/node/follow"
	"penstock/node/kinds"
	"penstock/node/lifecycle"
	"penstock/node/metrics"
	"penstock/node/mux"
	"penstock/node/ops"
	"penstock/node/providers"
	"penstock/node/quota"
	"penstock/node/rollout"
	"penstock/node/rpc"
	"penstock/node/svid"
	"penstock/node/tlsconfig"
	"penstock/node/trust"
	"penstock/node/workload"
	"penstock/node/xds"
	"penstock/routing/limit"
	"penstock/routing/resource"
	"penstock/routing/resource/validate"
)

// errClusterDataDir says that the data folder of a --dev node belongs to a cluster's
// node. --dev does not use its state, so that node would seem to have lost it.
var errClusterDataDir = errors.New("belongs to a node of a cluster, and --dev ignores its state: " +
	"leave --dev out to start that node, or give another folder or none")

// ErrConfig wraps the faults that Validate finds.
var ErrConfig = errors.New("settings")

// Node is a running node. Its methods are safe for concurrent use.
type Node struct {
	cfg     Config
	log     *slog.Logger
	id      string
	started time.Time
	state   lifecycle.State

	dir             *dataDir         // nil: none
	cluster         *cluster.Cluster // nil: with --dev
	store           catalog.Store
	tickets         *tlsstream.Tickets
	data            *dataplane.Dataplane
	providers       *providers.Providers
	acme            *acme.Manager
	bundles         *trust.Bundles
	federation      *federation.Manager
	bundle          *federation.Endpoint // serves the cluster's own
	followed        *follow.Manager
	expiry          *expiry.Tracker
	componentsReady atomic.Bool // makeComponents has finished
	left            atomic.Bool // the node left its cluster for good
	leaveAttempts   leaveAttempts
	startup         startupStatus
	socket          net.Listener // the node's own socket; nil: none
	reread          rereader
	err             error // why the node cannot go on; written before done is closed
	access          *accesslog.Log
	audit           *audit.Log
	catalog         *catalog.Catalog
	tracker         *rollout.Tracker
	shares          *quota.Driver
	leases          *quota.Leader // nil: with --dev
	ops             *ops.Methods
	admin           *rpc.Server
	xds             *xds.Server
	identities      *workload.Source // nil: with --dev
	svids           *svid.Manager
	spiffe          *workload.API // of --spiffe-socket; nil: none
	devPort         *mux.Mux      // the cluster port with --dev; nil: the cluster has it
	xdsPort         *mux.Mux      // of --xds; nil: none
	http            *http.Server
	bundleHTTP      *http.Server           // of --bundle-endpoint; nil: none
	gate            ops.Gate               // the current HTTP handler
	changes         *prometheus.CounterVec // configuration changes, by result

	adminAddr, httpAddr, bundleAddr string

	ctx        context.Context // ends when the node stops
	cancel     context.CancelFunc
	background sync.WaitGroup
	drainMu    sync.Mutex
	drainRun   *drainRun     // the current or the finished drain; nil: none
	done       chan struct{} // closed when the node cannot go on
	failOnce   sync.Once
	closeOnce  sync.Once
}

// Start starts a node and returns once it serves. ctx bounds Start (finding the
// cluster may take long), not the life of the node.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	if faults := cfg.Validate(); len(faults) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrConfig, strings.Join(faults, "; "))
	}
	n := newNode(cfg.withDefaults())
	defer func() {
		if err != nil {
			n.closeOnce.Do(func() { n.close(context.Background()) })
		}
	}()
	// 1. Process resources: file descriptors, and the lock on the data folder.
	if limit, err := reactor.RaiseFileLimit(); err != nil {
		n.log.Warn("cannot raise the limit of open files", "limit", limit, "error", err)
	}
	if err = n.openFolder(); err != nil {
		return nil, err
	}
	// 2. The ports for commands and metrics are bound before any traffic
	//    flows: a node that cannot be operated should not start.
	listeners, err := n.openListeners()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			listeners.close()
		}
	}()
	// 3. The cluster: the node's identity and the replicated state. A node that
	//    is already in a cluster reads both from disk and does not wait for peers.
	n.gate.Set(n.startup.httpHandler())
	n.socket = listeners.socket
	n.serveHTTP(&listeners)
	if err = n.openCluster(ctx, &listeners); err != nil {
		return nil, err
	}
	// 4. The components. Without resources they have nothing to do yet.
	n.openXDS(&listeners)
	if err = n.makeComponents(); err != nil {
		return nil, err
	}
	// 5. The store's content takes effect, and from now on every change of it. The first
	//    resources are applied through the admin methods, so the cluster port is open from here.
	n.run()
	// The state from the node's disk takes effect first.
	if err = n.catalog.Await(ctx, n.store.Snapshot().Index()); err != nil {
		return nil, err
	}
	if n.cluster != nil {
		n.cluster.ServeConns(n.admin)
		if err = n.awaitContent(ctx); err != nil {
			return nil, err
		}
	}
	if err = n.startResources(ctx); err != nil {
		return nil, err
	}
	// 6. Operators and proxies come last: they see a complete node.
	n.serve(&listeners)
	n.serveXDS()
	n.serveSPIFFE(&listeners)
	if err = n.serveBundle(&listeners); err != nil {
		return nil, fmt.Errorf("--bundle-endpoint: %w", err)
	}
	n.state.Advance(lifecycle.Serving)
	notifySystemd("READY=1")
	n.log.Info("started", "name", n.cfg.Name, "version", n.cfg.Version,
		"cluster", n.adminAddr, "http", n.httpAddr, "loops", n.data.Engine.Loops())
	return n, nil
}

// run starts the work that ends with the node.
func (n *Node) run() {
	n.background.Go(n.follow)
	n.background.Go(n.followForXDS)
	n.background.Go(n.followTrustBundle)
	n.background.Go(n.housekeep)
	n.background.Go(func() { n.audit.Run(n.ctx) })
	n.background.Go(func() { n.providers.Run(n.ctx) })
	n.background.Go(func() { n.acme.Run(n.ctx) })
	n.background.Go(func() { n.federation.Run(n.ctx) })
	n.background.Go(func() { n.ops.Rollouts.Run(n.ctx) })
	n.background.Go(func() { n.shares.Run(n.ctx) })
	if n.leases != nil {
		n.background.Go(func() { n.leases.Run(n.ctx) })
	}
	if n.cfg.AccessLog == AccessAll {
		n.background.Go(func() { n.data.LogOngoing(n.ctx) })
	}
}

func newNode(cfg Config) *Node {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	n := &Node{
		cfg: cfg, log: cfg.Log, id: hex.EncodeToString(id[:]), started: time.Now(), tickets: tlsstream.NewTickets(),
		done:    make(chan struct{}),
		reread:  rereader{log: cfg.Log, files: cfg.ResourceFiles, requested: make(chan struct{}, 1)},
		changes: metrics.Changes(),
		audit:   audit.New(audit.Config{Entries: cfg.AuditEntries, Age: cfg.AuditAge, Log: cfg.Log}),
		expiry:  expiry.New(),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.followed = follow.New(follow.Config{Log: n.log, DataDir: cfg.DataDir, Apply: func(set *validate.Set, changes []resource.Change) {
		n.data.Apply(set, changes)
		n.expiry.Apply(changes)
		n.xds.Changed()
	}})
	return n
}

// listenerSet holds the listening sockets for operators and peers. A field is nil
// once its socket has another owner.
type listenerSet struct {
	cluster net.Listener
	socket  net.Listener // the node's own socket; nil: none
	http    net.Listener
	xds     net.Listener // of --xds; nil: none
	spiffe  net.Listener // of --spiffe-socket; nil: none
	bundle  net.Listener // of --bundle-endpoint; nil: none
}

func (set *listenerSet) close() {
	for _, l := range []net.Listener{set.cluster, set.socket, set.http, set.xds, set.spiffe, set.bundle} {
		if l != nil {
			l.Close()
		}
	}
}

func (n *Node) openListeners() (set listenerSet, err error) {
	defer func() {
		if err != nil {
			set.close()
		}
	}()
	var config net.ListenConfig
	if set.cluster, err = config.Listen(n.ctx, "tcp", n.cfg.Cluster); err != nil {
		return set, fmt.Errorf("--cluster: %w", err)
	}
	n.adminAddr = set.cluster.Addr().String()
	if set.http, err = config.Listen(n.ctx, "tcp", n.cfg.HTTP); err != nil {
		return set, fmt.Errorf("--http: %w", err)
	}
	n.httpAddr = set.http.Addr().String()
	if n.cfg.HTTPCert != "" {
		n.reread.certs = newCertFiles(n.cfg.HTTPCert, n.cfg.HTTPKey)
		if set.http, err = n.reread.certs.listener(set.http); err != nil {
			return set, err
		}
		n.followed.Watch("--http-cert", n.reread.certs.check)
		n.expiry.Watch("--http-cert", expiry.Presented, n.reread.certs.chain)
	}
	if n.cfg.XDS != "" {
		if set.xds, err = config.Listen(n.ctx, "tcp", n.cfg.XDS); err != nil {
			return set, fmt.Errorf("--xds: %w", err)
		}
	}
	if n.cfg.BundleEndpoint != "" {
		if set.bundle, err = n.listenBundle(&config); err != nil {
			return set, fmt.Errorf("--bundle-endpoint: %w", err)
		}
	}
	if n.cfg.SPIFFESocket != "" {
		if set.spiffe, err = workload.Listen(n.cfg.SPIFFESocket, n.cfg.spiffeMode()); err != nil {
			return set, fmt.Errorf("--spiffe-socket: %w", err)
		}
	}
	if n.dir != nil {
		if set.socket, err = n.dir.listen(); err != nil {
			return set, fmt.Errorf("own socket: %w", err)
		}
	}
	return set, nil
}

// openFolder locks the data folder, if there is one, for this process.
func (n *Node) openFolder() (err error) {
	if n.cfg.Dev && trust.HasIdentity(n.cfg.DataDir) {
		return fmt.Errorf("data folder %s: %w", n.cfg.DataDir, errClusterDataDir)
	}
	if n.cfg.DataDir != "" {
		n.dir, err = openDataDir(n.cfg.DataDir, !n.cfg.Dev, n.log)
	}
	return err
}

// makeComponents makes the components and connects them.
func (n *Node) makeComponents() (err error) {
	if n.cfg.AccessLog != AccessOff {
		n.access = accesslog.New(accesslog.Config{Out: n.cfg.AccessOut, JSON: n.cfg.AccessJSON})
	}
	n.watchOwnExpiry()
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
	n.ops = ops.New(n.opsConfig())
	n.admin = newAdmin(n)
	n.componentsReady.Store(true)
	handlers := ops.HTTP{
		Admin: n.admin, Metrics: n.newRegistry(), Ready: n.readiness(), Peers: n.ops.Peers, Log: n.log, Dev: n.cfg.Dev, Pprof: n.cfg.Pprof,
		Bundle: n.bundle,
	}
	n.gate.Set(handlers.Handler())
	return nil
}

// newRegistry makes the registry of all collectors that /metrics serves.
func (n *Node) newRegistry() *prometheus.Registry {
	all := []prometheus.Collector{
		metrics.Dataplane(n.data), metrics.Rollouts(n.data.Router, n.tracker, n.ops.Rollouts),
		metrics.Node(n.cfg.Version, n.started, &n.state, n.readiness()),
		metrics.Files(n.followed), metrics.Catalog(n.catalog), metrics.Providers(n.providers), metrics.ACME(n.acme), n.changes,
		metrics.Audit(n.audit), metrics.Expiry(n.expiry),
		metrics.Quota(n.shares, n.leases), metrics.Store(n.store), metrics.Admin(n.admin), metrics.Cluster(n.cluster),
		metrics.Workloads(n.identities, n.spiffe), metrics.Sources(n.svids), metrics.Federation(n.bundles, n.federation, n.bundle),
	}
	if n.access != nil {
		all = append(all, metrics.AccessLog(n.access))
	}
	if f := n.cfg.ResourceFiles; f != nil && f.Sync {
		all = append(all, metrics.ResourceFiles(&n.reread.synced))
	}
	if n.xdsPort != nil {
		all = append(all, metrics.XDSPort(n.xdsPort))
	}
	return metrics.NewRegistry(append(append(all, n.data.Histograms()...), metrics.XDS(n.xds)...)...)
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
		Bundles: n.bundles,
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
		Followed: n.followed, Expiry: n.expiry, Federation: n.federation,
		Shares: n.shares, Audit: n.audit, Identities: n.identities, Sources: n.svids,
		Gateways: n.gateways(), Changes: n.changes, Uploads: n.cfg.DataDir, Log: n.log,
	}
}

// catalogConfig makes the catalog's configuration; a node in a cluster adds
// encryption, feature checks and the read barrier.
func (n *Node) catalogConfig() catalog.Config {
	c := catalog.Config{Store: n.store, Kinds: kinds.All(), Log: n.log, Status: n.resourceStatus, Audit: n.audit}
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

// follow applies the store's content to the data plane, and every change of it.
// It fails the node if the content cannot be understood: the node must not serve
// with an older configuration as if nothing had happened.
func (n *Node) follow() {
	err := n.catalog.Follow(n.ctx, func(set *validate.Set, changes []resource.Change) error {
		n.federation.Apply(changes)
		n.acme.Apply(set, changes)           // to the data plane, with what was issued
		n.tracker.Apply(changes, time.Now()) // a step begins when it takes effect
		n.providers.Apply(changes)
		n.applyWorkloads(changes)
		return nil
	})
	// The store closes when the node has left its cluster and is stopping.
	if !errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrClosed) {
		n.fail(fmt.Errorf("cannot follow the configuration: %w", err))
	}
}

// fail closes Done with err as the reason. Only the first call counts.
func (n *Node) fail(err error) {
	n.failOnce.Do(func() {
		n.log.Error("the node stops", "error", err)
		n.err = err
		close(n.done)
	})
}

// serve starts to accept admin connections on the sockets that set still has.
func (n *Node) serve(set *listenerSet) {
	n.stopStartupServer()
	if set.cluster != nil {
		n.openDevPort(set.cluster)
	}
	if l := set.socket; l != nil {
		n.background.Go(func() {
			if err := n.admin.Serve(l, implicitPrincipal(l)); err != nil {
				n.log.Error("admin server failed", "address", l.Addr().String(), "error", err)
			}
		})
	}
	set.cluster, set.socket = nil, nil
}

// serveHTTP starts the HTTP server. It runs before the node is in its cluster, so
// that /healthz answers while the node still looks for it.
func (n *Node) serveHTTP(set *listenerSet) {
	n.http = ops.NewServer(&n.gate, n.log)
	l := set.http
	set.http = nil
	n.background.Go(func() { n.followed.Run(n.ctx) })
	n.background.Go(func() {
		if err := n.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("HTTP server failed", "error", err)
		}
	})
}

// implicitPrincipal returns the principal for connections without credentials of their own:
// those to the node's own socket, and those to a --dev node.
func implicitPrincipal(l net.Listener) api.Principal {
	if l.Addr().Network() == "unix" {
		return api.Principal{Name: "local", Role: api.RoleAdmin}
	}
	return api.Principal{Name: "dev", Role: api.RoleAdmin}
}

// housekeep runs the periodic work, once a second.
func (n *Node) housekeep() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			n.data.Sweep(now)
			n.ops.Sweep(now)
			if n.cluster != nil {
				n.data.UpdateHealthGossip(gossipedHealth(n.cluster.Directory.Members()))
			}
		case <-n.ctx.Done():
			return
		}
	}
}

// gossipedHealth returns the endpoint health that the members that are up have gossiped,
// by node ID.
func gossipedHealth(members []directory.Member) map[string]string {
	nodes := map[string]string{}
	for i := range members {
		if m := &members[i]; m.Up() {
			nodes[m.ID] = string(m.Facts.Hints)
		}
	}
	return nodes
}

// Done is closed when the node cannot go on; its log says why.
func (n *Node) Done() <-chan struct{} { return n.done }

// AdminAddr returns the address of the cluster port.
func (n *Node) AdminAddr() string { return n.adminAddr }

// HTTPAddr returns the HTTP listen address.
func (n *Node) HTTPAddr() string { return n.httpAddr }

// Stop drains the node and ends it. When ctx ends, Stop closes the remaining
// connections at once; if ctx was cancelled, that is no error. It may be called
// again.
func (n *Node) Stop(ctx context.Context) error {
	notifySystemd("STOPPING=1")
	err := n.drain(ctx, n.cfg.DrainTimeout, true)
	n.closeOnce.Do(func() {
		n.close(ctx)
		n.log.Info("stopped")
	})
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return cmp.Or(n.err, err)
}

// close ends everything in the reverse order of Start, with one exception: admin
// RPC and HTTP are served until the last connection is closed, so that a drain
// can be watched and the last metrics scraped.
func (n *Node) close(ctx context.Context) {
	n.state.Advance(lifecycle.Stopping)
	if n.data != nil {
		n.data.Shutdown()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if n.xds != nil {
		n.xds.Stop(ctx) // first, so that proxies go on at another node at once
	}
	n.closeBundleEndpoint(ctx)
	n.closeWorkloads()
	n.stopStartupServer() // if Start failed while it looked for the cluster
	if n.admin != nil {
		_ = n.admin.Shutdown(ctx) // requests still in flight are cut off
	}
	for _, port := range []*mux.Mux{n.devPort, n.xdsPort} {
		if port != nil {
			port.Close()
		}
	}
	if n.http != nil && n.http.Shutdown(ctx) != nil {
		n.http.Close()
	}
	n.cancel()
	n.background.Wait()
	if n.cluster != nil {
		n.cluster.Close()
	}
	if n.data != nil {
		n.data.Close()
	}
	if n.access != nil {
		n.access.Close()
	}
	n.dir.close()
}
