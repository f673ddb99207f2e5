package membership

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// founding is a set of nodes started with --expect.
type founding struct {
	now   time.Time
	nodes []*simNode // by ID, including dead ones
	cut   map[[2]string]bool
	// flying holds the messages in flight.
	flying []*exchange

	charters map[string]*charterState
	minted   int
}

// charterState is a charter and the nodes that have begun it.
type charterState struct {
	Charter
	began   []string
	gaveUp  []string
	decides bool // a majority of its voters has begun: it may commit entries
}

// simNode is one node.
type simNode struct {
	Peer
	alive    bool
	pledged  time.Time
	told     time.Time
	views    map[string]view
	bound    time.Time // since when, in this process
	silent   time.Time // it answers no requests until then
	decision Decision
}

type view struct {
	Peer
	asked time.Time
}

type exchange struct {
	from, to *simNode
	asked    time.Time
	answer   *Peer
	offer    *Charter // nil: a request for a view
}

func newFounding() *founding {
	return &founding{now: t0, cut: map[[2]string]bool{}, charters: map[string]*charterState{}}
}

func (f *founding) find(id string) *simNode {
	for _, n := range f.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

func (f *founding) add(id string, expect int) *simNode {
	n := &simNode{Peer: Peer{ID: id, Addr: id + ":1", Expect: expect}, alive: true, views: map[string]view{}}
	f.nodes = append(f.nodes, n)
	slices.SortFunc(f.nodes, func(a, b *simNode) int { return cmp.Compare(a.ID, b.ID) })
	return n
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func (f *founding) linked(a, b *simNode) bool {
	return a != b && a.alive && b.alive && !f.cut[pair(a.ID, b.ID)]
}

// crash ends a node's process; the next one has its disk, and answers no
// requests while its old pledge may be acted on.
func (f *founding) crash(n *simNode) {
	n.PledgedTo, n.views, n.bound, n.silent = "", map[string]view{}, f.now, f.now.Add(ActWithin)
}

// tell returns a node's answer to a request.
func (f *founding) tell(n, to *simNode) Peer {
	if n.PledgedTo == to.ID {
		n.told = f.now
	}
	p := n.Peer
	p.Seen = nil
	for id, v := range n.views {
		if f.now.Sub(v.asked) <= ActWithin {
			p.Seen = append(p.Seen, id)
		}
	}
	return p
}

// ask is a request answered at once.
func (f *founding) ask(from, to *simNode) {
	if f.linked(from, to) && f.answers(to) {
		from.views[to.ID] = view{f.tell(to, from), f.now}
	}
}

func (f *founding) answers(n *simNode) bool { return !f.now.Before(n.silent) }

// offer delivers a charter to a node.
func (f *founding) offer(to *simNode, c Charter) error {
	if err := CheckAccept(to.Peer, f.seenBy(to), c); err != nil {
		return err
	}
	if to.Accepted == nil {
		to.bound = f.now
	}
	to.Accepted = &c
	return nil
}

// seenBy returns a node's views of the others.
func (f *founding) seenBy(n *simNode) (peers []Peer) {
	for _, v := range n.views {
		v.Age = f.now.Sub(v.asked)
		peers = append(peers, v.Peer)
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	return peers
}

// self returns a node's Peer for Form.
func (f *founding) self(n *simNode) Peer {
	p := n.Peer
	p.PledgedFor, p.SinceTold, p.BoundFor = f.now.Sub(n.pledged), f.now.Sub(n.told), f.now.Sub(n.bound)
	return p
}

// decide performs what Form returns for a node. send delivers offers.
func (f *founding) decide(n *simNode, send func(to *simNode, c Charter)) Decision {
	peers := f.seenBy(n)
	n.Renounced, _ = MergeRenounced(n.Renounced, peers)
	d := Form(f.self(n), peers)
	switch d.Action {
	case FormPledge:
		n.PledgedTo, n.pledged, n.told = d.Peer, f.now, f.now
	case FormDraw:
		f.minted++
		c := Charter{Cluster: fmt.Sprintf("cluster %d", f.minted), By: n.ID, Members: d.Peers, Voters: InitialVoters(d.Peers, 5)}
		f.charters[c.Cluster] = &charterState{Charter: c}
		n.Accepted, n.bound = &c, f.now
	case FormOffer:
		for _, id := range d.Peers {
			if to := f.find(id); to != nil {
				send(to, *d.Charter)
			}
		}
	case FormRenounce:
		n.Renounced = append(n.Renounced, Renounce(n.ID, *d.Charter))
		n.Accepted, n.PledgedTo = nil, ""
	case FormBegin:
		n.Formed, n.Cluster = true, d.Charter.Cluster
		f.begin(n)
	case FormJoin:
		other := f.find(d.Peer)
		if made := f.charters[other.Cluster]; f.linked(n, other) && made.decides {
			n.Formed, n.Cluster = true, other.Cluster
		}
	}
	n.decision = d
	return d
}

func (f *founding) begin(n *simNode) {
	c := f.charters[n.Cluster]
	c.began = append(c.began, n.ID)
	votes := 0
	for _, id := range c.Voters {
		if slices.Contains(c.began, id) && !slices.Contains(c.gaveUp, id) {
			votes++
		}
	}
	c.decides = c.decides || votes >= majority(len(c.Voters))
}

// giveUp makes a node that has begun a dead charter start over.
func (f *founding) giveUp(n *simNode) bool {
	c := f.charters[n.Cluster]
	if !n.alive || !n.Formed || n.Accepted == nil || c.decides || !CharterDead(c.Charter, f.seenBy(n)) {
		return false
	}
	n.alive = false
	c.gaveUp = append(c.gaveUp, n.ID)
	f.add(n.ID+"'", n.Expect)
	return true
}

// deliver returns a send that delivers offers at once.
func (f *founding) deliver(from *simNode) func(to *simNode, c Charter) {
	return func(to *simNode, c Charter) {
		if f.linked(from, to) && f.answers(to) {
			_ = f.offer(to, c)
		}
	}
}

// round lets each node in turn request all views and decide.
func (f *founding) round() (out []string) {
	for _, n := range slices.Clone(f.nodes) {
		for _, other := range f.nodes {
			f.now = f.now.Add(time.Millisecond)
			f.ask(n, other)
		}
		if f.giveUp(n) {
			out = append(out, n.ID+": starts over: "+n.Cluster+" was given up")
		}
		if n.alive && !n.Formed {
			d := f.decide(n, f.deliver(n))
			text := string(d.Action)
			for _, id := range append([]string{d.Peer}, d.Peers...) {
				if id != "" {
					text += " " + id
				}
			}
			out = append(out, fmt.Sprintf("%s: %s: %s", n.ID, text, d.Why))
		}
	}
	return out
}
