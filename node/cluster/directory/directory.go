// Package directory knows who the nodes of a cluster are, where they are and how
// they are doing. Raft's configuration and the records in the store say who is a
// member; gossip, announcements, reports of other nodes and remembered peers say
// where members are. All of the latter may be outdated: whoever dials verifies by
// the certificate which node has answered, and no decision that needs agreement
// rests on it.
package directory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"penstock/consensus/replica"
	"penstock/gossip"
	"penstock/node/api"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
)

// Config has what a Directory needs.
type Config struct {
	Entries record.Store
	// Dir is the data folder, which keeps the remembered peers.
	Dir string
	// Listener is the cluster port, Address the host:port at which others reach
	// it.
	Listener net.Listener
	Address  string
	// Gossip is the ip:port that gossip binds, Advertise the host at which others
	// reach it; "": the one bound.
	Gossip, Advertise string
	// HTTP, Version and Zone are published.
	HTTP, Version, Zone string
	// OwnFacts returns what this node publishes about itself (Publish).
	OwnFacts func() Facts
	// Tick is the interval at which gossip looks for unseen members. Election is
	// how long an election takes at most if most voters reach one another.
	Tick, Election time.Duration
	Leader         Leader
	// Moved is called when other nodes may need this node's address.
	Moved func()
	// Stop receives ErrCopied.
	Stop func(error)
	Log  *slog.Logger
}

// Leader is the leader, as far as this node knows.
type Leader interface {
	// ID returns its ID; "": none is known.
	ID() string
	// Changed returns a channel that is closed when it changes or is lost.
	Changed() <-chan struct{}
	// AbsentFor returns how long there has been none; 0 if there is one.
	AbsentFor() time.Duration
}

// ErrCopied means that another process runs as this node, from a copy of its
// folder.
var ErrCopied = errors.New("another process runs with a copy of this data folder")

// Directory is what one node knows about the nodes of its cluster. Its methods
// may be called from any goroutine.
type Directory struct {
	Config
	Book *AddressBook
	Pool *rpc.Pool // connections to the nodes, by ID

	ctx       context.Context // ends before Close
	opened    time.Time
	cache     cache
	probes    livenessProbes
	published published
	contacted atomic.Bool // there was contact with another node since New

	mu       sync.Mutex
	gossip   *gossip.Gossip     // nil until it runs
	keys     [][]byte           // of gossip, from bootstrap or join; used until the store has them
	upStates map[string]UpState // by node ID
	facts    Facts              // this node's own, of the last Publish
}

// New returns the directory of a node. Its connections and gossip end with Close,
// its loops with ctx.
func New(ctx context.Context, cfg Config) *Directory {
	d := &Directory{Config: cfg, ctx: ctx, opened: time.Now(), upStates: map[string]UpState{}}
	d.Pool = rpc.NewPool(rpc.PoolConfig{Dial: d.dialNode})
	var err error
	if d.Book, err = openAddressBook(cfg.Dir); err != nil {
		d.Log.Warn("cannot read the remembered peers; starting without them", "error", err)
	}
	return d
}

// Close ends the connections and gossip.
func (d *Directory) Close() error {
	d.Pool.Close()
	if g := d.gossiping(); g != nil {
		return g.Close()
	}
	return nil
}

// ID returns this node's ID.
func (d *Directory) ID() string { return d.Entries.Identity().NodeID }

// Own returns this node as others reach it.
func (d *Directory) Own() Peer {
	id := d.Entries.Identity()
	return Peer{ID: id.NodeID, Name: id.Name, Cluster: d.Address, Gossip: d.GossipAddress()}
}

// NoteContact records that another node was in contact with this one.
func (d *Directory) NoteContact() { d.contacted.Store(true) }

// Members lists the nodes of the cluster, sorted by name.
func (d *Directory) Members() []Member {
	if d.Entries.Replica() == nil {
		return nil
	}
	d.mu.Lock()
	facts := d.facts
	d.mu.Unlock()
	servers, _ := d.Entries.Replica().Servers()
	list := mergeMembers(d.ID(), d.Leader.ID(), servers, d.Records(d.Entries.Snapshot()), d.GossipEntries())
	for i := range list {
		m := &list[i]
		if !m.Self && !m.Up() && d.Book.announcedByOther(m.ID, m.Instance) {
			m.State = StateUp
		}
		if m.Self {
			self := m
			self.Cluster, self.HTTP, self.Version, self.Zone = d.Address, d.HTTP, d.Version, d.Zone
			self.Instance, self.Facts, self.Since = d.Entries.Identity().Instance, facts, d.opened
			if a := d.GossipAddress(); a != "" {
				self.Gossip = a
			}
		}
	}
	return list
}

