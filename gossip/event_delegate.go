package gossip

import "github.com/hashicorp/memberlist"

var _ memberlist.EventDelegate = (*eventDelegate)(nil)

// eventDelegate writes who comes and goes into the book. It is called under
// memberlist's lock; the book waits for nobody.
type eventDelegate struct{ members *memberTable }

// NotifyJoin is called for a node that is alive, for the first time or again.
func (d *eventDelegate) NotifyJoin(n *memberlist.Node) { d.NotifyUpdate(n) }

// NotifyUpdate is called when a node's meta data have changed.
func (d *eventDelegate) NotifyUpdate(n *memberlist.Node) {
	meta, err := decodeMeta(n.Meta)
	if err != nil {
		return // the alive delegate lets none pass
	}
	d.members.seen(n.Name, n.Address(), meta)
}

// NotifyLeave is called for a node that died or left; memberlist does not say
// which, its last record does.
func (d *eventDelegate) NotifyLeave(n *memberlist.Node) { d.members.lost(n.Name) }
