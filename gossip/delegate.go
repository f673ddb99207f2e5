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
		d.mergeRecords(b)
	case formatClaimRequest, formatClaim:
		c, err := decodeClaim(b)
		if err != nil {
			d.g.log.Debug("gossip: cannot decode a claim", "error", err)
			return
		}
		d.g.queueConflict(conflictSign{claim: c, wantsAnswer: b[0] == formatClaimRequest})
	}
}

// mergeRecords merges records and passes on the new ones.
func (d *delegate) mergeRecords(b []byte) {
	err := decodeRecords(b, func(r record) {
		if newest, changed := d.g.members.mergeRecord(r); changed {
			d.g.queueRecord(newest)
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
func (d *delegate) LocalState(bool) []byte { return encodeRecords(d.g.members.records(maxState)...) }

// MergeRemoteState handles the peer's part of a push/pull.
func (d *delegate) MergeRemoteState(b []byte, _ bool) { d.mergeRecords(b) }
