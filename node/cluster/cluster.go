// Package cluster makes a node a member of a cluster. It owns the node's
// identity among the others (trust), where the others are (gossip,
// announcements, remembered peers), the replicated store (replica.Replica),
// the choice of voters (membership), and the forwarding of requests from any
// node to the leader.
//
// It refuses whatever could merge two clusters or two nodes into one: a token
// of another cluster, a data folder that is in use elsewhere, the name of a
// node that is up. It does not interpret users' entries; its own entries have
// kinds that begin with "_".
//
// The store alone defines who is a member: the records _node/ID, and Raft's
// configuration, which the leader keeps in line with them. Gossip reports where
// nodes are and how they are doing. Addresses are looked up by ID at each dial,
// and the certificate proves which node has answered, so all nodes may return at
// other addresses at once.
//
//	c, err := cluster.Open(ctx, cluster.Config{Dir: dir, Name: "edge-1", Listener: ln, Gossip: "10.0.0.1:7946", Init: true, ...})
//	c.Register(server)   // adds the cluster's methods
//	c.ServeConns(server) // serves the cluster port's requests from now on
//	snap := c.Store().Snapshot()
//	...
//	c.Close()
//
// The parts are packages below this one, and none of them knows Cluster. Here
// they are put together: start.go opens a node's cluster, announce.go publishes
// where the node is, follow.go acts on committed changes, leave.go takes the node
// out. DESIGN.md has the reasons and the invariants.
package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"penstock/consensus/replica"
	"penstock/node/api"
	"penstock/node/cluster/bootstrap"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/identity"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/record"
	"penstock/node/cluster/token"
	"penstock/node/mux"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// Cluster is this node's membership in its cluster. Its methods may be called
// from any goroutine.
type Cluster struct {
	Directory *directory.Directory // who the nodes are, and where
	Tokens    *token.Registry
	// Identities are the certificates of workloads.
	Identities *identity.Registry

	cfg         Config
	log         *slog.Logger
	newIdentity bool // Open found no identity in the data folder
	// id is replaced when the name, the certificate or the CAs change. Once the
	// loops run, writers hold renewing.
	id          atomic.Pointer[trust.Identity]
	renewing    sync.Mutex
	port        *mux.Mux
	proxies     *trust.ProxyServer // of the port's xDS connections
	connServers connServers
	replica     atomic.Pointer[replica.Replica] // nil until the node is in a cluster
	entries     record.Store                    // the cluster's own entries in replica

	bootstrap *bootstrap.Bootstrap
	leader    *leader.Tracker
	requests  *leader.Requests
	lead      *leader.Leader
	handOver  *leader.HandOver
	clock     *leader.Clock

	ctx    context.Context // ends with the Cluster
	cancel context.CancelFunc
	work   sync.WaitGroup

	announceWake chan struct{} // capacity 1; wakes announce

	mu      sync.Mutex
	trusted uint64 // index of the last change of CAs or gossip keys that this node applied

	leaving atomic.Bool // Leave is in progress
	stopped sync.Once   // guards Config.Stop
	closed  sync.Once
}

