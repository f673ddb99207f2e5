package cluster

import (
	"sync"

	"penstock/consensus"
	"penstock/gossip"
)

// cache keeps what is asked for often and changes seldom: the records of the
// nodes, decoded, and what gossip says.
type cache struct {
	mu      sync.Mutex
	index   uint64 // of the view that records are of; 0: none
	records []Record
	changed <-chan struct{} // closed when sights are old; nil: there are none
	sights  map[string]seen
}

// recordsIn are the records of a view, the store's of now as a rule. They must
// not be changed.
func (k *cache) recordsIn(v consensus.Snapshot) []Record {
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

// touches tells which entries of a kind changed in a view after an index;
// where the view does not reach back so far, it may be all of them.
func touches(v consensus.Snapshot, after uint64, kind string) (keys []consensus.Key) {
	changed, known := v.Changed(after)
	if !known {
		for e := range v.Kind(kind) {
			keys = append(keys, e.Key)
		}
		if len(keys) == 0 {
			keys = append(keys, consensus.Key{Kind: kind}) // they may have been deleted
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

// sighted is what gossip says of the nodes. It must not be changed.
func (c *Cluster) sighted() map[string]seen {
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
			return k.sights
		}
	}
	k.changed = g.Changed() // before Members, so that nothing is missed
	k.sights = sights(g.Members())
	return k.sights
}

func sights(members []gossip.Member) map[string]seen {
	all := make(map[string]seen, len(members))
	for _, m := range members {
		all[m.ID] = asSeen(m)
	}
	return all
}
