package health

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"penstock/routing/endpoint"
	"penstock/routing/scheduler"
)

// ID identifies a check of an address, the same on all nodes. Its lowest bit is
// 0: in a Verdict that bit holds the result.
type ID uint32

// Verdict combines the ID with the result: the lowest bit is 1 for healthy.
func (id ID) Verdict(healthy bool) uint32 {
	if healthy {
		return uint32(id) | 1
	}
	return uint32(id)
}

// Peers are the nodes that share probes. In a large cluster probes from every
// node would flood the endpoints, so a few nodes probe and the others use their
// verdicts. Without a verdict a node probes by itself and depends on no other.
type Peers interface {
	// Probes reports whether this node is one of those that probe.
	Probes(ID) bool
	// Verdict returns the verdict of the nodes that probe; known is false without
	// one.
	Verdict(ID) (healthy, known bool)
}

// Share makes the checker share probes with peers; nil disables sharing.
// Results of a node's own connections (ejection) are never shared.
//
// Only checks that are the same from every node are shared: not those of
// loopback and link-local addresses or unix sockets, nor those with TLS
// settings, which may refer to files and certificates of the node.
func (c *Checker) Share(p Peers) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers = p
}

// Verdicts returns the recent results of this node's own probes for other
// nodes, sorted by ID, at most limit of them.
func (c *Checker) Verdicts(limit int) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []uint32
	now := time.Now()
	for _, p := range c.probes {
		if p.id != 0 && p.ownResult && p.health != endpoint.Unchecked && now.Sub(p.checked) < 3*p.check.interval()+p.check.timeout() {
			list = append(list, p.id.Verdict(p.health == endpoint.Healthy))
		}
	}
	slices.Sort(list)
	return list[:min(len(list), limit)]
}

// idOf returns a probe's ID, or 0 if it must not be shared.
func idOf(key probeKey, check *Check) ID {
	addr, err := netip.ParseAddrPort(key.address)
	if err != nil || key.network != "tcp" || addr.Addr().IsLoopback() || addr.Addr().IsLinkLocalUnicast() || check.TLS != nil {
		return 0
	}
	h := fnv.New64a()
	for _, s := range []string{key.address, key.host, key.check} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	sum := h.Sum64()
	return ID(sum>>32^sum) &^ 1
}

// usePeerVerdict uses the verdict of other nodes instead of a probe, if other nodes
// probe this ID and have a verdict. It calls peers without the lock held.
func (c *Checker) usePeerVerdict(p *probe) (again time.Duration, done bool) {
	c.mu.Lock()
	peers := c.peers
	c.mu.Unlock()
	if peers == nil || p.id == 0 || peers.Probes(p.id) {
		return 0, false
	}
	healthy, known := peers.Verdict(p.id)
	if !known {
		return 0, false
	}
	to, cause := endpoint.Healthy, ""
	if !healthy {
		to, cause = endpoint.Unhealthy, "reported by other nodes"
	}
	now := time.Now()
	c.mu.Lock()
	p.ownResult, p.checked, p.took = false, now, 0
	var events []change
	if p.health != to {
		if !healthy {
			p.errText, p.errAt = cause, now
		}
		p.verdict, p.since = verdict{health: to}, now
		for _, f := range p.subscribers {
			events = append(events, f.setHealth(to, cause, now)...)
		}
	}
	c.mu.Unlock()

	notify(events)
	return scheduler.Jitter(p.check.interval()), true
}
