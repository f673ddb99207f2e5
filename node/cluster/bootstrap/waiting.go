package bootstrap

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"penstock/consensus/membership"
	"penstock/node/cluster/directory"
)

// Waiting says what a node that is in no cluster yet waits for.
type Waiting struct {
	ID, Name string
	State    string // StateForming or StateJoining
	Why      string // one line
	// Seen are the other nodes of --expect that have proven the token lately.
	Seen []directory.Peer
}

// The states of a node before it is in a cluster.
const (
	StateForming = "forming"
	StateJoining = "joining"
)

// waits passes what the node waits for to Config.Waits.
func (b *Bootstrap) waits(state, why string, seen []directory.Peer) {
	b.Waits(Waiting{ID: b.Directory.ID(), Name: b.Entries.Identity().Name, State: state, Why: strings.ReplaceAll(why, "\n", "; "), Seen: seen})
}

// reportWaiting reports which of the nodes are there, and which are missing.
func (f *formation) reportWaiting() {
	if f == nil { // this node founds its cluster alone
		return
	}
	f.mu.Lock()
	now := time.Now()
	d := f.decision(now)
	var seen []directory.Peer
	for _, a := range f.views {
		if now.Sub(a.when) <= membership.ActWithin {
			seen = append(seen, directory.Peer{ID: a.view.ID, Name: a.view.Name, Cluster: a.view.Addr})
		}
	}
	bound, formed := f.bound, f.formed != ""
	f.mu.Unlock()
	slices.SortFunc(seen, func(a, b directory.Peer) int { return strings.Compare(a.Name, b.Name) })
	var why string
	switch {
	case formed:
		why = beginningReason(bound, f.b.Entries.Identity().Name, seen)
	case bound != nil:
		why = fmt.Sprintf("forming a cluster of %s: it begins when all of them have confirmed; %s",
			directory.ListNames(bound.memberNames(bound.Charter.Members)), bound.withNames(d.Why))
	default:
		why = waitingReason(f.b.Expect, f.b.Entries.Identity().Name, seen, d)
	}
	f.b.waits(StateForming, why, seen)
}

// withNames replaces the members' IDs in a text by their names.
func (m *Founding) withNames(text string) string {
	for _, n := range m.Members {
		text = strings.ReplaceAll(text, n.ID, n.Name)
	}
	return text
}

// beginningReason says what a cluster that this node has begun waits for.
func beginningReason(m *Founding, self string, seen []directory.Peer) string {
	voters := m.memberNames(m.Charter.Voters)
	there := []string{self}
	for _, p := range seen {
		there = append(there, p.Name)
	}
	var missing []string
	for _, name := range voters {
		if !slices.Contains(there, name) {
			missing = append(missing, name)
		}
	}
	text := fmt.Sprintf("forming a cluster: waiting for %d of its %d voters to agree on its first entries", len(voters)/2+1, len(voters))
	if len(missing) > 0 {
		text += "; unreachable: " + directory.ListNames(missing)
	}
	return text
}

// waitingReason says why there is no cluster of that many nodes yet.
func waitingReason(expect int, self string, seen []directory.Peer, d membership.Decision) string {
	names := []string{self}
	for _, p := range seen {
		names = append(names, p.Name)
	}
	text := "forming a cluster: "
	if missing := expect - len(names); missing > 0 {
		text += fmt.Sprintf("waiting for %d of %d nodes; seen: %s", missing, expect, directory.ListNames(names))
	} else {
		text += fmt.Sprintf("all %d nodes are present and agreeing on the first members: %s", expect, directory.ListNames(names))
	}
	if d.Action == membership.FormRefuse || d.Barred {
		text += "; " + d.Why
	}
	return text
}
