package health

import (
	"hash/fnv"
	"net/netip"
	"slices"
	"time"

	"penstock/routing/endpoint"
	"penstock/routing/scheduler"
)

// ID is the same on all nodes for the same question to the same address. Its
// lowest bit is 0: a verdict that travels has the answer there.
type ID uint32

// Verdict is an ID with the answer: 1 where the endpoint is well.
func (id ID) Verdict(well bool) uint32 {
	if well {
		return uint32(id) | 1
	}
	return uint32(id)
}

// Peers are the nodes that share probes. In a large cluster it would be a
// flood if each node asked each endpoint; so a few ask, and the others take
// their word. Where nobody's word is there, a node asks by itself: nothing
// depends on the others.
type Peers interface {
	// Mine tells whether this node is one of those that ask.
	Mine(ID) bool
	// Heard is what the others that ask say; known is false where none does.
	Heard(ID) (well, known bool)
}

// Share makes the checker share probes with others; nil: with nobody. What a
// node learns from its own connections (ejection) is its own in any case.
//
// Only what is the same seen from every node is shared: no loopback
// addresses, no sockets of this machine, no checks with TLS settings, which
// may name files and certificates of the node.
func (c *Checker) Share(p Peers) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peers = p
}

// Verdicts are the answers to this node's own probes that others may use:
// those asked lately, in the order of their IDs, at most limit of them.
func (c *Checker) Verdicts(limit int) []uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []uint32
	now := time.Now()
	for _, p := range c.probes {
		if p.id != 0 && p.own && p.health != endpoint.Unchecked && now.Sub(p.checked) < 3*p.check.interval()+p.check.timeout() {
			list = append(list, p.id.Verdict(p.health == endpoint.Healthy))
		}
	}
	slices.Sort(list)
	return list[:min(len(list), limit)]
}

// idOf gives a probe's ID; 0: it is not for sharing.
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

// borrow takes the others' word instead of asking, where it is theirs to ask
// and they have said something. It holds no lock while it asks for that.
func (c *Checker) borrow(p *probe) (again time.Duration, done bool) {
	c.mu.Lock()
	peers := c.peers
	c.mu.Unlock()
	if peers == nil || p.id == 0 || peers.Mine(p.id) {
		return 0, false
	}
	well, known := peers.Heard(p.id)
	if !known {
		return 0, false
	}
	to, cause := endpoint.Healthy, ""
	if !well {
		to, cause = endpoint.Unhealthy, "found by other nodes"
	}
	now := time.Now()
	c.mu.Lock()
	p.own, p.checked, p.took = false, now, 0
	var told []change
	if p.health != to {
		if !well {
			p.errText, p.errAt = cause, now
		}
		p.verdict, p.since = verdict{health: to}, now
		for _, f := range p.followers {
			told = append(told, f.set(to, cause, now)...)
		}
	}
	c.mu.Unlock()

	tell(told)
	return scheduler.Jitter(p.check.interval()), true
}
