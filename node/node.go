// Package node puts a node together: it starts its parts in order, drains them
// and stops them. What the node does with traffic is dataplane's business, what
// it answers operators is ops', and what its cluster agrees on is cluster's and
// catalog's.
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

	"penstock/consensus"
	"penstock/netio/reactor"
	"penstock/netio/tlsstream"
	"penstock/node/accesslog"
	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/node/cluster"
	"penstock/node/dataplane"
	"penstock/node/kinds"
	"penstock/node/lifecycle"
	"penstock/node/metrics"
	"penstock/node/ops"
	"penstock/node/rollout"
	"penstock/node/trust"
	"penstock/routing/resource"
)

// errOfCluster keeps a node for trying things from looking like the node of a
// cluster whose folder it was given by mistake.
var errOfCluster = errors.New("it is that of a node of a cluster, of which --dev uses nothing: leave --dev out to start that node, or give another folder or none")

// ErrConfig wraps what Validate finds.
var ErrConfig = errors.New("settings")

// Node is a running node. Its methods may be called from anywhere.
type Node struct {
	cfg     Config
	log     *slog.Logger
	id      string
	started time.Time
	state   lifecycle.State

	dir        *dataDir         // nil: none
	cluster    *cluster.Cluster // nil: with --dev
	store      catalog.Store
	tickets    *tlsstream.Tickets
	data       *dataplane.Dataplane
	made       atomic.Bool // the rooms are made
	left       atomic.Bool // the node left its cluster for good
	departures departures
	waiting    waiting
	own        net.Listener // the node's own socket; nil: none
	reread     rereader
	err        error // why the node cannot go on; written before done is closed
	access     *accesslog.Log
	catalog    *catalog.Catalog
	tracker    *rollout.Tracker
	ops        *ops.Methods
	admin      *admin.Server
	http       *http.Server
	gate       ops.Gate               // what HTTP serves now
	changes    *prometheus.CounterVec // changes of the configuration, by result

	adminAddr, httpAddr string

	alive      context.Context // ends when the node stops
	end        context.CancelFunc
	background sync.WaitGroup
	drainMu    sync.Mutex
	drainRun   *drainRun     // the drain that runs or is over; nil: none
	done       chan struct{} // closed when the node cannot go on
	failed     sync.Once
	closed     sync.Once
}

// Start starts a node; it serves when Start returns. Finding its cluster may
// take as long as ctx gives it; afterwards ctx is of no concern.
func Start(ctx context.Context, cfg Config) (_ *Node, err error) {
	if faults := cfg.Validate(); len(faults) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrConfig, strings.Join(faults, "; "))
	}
	n := newNode(cfg.withDefaults())
	defer func() {
		if err != nil {
			n.closed.Do(func() { n.close(context.Background()) })
		}
	}()
	// 1. What the process needs: descriptors, and the folder for itself alone.
	if limit, err := reactor.RaiseFileLimit(); err != nil {
		n.log.Warn("the limit of open files stays", "limit", limit, "error", err)
	}
	if err = n.openFolder(); err != nil {
		return nil, err
	}
	// 2. The ports that commands and metrics come to are taken before any
	//    traffic flows: a node that cannot be operated should not start.
	listeners, err := n.openListeners()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			listeners.close()
		}
	}()
	// 3. The cluster: who the node is and what was agreed. A node that has a
	//    cluster finds that on its disk, and waits for nobody.
	n.gate.Set(n.waiting.front())
	n.own = listeners.own
	n.serveHTTP(&listeners)
	if err = n.openCluster(ctx, &listeners); err != nil {
		return nil, err
	}
	// 4. The rooms, from the inside out: what decides, what it decides by, and
	//    what carries bytes. They have nothing to do yet.
	if err = n.makeRooms(); err != nil {
		return nil, err
	}
	// 5. The store's content acts, and every change of it from now on. The
	//    first resources are applied as a command would do it, so the cluster
	//    port is open from here.
	n.background.Go(n.follow)
	n.background.Go(n.housekeep)
	n.background.Go(func() { n.ops.Rollouts.Run(n.alive) })
	if n.cfg.AccessLog == AccessAll {
		n.background.Go(func() { n.data.LogOngoing(n.alive) })
	}
	// What the node had on its disk acts first.
	if err = n.catalog.Await(ctx, n.store.Snapshot().Index()); err != nil {
		return nil, err
	}
	if n.cluster != nil {
		n.cluster.ServeConns(n.admin)
		if err = n.receive(ctx); err != nil {
			return nil, err
		}
	}
	if err = n.startResources(ctx); err != nil {
		return nil, err
	}
	// 6. Whoever operates the node comes last: what they see is complete.
	n.serve(&listeners)
	n.state.Advance(lifecycle.Serving)
	notifySystemd("READY=1")
	n.log.Info("started", "name", n.cfg.Name, "version", n.cfg.Version, "cluster", n.adminAddr, "http", n.httpAddr, "loops", n.data.Engine.Loops())
	return n, nil
}

