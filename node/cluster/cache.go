package cluster

import (
	"sync"

	"penstock/consensus/store"
	"penstock/gossip"
)

// cache keeps what is read often and changes rarely: the decoded records of the
// nodes, and what gossip reports.
type cache struct {
	mu      sync.Mutex
	index   uint64 // of the snapshot that records was read from; 0: none
	records []Record
	changed <-chan struct{} // closed when entries is stale; nil: there are none
	entries map[string]gossipEntry
}

// recordsIn returns the node records of a snapshot, usually the store's current
// one. Callers must not change them.
func (k *cache) recordsIn(v store.Snapshot) []Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.index != 0 && touches(v, k.index, kindNode) == nil && v.Index() >= k.index {
		k.index = v.Index()
		return k.records
	}
	list := records(v)
	if v.Index() >= k.index {
		k.index, k.records = v.Index(), list
	}
	return list
}

// touches lists the keys of a kind that changed in a snapshot after an index.
// If the snapshot does not reach back that far, it lists all keys of the kind.
func touches(v store.Snapshot, after uint64, kind string) (keys []store.Key) {
	changed, known := v.Changed(after)
	if !known {
		for e := range v.Kind(kind) {
			keys = append(keys, e.Key)
		}
		if len(keys) == 0 {
			keys = append(keys, store.Key{Kind: kind}) // they may have been deleted
		}
		return keys
	}
	for _, k := range changed {
		if k.Kind == kind {
			keys = append(keys, k)
		}
	}
	return keys
}

// gossipEntries returns what gossip reports about the nodes, by ID. Callers
// must not change it.
func (c *Cluster) gossipEntries() map[string]gossipEntry {
	g := c.gossiping()
	if g == nil {
		return nil
	}
	k := &c.cache
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

func entriesByID(members []gossip.Member) map[string]gossipEntry {
	all := make(map[string]gossipEntry, len(members))
	for _, m := range members {
		all[m.ID] = newGossipEntry(m)
	}
	return all
}
