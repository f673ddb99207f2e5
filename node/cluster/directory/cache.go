package directory

import (
	"sync"

	"penstock/consensus"
	"penstock/gossip"
	"penstock/node/cluster/record"
)

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
func (d *Directory) Records(v consensus.Snapshot) []record.Node {
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
