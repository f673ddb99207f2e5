package cluster

import "errors"

// The gossip key is replaced in three steps, each an entry in the store: the
// next one is accepted (add), used (use), and is the only one (done). A step
// waits until the nodes act on the one before. Which step it is and which
// nodes act on it stands in the store, so that any leader can go on.
//
// The CA needs two, since the next one's certificate is signed by the one
// before as well: nodes take the certificates of both at once, whatever they
// know yet. When all have certificates of the next one, the old one goes.

// errRotating: the one before has not ended.
var errRotating = errors.New("a rotation is under way")

// beginGossip adds a gossip key.
func beginGossip(cur gossipSecret, key []byte) (gossipSecret, error) {
	if cur.Phase != phaseDone || len(cur.Keys) != 1 {
		return cur, errRotating
	}
	return gossipSecret{Format: recordFormat, Keys: [][]byte{cur.Keys[0], key}, Phase: phaseAdd}, nil
}

// nextGossip is the step after cur, which stands in the store since version.
// Nodes that are down are not waited for: they learn the keys of now through
// Raft, which needs no gossip.
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

// laggards are the members whose certificates come from an older CA than the
// newest. The older ones are trusted until there are none: without the newest
// a node that is down could not come back. Whoever will not come back has to
// be removed.
func laggards(newest string, nodes []Record) (names []string) {
	for _, r := range nodes {
		if r.member() && r.Issuer != newest {
			names = append(names, r.Name)
		}
	}
	return names
}
