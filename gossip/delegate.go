package gossip

import "github.com/hashicorp/memberlist"

var _ memberlist.Delegate = (*delegate)(nil)

// delegate carries facts: one record per packet, several per stream, and all of
// them with each push/pull.
type delegate struct{ g *Gossip }

// NodeMeta returns this node's meta data. Its size is checked before it is
// stored, so it never exceeds the limit.
func (d *delegate) NodeMeta(int) []byte { return *d.g.meta.Load() }

// NotifyMsg handles a message; memberlist reuses the bytes afterwards.
func (d *delegate) NotifyMsg(b []byte) {
	if len(b) == 0 {
		return
	}
	switch b[0] {
	case formatRecords:
		d.take(b)
	case formatWho, formatIAm:
		c, err := decodeClaim(b)
		if err != nil {
			d.g.log.Debug("gossip: cannot decode a claim", "error", err)
			return
		}
		d.g.doubt(doubt{claim: c, answer: b[0] == formatWho})
	}
}

// take merges records and passes on the new ones.
func (d *delegate) take(b []byte) {
	err := decodeRecords(b, func(r record) {
		if newest, changed := d.g.members.hear(r); changed {
			d.g.pass(newest)
		}
	})
	if err != nil {
		d.g.log.Debug("gossip: cannot decode facts", "error", err)
	}
}

// GetBroadcasts returns records to fill a packet.
func (d *delegate) GetBroadcasts(overhead, limit int) [][]byte {
	return d.g.queue.GetBroadcasts(overhead, limit)
}

// LocalState returns this node's part of a push/pull.
func (d *delegate) LocalState(bool) []byte { return encodeRecords(d.g.members.said(maxState)...) }

// MergeRemoteState handles the peer's part of a push/pull.
func (d *delegate) MergeRemoteState(b []byte, _ bool) { d.take(b) }
