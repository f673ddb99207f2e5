package membership

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// firstVoters is up to how many voters the set grows quickly: from three on a
// node may fail.
const firstVoters = 3

// Plan says what to do about what the leader sees: the most urgent first, at
// most one change of the voters among them. It is asked again whenever
// something has changed, and once a second.
//
// The rules for voters, in this order; the first that applies acts:
//
//  1. Without a majority of the voters up nothing is done.
//  2. A leader that leaves hands the lead over first.
//  3. A voter that leaves is demoted, after a replacement was promoted where there is one.
//  4. More voters than Settings.Voters: one is demoted, dead ones first.
//  5. An even number of voters: a dead one is demoted, else another promoted,
//     else one demoted, but for the last two with Settings.Two. So whatever
//     the rules below begin is finished here.
//  6. Two nodes are ready to vote: one is promoted; 5 follows with the other.
//  7. A voter is down for ReplaceAfter and a node is ready: it is promoted.
//  8. A zone has two voters more than the zone of a node that is ready: it is promoted.
//
// So a dead voter without a replacement stays a voter, since nobody can tell
// it from one that is cut off, and no series of deaths shrinks the set.
func Plan(o Observed) []Action {
	s, ok := newSituation(o)
	if !ok {
		return nil
	}
	var actions []Action
	if a, ok := s.voters(); ok {
		actions = append(actions, a)
		if a.Kind == Transfer {
			return actions
		}
	}
	return append(actions, s.others(actions)...)
}

// situation is what is observed, sorted.
type situation struct {
	Settings
	self   string
	now    time.Time
	nodes  []Node // by ID
	voting []Node // the voters
	ready  []Node // those that may be promoted, the best first
	live   int    // voters that are up
}

