package cluster

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/consensus/membership"
)

// Waiting is what a node waits for that is in no cluster yet.
type Waiting struct {
	ID, Name string
	State    string // StateForming or StateJoining
	Why      string // one line
	// Seen are the other nodes of --expect that have shown to know the token.
	Seen []Peer
}

// The states of a node before it is in a cluster.
const (
	StateForming = "forming"
	StateJoining = "joining"
)

// waits tells whoever operates the node what it waits for.
func (c *Cluster) waits(state, why string, seen []Peer) {
	c.cfg.Waits(Waiting{ID: c.ID(), Name: c.Name(), State: state, Why: strings.ReplaceAll(why, "\n", "; "), Seen: seen})
}

// tell says which of the nodes are there, and which are missing.
func (f *forming) tell() {
	f.mu.Lock()
	now := time.Now()
	d := f.decision(now)
	var seen []Peer
	for _, a := range f.views {
		if now.Sub(a.when) <= membership.ActWithin {
			seen = append(seen, Peer{ID: a.view.ID, Name: a.view.Name, Cluster: a.view.Addr})
		}
	}
	f.mu.Unlock()
	slices.SortFunc(seen, func(a, b Peer) int { return strings.Compare(a.Name, b.Name) })
	f.c.waits(StateForming, formingBecause(f.c.cfg.Expect, f.c.Name(), seen, d), seen)
}

// formingBecause says why there is no cluster of so many nodes yet.
func formingBecause(expect int, self string, seen []Peer, d membership.Decision) string {
	names := []string{self}
	for _, p := range seen {
		names = append(names, p.Name)
	}
	text := "forming a cluster: "
	if missing := expect - len(names); missing > 0 {
		text += fmt.Sprintf("waiting for %d of %d nodes; seen: %s", missing, expect, some(names))
	} else {
		text += fmt.Sprintf("all %d nodes are there and agree who begins: %s", expect, some(names))
	}
	if d.Do == membership.FormRefuse {
		text += "; " + d.Why
	}
	return text
}