// Resolve finds a member by ID or name.
func (d *Directory) Resolve(nameOrID string) (Member, error) {
	m, ok := findMember(d.Members(), nameOrID)
	if !ok {
		return Member{}, api.Errorf(api.NotFound, "no node %.80q in this cluster: see penstock members", nameOrID)
	}
	return m, nil
}

// MemberIDs lists the IDs of the members, whether they are up or not.
func (d *Directory) MemberIDs() []string {
	var ids []string
	for _, r := range d.Records(d.Entries.Snapshot()) {
		if r.Member() {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// Departed reports whether a node has left or was removed, and no longer votes.
// While it votes, the remaining voters may need its agreement to go on without
// it.
func (d *Directory) Departed(nodeID string) bool {
	if d.Entries.Replica() == nil {
		return false
	}
	r, ok := record.FindNode(d.Entries.Snapshot(), nodeID)
	return ok && !r.Member() && !d.Votes(nodeID)
}

// Votes reports whether a node votes in Raft's configuration.
func (d *Directory) Votes(nodeID string) bool {
	servers, _ := d.Entries.Replica().Servers()
	return slices.ContainsFunc(servers, func(s replica.Server) bool { return s.ID == nodeID && s.Voter })
}

// UpState records whether a node was up when this node last looked.
type UpState struct {
	Up    bool
	Since time.Time // when Up changed
}

// ListNames joins at most five names and counts the rest.
func ListNames(names []string) string {
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

// Known lists the other nodes, each with its likeliest address: members first,
// then peers that are only in the address book.
func (d *Directory) Known() []Peer {
	seen := map[string]bool{d.ID(): true}
	var list []Peer
	for _, m := range d.Members() {
		if seen[m.ID] {
			continue
		}
		seen[m.ID] = true
		p := Peer{ID: m.ID, Name: m.Name, Cluster: m.Cluster, Gossip: m.Gossip}
		if at := d.Addresses(m.ID); len(at) > 0 {
			p.Cluster = at[0]
		}
		list = append(list, p)
	}
	for _, p := range d.Book.All() {
		if !seen[p.ID] && !d.Departed(p.ID) {
			seen[p.ID] = true
			list = append(list, p)
		}
	}
	return list
}

// Addresses lists where the node with that ID may be, the likeliest first: the
// address in gossip if gossip reaches it, then those that it announced, that
// others reported and that are remembered, then its record, then gossip's last
// address.
func (d *Directory) Addresses(id string) []string {
	if id == d.ID() {
		return []string{d.Listener.Addr().String()}
	}
	var list []string
	add := func(a string) {
		if a != "" && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	g, inGossip := d.GossipEntries()[id]
	if inGossip && g.State == StateUp {
		add(g.Peer.Cluster)
	}
	for _, p := range d.Book.Lookup(id) {
		add(p.Cluster)
	}
	if d.Entries.Replica() != nil {
		if r, ok := record.FindNode(d.Entries.Snapshot(), id); ok {
			add(r.Cluster)
		}
	}
	add(g.Peer.Cluster)
	return list
}

// Client returns the shared connection to a member, by ID or name; callers must
// not close it. It works for this node as well.
func (d *Directory) Client(ctx context.Context, nameOrID string) (*rpc.Client, error) {
	m, err := d.Resolve(nameOrID)
	if err != nil {
		return nil, err
	}
	return d.Pool.Get(ctx, m.ID)
}

// MembersBelow names the other members below a level, with the versions that they
// run. Members that are down count, since they come back as they were.
func (d *Directory) MembersBelow(level int) (nodes []string) {
	for _, r := range d.Records(d.Entries.Snapshot()) {
		if r.Member() && r.ID != d.ID() && r.Level < level {
			nodes = append(nodes, fmt.Sprintf("%s (%s)", r.Name, r.Version))
		}
	}
	slices.Sort(nodes)
	return nodes
}

// LogOnce remembers the last error that was logged about each subject, so that
// a repeated error is logged once. It is not safe for concurrent use.
type LogOnce map[string]string

// Warn logs an error about a subject, unless it repeats the last one.
func (o LogOnce) Warn(log *slog.Logger, what, subject string, err error) {
	text := err.Error()
	if o[subject] == text {
		return
	}
	if len(o) >= MaxPeers {
		clear(o)
	}
	o[subject] = text
	log.Warn(what, "subject", subject, "error", text)
}
