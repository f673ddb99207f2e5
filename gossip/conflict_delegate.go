package gossip

import (
	"time"

	"github.com/hashicorp/memberlist"
)

var _ memberlist.ConflictDelegate = (*conflictDelegate)(nil)

// conflictDelegate handles two addresses for one ID. These need not be two
// processes: a node that returned at another address receives stale gossip
// about its former self. A node that is notified for its own ID therefore
// requests a claim at the other address. A stale address does not respond; this
// node itself, reached by another route, responds with the same instance; only
// another process responds with another instance. The request informs that
// process of the conflict as well.
type conflictDelegate struct{ g *Gossip }

// NotifyConflict is called under memberlist's lock.
func (d *conflictDelegate) NotifyConflict(existing, other *memberlist.Node) {
	if existing.Name == d.g.id {
		d.g.queueConflict(conflictSign{claimFrom: other.Address()})
	}
}

// conflictSign is a sign that another process uses this node's ID.
type conflictSign struct {
	claimFrom   string // gossip address to request a claim from; "": claim was received
	claim       claim
	wantsAnswer bool // the claim came with a request
}

const (
	claimInterval        = 2 * time.Second // per address
	conflictWarnInterval = time.Minute     // per other process
	maxConflicts         = 16              // addresses and processes kept
)

// queueConflict queues a sign for handleConflicts. If the queue is full it is
// dropped, and comes again with the next packet.
func (g *Gossip) queueConflict(d conflictSign) {
	select {
	case g.conflicts <- d:
	default:
	}
}

// handleConflicts handles signs of conflicts until g is closed.
func (g *Gossip) handleConflicts() {
	asked, warned := keyedLimiter{every: claimInterval}, keyedLimiter{every: conflictWarnInterval}
	for {
		var d conflictSign
		select {
		case d = <-g.conflicts:
		case <-g.ctx.Done():
			return
		}
		self, _ := g.members.ownEntry()
		own := claim{ID: g.id, Addr: g.addr, Age: time.Since(g.opened), Meta: self.Meta}
		c := d.claim
		switch {
		case d.claimFrom != "":
			if asked.allow(d.claimFrom) {
				g.send(d.claimFrom, encodeClaim(formatClaimRequest, own))
			}
		case c.ID != g.id || c.Meta.Instance == self.Instance:
		default:
			if d.wantsAnswer && asked.allow(c.Addr) {
				g.send(c.Addr, encodeClaim(formatClaim, own))
			}
			if warned.allow(c.Meta.Instance) {
				g.log.Error("another process uses this node's ID: was its data folder copied?", "gossip", c.Addr, "cluster", c.Meta.Cluster)
				if g.conflict != nil {
					g.conflict(Member{ID: c.ID, Addr: c.Addr, Meta: c.Meta, State: Alive, Since: time.Now().Add(-c.Age)})
				}
			}
		}
	}
}

// send sends one packet; it may be lost.
func (g *Gossip) send(addr string, b []byte) {
	if err := g.list.SendToAddress(memberlist.Address{Addr: addr}, b); err != nil {
		g.log.Debug("gossip: cannot send a packet", "to", addr, "error", err)
	}
}

// keyedLimiter limits the rate of events by key.
type keyedLimiter struct {
	every time.Duration
	last  map[string]time.Time
}

func (p *keyedLimiter) allow(key string) bool {
	now := time.Now()
	if last, ok := p.last[key]; ok && now.Sub(last) < p.every {
		return false
	}
	if p.last == nil || len(p.last) >= maxConflicts {
		p.last = map[string]time.Time{}
	}
	p.last[key] = now
	return true
}
