// Package cluster makes a node a member of a cluster. It owns the node's
// identity among the others (trust), where the others are (gossip,
// announcements, remembered peers), the replicated store (consensus.Replica),
// the choice of voters (membership), and the forwarding of requests from any
// node to the leader.
//
// It refuses whatever could merge two clusters or two nodes into one: a token
// of another cluster, a data folder that is in use elsewhere, the name of a
// node that is up. It does not interpret users' entries; its own entries have
// kinds that begin with "_".
//
// The store alone defines who is a member: the records _node/ID, and Raft's
// configuration, which the leader keeps in line with them (lead.go). Gossip
// reports where nodes are and how they are doing. Addresses are looked up by ID
// at each dial, and the certificate proves which node has answered, so all
// nodes may return at other addresses at once.
//
//	c, err := cluster.Open(ctx, cluster.Config{Dir: dir, Name: "edge-1", Listener: ln, Gossip: "10.0.0.1:7946", Init: true, ...})
//	c.Register(server)   // adds the cluster's methods
//	c.ServeConns(server) // serves the cluster port's requests from now on
//	snap := c.Store().Snapshot()
//	...
//	c.Close()
//
// The files: start.go opens a node's cluster (bootstrap.go, join.go,
// expect.go), join_server.go admits nodes that join, announce.go publishes
// where this node is, follow.go acts on committed changes, and lead.go has the
// leader's tasks. DESIGN.md has the reasons and the invariants.
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
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/cluster/token"
	"penstock/node/mux"
	"penstock/node/rpc"
	"penstock/node/trust"
)

// Cluster is this node's membership in its cluster. Its methods may be called
// from any goroutine.
type Cluster struct {
	cfg         Config
	log         *slog.Logger
	opened      time.Time
	newIdentity bool // Open found no identity in the data folder
	// id is replaced when the name, the certificate or the CAs change. Once the
	// loops run, writers hold renewing.
	id          atomic.Pointer[trust.Identity]
	renewing    sync.Mutex
	addressBook *addressBook
	port        *mux.Mux
	pool        *rpc.Pool
	connServers connServers
	replica     atomic.Pointer[consensus.Replica] // nil until the node is in a cluster
	entries     record.Store                      // the cluster's own entries in replica

	ctx    context.Context // ends with the Cluster
	cancel context.CancelFunc
	work   sync.WaitGroup

	announceWake chan struct{} // capacity 1; wakes announce
	leadWake     chan struct{} // capacity 1; wakes lead
	recordsMu    sync.Mutex    // serializes changes of node records on the leader
	tokens       *token.Registry

	cache  cache
	probes livenessProbes

	mu         sync.Mutex
	gossip     *gossip.Gossip // nil until it runs
	keys       [][]byte       // of gossip, from bootstrap or join; used until the store has them
	trusted    uint64         // index of the last change of CAs or gossip keys that this node applied
	leader     leader
	changed    chan struct{}      // closed when leader changes, then replaced
	leaderTerm leaderTerm         // of the last known leader
	upStates   map[string]upState // by node ID
	join       string             // JoinCommand
	facts      Facts              // this node's own, of the last tick

	clocks    clocks
	leaving   atomic.Bool // Leave is in progress
	contacted atomic.Bool // there was contact with another node since Open
	stopped   sync.Once   // guards Config.Stop
	closed    sync.Once
}

// leader is the current leader, as far as this node knows.
type leader struct {
	id    string    // "": none
	since time.Time // when id changed
}

// upState records whether a node was up when this node last looked.
type upState struct {
	up    bool
	since time.Time // when up changed
}

func newCluster(cfg Config, id *trust.Identity, fresh bool) *Cluster {
	now := time.Now()
	c := &Cluster{
		cfg: cfg, log: cfg.Log, opened: now, newIdentity: fresh,
		announceWake: make(chan struct{}, 1), leadWake: make(chan struct{}, 1),
		leader: leader{since: now}, changed: make(chan struct{}), upStates: map[string]upState{},
	}
	c.id.Store(id)
	c.entries = record.Store{Replica: c.replica.Load, Identity: c.id.Load}
	c.tokens = token.New(token.Config{Entries: c.entries, Now: c.now, Read: c.Read, Log: c.log})
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.connServers.open = make(chan struct{})
	c.pool = rpc.NewPool(rpc.PoolConfig{Dial: c.dialNode})
	return c
}

// ID returns the node's ID.
func (c *Cluster) ID() string { return c.id.Load().NodeID }

// Name returns the node's name.
func (c *Cluster) Name() string { return c.id.Load().Name }

// ClusterID returns the cluster's ID.
func (c *Cluster) ClusterID() string { return c.id.Load().ClusterID }

// Instance returns a value that is random for each start of the node.
func (c *Cluster) Instance() string { return c.id.Load().Instance }

