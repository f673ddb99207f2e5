package directory

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/gossip"
	"penstock/node/cluster/record"
)

// The roles of a member.
const (
	RoleLeader   = "leader"
	RoleVoter    = "voter"
	RoleNonVoter = "non-voter"
)

// The states of a member, as this node sees it.
const (
	StateUp          = "up"
	StateLeft        = "left"        // it announced that it stops, for good or not
	StateUnreachable = "unreachable" // gossip does not reach it
)

// Member is a node of the cluster, as this node sees it.
type Member struct {
	ID, Name    string
	Role, State string
	// Cluster, Gossip and HTTP are host:port.
	Cluster, Gossip, HTTP string
	Zone, Version         string
	// Instance is random for each start of the node; "" until gossip has seen
	// it.
	Instance string
	// Facts are the last that the node published.
	Facts Facts
	// Since is when this node last saw State change, by its own clock; zero if
	// it has seen nothing of the member since it started.
	Since time.Time
	// Joined is by the clock of the leader at that time.
	Joined time.Time
	Self   bool
}

// Up reports whether gossip reaches the member.
func (m Member) Up() bool { return m.State == StateUp }

// GossipEntry is what gossip reports about a node.
type GossipEntry struct {
	Peer          Peer
	HTTP          string
	Zone, Version string
	Instance      string
	State         string // StateUp, StateLeft or StateUnreachable
	Since         time.Time
	Facts         Facts
	Index         uint64 // of its snapshot of the store
}

// IsUpAt reports whether the node is up with that address of its cluster port.
func (e GossipEntry) IsUpAt(address string) bool {
	return e.State == StateUp && e.Peer.Cluster == address
}

// mergeMembers combines Raft's configuration, the records and gossip. The first
// two alone say who is a member; gossip reports where a member is and how it is
// doing.
func mergeMembers(self, leader string, servers []replica.Server, nodes []record.Node, gossip map[string]GossipEntry) []Member {
	all := map[string]*Member{}
	gone := map[string]bool{}
	for _, r := range nodes {
		if !r.Member() {
			gone[r.ID] = true
			continue
		}
		all[r.ID] = &Member{
			ID: r.ID, Name: r.Name, Role: RoleNonVoter, Cluster: r.Cluster, Gossip: r.Gossip, HTTP: r.HTTP,
			Zone: r.Zone, Version: r.Version, Joined: r.Joined,
		}
	}
	for _, s := range servers {
		m := all[s.ID]
		if m == nil {
			if gone[s.ID] {
				continue // about to be removed
			}
			m = &Member{ID: s.ID, Name: s.ID, Role: RoleNonVoter} // its record is on its way
			all[s.ID] = m
		}
		if s.Voter {
			m.Role = RoleVoter
		}
	}
	list := make([]Member, 0, len(all))
	for id, m := range all {
		m.State = StateUnreachable
		if g, ok := gossip[id]; ok {
			m.State, m.Since, m.Facts, m.Instance = g.State, g.Since, g.Facts, g.Instance
			m.Cluster, m.Gossip, m.HTTP = cmp.Or(g.Peer.Cluster, m.Cluster), cmp.Or(g.Peer.Gossip, m.Gossip), cmp.Or(g.HTTP, m.HTTP)
			m.Version, m.Zone = cmp.Or(g.Version, m.Version), cmp.Or(g.Zone, m.Zone)
		}
		if id == self {
			m.Self, m.State = true, StateUp
		}
		if id == leader {
			m.Role = RoleLeader
		}
		list = append(list, *m)
	}
	slices.SortFunc(list, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return list
}

// findMember finds a member by ID, else by name.
func findMember(list []Member, nameOrID string) (Member, bool) {
	for _, m := range list {
		if m.ID == nameOrID {
			return m, true
		}
	}
	for _, m := range list {
		if m.Name == nameOrID {
			return m, true
		}
	}
	return Member{}, false
}

// cache keeps what is read often and changes rarely: the decoded records of the
// nodes, and what gossip reports.
type cache struct {
	mu      sync.Mutex
	index   uint64 // of the snapshot that records was read from; 0: none
	records []record.Node
	changed <-chan struct{} // closed when entries is stale; nil: there are none
	entries map[string]GossipEntry
}

// Records returns the node records of a snapshot, usually the store's current
// one. Callers must not change them.
func (d *Directory) Records(v store.Snapshot) []record.Node {
	k := &d.cache
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.index != 0 && record.Changed(v, k.index, record.KindNode) == nil && v.Index() >= k.index {
		k.index = v.Index()
		return k.records
	}
	list := record.Nodes(v)
	if v.Index() >= k.index {
		k.index, k.records = v.Index(), list
	}
	return list
}

// GossipEntries returns what gossip reports about the nodes, by ID. Callers
// must not change it.
func (d *Directory) GossipEntries() map[string]GossipEntry {
	g := d.gossiping()
	if g == nil {
		return nil
	}
	k := &d.cache
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed != nil {
		select {
		case <-k.changed:
		default:
			return k.entries
		}
	}
	k.changed = g.Changed() // before Members, so that no change is missed
	k.entries = entriesByID(g.Members())
	return k.entries
}

func entriesByID(members []gossip.Member) map[string]GossipEntry {
	all := make(map[string]GossipEntry, len(members))
	for _, m := range members {
		all[m.ID] = newGossipEntry(m)
	}
	return all
}
