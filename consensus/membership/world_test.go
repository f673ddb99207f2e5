package membership

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a cluster whose leader performs its plans, by changing fields
// instead of through Raft.
type world struct {
	now      time.Time
	settings Settings
	nodes    []*Node // by ID
	leader   string  // "": none
}

func newWorld() *world { return &world{now: t0} }

func (w *world) find(id string) *Node {
	for _, n := range w.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// add adds a node, up and caught up.
func (w *world) add(id string) *Node {
	n := &Node{ID: id, Name: id, Addr: id + ":1", Up: true, Since: w.now, Joined: w.now, CaughtUp: true}
	w.nodes = append(w.nodes, n)
	slices.SortFunc(w.nodes, func(a, b *Node) int { return cmp.Compare(a.ID, b.ID) })
	return n
}

// found makes a node the first voter and leader.
func (w *world) found(id string) {
	n := w.add(id)
	n.Server, n.Voter, n.ConfigAddr = true, true, n.Addr
	w.leader = id
}

// turn sets a node up or down, and elects a leader.
func (w *world) turn(n *Node, up bool) {
	if n.Up != up {
		n.Up, n.Since = up, w.now
	}
	w.elect()
}

func (w *world) voters() (ids []string, live int) {
	for _, n := range w.nodes {
		if n.Server && n.Voter {
			ids = append(ids, n.ID)
			if n.Up {
				live++
			}
		}
	}
	return ids, live
}

func (w *world) quorum() bool {
	ids, live := w.voters()
	return live >= majority(len(ids))
}

// elect keeps the leader while it can lead, else selects the first voter that
// can.
func (w *world) elect() {
	if !w.quorum() {
		w.leader = ""
		return
	}
	if n := w.find(w.leader); n != nil && n.Up && n.Voter {
		return
	}
	w.leader = ""
	for _, n := range w.nodes {
		if n.Server && n.Voter && n.Up && n.CaughtUp {
			w.leader = n.ID
			return
		}
	}
}

func (w *world) plan() []Action {
	if w.leader == "" {
		return nil
	}
	o := Observed{Self: w.leader, Now: w.now, Settings: w.settings}
	for _, n := range w.nodes {
		o.Nodes = append(o.Nodes, *n)
	}
	return Plan(o)
}

// do performs an action, or returns why it is invalid.
func (w *world) do(a Action) error {
	n := w.find(a.ID)
	if n == nil {
		return fmt.Errorf("%v: there is no such node", a)
	}
	var sense bool
	switch a.Kind {
	case AddNonvoter:
		sense = !n.Server && n.Up
		n.Server, n.ConfigAddr = true, n.Addr
	case Readdress:
		sense = n.Server && n.ConfigAddr != n.Addr
		n.ConfigAddr = n.Addr
	case Promote:
		sense = n.Server && !n.Voter && n.Up && n.CaughtUp
		n.Voter = true
	case Demote:
		sense = n.Server && n.Voter && n.ID != w.leader
		n.Voter = false
	case Remove:
		sense = n.Server && !n.Voter
		n.Server, n.ConfigAddr = false, ""
	case Forget:
		sense = !n.Server
		w.nodes = slices.DeleteFunc(w.nodes, func(other *Node) bool { return other == n })
	case Transfer:
		sense = n.Server && n.Voter && n.Up && n.CaughtUp && n.ID != w.leader
		w.leader = n.ID
	}
	if !sense {
		return fmt.Errorf("%v makes no sense for %+v", a, *n)
	}
	w.elect()
	return nil
}

// votes reports whether an action changes a vote, or the address of a voter.
func (w *world) votes(a Action) bool {
	n := w.find(a.ID)
	return a.Kind == Promote || a.Kind == Demote || n != nil && n.Voter && (a.Kind == Readdress || a.Kind == Remove)
}
