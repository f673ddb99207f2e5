package dataplane

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"sync/atomic"

	"penstock/routing/health"
)

const (
	// askers is how many nodes ask each endpoint.
	askers = 3
	// maxVerdicts bounds what a node tells of its probes, 4 bytes each, so
	// that it fits into cluster.Facts.Hints; what does not is found out by
	// each node for itself.
	maxVerdicts = 512
)

// healthGossip is who of the nodes asks which endpoint, and what they found out. It
// is looked at anew each second, from what gossip says: where that is wrong,
// an endpoint is asked by more nodes or by fewer, and each node's own
// connections tell it the rest.
type healthGossip struct {
	self string
	now  atomic.Pointer[shared]
}

var _ health.Peers = (*healthGossip)(nil)

// shared is one look at the members.
type shared struct {
	nodes map[string]string // hints of those that are up, by ID; this node's are not looked at
	says  map[health.ID]tally
}

// tally counts verdicts.
type tally struct{ well, unwell int }

// look takes the hints of the nodes that are up now.
func (s *healthGossip) look(hints map[string]string) {
	nodes := maps.Clone(hints)
	delete(nodes, s.self)
	if old := s.now.Load(); old != nil && maps.Equal(old.nodes, nodes) {
		return
	}
	next := &shared{nodes: nodes, says: map[health.ID]tally{}}
	for _, hints := range nodes {
		for ; len(hints) >= 4; hints = hints[4:] {
			v := binary.BigEndian.Uint32([]byte(hints[:4]))
			t := next.says[health.ID(v&^1)]
			if v&1 != 0 {
				t.well++
			} else {
				t.unwell++
			}
			next.says[health.ID(v&^1)] = t
		}
	}
	s.now.Store(next)
}

// Probes implements health.Peers: the nodes that ask are those with the highest
// scores for the endpoint (rendezvous hashing), so that a node which comes or
// goes moves no more than its own share.
func (s *healthGossip) Probes(id health.ID) bool {
	now := s.now.Load()
	if now == nil || len(now.nodes) < askers {
		return true
	}
	own, higher := score(s.self, id), 0
	for node := range now.nodes {
		if other := score(node, id); other > own || other == own && node > s.self {
			higher++
		}
	}
	return higher < askers
}

func score(node string, id health.ID) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(node))
	_, _ = h.Write(binary.BigEndian.AppendUint32(nil, uint32(id)))
	// The last bytes of FNV reach its high bits too little.
	x := h.Sum64()
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}

// Verdict implements health.Peers: most of those who say something are right.
func (s *healthGossip) Verdict(id health.ID) (well, known bool) {
	now := s.now.Load()
	if now == nil {
		return false, false
	}
	t, known := now.says[id]
	return t.well >= t.unwell, known
}

// HearHints takes the hints of the nodes of the cluster that are up, by their IDs.
func (d *Dataplane) HearHints(nodes map[string]string) {
	if d.sharing != nil {
		d.sharing.look(nodes)
	}
}

// Hints are what this node has found out about endpoints, for the others.
func (d *Dataplane) Hints() []byte {
	if d.sharing == nil || d.sharing.alone() {
		return nil
	}
	var b []byte
	for _, v := range d.reconciler.checker.Verdicts(maxVerdicts) {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// alone tells whether there are too few nodes to share anything.
func (s *healthGossip) alone() bool {
	now := s.now.Load()
	return now == nil || len(now.nodes) < askers
}
