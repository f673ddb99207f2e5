package dataplane

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"sync/atomic"

	"penstock/routing/health"
)

const (
	// probersPerEndpoint is the number of nodes that probe each endpoint.
	probersPerEndpoint = 3
	// maxVerdicts bounds the probe results that a node gossips, 4 bytes each,
	// so that they fit into directory.Facts.Hints. Each node probes the remaining
	// endpoints itself.
	maxVerdicts = 512
)

// healthGossip distributes health checks over the nodes of the cluster: it decides
// which nodes probe an endpoint, and holds the results that the others gossip. It
// is updated each second. If gossip is wrong, more or fewer nodes than probersPerEndpoint
// probe an endpoint; a node's own connections still reveal failures.
type healthGossip struct {
	self     string
	snapshot atomic.Pointer[healthSnapshot]
}

var _ health.Peers = (*healthGossip)(nil)

// healthSnapshot is a snapshot of the other members' hints.
type healthSnapshot struct {
	nodes   map[string]string // hints of the members that are up, by ID, without this node
	tallies map[health.ID]tally
}

// tally counts the verdicts of nodes on one endpoint.
type tally struct{ healthy, unhealthy int }

// update replaces the snapshot by the hints of the nodes that are up, by ID.
func (s *healthGossip) update(hints map[string]string) {
	nodes := maps.Clone(hints)
	delete(nodes, s.self)
	if old := s.snapshot.Load(); old != nil && maps.Equal(old.nodes, nodes) {
		return
	}
	next := &healthSnapshot{nodes: nodes, tallies: map[health.ID]tally{}}
	for _, hints := range nodes {
		for ; len(hints) >= 4; hints = hints[4:] {
			v := binary.BigEndian.Uint32([]byte(hints[:4]))
			t := next.tallies[health.ID(v&^1)]
			if v&1 != 0 {
				t.healthy++
			} else {
				t.unhealthy++
			}
			next.tallies[health.ID(v&^1)] = t
		}
	}
	s.snapshot.Store(next)
}

// Probes implements health.Peers: the nodes with the highest scores for the endpoint
// probe it (rendezvous hashing), so that a node that joins or leaves moves no more
// than its own share.
func (s *healthGossip) Probes(id health.ID) bool {
	now := s.snapshot.Load()
	if now == nil || len(now.nodes) < probersPerEndpoint {
		return true
	}
	own, higher := score(s.self, id), 0
	for node := range now.nodes {
		if other := score(node, id); other > own || other == own && node > s.self {
			higher++
		}
	}
	return higher < probersPerEndpoint
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

// Verdict implements health.Peers: the majority of the verdicts counts; a tie means
// healthy.
func (s *healthGossip) Verdict(id health.ID) (well, known bool) {
	now := s.snapshot.Load()
	if now == nil {
		return false, false
	}
	t, known := now.tallies[id]
	return t.healthy >= t.unhealthy, known
}

// UpdateHealthGossip takes the hints of the cluster's nodes that are up, by node ID.
func (d *Dataplane) UpdateHealthGossip(nodes map[string]string) {
	if d.healthGossip != nil {
		d.healthGossip.update(nodes)
	}
}

// HealthGossip returns this node's probe results, encoded for the other nodes: 4 bytes
// each, the lowest bit set for a healthy endpoint.
func (d *Dataplane) HealthGossip() []byte {
	if d.healthGossip == nil || d.healthGossip.tooFewNodes() {
		return nil
	}
	var b []byte
	for _, v := range d.reconciler.checker.Verdicts(maxVerdicts) {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return b
}

// tooFewNodes reports whether there are too few nodes to share checks.
func (s *healthGossip) tooFewNodes() bool {
	now := s.snapshot.Load()
	return now == nil || len(now.nodes) < probersPerEndpoint
}