func newNode(cfg Config) *Node {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	n := &Node{
		cfg: cfg, log: cfg.Log, id: hex.EncodeToString(id[:]), started: time.Now(), tickets: tlsstream.NewTickets(),
		done:    make(chan struct{}),
		reread:  rereader{log: cfg.Log, files: cfg.ResourceFiles, asked: make(chan struct{}, 1)},
		changes: metrics.Changes(),
	}
	n.alive, n.end = context.WithCancel(context.Background())
	return n
}

// listenerSet are the listening sockets of those who operate the node.
type listenerSet struct {
	cluster net.Listener // nil: somebody else has it
	own     net.Listener // the node's own socket; nil: none
	http    net.Listener
}

func (d *listenerSet) close() {
	for _, l := range []net.Listener{d.cluster, d.own, d.http} {
		if l != nil {
			l.Close()
		}
	}
}

func (n *Node) openListeners() (d listenerSet, err error) {
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	var config net.ListenConfig
	if d.cluster, err = config.Listen(n.alive, "tcp", n.cfg.Cluster); err != nil {
		return d, fmt.Errorf("--cluster: %w", err)
	}
	n.adminAddr = d.cluster.Addr().String()
	if d.http, err = config.Listen(n.alive, "tcp", n.cfg.HTTP); err != nil {
		return d, fmt.Errorf("--http: %w", err)
	}
	n.httpAddr = d.http.Addr().String()
	if n.cfg.HTTPCert != "" {
		n.reread.certs = &certFiles{cert: n.cfg.HTTPCert, key: n.cfg.HTTPKey, log: n.log}
		if d.http, err = n.reread.certs.listener(d.http); err != nil {
			return d, err
		}
	}
	if n.dir != nil {
		if d.own, err = n.dir.listen(); err != nil {
			return d, fmt.Errorf("own socket: %w", err)
		}
	}
	return d, nil
}

// openFolder takes the data folder, where there is one, for this process alone.
func (n *Node) openFolder() (err error) {
	if n.cfg.Dev && trust.Holds(n.cfg.DataDir) {
		return fmt.Errorf("data folder %s: %w", n.cfg.DataDir, errOfCluster)
	}
	if n.cfg.DataDir != "" {
		n.dir, err = openDataDir(n.cfg.DataDir, !n.cfg.Dev, n.log)
	}
	return err
}

// makeRooms makes the rooms and ties them together.
func (n *Node) makeRooms() (err error) {
	if n.cfg.AccessLog != AccessOff {
		n.access = accesslog.New(accesslog.Config{Out: n.cfg.AccessOut, JSON: n.cfg.AccessJSON})
	}
	if n.data, err = dataplane.New(n.dataplaneConfig()); err != nil {
		return err
	}
	n.catalog = catalog.New(n.catalogConfig())
	n.tracker = new(rollout.Tracker)
	n.ops = ops.New(n.opsConfig())
	n.admin = newAdmin(n)
	n.made.Store(true)
	front := ops.HTTP{
		Admin: n.admin, Metrics: n.newRegistry(), Ready: n.readiness(), Peers: n.ops.Peers, Log: n.log, Dev: n.cfg.Dev, Pprof: n.cfg.Pprof,
	}
	n.gate.Set(front.Handler())
	return nil
}

