// Package node puts the rooms together and runs them: it starts and stops them
// in order, brings changes of the configuration to each, and answers those who
// operate it. What a connection goes through is netio's and routing's business.
//
//	n, err := node.Start(node.Config{Dev: true, Cluster: "127.0.0.1:7947", HTTP: "127.0.0.1:7948", ...})
//	...
//	err = n.Stop(ctx) // drains
package node

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"penstock/consensus"
	"penstock/netio"
	"penstock/netio/reactor"
	"penstock/netio/tlsstream"
	"penstock/node/accesslog"
	"penstock/node/admin"
	"penstock/node/catalog"
	"penstock/node/tlsconfig"
	"penstock/routing"
	"penstock/routing/discovery"
	"penstock/routing/endpoint"
	"penstock/routing/health"
	"penstock/routing/resource"
)

// ErrConfig wraps what Validate finds.
var ErrConfig = errors.New("settings")

// Node is a running node. Its methods may be called from anywhere.
type Node struct {
	cfg     Config
	log     *slog.Logger
	id      string
	started time.Time
	state   state

	dir     *dataDir // nil: none
	access  *accesslog.Log
	flows   *flows
	catalog *catalog.Catalog
	rooms   *rooms
	router  *routing.Router
	engine  *netio.Engine
	admin   *admin.Server
	http    *http.Server
	metrics *prometheus.Registry
	changes *prometheus.CounterVec // changes of the configuration, by result

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

// Start starts a node; it serves when Start returns.
func Start(cfg Config) (_ *Node, err error) {
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
	if n.cfg.DataDir != "" {
		if n.dir, err = openDataDir(n.cfg.DataDir); err != nil {
			return nil, err
		}
	}
	// 2. The ports that commands and metrics come to are taken before any
	//    traffic flows: a node that cannot be operated should not start.
	doors, err := n.openDoors()
	if err != nil {
		return nil, err
	}
	// 3. The rooms, from the inside out: what decides, what it decides by, and
	//    what carries bytes. They have nothing to do yet.
	if err = n.makeRooms(); err != nil {
		doors.close()
		return nil, err
	}
	// 4. The store's content acts, and every change of it from now on.
	n.background.Go(n.follow)
	n.background.Go(n.keepTidy)
	if n.cfg.AccessLog == AccessAll {
		n.background.Go(n.logOngoing)
	}
	if err = n.applyFirst(); err != nil {
		doors.close()
		return nil, err
	}
	// 5. Whoever operates the node comes last: what they see is complete.
	n.serve(doors)
	n.state.advance(serving)
	notifySystemd("READY=1")
	n.log.Info("started", "name", n.cfg.Name, "version", n.cfg.Version, "cluster", n.adminAddr, "http", n.httpAddr, "loops", n.engine.Loops())
	return n, nil
}

func newNode(cfg Config) *Node {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	n := &Node{
		cfg: cfg, log: cfg.Log, id: hex.EncodeToString(id[:]), started: time.Now(),
		done: make(chan struct{}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "penstock_configuration_changes_total", Help: "Changes that were asked for here: done or refused.",
		}, []string{"result"}),
	}
	n.alive, n.end = context.WithCancel(context.Background())
	return n
}

// doors are the listening sockets of those who operate the node.
type doors struct {
	admin []net.Listener
	http  net.Listener
}

func (d *doors) close() {
	for _, l := range d.admin {
		l.Close()
	}
	if d.http != nil {
		d.http.Close()
	}
}

func (n *Node) openDoors() (d doors, err error) {
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	var config net.ListenConfig
	cluster, err := config.Listen(n.alive, "tcp", n.cfg.Cluster)
	if err != nil {
		return d, fmt.Errorf("--cluster: %w", err)
	}
	d.admin = append(d.admin, cluster)
	n.adminAddr = cluster.Addr().String()
	if d.http, err = config.Listen(n.alive, "tcp", n.cfg.HTTP); err != nil {
		return d, fmt.Errorf("--http: %w", err)
	}
	n.httpAddr = d.http.Addr().String()
	if n.dir != nil {
		own, err := n.dir.listen()
		if err != nil {
			return d, fmt.Errorf("own socket: %w", err)
		}
		d.admin = append(d.admin, own)
	}
	return d, nil
}