// newSituation sorts what is observed; false where nothing may be done.
func newSituation(o Observed) (*situation, bool) {
	s := &situation{Settings: o.Settings.withDefaults(), self: o.Self, now: o.Now}
	s.nodes = slices.Clone(o.Nodes)
	slices.SortFunc(s.nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
	leads := false
	for i := range s.nodes {
		if s.nodes[i].ID == o.Self { // whoever looks is there
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
		return cmp.Or(cmp.Compare(s.crowd(a), s.crowd(b)), a.Joined.Compare(b.Joined))
	})
	return s, leads && s.live >= majority(len(s.voting))
}

func majority(voters int) int { return voters/2 + 1 }

// since is for how long a node has been up or down; 0 where nobody knows.
func (s *situation) since(n Node) time.Duration {
	if n.Since.IsZero() {
		return 0
	}
	return max(0, s.now.Sub(n.Since))
}

// mayVote says whether a node may be promoted.
func (s *situation) mayVote(n Node) bool {
	stable := s.StableAfter
	if len(s.voting) < firstVoters {
		stable /= 10
	}
	return n.Server && !n.Voter && n.Up && n.CaughtUp && !n.Leaving && s.since(n) >= stable
}

// gone says whether a node is down for so long that another may take its place.
func (s *situation) gone(n Node) bool { return !n.Up && s.since(n) >= s.ReplaceAfter }

// crowd is how many voters the node's zone has, without those that are gone.
// An unknown zone is one of its own.
func (s *situation) crowd(n Node) int {
	count := 0
	for _, v := range s.voting {
		same := v.ID == n.ID || v.Zone == n.Zone && n.Zone != ""
		if same && !s.gone(v) {
			count++
		}
	}
	return count
}

// voters is the one change of the voters that is due, if any.
func (s *situation) voters() (Action, bool) {
	for _, rule := range []func() (Action, bool){s.leave, s.shrink, s.even, s.grow, s.replace, s.spread} {
		if a, ok := rule(); ok {
			return a, a.Kind != ""
		}
	}
	return Action{}, false
}

// wait is the answer of a rule that applies and finds nothing to do now: the
// rules after it must not act either.
func wait() (Action, bool) { return Action{}, true }

func no() (Action, bool) { return Action{}, false }

func promote(n Node, format string, args ...any) (Action, bool) {
	return Action{Promote, n.ID, fmt.Sprintf(format, args...)}, true
}

func demote(n Node, format string, args ...any) (Action, bool) {
	return Action{Demote, n.ID, fmt.Sprintf(format, args...)}, true
}

// affordable says whether those who are left can still decide without n.
func (s *situation) affordable(n Node) bool {
	live := s.live
	if n.Up {
		live--
	}
	return n.ID != s.self && live >= majority(len(s.voting)-1)
}

// leave sees off the voters that leave.
func (s *situation) leave() (Action, bool) {
	for _, n := range s.voting {
		if !n.Leaving {
			continue
		}
		if n.ID == s.self {
			return s.abdicate()
		}
		if len(s.ready) > 0 && len(s.voting)%2 == 1 && len(s.voting) <= s.Voters {
			return promote(s.ready[0], "takes the place of %s, which leaves", n.ID)
		}
		if s.affordable(n) {
			return demote(n, "leaves")
		}
		if len(s.ready) > 0 && len(s.voting) <= s.Voters {
			return promote(s.ready[0], "without it %s cannot leave", n.ID)
		}
		if v, ok := s.firstGone(); ok {
			return demote(v, "is down, and while it votes %s cannot leave", n.ID)
		}
	}
	return no()
}

// abdicate is what a leader does that leaves: hand the lead to a voter, and
// where there is none make one.
func (s *situation) abdicate() (Action, bool) {
	heirs := slices.DeleteFunc(slices.Clone(s.voting), func(n Node) bool {
		return n.ID == s.self || !n.Up || !n.CaughtUp || n.Leaving
	})
	if len(heirs) > 0 {
		heir := slices.MinFunc(heirs, func(a, b Node) int {
			switch {
			case a.Draining && !b.Draining:
				return 1
			case b.Draining && !a.Draining:
				return -1
			}
			return cmp.Compare(s.since(b), s.since(a))
		})
		return Action{Transfer, heir.ID, "the leader leaves"}, true
	}
	if len(s.ready) > 0 && len(s.voting) <= s.Voters {
		return promote(s.ready[0], "the leader leaves and no other voter could lead")
	}
	return no()
}

// firstGone is the voter that is down for the longest, if for long enough.
func (s *situation) firstGone() (first Node, ok bool) {
	for _, n := range s.voting {
		if s.gone(n) && (!ok || s.since(n) > s.since(first)) {
			first, ok = n, true
		}
	}
	return first, ok
}

// shrink brings the voters down to Settings.Voters.
func (s *situation) shrink() (Action, bool) {
	if len(s.voting) <= s.Voters {
		return no()
	}
	if n, ok := s.least(); ok {
		return demote(n, "%d voters, at most %d are wanted: %s", len(s.voting), s.Voters, s.lack(n))
	}
	return wait()
}

// even makes an even number of voters odd: it tolerates no more failures than
// the odd number below, and needs one more node to decide.
func (s *situation) even() (Action, bool) {
	if len(s.voting)%2 == 1 {
		return no()
	}
	if n, ok := s.firstGone(); ok {
		return demote(n, "down for %v", s.since(n).Round(time.Second))
	}
	if len(s.ready) > 0 {
		return promote(s.ready[0], "makes the voters %d", len(s.voting)+1)
	}
	for _, n := range s.nodes {
		soon := n.Server && !n.Leaving && s.since(n) < s.ReplaceAfter
		if soon && (n.Voter && !n.Up || !n.Voter && n.Up && n.ID != s.self) {
			return wait() // it will vote soon, or be back, or be gone
		}
	}
	if s.Two && len(s.voting) == 2 {
		return wait()
	}
	if n, ok := s.least(); ok {
		return demote(n, "%d voters decide no better than %d: %s", len(s.voting), len(s.voting)-1, s.lack(n))
	}
	return wait()
}

// grow promotes where two more can vote.
func (s *situation) grow() (Action, bool) {
	if len(s.ready) < 2 || len(s.voting)+2 > s.Voters {
		return no()
	}
	return promote(s.ready[0], "%d nodes can vote", len(s.voting)+len(s.ready))
}

// replace promotes a node in the place of a voter that is gone.
func (s *situation) replace() (Action, bool) {
	gone, ok := s.firstGone()
	if !ok || len(s.ready) == 0 {
		return no()
	}
	return promote(s.ready[0], "takes the place of %s, down for %v", gone.ID, s.since(gone).Round(time.Second))
}

// spread promotes a node whose zone has two voters less than another one, from
// which a voter is demoted then. Each time the voters are spread more evenly,
// so it comes to an end.
func (s *situation) spread() (Action, bool) {
	if len(s.ready) == 0 {
		return no()
	}
	for _, n := range s.voting {
		if n.Zone != "" && n.ID != s.self && s.crowd(n)-s.crowd(s.ready[0]) >= 2 {
			return promote(s.ready[0], "zone %s has %d voters, its own has %d", n.Zone, s.crowd(n), s.crowd(s.ready[0]))
		}
	}
	return no()
}

// least is the voter to do without, if any: one that is down, for the longest;
// else one that is behind; else of the fullest zone, the one that is up for
// the shortest.
func (s *situation) least() (Node, bool) {
	can := slices.DeleteFunc(slices.Clone(s.voting), func(n Node) bool { return !s.affordable(n) })
	if len(can) == 0 {
		return Node{}, false
	}
	return slices.MinFunc(can, func(a, b Node) int {
		if !a.Up && !b.Up {
			return cmp.Compare(s.since(b), s.since(a))
		}
		return cmp.Or(less(a.Up, b.Up), less(a.CaughtUp, b.CaughtUp), cmp.Compare(s.crowd(b), s.crowd(a)),
			cmp.Compare(s.since(a), s.since(b)), b.Joined.Compare(a.Joined), cmp.Compare(b.ID, a.ID))
	}), true
}

// lack says in a few words why n is the least.
func (s *situation) lack(n Node) string {
	switch {
	case !n.Up:
		return "it is down"
	case !n.CaughtUp:
		return "it is behind"
	case n.Zone != "":
		return fmt.Sprintf("zone %s has %d", n.Zone, s.crowd(n))
	}
	return "it is up for the shortest"
}

func less(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// others are the actions that change no vote. While a vote changes, that node
// and the addresses of voters are left for later.
func (s *situation) others(vote []Action) []Action {
	var add, readdress, remove, forget []Action
	busy := len(vote) > 0
	for _, n := range s.nodes {
		if len(vote) > 0 && vote[0].ID == n.ID {
			continue
		}
		over := n.Leaving || !n.Up && s.since(n) >= s.ForgetAfter
		why := "leaves"
		if !n.Leaving {
			why = fmt.Sprintf("down for %v", s.since(n).Round(time.Second))
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

// moved says whether the Raft configuration has an address where the node is no longer.
func (s *situation) moved(n Node) bool {
	return n.Server && n.Up && n.Addr != "" && n.Addr != n.ConfigAddr
}
