package membership

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Peer is a node started with --expect N, as described by itself.
type Peer struct {
	ID     string
	Addr   string // of its cluster port
	Expect int    // N: number of nodes that found the cluster
	// Formed: the node is in a cluster, whose ID is Cluster.
	Formed  bool
	Cluster string
	// PledgedTo is the ID of the only node, perhaps itself, that it allows to
	// found the cluster; "": none yet. Every view includes it. A process that
	// forgets it by ending must return with another ID, or answer no view for
	// ActWithin.
	PledgedTo string
	// Seen lists the nodes whose views it has, none older than ActWithin.
	Seen []string
	// Accepted is the charter that it is bound to, Renounced those that it will
	// never begin. Both are persistent.
	Accepted  *Charter
	Renounced []Renounced

	// Age is the time since the caller requested this view; the time of the
	// request counts, so that a response delayed by the network is old. Only
	// requested views count, not those that came with a peer's request. Set for
	// peers only.
	Age time.Duration
	// PledgedFor is the time since the node made its pledge, and SinceTold the time
	// since it last answered the node that it is pledged to, or PledgedFor if it
	// has not since. Set for the node itself only, by its monotonic clock. Answers
	// and decisions must not run concurrently.
	PledgedFor time.Duration
	SinceTold  time.Duration
	// BoundFor is the time since the node accepted its charter, or began to run
	// with it. Set for the node itself only.
	BoundFor time.Duration
}

// Durations that make nodes converge on one charter. Safety depends on none of
// them (see Charter). They assume that clocks run at similar rates, not that
// they agree: each is measured on one node.
const (
	// GiveUpAfter is how long a node stays bound to a charter that not all members
	// accept before it renounces it.
	GiveUpAfter = 30 * time.Second
	// ActWithin bounds the age of the views on which a node may bootstrap. Since
	// the age counts from the request, a node acts on a pledge within ActWithin
	// after it was given.
	ActWithin = 5 * time.Second
	// TakeBackAfter is how long a node must not have told the node it is pledged
	// to of the pledge before it may pledge to another. It is much longer than
	// ActWithin, so that clocks may run at different rates.
	TakeBackAfter = 30 * time.Second
)

const (
	maxExpect = 16 // bounds --expect
	maxSearch = 10_000
)

// FormAction is the kind of a Decision.
type FormAction string

// The kinds of Decision.
const (
	FormWait      FormAction = "wait"      // decide again soon
	FormPledge    FormAction = "pledge"    // set PledgedTo to Peer, then decide again
	FormBootstrap FormAction = "bootstrap" // create a single-node cluster: --expect 1
	FormDraw      FormAction = "draw"      // draw up a charter of Peers, and accept it
	FormOffer     FormAction = "offer"     // offer Charter to Peers
	FormBegin     FormAction = "begin"     // begin the cluster of Charter
	FormRenounce  FormAction = "renounce"  // renounce Charter
	FormJoin      FormAction = "join"      // join the cluster of Peer
	FormRefuse    FormAction = "refuse"    // an operator must act; still decide again
)

// Decision is the next step of a node without a cluster.
type Decision struct {
	Action  FormAction
	Peer    string   // ID of the node to pledge to or to join
	Peers   []string // IDs of the future members, or of the nodes to offer Charter to
	Charter *Charter
	Barred  bool // the node waits until a charter that it has renounced is dead
	Why     string
}

