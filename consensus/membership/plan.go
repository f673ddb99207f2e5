package membership

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// quickVoters is the number of voters up to which the set grows quickly: with
// three, one may fail.
const quickVoters = 3

// Plan returns the actions for the observed cluster, the most urgent first,
// with at most one change of the voters. It is called after every change, and
// once a second.
//
// The rules for voters, in order of priority; the first that applies decides:
//
//  1. Without a majority of the voters up, nothing is done.
//  2. A leader that leaves transfers leadership first.
//  3. A voter that leaves is demoted, after a replacement is promoted if there is one.
//  4. With more voters than Settings.Voters, one is demoted, dead ones first.
//  5. With an even number of voters, a dead one is demoted, else another node is
//     promoted, else a voter is demoted, except for the last two with
//     Settings.KeepTwo. This completes what the rules below begin.
//  6. If two nodes are ready to vote, one is promoted; rule 5 then promotes the other.
//  7. If a voter is down for ReplaceAfter and a node is ready, the node is promoted.
//  8. If a zone has two voters more than the zone of a ready node, the node is promoted.
//
// So a dead voter without a replacement stays a voter, since it cannot be told
// from one that is cut off, and no series of deaths shrinks the set.
func Plan(o Observed) []Action {
	s, ok := newSituation(o)
	if !ok {
		return nil
	}
	var actions []Action
	if a, ok := s.voterChange(); ok {
		actions = append(actions, a)
		if a.Kind == Transfer {
			return actions
		}
	}
	return append(actions, s.nonvoterActions(actions)...)
}

// situation is Observed, sorted.
type situation struct {
	Settings
	self   string
	now    time.Time
	nodes  []Node // by ID
	voting []Node // the voters
	ready  []Node // nodes that may be promoted, the best first
	live   int    // voters that are up
}

