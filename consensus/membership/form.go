package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Peer is a node that was started with --expect N, as it says of itself.
type Peer struct {
	ID     string
	Addr   string // of its cluster port
	Expect int    // N: how many nodes found the cluster
	// Formed says that it is in a cluster, whose ID is Cluster.
	Formed  bool
	Cluster string
	// PledgedTo is the ID of the only node that it lets found the cluster,
	// itself perhaps; "": none yet. It is told with every view. A process
	// that forgets it, because it ends, must come back with another ID, or
	// answer nobody for ActWithin.
	PledgedTo string
	// Seen are the IDs of the nodes whose views it has, not older than ActWithin.
	Seen []string
	// Accepted is the charter that it is bound to, Renounced those that it
	// will never begin. Both outlive its process.
	Accepted  *Charter
	Renounced []Renounced

	// Age is how long ago the caller asked for this view. The question
	// counts, not the answer, so that what a slow network delivers late is
	// old. Only views that were asked for count, not those that came with
	// another's question. Of a peer; nothing for the node itself.
	Age time.Duration
	// PledgedFor is how long ago the node made its pledge, and Told how long
	// ago it last answered the node that it is pledged to; PledgedFor if it
	// has not since. Of the node itself, by its own monotonic clock. Answers
	// and decisions must not run at the same time.
	PledgedFor time.Duration
	Told       time.Duration
	// BoundFor is how long ago the node accepted its charter, or began to run
	// with it. Of the node itself.
	BoundFor time.Duration
}

// The times that bring nodes to one charter soon. Safety rests on none of them
// (see Charter). They hold between the clocks' rates, never between their
// readings: each is measured on one node.
const (
	// GiveUpAfter is how long a node is bound to a charter that not all
	// members accept before it renounces it.
	GiveUpAfter = 30 * time.Second
	// ActWithin bounds the age of the views on which a node may bootstrap.
	// Since a view's age counts from the question, whoever acts on a pledge
	// does so within ActWithin after it was given.
	ActWithin = 5 * time.Second
	// TakeBackAfter is how long a node that is pledged to another one must
	// not have told it so before it may pledge to a third. It is longer than
	// ActWithin by far, so that clocks may run at different speeds.
	TakeBackAfter = 30 * time.Second
)

const (
	maxExpect = 16 // nodes that found a cluster together
	maxSearch = 10_000
)

// FormAction is what a decision says.
type FormAction string

// The decisions.
const (
	FormWait      FormAction = "wait"      // look again soon
	FormPledge    FormAction = "pledge"    // set PledgedTo to Peer, then look again
	FormBootstrap FormAction = "bootstrap" // found a cluster of this node alone: --expect 1
	FormDraw      FormAction = "draw"      // draw up a charter of Peers, and accept it
	FormOffer     FormAction = "offer"     // offer Charter to Peers
	FormBegin     FormAction = "begin"     // begin the cluster of Charter
	FormRenounce  FormAction = "renounce"  // renounce Charter
	FormJoin      FormAction = "join"      // join the cluster of Peer
	FormRefuse    FormAction = "refuse"    // an operator must act; look again all the same
)

// Decision is what a node that forms does next.
type Decision struct {
	Action  FormAction
	Peer    string   // ID of whom to pledge to or to join
	Peers   []string // IDs: the members to be, or whom to offer Charter
	Charter *Charter
	Barred  bool // it waits for a charter that it has renounced to be dead
	Why     string
}

