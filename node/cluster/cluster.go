// Package cluster makes a node one of several. It owns who the node is among
// the others (trust), where they are (gossip, announcements, what is
// remembered), what they agree on (consensus.Replica), who of them votes
// (membership), and how requests get from any node to the one that decides.
//
// It refuses whatever could blend two clusters or two nodes into one: a token
// of another cluster, a data folder that runs elsewhere, a name that is up.
// What the entries of users mean is not its business; its own have kinds that
// begin with "_".
//
// Whoever is a member is said by the store alone: the records _node/ID, and
// Raft's configuration, which the leader brings in line with them
// (lead.go). Gossip says where nodes are and how they do; addresses are
// looked up by ID at each dial, and who answers there is shown by
// certificates. So all nodes may come back at other addresses at once.
//
//	c, err := cluster.Open(ctx, cluster.Config{Dir: dir, Name: "edge-1", Listener: ln, Gossip: "10.0.0.1:7946", Init: true, ...})
//	c.Register(server)   // the methods of clusters
//	c.ServeConns(server) // the cluster port's requests come to it from now on
//	view := c.Store().Snapshot()
//	...
//	c.Close()
//
// The files: start.go opens a node's cluster (bootstrap.go, join.go, expect.go),
// join_server.go answers nodes that join, announce.go tells others where this
// node is, follow.go acts on what was agreed, and lead.go has the leader's duties.
// DESIGN.md has the reasons and the invariants.
package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/consensus"
	"penstock/gossip"
	"penstock/node/admin"
	"penstock/node/mux"
	"penstock/node/trust"
)

// Cluster is this node's part in its cluster. Its methods may be called from
// anywhere.
type Cluster struct {
	cfg    Config
	log    *slog.Logger
	opened time.Time
	fresh  bool // the folder held no node when this one was opened
	// id is replaced when certificates or CAs change, by one goroutine at a
	// time (renewing).
	id          atomic.Pointer[trust.Identity]
	renewing    sync.Mutex
	addressBook *addressBook
	port        *mux.Mux
	pool        *admin.Pool
	connServers connServers
	replica     atomic.Pointer[consensus.Replica] // nil until the node is in a cluster

	ctx  context.Context // ends with the Cluster
	end  context.CancelFunc
	work sync.WaitGroup

	announcing chan struct{} // holds one: something is to be announced
	leading    chan struct{} // holds one: the leader has something to look at
	admitting  sync.Mutex    // one change of the records at a time, on the leader
	barriers   chan struct{} // those who may ask for a barrier on a stranger's behalf

	cache  cache
	probes livenessProbes

	mu         sync.Mutex
	gossip     *gossip.Gossip // nil: not yet
	keys       [][]byte       // of gossip, as told at the join, until the store has them
	trusted    uint64         // index of the last change of CAs or gossip keys that acts here
	leader     leader
	changed    chan struct{} // closed when leader changes, then replaced
	leaderTerm leaderTerm    // of the last one who led
	seen       map[string]sight
	join       string // JoinCommand
	facts      Facts  // own, of the last tick

	clocks  clocks
	leaving atomic.Bool // Leave is under way
	met     atomic.Bool // another node was heard since this one was opened
	stopped sync.Once   // Config.Stop
	closed  sync.Once
}

// leader is who leads, as far as this node knows.
type leader struct {
	id    string    // "": nobody
	since time.Time // when that changed
}

// sight is whether a node was there when this one last looked.
type sight struct {
	up    bool
	since time.Time // when up changed
}

func newCluster(cfg Config, id *trust.Identity, fresh bool) *Cluster {
	now := time.Now()
	c := &Cluster{
		cfg: cfg, log: cfg.Log, opened: now, fresh: fresh,
		announcing: make(chan struct{}, 1), leading: make(chan struct{}, 1), barriers: make(chan struct{}, 4),
		leader: leader{since: now}, changed: make(chan struct{}), seen: map[string]sight{},
	}
	c.id.Store(id)
	c.ctx, c.end = context.WithCancel(context.Background())
	c.connServers.open = make(chan struct{})
	c.pool = admin.NewPool(admin.PoolConfig{Dial: c.dialNode})
	return c
}