// Form returns the next step of a node started with --expect. Peers are the
// nodes that proved the same token and have responded; a node that has not
// responded is not among them and is never assumed to be empty. If the caller
// learns of further peers from responses, the join lists need only overlap.
//
// A node draws up a charter only if it has the lowest ID of N nodes, including
// itself, that all have seen each other, expect the same number, are in no
// cluster, are bound to no charter, and are all pledged to it. See Charter for
// what follows. If any node is in a cluster, the others join that.
//
// Pledges prevent competing charters; two of them cost no more than a wait. A
// node is pledged to one node at most, and withdraws the pledge only
//
//   - when that node reports that it is not pledged to itself, in a view requested
//     after it was last told of the pledge;
//   - when it has not told that node of the pledge for TakeBackAfter.
func Form(self Peer, peers []Peer) Decision {
	if self.Formed {
		return Decision{Action: FormWait, Why: "it is in a cluster"}
	}
	f := formation{self: self}
	for _, p := range peers {
		if p.ID != self.ID && p.Age <= ActWithin && !f.has(p.ID) {
			f.peers = append(f.peers, p)
		}
	}
	slices.SortFunc(f.peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	for _, rule := range []func() (Decision, bool){f.join, f.resolveCharter, f.checkExpect, f.drawCharter, f.pledge} {
		if d, ok := rule(); ok {
			return d
		}
	}
	return f.explainWait()
}

// formation is the input of one decision.
type formation struct {
	self  Peer
	peers []Peer // sorted by ID, unique, no older than ActWithin, without self
}

func (f *formation) find(id string) (Peer, bool) {
	i := slices.IndexFunc(f.peers, func(p Peer) bool { return p.ID == id })
	if i < 0 {
		return Peer{}, false
	}
	return f.peers[i], true
}

func (f *formation) has(id string) bool {
	_, ok := f.find(id)
	return ok
}

// join handles peers that are already in a cluster.
func (f *formation) join() (Decision, bool) {
	if c := f.self.Accepted; c != nil {
		if i := slices.IndexFunc(f.peers, func(p Peer) bool { return p.Formed && p.Cluster == c.Cluster }); i >= 0 {
			return Decision{Action: FormBegin, Charter: c, Why: f.peers[i].ID + " has begun the cluster"}, true
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

// checkExpect refuses --expect values that are out of range or differ.
func (f *formation) checkExpect() (Decision, bool) {
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

// drawCharter checks whether this node may draw up the charter now.
func (f *formation) drawCharter() (Decision, bool) {
	if f.self.Expect == 1 {
		return Decision{Action: FormBootstrap, Why: "no other node is expected"}, true
	}
	if f.self.PledgedTo != f.self.ID {
		return Decision{}, false
	}
	set := f.mutualSet(func(p Peer) bool {
		return p.ID > f.self.ID && p.PledgedTo == f.self.ID && p.Age < f.self.PledgedFor
	})
	if set == nil {
		return Decision{}, false
	}
	return Decision{Action: FormDraw, Peers: set, Why: "all are pledged to this node: " + strings.Join(set, " ")}, true
}

// pledge selects the node that may found the cluster.
func (f *formation) pledge() (Decision, bool) {
	set := f.mutualSet(func(Peer) bool { return true })
	if set == nil || set[0] == f.self.PledgedTo || !f.mayRepledge() {
		return Decision{}, false
	}
	return Decision{Action: FormPledge, Peer: set[0], Why: "it has the lowest ID of " + strings.Join(set, " ")}, true
}

// mayRepledge reports whether this node may change its pledge.
func (f *formation) mayRepledge() bool {
	to := f.self.PledgedTo
	if to == "" || to == f.self.ID || f.self.SinceTold > TakeBackAfter && f.self.PledgedFor > TakeBackAfter {
		return true
	}
	p, ok := f.find(to)
	return ok && p.PledgedTo != to && p.Age < f.self.SinceTold && p.Age < f.self.PledgedFor
}

// mutualSet returns N nodes that have all seen each other: this one, and peers
// for which may returns true. Of several such sets it returns the one with the
// lowest IDs; nil: there is none.
func (f *formation) mutualSet(may func(Peer) bool) []string {
	var all []Peer
	for _, p := range f.peers {
		if p.mayAccept() && may(p) && slices.Contains(p.Seen, f.self.ID) {
			all = append(all, p)
		}
	}
	// A peer whose view is here has been seen.
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

// search extends set to want nodes with nodes from rest, in order. The result
// must contain self.
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
			return nil // self must be in the set
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

// explainWait returns FormWait with what is missing.
func (f *formation) explainWait() Decision {
	var why string
	switch to := f.self.PledgedTo; {
	case len(f.peers)+1 < f.self.Expect:
		why = fmt.Sprintf("%d of %d nodes found", len(f.peers)+1, f.self.Expect)
	case to == f.self.ID:
		why = "not all nodes are pledged to this one yet"
		for _, p := range f.peers {
			switch p.PledgedTo {
			case to:
			case "":
				why += fmt.Sprintf("; %s has not pledged", p.ID)
			default:
				why += fmt.Sprintf("; %s is pledged to %s", p.ID, p.PledgedTo)
			}
		}
	case to != "" && f.has(to):
		why = to + " will draw up the charter"
	case to != "":
		why = fmt.Sprintf("%s, which is to draw up the charter, does not respond", to)
	default:
		why = fmt.Sprintf("no %d nodes have all seen each other yet", f.self.Expect)
	}
	return Decision{Action: FormWait, Why: why}
}
