package gossip

import "github.com/hashicorp/memberlist"

var _ memberlist.EventDelegate = (*eventDelegate)(nil)

// eventDelegate records joins and leaves in the member table. It is called
// under memberlist's lock; the table never blocks.
type eventDelegate struct{ members *memberTable }

// NotifyJoin is called when a node becomes alive, for the first time or again.
func (d *eventDelegate) NotifyJoin(n *memberlist.Node) { d.NotifyUpdate(n) }

// NotifyUpdate is called when a node's meta data have changed.
func (d *eventDelegate) NotifyUpdate(n *memberlist.Node) {
	meta, err := decodeMeta(n.Meta)
	if err != nil {
		return // cannot happen: the alive delegate rejects it
	}
	d.members.setAlive(n.Name, n.Address(), meta)
}

// NotifyLeave is called when a node dies or leaves. memberlist does not report
// which; the node's last record does.
func (d *eventDelegate) NotifyLeave(n *memberlist.Node) { d.members.setDead(n.Name) }