// ID is the node's own.
func (c *Cluster) ID() string { return c.id.Load().NodeID }

// Name is what people call the node.
func (c *Cluster) Name() string { return c.id.Load().Name }

// ClusterID is the cluster's.
func (c *Cluster) ClusterID() string { return c.id.Load().ClusterID }

// Instance is random for each start of the node.
func (c *Cluster) Instance() string { return c.id.Load().Instance }

// New tells whether the node came to its cluster by this start, or has heard
// nothing of what was agreed since it did.
func (c *Cluster) New() bool {
	_, heard := c.Store().Snapshot().Get(keyCluster)
	return c.fresh || !heard
}

// Store is what the nodes agree on.
func (c *Cluster) Store() *consensus.Replica { return c.replica.Load() }

// Sealer seals and opens values with the cluster's key.
func (c *Cluster) Sealer() *trust.Keyring { return c.id.Load().Keyring() }

// Identity is what the node shows others.
func (c *Cluster) Identity() *trust.Identity { return c.id.Load() }

// Address is where others reach this node's cluster port.
func (c *Cluster) Address() string {
	return advertised(c.cfg.Listener.Addr(), c.cfg.Advertise)
}

// GossipAddress is where others reach its gossip; "" until it runs.
func (c *Cluster) GossipAddress() string {
	if g := c.gossiping(); g != nil {
		return g.Addr()
	}
	return ""
}

// JoinCommand is the line that other nodes join with, its token included; ""
// where this node has not just founded the cluster. It is to be shown once
// and not logged.
func (c *Cluster) JoinCommand() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.join
}

// Leader is the node that leads; id is "" where none is known. self tells
// whether that is this one.
func (c *Cluster) Leader() (id, name string, self bool) {
	id = c.leads()
	if id == "" {
		return "", "", false
	}
	if r, ok := record(c.Store().Snapshot(), id); ok {
		name = r.Name
	}
	return id, name, id == c.ID()
}

// leads is the ID of the node that leads; "" where none is known. Each request
// asks for that, so it costs nothing.
func (c *Cluster) leads() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader.id
}

// leadership is closed when the leader is another, or none, than now.
func (c *Cluster) leadership() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// leaderlessFor is how long there has been no leader; 0 where there is one.
func (c *Cluster) leaderlessFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader.id != "" {
		return 0
	}
	return time.Since(c.leader.since)
}

// Members lists the nodes of the cluster by name.
func (c *Cluster) Members() []Member {
	if c.Store() == nil {
		return nil
	}
	c.mu.Lock()
	lead, facts := c.leader.id, c.facts
	c.mu.Unlock()
	servers, _ := c.servers()
	list := merge(c.ID(), lead, servers, c.cache.recordsIn(c.Store().Snapshot()), c.sighted())
	for i := range list {
		m := &list[i]
		if !m.Self && !m.Up() && c.addressBook.announcedByOther(m.ID, m.Instance) {
			m.State = StateUp
		}
		if m.Self {
			self := m
			self.Cluster, self.HTTP, self.Version, self.Zone = c.Address(), c.cfg.HTTP, c.cfg.Version, c.cfg.Zone
			self.Instance, self.Facts, self.Since = c.Instance(), facts, c.opened
			if a := c.GossipAddress(); a != "" {
				self.Gossip = a
			}
		}
	}
	return list
}

// Resolve finds a member by ID or name.
func (c *Cluster) Resolve(nameOrID string) (Member, error) {
	m, ok := find(c.Members(), nameOrID)
	if !ok {
		return Member{}, admin.Errorf(admin.NotFound, "no node %.80q in this cluster: see penstock members", nameOrID)
	}
	return m, nil
}

// Client gives the connection to a member, by ID or name, that all callers
// share; they must not close it. This node is reached so as well.
func (c *Cluster) Client(ctx context.Context, nameOrID string) (*admin.Client, error) {
	m, err := c.Resolve(nameOrID)
	if err != nil {
		return nil, err
	}
	return c.pool.Get(ctx, m.ID)
}