// newRegistry has everything that /metrics tells.
func (n *Node) newRegistry() *prometheus.Registry {
	all := []prometheus.Collector{
		metrics.Dataplane(n.data), metrics.Rollouts(n.data.Router, n.tracker, n.ops.Rollouts),
		metrics.Node(n.cfg.Version, n.started, &n.state, n.readiness()),
		metrics.Catalog(n.catalog), n.changes, metrics.Store(n.store), metrics.Admin(n.admin), metrics.Cluster(n.cluster),
	}
	if n.access != nil {
		all = append(all, metrics.AccessLog(n.access))
	}
	if f := n.cfg.ResourceFiles; f != nil && f.Sync {
		all = append(all, metrics.Files(&n.reread.synced))
	}
	return metrics.NewRegistry(append(all, n.data.Histograms()...)...)
}

// newAdmin makes the server of the admin methods.
func newAdmin(n *Node) *admin.Server {
	cfg := admin.Config{Logger: n.log, Authenticate: n.authenticate, Audit: audit(n.log)}
	if n.cluster != nil {
		cfg.Check = n.cluster.Check
	}
	s := admin.NewServer(cfg)
	n.ops.Register(s)
	// What a node does of itself because it is asked to.
	admin.Handle(s, admin.MethodDrain, admin.RoleOperator, n.drainMethod, admin.Changing())
	admin.Handle(s, admin.MethodLeave, admin.RoleAdmin, n.leave, admin.Changing())
	admin.Handle(s, admin.MethodLeaving, admin.RoleAdmin, n.leaving)
	if n.cluster != nil {
		n.cluster.Register(s)
	}
	return s
}

func (n *Node) readiness() ops.Readiness {
	return ops.Readiness{State: &n.state, Engine: n.data.Engine}
}

func (n *Node) gateways() *ops.Gateways {
	return &ops.Gateways{Node: n.cfg.Name, Bind: n.cfg.Bind, Engine: n.data.Engine}
}

// dataplaneConfig is what the settings say of the data plane.
func (n *Node) dataplaneConfig() dataplane.Config {
	c := dataplane.Config{
		Log: n.log, Bind: n.cfg.Bind, Tags: n.cfg.Tags, Loops: n.cfg.Loops, MemoryBudget: n.cfg.MemoryBudget,
		MaxHandshakes: n.cfg.MaxHandshakes, MaxRequests: n.cfg.MaxRequests, Tickets: n.tickets,
		Access: n.access, AccessAll: n.cfg.AccessLog == AccessAll,
	}
	if n.cluster != nil {
		c.Self = n.id
	}
	return c
}

// opsConfig is what the methods of operators work with.
func (n *Node) opsConfig() ops.Config {
	return ops.Config{
		Self: ops.Self{
			ID: n.id, Name: n.cfg.Name, Version: n.cfg.Version, Cluster: n.adminAddr, HTTP: n.httpAddr, Started: n.started,
		},
		Data: n.data, Catalog: n.catalog, Cluster: n.cluster, Tracker: n.tracker, State: &n.state,
		Gateways: n.gateways(), Changes: n.changes, Uploads: n.cfg.DataDir, Log: n.log,
	}
}