// New reports whether this start brought the node into its cluster, or the node
// has not yet received the cluster's record.
func (c *Cluster) New() bool {
	_, heard := c.Store().Snapshot().Get(record.KeyCluster)
	return c.newIdentity || !heard
}

// Store returns the replicated store; nil until the node is in a cluster.
func (c *Cluster) Store() *consensus.Replica { return c.replica.Load() }

// Sealer returns the keyring that seals and opens values with the cluster's
// key.
func (c *Cluster) Sealer() *trust.Keyring { return c.entries.Sealer() }

// Identity returns the identity that the node presents to others.
func (c *Cluster) Identity() *trust.Identity { return c.id.Load() }

// Address returns the host:port at which others reach this node's cluster port.
func (c *Cluster) Address() string {
	return advertised(c.cfg.Listener.Addr(), c.cfg.Advertise)
}

// GossipAddress returns the host:port at which others reach this node's gossip;
// "" until gossip runs.
func (c *Cluster) GossipAddress() string {
	if g := c.gossiping(); g != nil {
		return g.Addr()
	}
	return ""
}

// JoinCommand returns the command line, token included, with which other nodes
// join; "" unless this start founded the cluster. Show it once and do not log
// it.
func (c *Cluster) JoinCommand() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.join
}

// Leader returns the leader's ID and name, and whether it is this node; id is
// "" if no leader is known.
func (c *Cluster) Leader() (id, name string, self bool) {
	id = c.leaderID()
	if id == "" {
		return "", "", false
	}
	if r, ok := record.FindNode(c.Store().Snapshot(), id); ok {
		name = r.Name
	}
	return id, name, id == c.ID()
}

// leaderID returns the leader's ID; "" if none is known. Each request calls it,
// so it is cheap.
func (c *Cluster) leaderID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader.id
}

// leaderChanged returns a channel that is closed when the leader changes or is
// lost.
func (c *Cluster) leaderChanged() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.changed
}

// leaderlessFor returns how long there has been no leader; 0 if there is one.
func (c *Cluster) leaderlessFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leader.id != "" {
		return 0
	}
	return time.Since(c.leader.since)
}

// Members lists the nodes of the cluster, sorted by name.
func (c *Cluster) Members() []Member {
	if c.Store() == nil {
		return nil
	}
	c.mu.Lock()
	lead, facts := c.leader.id, c.facts
	c.mu.Unlock()
	servers, _ := c.servers()
	list := mergeMembers(c.ID(), lead, servers, c.cache.recordsIn(c.Store().Snapshot()), c.gossipEntries())
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
	m, ok := findMember(c.Members(), nameOrID)
	if !ok {
		return Member{}, api.Errorf(api.NotFound, "no node %.80q in this cluster: see penstock members", nameOrID)
	}
	return m, nil
}

// Client returns the shared connection to a member, by ID or name; callers must
// not close it. It works for this node as well.
func (c *Cluster) Client(ctx context.Context, nameOrID string) (*rpc.Client, error) {
	m, err := c.Resolve(nameOrID)
	if err != nil {
		return nil, err
	}
	return c.pool.Get(ctx, m.ID)
}

// Read returns the index that a snapshot must reach to show every change that
// any node acknowledged before the call.
func (c *Cluster) Read(ctx context.Context) (uint64, error) {
	until := time.Now().Add(leaderTimeout)
	for {
		changed := c.leaderChanged()
		attempt, cancel := context.WithCancel(ctx)
		stop := make(chan struct{})
		go func() { // otherwise the call waits for a leader that is cut off until TCP gives up
			select {
			case <-changed:
				cancel()
			case <-stop:
			}
		}()
		r, err := askLeader(attempt, c, api.MethodRead, &api.Empty{}, c.handleRead)
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

// Authenticate returns the principal of a token. Its errors do not contain any
// of the token.
func (c *Cluster) Authenticate(ctx context.Context, text string) (api.Principal, error) {
	return c.tokens.Authenticate(ctx, text)
}

// Check returns an error if a principal's token is no longer valid, as far as
// this node knows. It sends no requests.
func (c *Cluster) Check(p api.Principal) error { return c.tokens.Check(p) }

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

// listNames joins at most five names and counts the rest.
func listNames(names []string) string {
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
	return nodeID, ok && !c.departed(nodeID)
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

// departed reports whether a node has left or was removed, and no longer votes.
// While it votes, the remaining voters may need its agreement to go on without
// it.
func (c *Cluster) departed(nodeID string) bool {
	if c.Store() == nil {
		return false
	}
	r, ok := record.FindNode(c.Store().Snapshot(), nodeID)
	return ok && !r.Member() && !c.votes(nodeID)
}

// votes reports whether a node votes in Raft's configuration.
func (c *Cluster) votes(nodeID string) bool {
	servers, _ := c.servers()
	return slices.ContainsFunc(servers, func(s server) bool { return s.id == nodeID && s.voter })
}
