package dataplane

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"sync/atomic"

	"penstock/routing/health"
)

const (
	// askers is the number of nodes that probe each endpoint.
	askers = 3
	// maxVerdicts bounds the probe results that a node gossips, 4 bytes each,
	// so that they fit into cluster.Facts.Hints. Each node probes the remaining
	// endpoints itself.
	maxVerdicts = 512
)

// healthGossip distributes health checks over the nodes of the cluster: it decides
// which nodes probe an endpoint, and holds the results that the others gossip. It
// is updated each second. If gossip is wrong, more or fewer nodes than askers
// probe an endpoint; a node's own connections still reveal failures.
type healthGossip struct {
	self string
	now  atomic.Pointer[shared]
}

var _ health.Peers = (*healthGossip)(nil)

// shared is a snapshot of the other members' hints.
type shared struct {
	nodes map[string]string // hints of the members that are up, by ID, without this node
	says  map[health.ID]tally
}

// tally counts the verdicts of nodes on one endpoint.
type tally struct{ well, unwell int }

// look replaces the snapshot by the hints of the nodes that are up, by ID.
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

// Mine implements health.Peers: the nodes with the highest scores for the endpoint
// probe it (rendezvous hashing), so that a node that joins or leaves moves no more
// than its own share.
func (s *healthGossip) Mine(id health.ID) bool {
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
	// The last bytes hardly affect the high bits of FNV, so mix them.
	x := h.Sum64()
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return x ^ x>>29
}

// Heard implements health.Peers: the majority of the verdicts counts; a tie means
// healthy.
func (s *healthGossip) Heard(id health.ID) (well, known bool) {
	now := s.now.Load()
	if now == nil {
		return false, false
	}
	t, known := now.says[id]
	return t.well >= t.unwell, known
}

// HearHints takes the hints of the cluster's nodes that are up, by node ID.
func (d *Dataplane) HearHints(nodes map[string]string) {
	if d.sharing != nil {
		d.sharing.look(nodes)
	}
}

// Hints returns this node's probe results, encoded for the other nodes: 4 bytes
// each, the lowest bit set for a healthy endpoint.
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

// alone reports whether there are too few nodes to share checks.
func (s *healthGossip) alone() bool {
	now := s.now.Load()
	return now == nil || len(now.nodes) < askers
}
