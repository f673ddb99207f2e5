package membership

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Charter names a new cluster and the nodes that found it together. It is fixed
// before any of them starts Raft.
//
// The protocol, for N nodes of --expect:
//
//	draw up   One node, to which the others are pledged (Form), creates the
//	          cluster ID, writes the charter to its disk and offers it to the
//	          other members. It has thereby accepted the charter.
//	accept    A member that has seen all others writes the charter to its
//	          disk. A node is bound to one charter at a time, also across
//	          restarts.
//	begin     A member that knows that all N have accepted starts Raft with
//	          the charter's voters. It stays in that cluster.
//	renounce  A member that is bound and cannot begin for GiveUpAfter records
//	          that it never will. It may accept no other charter until this
//	          one is dead: until so many of its voters have renounced it that
//	          the rest is no majority.
//
// Safety does not depend on clocks. Only a member that has accepted and not
// renounced may begin, so a dead charter never has a majority of voters that
// have begun: it never commits anything. A node accepts a second charter only
// when the first one is dead. So of two charters with a common member, at most
// one ever commits anything, and it does so with a majority of the voters that
// all of its members have confirmed.
//
// A crash has these effects, step by step (same directory, new process):
//
//   - before the charter is on the disk of the node that draws it up: none; no
//     other node has seen the charter.
//   - on that disk, offered to some or none: it is offered again. If that node
//     does not return, the members that accepted either know that all have, and
//     begin without it, or renounce it.
//   - after a member has accepted, before it has responded: its next view shows
//     that it has.
//   - after all have accepted, before any has begun: each learns that from the
//     others and begins.
//   - after some have begun: the others find that all have accepted, or that the
//     cluster exists. Raft commits nothing before a majority of the voters has
//     begun.
//   - after a member has renounced: the record persists, and the member does not
//     accept again.
//   - a node whose disk is wiped has a new ID. If it had accepted, the charter
//     continues with a lost voter; otherwise the others renounce.
//   - a node that has begun and finds the charter dead (it was away while the
//     others renounced) has committed nothing. It starts over as a new node.
type Charter struct {
	Cluster string   `json:"cluster"` // its ID, created by By
	By      string   `json:"by"`      // ID of the member that drew it up
	Members []string `json:"members"` // IDs of the N nodes, in order
	// Voters are the voters of the first configuration.
	Voters []string `json:"voters"`
}

// Renounced is a charter that a node will never begin.
type Renounced struct {
	Charter
	// Without lists the voters known to have renounced it.
	Without []string `json:"without"`
}

// MaxRenounced bounds the renounced charters that a node remembers.
const MaxRenounced = 64

// Same reports whether two charters are equal.
func (c Charter) Same(o Charter) bool {
	return c.Cluster == o.Cluster && c.By == o.By && slices.Equal(c.Members, o.Members) && slices.Equal(c.Voters, o.Voters)
}

// Valid reports whether a charter is well-formed.
func (c Charter) Valid() bool {
	return c.Cluster != "" && len(c.Members) > 1 && len(c.Members) <= maxExpect &&
		slices.IsSorted(c.Members) && len(slices.Compact(slices.Clone(c.Members))) == len(c.Members) &&
		slices.Contains(c.Members, c.By) && len(c.Voters) > 0 && len(c.Voters) <= len(c.Members) &&
		slices.Equal(c.Voters, c.Members[:len(c.Voters)])
}

// Dead reports whether the voters that have not renounced are no majority.
func (r Renounced) Dead() bool {
	left := 0
	for _, id := range r.Voters {
		if !slices.Contains(r.Without, id) {
			left++
		}
	}
	return left < majority(len(r.Voters))
}

// InitialVoters returns the voters of a charter's first configuration: the
// lowest IDs of the sorted members, an odd number, at most the setting
// --voters. Of two nodes both vote, so that every change is on two disks.
func InitialVoters(members []string, most int) []string {
	most = Settings{Voters: most}.withDefaults().Voters
	n := min(len(members), most)
	if n%2 == 0 && n > 2 {
		n--
	}
	return members[:n]
}

// CheckAccept returns why a node may not accept an offered charter. On nil it
// may, and is bound to the charter once that is on its disk.
func CheckAccept(self Peer, peers []Peer, c Charter) error {
	switch {
	case !c.Valid() || !slices.Contains(c.Members, self.ID):
		return errors.New("it is not a valid charter with this node as a member")
	case self.Formed:
		return fmt.Errorf("this node is in the cluster %s", self.Cluster)
	case len(c.Members) != self.Expect:
		return fmt.Errorf("it names %d nodes; this node was started with --expect %d", len(c.Members), self.Expect)
	case self.Accepted != nil && !self.Accepted.Same(c):
		return fmt.Errorf("this node has accepted another charter, of %s", strings.Join(self.Accepted.Members, " "))
	case self.renounced(c.Cluster):
		return errors.New("this node has renounced the charter")
	case self.pendingRenounced() != nil:
		return fmt.Errorf("this node has renounced %s, which may still begin", self.pendingRenounced().Cluster)
	}
	for _, id := range c.Members {
		seen := slices.ContainsFunc(peers, func(p Peer) bool { return p.ID == id && p.Expect == self.Expect })
		if id != self.ID && !seen {
			return fmt.Errorf("this node has not seen %s", id)
		}
	}
	return nil
}

