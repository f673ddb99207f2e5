package cluster

import "errors"

// The gossip key is replaced in three steps, each an entry in the store: the
// next key is accepted (add), then used (use), then the only one (done). A step
// waits until the nodes that are up have applied the one before. The store has
// the step and which nodes have applied it, so that any leader can go on.
//
// The CA needs two steps, since the old CA signs the next one's certificate as
// well: nodes accept certificates of both from the start, even before they know
// the next CA. When all have certificates of the next CA, the old one is
// retired.

// errRotating: the previous rotation has not ended.
var errRotating = errors.New("a rotation is under way")

// beginGossip begins a rotation by adding the next gossip key.
func beginGossip(cur gossipSecret, key []byte) (gossipSecret, error) {
	if cur.Phase != phaseDone || len(cur.Keys) != 1 {
		return cur, errRotating
	}
	return gossipSecret{Format: recordFormat, Keys: [][]byte{cur.Keys[0], key}, Phase: phaseAdd}, nil
}

// nextGossip returns the step after cur, which is in the store since version;
// waits lists the nodes that have not applied cur. It does not wait for nodes
// that are down: they get the current keys through Raft, which needs no gossip.
func nextGossip(cur gossipSecret, version uint64, nodes []Record, up func(id string) bool) (next gossipSecret, waits []string, ok bool) {
	if cur.Phase == phaseDone || len(cur.Keys) != 2 {
		return cur, nil, false
	}
	for _, r := range nodes {
		if r.member() && up(r.ID) && r.Trust < version {
			waits = append(waits, r.Name)
		}
	}
	if len(waits) > 0 {
		return cur, waits, false
	}
	next = gossipSecret{Format: recordFormat}
	if cur.Phase == phaseAdd {
		next.Keys, next.Phase = cur.Keys, phaseUse
	} else {
		next.Keys = cur.Keys[1:]
	}
	return next, nil, true
}

// membersOnOldCA names the members whose certificates are not from the newest
// CA. The old CA is trusted until there are none, since a node that is down
// comes back with a certificate of it. A node that will not come back has to be
// removed.
func membersOnOldCA(newest string, nodes []Record) (names []string) {
	for _, r := range nodes {
		if r.member() && r.Issuer != newest {
			names = append(names, r.Name)
		}
	}
	return names
}