// Form decides what a node that was started with --expect does next. Peers are
// the nodes that prove the same token and have answered; a node that has not
// answered is not among them and is never taken for one that is empty. A
// caller that learns from its peers' answers where further peers are needs
// join lists that overlap, no more.
//
// A node draws up a charter only when it has the lowest ID of N nodes, itself
// among them, that all have seen each other, expect the same number, are in no
// cluster, are bound to no charter, and are all pledged to it. What follows is
// told at Charter. If anybody is in a cluster, the others join that.
//
// Pledges keep nodes from drawing up charters against each other; nothing
// worse than a wait comes of it when two do. A node is pledged to at most one,
// and takes that back only
//
//   - when that one says that it is not pledged to itself, and says so in a
//     view that was asked for after it last heard of the pledge;
//   - when it has not told that one of its pledge for TakeBackAfter.
func Form(self Peer, peers []Peer) Decision {
	if self.Formed {
		return Decision{Action: FormWait, Why: "it is in a cluster"}
	}
	f := former{self: self}
	for _, p := range peers {
		if p.ID != self.ID && p.Age <= ActWithin && !f.has(p.ID) {
			f.peers = append(f.peers, p)
		}
	}
	slices.SortFunc(f.peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	for _, rule := range []func() (Decision, bool){f.join, f.bound, f.unequal, f.draw, f.pledge} {
		if d, ok := rule(); ok {
			return d
		}
	}
	return f.wait()
}

// former is one look at the peers.
type former struct {
	self  Peer
	peers []Peer // by ID, each once, fresh, without self
}

func (f *former) find(id string) (Peer, bool) {
	i := slices.IndexFunc(f.peers, func(p Peer) bool { return p.ID == id })
	if i < 0 {
		return Peer{}, false
	}
	return f.peers[i], true
}

func (f *former) has(id string) bool {
	_, ok := f.find(id)
	return ok
}

// join looks for a cluster that is there already.
func (f *former) join() (Decision, bool) {
	if c := f.self.Accepted; c != nil {
		if i := slices.IndexFunc(f.peers, func(p Peer) bool { return p.Formed && p.Cluster == c.Cluster }); i >= 0 {
			return Decision{Action: FormBegin, Charter: c, Why: f.peers[i].ID + " has begun it"}, true
		}
	}
	var formed []Peer
	for _, p := range f.peers {
		if !p.Formed || f.self.knowsDead(p.Cluster) {
			continue
		}
		formed = append(formed, p)
		if first := formed[0]; p.Cluster != first.Cluster {
			return Decision{Action: FormRefuse, Why: fmt.Sprintf("%s and %s are in different clusters: %s and %s",
				first.ID, p.ID, first.Cluster, p.Cluster)}, true
		}
	}
	if len(formed) == 0 {
		return Decision{}, false
	}
	if c := f.self.Accepted; c != nil {
		return Decision{Action: FormRenounce, Peer: formed[0].ID, Charter: c, Why: formed[0].ID + " is in another cluster"}, true
	}
	return Decision{Action: FormJoin, Peer: formed[0].ID, Why: "it is in a cluster"}, true
}

// unequal refuses what operators get wrong.
func (f *former) unequal() (Decision, bool) {
	if f.self.Expect < 1 || f.self.Expect > maxExpect {
		return Decision{Action: FormRefuse, Why: fmt.Sprintf("--expect %d: not between 1 and %d", f.self.Expect, maxExpect)}, true
	}
	for _, p := range f.peers {
		if p.Expect != f.self.Expect {
			return Decision{Action: FormRefuse, Why: fmt.Sprintf("%s was started with --expect %d, this node with --expect %d",
				p.ID, p.Expect, f.self.Expect)}, true
		}
	}
	return Decision{}, false
}

// draw looks whether this node may draw up the charter now.
func (f *former) draw() (Decision, bool) {
	if f.self.Expect == 1 {
		return Decision{Action: FormBootstrap, Why: "no other node is expected"}, true
	}
	if f.self.PledgedTo != f.self.ID {
		return Decision{}, false
	}
	set := f.meet(func(p Peer) bool {
		return p.ID > f.self.ID && p.PledgedTo == f.self.ID && p.Age < f.self.PledgedFor
	})
	if set == nil {
		return Decision{}, false
	}
	return Decision{Action: FormDraw, Peers: set, Why: "all are pledged to it: " + strings.Join(set, " ")}, true
}

// pledge looks whom this node should let found the cluster.
func (f *former) pledge() (Decision, bool) {
	set := f.meet(func(Peer) bool { return true })
	if set == nil || set[0] == f.self.PledgedTo || !f.free() {
		return Decision{}, false
	}
	return Decision{Action: FormPledge, Peer: set[0], Why: "it has the lowest ID of " + strings.Join(set, " ")}, true
}

// free says whether this node may pledge to another one than it has.
func (f *former) free() bool {
	to := f.self.PledgedTo
	if to == "" || to == f.self.ID || f.self.Told > TakeBackAfter && f.self.PledgedFor > TakeBackAfter {
		return true
	}
	p, ok := f.find(to)
	return ok && p.PledgedTo != to && p.Age < f.self.Told && p.Age < f.self.PledgedFor
}

// meet finds N nodes that have all seen each other, this one among them and
// else those that may be; of several such sets the one with the lowest IDs.
// Nil: there is none.
func (f *former) meet(may func(Peer) bool) []string {
	var all []Peer
	for _, p := range f.peers {
		if p.open() && may(p) && slices.Contains(p.Seen, f.self.ID) {
			all = append(all, p)
		}
	}
	// Having the peer's view is to have seen it.
	self := f.self
	self.Seen = nil
	for _, p := range all {
		self.Seen = append(self.Seen, p.ID)
	}
	all = append(all, self)
	slices.SortFunc(all, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	budget := maxSearch
	var ids []string
	for _, p := range search(nil, all, f.self, f.self.Expect, &budget) {
		ids = append(ids, p.ID)
	}
	return ids
}

// search tries to make set as large as want with nodes from rest, in order.
// The set must come to hold self.
func search(set, rest []Peer, self Peer, want int, budget *int) []Peer {
	if len(set) == want {
		if !slices.ContainsFunc(set, func(p Peer) bool { return p.ID == self.ID }) {
			return nil
		}
		return set
	}
	for i, p := range rest {
		*budget--
		switch {
		case *budget < 0 || len(set)+len(rest)-i < want || i > 0 && rest[i-1].ID == self.ID:
			return nil // without self there is no set
		case !slices.ContainsFunc(set, func(q Peer) bool { return !mutual(p, q) }):
			if found := search(append(slices.Clip(set), p), rest[i+1:], self, want, budget); found != nil {
				return found
			}
		}
	}
	return nil
}

func mutual(a, b Peer) bool {
	return slices.Contains(a.Seen, b.ID) && slices.Contains(b.Seen, a.ID)
}

// wait says what is missing.
func (f *former) wait() Decision {
	var why string
	switch to := f.self.PledgedTo; {
	case len(f.peers)+1 < f.self.Expect:
		why = fmt.Sprintf("%d of %d nodes are there", len(f.peers)+1, f.self.Expect)
	case to == f.self.ID:
		why = "not yet all are pledged to it"
		for _, p := range f.peers {
			if p.PledgedTo != to {
				why += fmt.Sprintf("; %s is pledged to %s", p.ID, cmp.Or(p.PledgedTo, "nobody"))
			}
		}
	case to != "" && f.has(to):
		why = to + " is to draw up the cluster"
	case to != "":
		why = fmt.Sprintf("%s was to draw up the cluster and does not answer", to)
	default:
		why = fmt.Sprintf("there are not %d nodes that have all seen each other", f.self.Expect)
	}
	return Decision{Action: FormWait, Why: why}
}