// Read gives the index that a view must have reached to show every change
// that was answered before the call, wherever it was asked for.
func (c *Cluster) Read(ctx context.Context) (uint64, error) {
	until := time.Now().Add(patience)
	for {
		changed := c.leadership()
		attempt, cancel := context.WithCancel(ctx)
		stop := make(chan struct{})
		go func() { // a leader that was cut off would be waited for until TCP gives it up
			select {
			case <-changed:
				cancel()
			case <-stop:
			}
		}()
		r, err := ask(attempt, c, admin.MethodRead, &admin.Empty{}, c.handleRead)
		given := attempt.Err() != nil && ctx.Err() == nil
		close(stop)
		cancel()
		switch {
		case err == nil:
			return r.Index, nil
		case (given || errors.Is(err, admin.ErrLost)) && ctx.Err() == nil && time.Now().Before(until):
			// It changes nothing, so it may be asked again.
		default:
			return 0, err
		}
	}
}

// ServeConns has the server answer what comes to the cluster port.
func (c *Cluster) ServeConns(s *admin.Server) { c.connServers.serve(s) }

// fail ends the node.
func (c *Cluster) fail(err error) {
	c.stopped.Do(func() {
		c.log.Error("the node must end", "error", err)
		go c.cfg.Stop(err)
	})
}

// poke wakes a loop that listens on a channel that holds one.
func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// some lists names, not too many of them.
func some(names []string) string {
	const most = 5
	text := ""
	for i, n := range names {
		if i == most {
			return text + fmt.Sprintf(" and %d more", len(names)-most)
		}
		if i > 0 {
			text += ", "
		}
		text += n
	}
	return text
}

// connServers hand the requests that come to the cluster port to whoever answers
// them now: a node that is forming first, then the node's own server.
type connServers struct {
	mu     sync.Mutex
	server *admin.Server
	open   chan struct{} // closed once there is a server
}

func (d *connServers) serve(s *admin.Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil && s != nil {
		close(d.open)
	}
	if d.server != nil && s == nil {
		d.open = make(chan struct{})
	}
	d.server = s
}

// recheck ends the connections of tokens that are not valid any more.
func (d *connServers) recheck() {
	d.mu.Lock()
	s := d.server
	d.mu.Unlock()
	if s != nil {
		s.Recheck()
	}
}

// get waits for a server; nil when ctx ends before.
func (d *connServers) get(ctx context.Context) *admin.Server {
	for {
		d.mu.Lock()
		s, open := d.server, d.open
		d.mu.Unlock()
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

// doorWait is how long a connection waits for a node that is starting.
const doorWait = 10 * time.Second

// serveAdmin serves one connection of admin RPC.
func (c *Cluster) serveAdmin(conn net.Conn, nodeID string) {
	ctx, cancel := context.WithTimeout(c.ctx, doorWait)
	s := c.connServers.get(ctx)
	cancel()
	if s == nil {
		conn.Close()
		return
	}
	s.ServeConn(conn, c.principal(nodeID))
}

// peer tells which member has shown its certificate. One that has left is
// nobody: it may hear that it has, and nothing more.
func (c *Cluster) peer(cs tls.ConnectionState) (nodeID string, ok bool) {
	nodeID, ok = trust.PeerNode(cs)
	return nodeID, ok && !c.departed(nodeID)
}

// principal is who a node's certificate stands for.
func (c *Cluster) principal(nodeID string) admin.Principal {
	if nodeID == "" {
		return admin.Principal{}
	}
	p := admin.Principal{Name: nodeID, Role: admin.RoleNode, Node: nodeID}
	if c.Store() != nil {
		if r, ok := record(c.Store().Snapshot(), nodeID); ok {
			p.Name = r.Name
		}
	}
	return p
}

// departed tells whether a node has left or was removed. As long as it votes
// it is needed: those who remain may have to agree with it on going on without.
func (c *Cluster) departed(nodeID string) bool {
	if c.Store() == nil {
		return false
	}
	r, ok := record(c.Store().Snapshot(), nodeID)
	return ok && !r.member() && !c.votes(nodeID)
}

// votes tells whether a node votes in Raft's configuration.
func (c *Cluster) votes(nodeID string) bool {
	servers, _ := c.servers()
	return slices.ContainsFunc(servers, func(s server) bool { return s.id == nodeID && s.voter })
}