// MergeRenounced merges the peers' knowledge of renounced charters into a
// node's own.
func MergeRenounced(own []Renounced, peers []Peer) (all []Renounced, changed bool) {
	all = make([]Renounced, 0, len(own))
	for _, r := range own {
		r.Without = slices.Clone(r.Without)
		for _, p := range peers {
			for _, o := range p.Renounced {
				if !o.Same(r.Charter) {
					continue
				}
				for _, id := range o.Without {
					if slices.Contains(r.Voters, id) && !slices.Contains(r.Without, id) {
						r.Without, changed = append(r.Without, id), true
					}
				}
			}
		}
		slices.Sort(r.Without)
		all = append(all, r)
	}
	return all, changed
}

// CharterDead reports whether a charter that a node has begun is dead,
// according to its peers: it has committed nothing and never will.
func CharterDead(c Charter, peers []Peer) bool {
	known, _ := MergeRenounced([]Renounced{{Charter: c}}, peers)
	return known[0].Dead()
}

// Renounce returns the record of a charter that the node renounces.
func Renounce(self string, c Charter) Renounced {
	r := Renounced{Charter: c}
	if slices.Contains(c.Voters, self) {
		r.Without = []string{self}
	}
	return r
}

// renounced reports whether the peer has renounced the charter of a cluster.
func (p Peer) renounced(cluster string) bool {
	return slices.ContainsFunc(p.Renounced, func(r Renounced) bool { return r.Cluster == cluster })
}

// pendingRenounced returns a charter that the peer has renounced and that is
// not dead: until it is, the peer takes part in no other. Nil: there is none.
func (p Peer) pendingRenounced() *Renounced {
	for i := range p.Renounced {
		if !p.Renounced[i].Dead() {
			return &p.Renounced[i]
		}
	}
	return nil
}

// knowsDead reports whether the peer knows that the charter of a cluster is
// dead.
func (p Peer) knowsDead(cluster string) bool {
	return slices.ContainsFunc(p.Renounced, func(r Renounced) bool { return r.Cluster == cluster && r.Dead() })
}

// mayAccept reports whether the peer may take part in a charter.
func (p Peer) mayAccept() bool { return p.Accepted == nil && p.pendingRenounced() == nil }

// resolveCharter decides for a node that has accepted a charter, or that
// has renounced one that is not dead.
func (f *formation) resolveCharter() (Decision, bool) {
	c := f.self.Accepted
	if c == nil {
		return f.resolveRenounced()
	}
	var missing []string
	for _, p := range f.peers {
		if p.renounced(c.Cluster) {
			return Decision{Action: FormRenounce, Peer: p.ID, Charter: c, Why: p.ID + " has renounced the charter"}, true
		}
	}
	for _, id := range c.Members {
		p, ok := f.find(id)
		// The member By accepted it before it offered it to others.
		if id != f.self.ID && id != c.By && (!ok || p.Accepted == nil || !p.Accepted.Same(*c)) {
			missing = append(missing, id)
		}
	}
	switch {
	case len(missing) == 0:
		return Decision{Action: FormBegin, Charter: c, Why: "all have accepted: " + strings.Join(c.Members, " ")}, true
	case f.self.BoundFor > GiveUpAfter:
		return Decision{Action: FormRenounce, Charter: c, Why: fmt.Sprintf(
			"not accepted by %s within %v", strings.Join(missing, " "), GiveUpAfter)}, true
	case c.By == f.self.ID:
		return Decision{Action: FormOffer, Peers: missing, Charter: c, Why: "not yet accepted by " + strings.Join(missing, " ")}, true
	}
	return Decision{Action: FormWait, Why: "not yet accepted by " + strings.Join(missing, " ")}, true
}

// resolveRenounced decides for a node that has accepted no charter, by the
// charters that it or a peer has renounced. A member that never saw a charter
// renounces it with the others, so that they learn that it is dead.
func (f *formation) resolveRenounced() (Decision, bool) {
	for _, p := range f.peers {
		for _, r := range p.Renounced {
			if r.Valid() && slices.Contains(r.Members, f.self.ID) && !r.Dead() && !f.self.renounced(r.Cluster) {
				return Decision{Action: FormRenounce, Peer: p.ID, Charter: &r.Charter, Why: p.ID + " has renounced the charter"}, true
			}
		}
	}
	if r := f.self.pendingRenounced(); r != nil {
		return Decision{Action: FormWait, Barred: true, Why: fmt.Sprintf(
			"this node has renounced the cluster of %s, which may still begin: %s must renounce it too or begin it",
			strings.Join(r.Members, " "), strings.Join(r.notRenounced(), " or "))}, true
	}
	return Decision{}, false
}

// notRenounced returns the voters not known to have renounced.
func (r *Renounced) notRenounced() (ids []string) {
	for _, id := range r.Voters {
		if !slices.Contains(r.Without, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