func newCluster(cfg Config, id *trust.Identity, fresh bool) *Cluster {
	c := &Cluster{
		cfg: cfg, log: cfg.Log, newIdentity: fresh, leader: leader.NewTracker(id.NodeID),
		announceWake: make(chan struct{}, 1),
	}
	c.id.Store(id)
	c.entries = record.Store{Replica: c.replica.Load, Identity: c.id.Load, Audit: cfg.Acts}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.connServers.open = make(chan struct{})
	address := advertised(cfg.Listener.Addr(), cfg.Advertise)
	c.proxies = &trust.ProxyServer{Identity: c.id.Load, Signer: c.signer, Host: host(address)}
	c.Directory = directory.New(c.ctx, directory.Config{
		Entries: c.entries, Dir: cfg.Dir, Listener: cfg.Listener, Address: address,
		Gossip: cfg.Gossip, Advertise: cfg.Advertise, HTTP: cfg.HTTP, Version: cfg.Version, Zone: cfg.Zone, OwnFacts: cfg.Facts,
		// An election takes two attempts at most, each after up to two timeouts.
		Tick: cfg.Timing.Tick, Election: 2 * (cfg.Timing.Heartbeat + cfg.Timing.Election),
		Leader: c.leader, Moved: func() { notify(c.announceWake) }, Stop: c.fail, Log: c.log,
	})
	c.requests = &leader.Requests{Tracker: c.leader, Pool: c.Directory.Pool, Why: c.Directory.Alone}
	c.clock = &leader.Clock{Tracker: c.leader, Log: c.log}
	c.handOver = &leader.HandOver{Tracker: c.leader, Replica: c.replica.Load, Nodes: c.Directory, Log: c.log}
	c.lead = leader.New(leader.Config{
		Entries: c.entries, Directory: c.Directory, Voters: cfg.Voters, ReplaceAfter: cfg.ReplaceAfter, ForgetAfter: cfg.ForgetAfter,
		Tick: cfg.Timing.Tick, Stable: cfg.Timing.Stable, Announcement: c.announcement, Answered: c.applyAnnounceResult,
		Leaving: c.leaving.Load, Log: c.log,
	})
	c.Tokens = token.New(token.Config{Entries: c.entries, Now: c.clock.Now, Read: c.Read, Log: c.log})
	c.Identities = identity.New(identity.Config{
		Entries: c.entries, Path: c.Tokens.Path, Log: c.log,
		Lacking: func() []string { return c.Directory.MembersBelow(record.LevelIdentity) },
	})
	c.bootstrap = &bootstrap.Bootstrap{Config: bootstrap.Config{
		Entries: c.entries, Directory: c.Directory, Dir: cfg.Dir,
		Expect: cfg.Expect, Join: cfg.Join, Token: cfg.Token, TokenTTL: cfg.TokenTTL, TrustDomain: cfg.TrustDomain, Voters: cfg.Voters,
		Retry: cfg.Timing.Retry, NewIdentity: fresh, Opened: time.Now(),
		SetIdentity: c.id.Store, OpenStore: c.openStore, Serve: c.connServers.serve,
		AnnounceTo: func(ctx context.Context, id string) error { return c.announceTo(ctx, id, c.announcement()) },
		Waits:      cfg.Waits, Audit: cfg.Audit, Log: c.log,
	}}
	return c
}

// ID returns the node's ID.
func (c *Cluster) ID() string { return c.id.Load().NodeID }

// Name returns the node's name.
func (c *Cluster) Name() string { return c.id.Load().Name }

// ClusterID returns the cluster's ID.
func (c *Cluster) ClusterID() string { return c.id.Load().ClusterID }

// TrustDomain returns the SPIFFE trust domain of the cluster's workloads.
func (c *Cluster) TrustDomain() string { return c.id.Load().TrustDomain() }

// New reports whether this start brought the node into its cluster, or the node
// has not yet received the cluster's record.
func (c *Cluster) New() bool {
	_, heard := c.Store().Snapshot().Get(record.KeyCluster)
	return c.newIdentity || !heard
}

// Store returns the replicated store; nil until the node is in a cluster.
func (c *Cluster) Store() *replica.Replica { return c.replica.Load() }

// Sealer returns the keyring that seals and opens values with the cluster's
// key.
func (c *Cluster) Sealer() *trust.Keyring { return c.entries.Sealer() }

// Identity returns the identity that the node presents to others.
func (c *Cluster) Identity() *trust.Identity { return c.id.Load() }

// JoinCommand returns the command line, token included, with which other nodes
// join; "" unless this start founded the cluster. Show it once and do not log
// it.
func (c *Cluster) JoinCommand() string { return c.bootstrap.JoinCommand }

// Leader returns the leader's ID and name, and whether it is this node; id is
// "" if no leader is known.
func (c *Cluster) Leader() (id, name string, self bool) {
	id = c.leader.ID()
	if id == "" {
		return "", "", false
	}
	if r, ok := record.FindNode(c.Store().Snapshot(), id); ok {
		name = r.Name
	}
	return id, name, id == c.ID()
}

// Read returns the index that a snapshot must reach to show every change that
// any node acknowledged before the call.
func (c *Cluster) Read(ctx context.Context) (uint64, error) {
	until := time.Now().Add(leader.Timeout)
	for {
		changed := c.leader.Changed()
		attempt, cancel := context.WithCancel(ctx)
		stop := make(chan struct{})
		go func() { // otherwise the call waits for a leader that is cut off until TCP gives up
			select {
			case <-changed:
				cancel()
			case <-stop:
			}
		}()
		r, err := leader.Ask(attempt, c.requests, api.MethodRead, &api.Empty{}, c.handleRead)
		cancelled := attempt.Err() != nil && ctx.Err() == nil
		close(stop)
		cancel()
		switch {
		case err == nil:
			return r.Index, nil
		case (cancelled || errors.Is(err, rpc.ErrLost)) && ctx.Err() == nil && time.Now().Before(until):
			// Read changes nothing, so it can be retried.
		default:
			return 0, err
		}
	}
}