// makeRooms makes the rooms and ties them together.
func (n *Node) makeRooms() error {
	n.catalog = catalog.New(catalog.Config{Store: consensus.NewMemory(consensus.Limits{}), Kinds: Kinds(), Log: n.log})
	if n.cfg.AccessLog != AccessOff {
		n.access = accesslog.New(accesslog.Config{Out: n.cfg.AccessOut, JSON: n.cfg.AccessJSON})
	}
	r := &rooms{
		log: n.log, bind: n.cfg.Bind, certs: tlsconfig.NewStore(), tickets: tlsstream.NewTickets(),
		listeners: map[string]netio.Listener{}, servers: map[string]server{},
		checks: map[string][]health.Target{}, ejecting: map[string]*endpoint.Group{},
	}
	r.clients = &clients{log: n.log, certs: r.certs, m: map[string]client{}}
	r.resolver = discovery.New(discovery.Config{Changed: r.resolved, Log: n.log})
	r.router = routing.NewRouter(routing.Config{NodeTags: n.cfg.Tags, Hosts: r.resolver, Observe: n.observe})
	r.checker = health.New(health.Config{})
	n.rooms, n.router = r, r.router

	handler := &traffic{router: r.router, gone: &r.gone, client: r.clients.of, access: n.access, accessAll: n.cfg.AccessLog == AccessAll}
	engine, err := netio.New(netio.Config{
		Handler: handler, Log: n.log, Loops: n.cfg.Loops,
		MemoryBudget: n.cfg.MemoryBudget, MaxHandshakes: n.cfg.MaxHandshakes,
	})
	if err != nil {
		return err
	}
	n.engine, r.engine = engine, engine
	n.flows = newFlows(engine.Loops())
	handler.flows, r.flows = n.flows, n.flows
	n.metrics = newRegistry(n)
	n.admin = newAdmin(n)
	n.http = newHTTP(n)
	return nil
}

// follow brings the store's content to act. A node that cannot understand what
// was agreed must not go on as if it had.
func (n *Node) follow() {
	if err := n.catalog.Follow(n.alive, n.rooms.apply); !errors.Is(err, context.Canceled) {
		n.log.Error("the configuration cannot be followed: the node stops", "error", err)
		n.failed.Do(func() { close(n.done) })
	}
}

// applyFirst applies the resources of the settings.
func (n *Node) applyFirst() error {
	if len(n.cfg.Resources) == 0 {
		return nil
	}
	_, err := n.catalog.Apply(n.alive, catalog.Change{Objects: n.cfg.Resources, Note: consensus.Note{Who: n.cfg.Name}})
	n.cfg.Resources = nil // they may be many, and are kept where they are changed
	var refusal *admin.Error
	if errors.As(err, &refusal) {
		var faults resource.Faults
		for _, f := range refusal.Faults {
			faults = append(faults, resource.Fault{Path: strings.TrimSpace(f.Key + " " + f.Path), Message: f.Message, Value: f.Value})
		}
		if len(faults) > 0 {
			return faults
		}
	}
	return err
}

// serve opens the doors.
func (n *Node) serve(d doors) {
	for _, l := range d.admin {
		n.background.Go(func() {
			if err := n.admin.Serve(l, caller(l)); err != nil {
				n.log.Error("admin", "address", l.Addr().String(), "error", err)
			}
		})
	}
	n.background.Go(func() {
		if err := n.http.Serve(d.http); !errors.Is(err, http.ErrServerClosed) {
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

// keepTidy does what is to be done about once a second.
func (n *Node) keepTidy() {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			n.rooms.tidy(now)
		case <-n.alive.Done():
			return
		}
	}
}

// observe logs what happens to endpoints. It is called on loops.
func (n *Node) observe(e endpoint.Event) {
	args := []any{"service", e.Service, "endpoint", endpointName(e.Endpoint)}
	level := slog.LevelInfo
	switch e.Change {
	case endpoint.EventEjected:
		level = slog.LevelWarn
		args = append(args, "cause", e.Cause, "until", e.Until.Format(time.RFC3339))
	case endpoint.EventUnhealthy:
		level = slog.LevelWarn
		args = append(args, "cause", e.Cause)
	}
	n.log.Log(n.alive, level, "endpoint "+e.Change.String(), args...)
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
	return err
}

// close ends everything in the reverse order of Start, with one exception: the
// doors stay open until the last connection is gone, so that a drain can be
// watched and its last numbers scraped.
func (n *Node) close(ctx context.Context) {
	n.state.advance(stopping)
	if n.engine != nil {
		n.engine.Close()
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if n.admin != nil {
		_ = n.admin.Shutdown(ctx) // what is still in flight is cut off
	}
	if n.http != nil && n.http.Shutdown(ctx) != nil {
		n.http.Close()
	}
	n.end()
	n.background.Wait()
	if n.rooms != nil {
		n.rooms.checker.Close()
		n.rooms.resolver.Close()
	}
	if n.access != nil {
		n.access.Close()
	}
	n.dir.close()
}

// countChange counts a change that was asked for.
func (n *Node) countChange(err error, dryRun bool) {
	switch {
	case dryRun:
	case err != nil:
		n.changes.WithLabelValues("refused").Inc()
	default:
		n.changes.WithLabelValues("done").Inc()
	}
}

func itoa(i int) string { return strconv.Itoa(i) }
