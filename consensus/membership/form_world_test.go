package membership

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// founding is a set of nodes that were started with --expect.
type founding struct {
	now   time.Time
	nodes []*starter // by ID; those that are gone as well
	cut   map[[2]string]bool
	// flying are questions and answers on their way.
	flying []*exchange

	founded []foundation
}

// starter is one node that forms.
type starter struct {
	Peer
	alive    bool
	pledged  time.Time
	told     time.Time
	views    map[string]view
	lapsed   []string // to whom it took its pledge back by time, after they had founded
	decision Decision
}

type view struct {
	Peer
	asked time.Time
}

type exchange struct {
	from, to *starter
	asked    time.Time
	answer   *Peer
}

// foundation is a cluster that was founded, and on whose pledges.
type foundation struct {
	by       *starter
	pledgers []string
}

func newFounding() *founding { return &founding{now: t0, cut: map[[2]string]bool{}} }

func (f *founding) find(id string) *starter {
	for _, n := range f.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

func (f *founding) add(id string, expect int) *starter {
	n := &starter{Peer: Peer{ID: id, Addr: id + ":1", Expect: expect}, alive: true, views: map[string]view{}}
	f.nodes = append(f.nodes, n)
	slices.SortFunc(f.nodes, func(a, b *starter) int { return cmp.Compare(a.ID, b.ID) })
	return n
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func (f *founding) linked(a, b *starter) bool {
	return a != b && a.alive && b.alive && !f.cut[pair(a.ID, b.ID)]
}

// tell is what a node answers to another one.
func (f *founding) tell(n, to *starter) Peer {
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

// ask is a question that is answered at once.
func (f *founding) ask(from, to *starter) {
	if f.linked(from, to) {
		from.views[to.ID] = view{f.tell(to, from), f.now}
	}
}

// self is a node as Form wants it.
func (f *founding) self(n *starter) Peer {
	p := n.Peer
	p.PledgedFor, p.Told = f.now.Sub(n.pledged), f.now.Sub(n.told)
	return p
}

// decide lets a node do what Form says.
func (f *founding) decide(n *starter) Decision {
	var peers []Peer
	for _, v := range n.views {
		v.Age = f.now.Sub(v.asked)
		peers = append(peers, v.Peer)
		peers[len(peers)-1].Age = v.Age
	}
	d := Form(f.self(n), peers)
	switch d.Do {
	case FormPledge:
		if old := f.find(n.PledgedTo); old != nil && old != n && old.Formed && f.now.Sub(n.told) > TakeBackAfter {
			n.lapsed = append(n.lapsed, old.ID)
		}
		n.PledgedTo, n.pledged, n.told = d.Peer, f.now, f.now
	case FormBootstrap:
		n.Formed, n.Cluster = true, "cluster of "+n.ID
		made := foundation{by: n}
		for _, p := range peers {
			if p.PledgedTo == n.ID && p.Age < f.now.Sub(n.pledged) && p.Age <= ActWithin {
				made.pledgers = append(made.pledgers, p.ID)
			}
		}
		f.founded = append(f.founded, made)
	case FormJoin:
		if other := f.find(d.Peer); f.linked(n, other) {
			n.Formed, n.Cluster = true, other.Cluster
		}
	}
	n.decision = d
	return d
}

// round lets one after the other ask everybody and then decide.
func (f *founding) round() (out []string) {
	for _, n := range f.nodes {
		for _, other := range f.nodes {
			f.now = f.now.Add(time.Millisecond)
			f.ask(n, other)
		}
		if n.alive && !n.Formed {
			d := f.decide(n)
			text := string(d.Do)
			if d.Peer != "" {
				text += " " + d.Peer
			}
			out = append(out, fmt.Sprintf("%s: %s: %s", n.ID, text, d.Why))
		}
	}
	return out
}