// catalogConfig is how resources come from the store.
func (n *Node) catalogConfig() catalog.Config {
	c := catalog.Config{Store: n.store, Kinds: kinds.All(), Log: n.log, Status: n.gateways().Status}
	if n.cluster == nil {
		return c
	}
	c.Sealer = n.cluster.Sealer()
	c.Admit = func(o resource.Object) error { return kinds.Understood(o, n.cluster.MembersBelow) }
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

// follow brings the store's content to act. A node that cannot understand what
// was agreed must not go on as if it had.
func (n *Node) follow() {
	err := n.catalog.Follow(n.alive, func(set *resource.Set, changes []resource.Change) error {
		n.data.Apply(set, changes)
		n.tracker.Apply(changes, time.Now()) // a step lasts from the moment that it acts
		return nil
	})
	// The store closes when the node has left its cluster, and is ending.
	if !errors.Is(err, context.Canceled) && !errors.Is(err, consensus.ErrClosed) {
		n.fail(fmt.Errorf("the configuration cannot be followed: %w", err))
	}
}

// fail ends the node: it cannot go on.
func (n *Node) fail(err error) {
	n.failed.Do(func() {
		n.log.Error("the node stops", "error", err)
		n.err = err
		close(n.done)
	})
}

// Err says why the node could not go on, once Done is closed; nil: it left
// its cluster as it was told to.
func (n *Node) Err() error { return n.err }

// serve accepts requests of admin RPC from now on.
func (n *Node) serve(d *listenerSet) {
	n.waited()
	for _, l := range []net.Listener{d.cluster, d.own} {
		if l == nil {
			continue
		}
		n.background.Go(func() {
			if err := n.admin.Serve(l, caller(l)); err != nil {
				n.log.Error("admin", "address", l.Addr().String(), "error", err)
			}
		})
	}
	d.cluster, d.own = nil, nil
}

// serveHTTP accepts requests of HTTP before there is much to tell: whoever
// watches a node that looks for its cluster must see that it lives.
func (n *Node) serveHTTP(d *listenerSet) {
	n.http = ops.NewServer(&n.gate, n.log)
	l := d.http
	d.http = nil
	n.background.Go(func() {
		if err := n.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			n.log.Error("http", "error", err)
		}
	})
}

// caller is who asks at a listener: whoever reaches the node's own socket, or
// a node that runs for development.
func caller(l net.Listener) admin.Principal {
	if l.Addr().Network() == "unix" {
		return admin.Principal{Name: "local", Role: admin.RoleAdmin}
	}
	return admin.Principal{Name: "dev", Role: admin.RoleAdmin}
}

// housekeep does what is to be done about once a second.
func (n *Node) housekeep() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			n.data.Tidy(now)
			n.ops.Tidy(now)
			if n.cluster != nil {
				n.data.HearHints(hints(n.cluster.Members()))
			}
		case <-n.alive.Done():
			return
		}
	}
}

// hints are what the members that are up have found out about endpoints.
func hints(members []cluster.Member) map[string]string {
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

// AdminAddr and HTTPAddr are the addresses that the node listens on.
func (n *Node) AdminAddr() string { return n.adminAddr }

// HTTPAddr is AdminAddr's for HTTP.
func (n *Node) HTTPAddr() string { return n.httpAddr }

// Stop drains the node and ends it. When ctx ends, what is left is ended at
// once; that is no error. It may be called again.
func (n *Node) Stop(ctx context.Context) error {
	notifySystemd("STOPPING=1")
	err := n.drain(ctx, n.cfg.DrainTimeout, true)
	n.closed.Do(func() {
		n.close(ctx)
		n.log.Info("stopped")
	})
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return cmp.Or(n.err, err)
}

// close ends everything in the reverse order of Start, with one exception: admin
// RPC and HTTP are served until the last connection is gone, so that a drain can
// be watched and its last numbers scraped.
func (n *Node) close(ctx context.Context) {
	n.state.Advance(lifecycle.Stopping)
	if n.data != nil {
		n.data.Shutdown()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	n.waited() // where it did not get further
	if n.admin != nil {
		_ = n.admin.Shutdown(ctx) // what is still in flight is cut off
	}
	if n.http != nil && n.http.Shutdown(ctx) != nil {
		n.http.Close()
	}
	n.end()
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
