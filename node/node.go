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
	"penstock/node/events"
	"penstock/node/expiry"
	"penstock/node/federation"
	"penstock/node/follow"
	"penstock/node/kubernetes"
	"penstock/node/lifecycle"
	"penstock/node/logs"
	"penstock/node/metrics"
	"penstock/node/mux"
	"penstock/node/ops"
	"penstock/node/otlp"
	"penstock/node/providers"
	"penstock/node/quota"
	"penstock/node/rollout"
	"penstock/node/rpc"
	"penstock/node/svid"
	"penstock/node/telemetry"
	"penstock/node/trust"
	"penstock/node/ui"
	"penstock/node/workload"
	"penstock/node/xds"
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
	sessionKeys     ui.Keys // of the dashboard
	data            *dataplane.Dataplane
	providers       *providers.Providers
	acme            *acme.Manager
	otlp            *otlp.Manager
	otlpLines       *atomic.Pointer[otlp.Manager] // where lines of the log go, from the start of otlp on
	accessTo        *otlpAccess                   // nil: no Telemetry wants lines of the access log; follow's
	bundles         *trust.Bundles
	federation      *federation.Manager
	bundle          *federation.Endpoint // serves the cluster's own
	followed        *follow.Manager
	expiry          *expiry.Tracker
	componentsReady atomic.Bool // makeComponents has finished
	caughtUp        atomic.Bool // this start has applied all that the cluster had committed
	left            atomic.Bool // the node left its cluster for good
	leaveAttempts   leaveAttempts
	startup         startupStatus
	socket          net.Listener // the node's own socket; nil: none
	reread          rereader
	err             error      // why the node cannot go on; written before done is closed
	logs            *logs.Logs // the last lines, in memory
	access          *accesslog.Log
	audit           *audit.Log
	catalog         *catalog.Catalog
	tracker         *rollout.Tracker
	history         *telemetry.History // what this node has measured
	metrics         *metrics.Metrics
	shares          *quota.Driver
	leases          *quota.Leader // nil: with --dev
	ops             *ops.Methods
	admin           *rpc.Server
	events          *events.Hub // the streams of /v1/events
	xds             *xds.Server
	identities      *workload.Source // nil: with --dev
	svids           *svid.Manager
	kubernetes      *kubernetes.Manager // nil: none
	spiffe          *workload.API       // of --spiffe-socket; nil: none
	devPort         *mux.Mux            // the cluster port with --dev; nil: the cluster has it
	xdsPort         *mux.Mux            // of --xds; nil: none
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
	n.background.Go(n.recordHistory)
	n.background.Go(n.catchUp)
	n.background.Go(func() { n.audit.Run(n.ctx) })
	n.background.Go(func() { n.providers.Run(n.ctx) })
	n.background.Go(func() { n.acme.Run(n.ctx) })
	n.background.Go(func() { n.federation.Run(n.ctx) })
	n.background.Go(func() { n.ops.Rollouts.Run(n.ctx) })
	n.background.Go(func() { n.shares.Run(n.ctx) })
	if n.leases != nil {
		n.background.Go(func() { n.leases.Run(n.ctx) })
	}
	if n.kubernetes != nil {
		n.background.Go(func() { n.kubernetes.Run(n.ctx) })
	}
	if n.cfg.AccessLog == AccessAll {
		n.background.Go(func() { n.data.LogOngoing(n.ctx, n.cfg.AccessInterval) })
	}
}

func newNode(cfg Config) *Node {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	memory, log := keepLogs(&cfg)
	lines := new(atomic.Pointer[otlp.Manager])
	cfg.Log = slog.New(slog.NewMultiHandler(log, otlpLines{to: lines}))
	n := &Node{
		otlpLines: lines,
		logs:      memory, cfg: cfg, log: cfg.Log, id: hex.EncodeToString(id[:]), started: time.Now(), tickets: tlsstream.NewTickets(),
		done:    make(chan struct{}),
		reread:  rereader{log: cfg.Log, files: cfg.ResourceFiles, requested: make(chan struct{}, 1)},
		changes: metrics.Changes(),
		audit:   audit.New(audit.Config{Entries: cfg.AuditEntries, Age: cfg.AuditAge, Log: cfg.Log}),
		expiry:  expiry.New(),
		history: telemetry.New(telemetry.Config{Budget: int(cmp.Or(cfg.HistoryBudget, DefaultHistory))}),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.followed = follow.New(follow.Config{Log: n.log, DataDir: cfg.DataDir, Apply: func(set *validate.Set, changes []resource.Change) {
		n.data.Apply(set, changes)
		n.applyTelemetry(changes)
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
		if n.cfg.HTTPCA != "" {
			n.reread.clients = newClientCAFile(n.cfg.HTTPCA)
		}
		if set.http, err = n.reread.certs.listener(set.http, n.reread.clients); err != nil {
			return set, err
		}
		if clients := n.reread.clients; clients != nil {
			n.followed.Watch("--http-ca", clients.check)
			n.expiry.Watch("--http-ca", expiry.Trusted, clients.trusted)
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
		if set.socket, err = n.dir.listen(n.cfg.withClients); err != nil {
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
			n.events.Sweep()
			if n.cluster != nil {
				n.data.UpdateHealthGossip(gossipedHealth(n.cluster.Directory.Members()))
			}
		case <-n.ctx.Done():
			return
		}
	}
}

// recordHistory records the metrics once a second.
func (n *Node) recordHistory() {
	ticker := time.NewTicker(telemetry.FineStep)
	defer ticker.Stop()
	for {
		n.history.Record(time.Now(), n.metrics.Record)
		select {
		case <-ticker.C:
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
	if n.events != nil {
		n.events.Close() // the HTTP server would wait for its streams
	}
	for _, port := range []*mux.Mux{n.devPort, n.xdsPort} {
		if port != nil {
			port.Close()
		}
	}
	if n.http != nil && n.http.Shutdown(ctx) != nil {
		n.http.Close()
	}
	n.lastMetrics(ctx)
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
	n.closeOTLP(ctx) // last: spans and lines of what was closed above
	n.dir.close()
}