// newSituation sorts what is observed; false if nothing may be done.
func newSituation(o Observed) (*situation, bool) {
	s := &situation{Settings: o.Settings.withDefaults(), self: o.Self, now: o.Now}
	s.nodes = slices.Clone(o.Nodes)
	slices.SortFunc(s.nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	leads := false
	for i := range s.nodes {
		if s.nodes[i].ID == o.Self { // the observer itself is up
			s.nodes[i].Up, s.nodes[i].CaughtUp = true, true
			leads = s.nodes[i].Server && s.nodes[i].Voter
		}
		if n := s.nodes[i]; n.Server && n.Voter {
			s.voting = append(s.voting, n)
			if n.Up {
				s.live++
			}
		}
	}
	for _, n := range s.nodes {
		if s.mayVote(n) {
			s.ready = append(s.ready, n)
		}
	}
	slices.SortStableFunc(s.ready, func(a, b Node) int {
		return cmp.Or(cmp.Compare(s.zoneVoters(a), s.zoneVoters(b)), a.Joined.Compare(b.Joined))
	})
	return s, leads && s.live >= majority(len(s.voting))
}

func majority(voters int) int { return voters/2 + 1 }

// sinceChange returns how long a node has been up or down; 0 if unknown.
func (s *situation) sinceChange(n Node) time.Duration {
	if n.Since.IsZero() {
		return 0
	}
	return max(0, s.now.Sub(n.Since))
}

// mayVote reports whether a node may be promoted.
func (s *situation) mayVote(n Node) bool {
	stable := s.StableAfter
	if len(s.voting) < quickVoters {
		stable /= 10
	}
	return n.Server && !n.Voter && n.Up && n.CaughtUp && !n.Leaving && s.sinceChange(n) >= stable
}

// replaceable reports whether a node has been down for long enough to be
// replaced.
func (s *situation) replaceable(n Node) bool { return !n.Up && s.sinceChange(n) >= s.ReplaceAfter }

// zoneVoters returns how many voters the node's zone has, except those that are
// gone. An unknown zone counts as a zone of its own.
func (s *situation) zoneVoters(n Node) int {
	count := 0
	for _, v := range s.voting {
		same := v.ID == n.ID || v.Zone == n.Zone && n.Zone != ""
		if same && !s.replaceable(v) {
			count++
		}
	}
	return count
}

// voterChange returns the change of the voters that is due, if any.
func (s *situation) voterChange() (Action, bool) {
	for _, rule := range []func() (Action, bool){s.leave, s.shrink, s.makeOdd, s.grow, s.replace, s.spread} {
		if a, ok := rule(); ok {
			return a, a.Kind != ""
		}
	}
	return Action{}, false
}

// holdOff is the result of a rule that applies but has no action now: later
// rules must not act either.
func holdOff() (Action, bool) { return Action{}, true }

func notApplicable() (Action, bool) { return Action{}, false }

func promote(n Node, format string, args ...any) (Action, bool) {
	return Action{Promote, n.ID, fmt.Sprintf(format, args...)}, true
}

func demote(n Node, format string, args ...any) (Action, bool) {
	return Action{Demote, n.ID, fmt.Sprintf(format, args...)}, true
}

// keepsQuorumWithout reports whether the other voters keep a quorum without n.
func (s *situation) keepsQuorumWithout(n Node) bool {
	live := s.live
	if n.Up {
		live--
	}
	return n.ID != s.self && live >= majority(len(s.voting)-1)
}

// leave handles voters that leave.
func (s *situation) leave() (Action, bool) {
	for _, n := range s.voting {
		if !n.Leaving {
			continue
		}
		if n.ID == s.self {
			return s.handOver()
		}
		if len(s.ready) > 0 && len(s.voting)%2 == 1 && len(s.voting) <= s.Voters {
			return promote(s.ready[0], "replaces %s, which is leaving", n.ID)
		}
		if s.keepsQuorumWithout(n) {
			return demote(n, "is leaving")
		}
		if len(s.ready) > 0 && len(s.voting) <= s.Voters {
			return promote(s.ready[0], "needed so that %s can leave", n.ID)
		}
		if v, ok := s.longestDown(); ok {
			return demote(v, "is down, and its vote keeps %s from leaving", n.ID)
		}
	}
	return notApplicable()
}

// handOver handles a leader that leaves: it transfers leadership to a voter,
// and if none is suitable promotes a node first.
func (s *situation) handOver() (Action, bool) {
	candidates := slices.DeleteFunc(slices.Clone(s.voting), func(n Node) bool {
		return n.ID == s.self || !n.Up || !n.CaughtUp || n.Leaving
	})
	if len(candidates) > 0 {
		next := slices.MinFunc(candidates, func(a, b Node) int {
			switch {
			case a.Draining && !b.Draining:
				return 1
			case b.Draining && !a.Draining:
				return -1
			}
			return cmp.Compare(s.sinceChange(b), s.sinceChange(a))
		})
		return Action{Transfer, next.ID, "the leader is leaving"}, true
	}
	if len(s.ready) > 0 && len(s.voting) <= s.Voters {
		return promote(s.ready[0], "the leader is leaving and no other voter can lead")
	}
	return notApplicable()
}

// longestDown returns the voter that is down the longest, if for long enough.
func (s *situation) longestDown() (first Node, ok bool) {
	for _, n := range s.voting {
		if s.replaceable(n) && (!ok || s.sinceChange(n) > s.sinceChange(first)) {
			first, ok = n, true
		}
	}
	return first, ok
}

// shrink reduces the voters to Settings.Voters.
func (s *situation) shrink() (Action, bool) {
	if len(s.voting) <= s.Voters {
		return notApplicable()
	}
	if n, ok := s.leastSuitable(); ok {
		return demote(n, "%d voters, the limit is %d: %s", len(s.voting), s.Voters, s.demotionReason(n))
	}
	return holdOff()
}

// makeOdd makes an even number of voters odd: an even number tolerates no more
// failures than the odd one below, and its quorum is one larger.
func (s *situation) makeOdd() (Action, bool) {
	if len(s.voting)%2 == 1 {
		return notApplicable()
	}
	if n, ok := s.longestDown(); ok {
		return demote(n, "down for %v", s.sinceChange(n).Round(time.Second))
	}
	if len(s.ready) > 0 {
		return promote(s.ready[0], "brings the voters to %d", len(s.voting)+1)
	}
	for _, n := range s.nodes {
		soon := n.Server && !n.Leaving && s.sinceChange(n) < s.ReplaceAfter
		if soon && (n.Voter && !n.Up || !n.Voter && n.Up && n.ID != s.self) {
			return holdOff() // it will soon be a voter, up again, or gone
		}
	}
	if s.KeepTwo && len(s.voting) == 2 {
		return holdOff()
	}
	if n, ok := s.leastSuitable(); ok {
		return demote(n, "%d voters tolerate no more failures than %d: %s", len(s.voting), len(s.voting)-1, s.demotionReason(n))
	}
	return holdOff()
}

// grow promotes a node if two more can vote.
func (s *situation) grow() (Action, bool) {
	if len(s.ready) < 2 || len(s.voting)+2 > s.Voters {
		return notApplicable()
	}
	return promote(s.ready[0], "%d nodes can vote", len(s.voting)+len(s.ready))
}

// replace promotes a node to replace a voter that is gone.
func (s *situation) replace() (Action, bool) {
	down, ok := s.longestDown()
	if !ok || len(s.ready) == 0 {
		return notApplicable()
	}
	return promote(s.ready[0], "replaces %s, down for %v", down.ID, s.sinceChange(down).Round(time.Second))
}

// spread promotes a node if another zone has at least two voters more than its
// own; then a voter of the full zone is demoted. Each step evens out the zones,
// so the process ends.
func (s *situation) spread() (Action, bool) {
	if len(s.ready) == 0 {
		return notApplicable()
	}
	for _, n := range s.voting {
		if n.Zone != "" && n.ID != s.self && s.zoneVoters(n)-s.zoneVoters(s.ready[0]) >= 2 {
			return promote(s.ready[0], "zone %s has %d voters, its own has %d", n.Zone, s.zoneVoters(n), s.zoneVoters(s.ready[0]))
		}
	}
	return notApplicable()
}

// leastSuitable returns the voter to demote, if any: the one that is down the
// longest; else one that is behind; else, in the fullest zone, the one with the
// shortest uptime.
func (s *situation) leastSuitable() (Node, bool) {
	can := slices.DeleteFunc(slices.Clone(s.voting), func(n Node) bool { return !s.keepsQuorumWithout(n) })
	if len(can) == 0 {
		return Node{}, false
	}
	return slices.MinFunc(can, func(a, b Node) int {
		if !a.Up && !b.Up {
			return cmp.Compare(s.sinceChange(b), s.sinceChange(a))
		}
		return cmp.Or(compareBools(a.Up, b.Up), compareBools(a.CaughtUp, b.CaughtUp), cmp.Compare(s.zoneVoters(b), s.zoneVoters(a)),
			cmp.Compare(s.sinceChange(a), s.sinceChange(b)), b.Joined.Compare(a.Joined), cmp.Compare(b.ID, a.ID))
	}), true
}

// demotionReason returns why n is the least suitable voter.
func (s *situation) demotionReason(n Node) string {
	switch {
	case !n.Up:
		return "it is down"
	case !n.CaughtUp:
		return "it is behind"
	case n.Zone != "":
		return fmt.Sprintf("zone %s has %d voters", n.Zone, s.zoneVoters(n))
	}
	return "it has the shortest uptime"
}

func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// nonvoterActions returns the actions that change no vote. While a vote
// changes, they skip that node and the addresses of voters.
func (s *situation) nonvoterActions(vote []Action) []Action {
	var add, readdress, remove, forget []Action
	busy := len(vote) > 0
	for _, n := range s.nodes {
		if len(vote) > 0 && vote[0].ID == n.ID {
			continue
		}
		over := n.Leaving || !n.Up && s.sinceChange(n) >= s.ForgetAfter
		why := "is leaving"
		if !n.Leaving {
			why = fmt.Sprintf("down for %v", s.sinceChange(n).Round(time.Second))
		}
		switch {
		case n.ID == s.self && !s.moved(n):
		case !n.Server && over:
			forget = append(forget, Action{Forget, n.ID, why})
		case n.Server && !n.Voter && over:
			remove = append(remove, Action{Remove, n.ID, why})
		case !n.Server && n.Up && n.Addr != "":
			add = append(add, Action{AddNonvoter, n.ID, "is new"})
		case s.moved(n) && (!n.Voter || !busy):
			readdress = append(readdress, Action{Readdress, n.ID, fmt.Sprintf("moved from %s to %s", n.ConfigAddr, n.Addr)})
			busy = busy || n.Voter
		}
	}
	return slices.Concat(readdress, add, remove, forget)
}

// moved reports whether the Raft configuration has an outdated address of the
// node.
func (s *situation) moved(n Node) bool {
	return n.Server && n.Up && n.Addr != "" && n.Addr != n.ConfigAddr
}