// ServeConns sets the server that answers requests on the cluster port.
func (c *Cluster) ServeConns(s *rpc.Server) { c.connServers.serve(s) }

// OnLeader makes a handler whose work the leader does, whichever node gets the
// request (leader.Handler).
func OnLeader[Req, Resp any](c *Cluster, act func(context.Context, *Req) (*Resp, error)) func(context.Context, *Req) (*Resp, error) {
	return leader.Handler(c.requests, act)
}

// RecordActs has the leader record acts of this node in the audit log; there, add
// does.
func (c *Cluster) RecordActs(
	ctx context.Context, acts *api.AuditActs, add func(context.Context, *api.AuditActs) (*api.Empty, error),
) error {
	_, err := leader.Ask(ctx, c.requests, api.MethodAuditRecord, acts, add)
	return err
}

// watchLeader records each change of the leader.
func (c *Cluster) watchLeader() {
	for {
		changes := c.Store().Changes()
		leadership := c.Store().Leadership()
		if c.leader.Set(leadership.Leader) {
			c.log.Info("leader", "id", leadership.Leader, "self", leadership.Leader == c.ID(), "term", leadership.Term)
		}
		c.lead.Wake()
		select {
		case <-changes:
		case <-c.Store().Failed():
			c.fail(c.Store().Err())
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// HandOver gives the lead to another voter that is up and stays in service, if
// this node leads and there is one: before a drain, for example.
func (c *Cluster) HandOver(ctx context.Context) { c.handOver.Do(ctx, true) }

// fail logs the first fatal error and passes it to Config.Stop.
func (c *Cluster) fail(err error) {
	c.stopped.Do(func() {
		c.log.Error("fatal error: stopping the node", "error", err)
		go c.cfg.Stop(err)
	})
}

// notify wakes the loop that receives from ch, which has capacity 1.
func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// connServers holds the server for the requests on the cluster port: first the
// one that forms a cluster, if any, then the node's own.
type connServers struct {
	mu     sync.Mutex
	server *rpc.Server
	open   chan struct{} // closed once there is a server
}

func (cs *connServers) serve(s *rpc.Server) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.server == nil && s != nil {
		close(cs.open)
	}
	if cs.server != nil && s == nil {
		cs.open = make(chan struct{})
	}
	cs.server = s
}

// recheck closes the connections of tokens that are no longer valid.
func (cs *connServers) recheck() {
	cs.mu.Lock()
	s := cs.server
	cs.mu.Unlock()
	if s != nil {
		s.Recheck()
	}
}

// get waits for a server; it returns nil when ctx ends first.
func (cs *connServers) get(ctx context.Context) *rpc.Server {
	for {
		cs.mu.Lock()
		s, open := cs.server, cs.open
		cs.mu.Unlock()
		if s != nil {
			return s
		}
		select {
		case <-open:
		case <-ctx.Done():
			return nil
		}
	}
}

// serverWait bounds how long a connection waits for a node that is starting.
const serverWait = 10 * time.Second

// serveAdmin serves one connection of admin RPC.
func (c *Cluster) serveAdmin(conn net.Conn, nodeID string) {
	ctx, cancel := context.WithTimeout(c.ctx, serverWait)
	s := c.connServers.get(ctx)
	cancel()
	if s == nil {
		conn.Close()
		return
	}
	s.ServeConn(conn, c.principal(nodeID))
}

// peer returns the node of a peer's certificate. A departed node is not ok: it
// is treated as unauthenticated, and may only learn that it was removed.
func (c *Cluster) peer(cs tls.ConnectionState) (nodeID string, ok bool) {
	nodeID, ok = trust.PeerNode(cs)
	return nodeID, ok && !c.Directory.Departed(nodeID)
}

// principal returns the principal of a node's certificate; zero for nodeID "".
func (c *Cluster) principal(nodeID string) api.Principal {
	if nodeID == "" {
		return api.Principal{}
	}
	p := api.Principal{Name: nodeID, Role: api.RoleNode, Node: nodeID}
	if c.Store() != nil {
		if r, ok := record.FindNode(c.Store().Snapshot(), nodeID); ok {
			p.Name = r.Name
		}
	}
	return p
}

// PortStats returns the counters of the cluster port.
func (c *Cluster) PortStats() mux.Stats { return c.port.Stats() }
