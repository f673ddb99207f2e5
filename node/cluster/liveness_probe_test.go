package cluster

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNodeNamesTheVotersItCannotReach: a node finds out by probing, since
// gossip takes seconds to give a node up.
func TestNodeNamesTheVotersItCannotReach(t *testing.T) {
	t.Parallel()
	all := startThreeFastElection(t)
	last := all[2]
	dead := []string{all[0].c.ID(), all[1].c.ID()}
	var both sync.WaitGroup // killed one after the other, they would be a majority for a while
	for _, m := range all[:2] {
		both.Go(m.kill)
	}
	both.Wait()
	asked := time.Now().Add(probeTimeout) // a later result is of a probe after their end
	const lost = "1 of 3 voters reachable, 2 needed; unreachable: a (for "
	early := ""
	eventually(t, "a reason", func() string {
		results := last.c.probed() // before Alone, which knows at least as much
		switch why := last.c.Alone(); {
		case strings.Contains(why, lost):
			early = why
			return ""
		case why == "":
			return "it believes in a leader"
		case strings.Contains(why, "an election is under way") && results[dead[0]].at.After(asked) && results[dead[1]].at.After(asked):
			t.Fatalf("it says %q, having asked those who are dead", why)
			return ""
		default:
			return why
		}
	})
	gone := 0
	for _, m := range last.c.Members() {
		if !m.Self && !m.Up() {
			gone++
		}
	}
	t.Logf("%q, while gossip has given up %d nodes", early, gone)
	eventually(t, "advice", func() string {
		if why := last.c.Alone(); !strings.Contains(why, "until a majority is reachable") {
			return why
		}
		return ""
	})
}

// TestSilentMemberIsDetectedAtOnce: gossip still reports the member as
// up.
func TestSilentMemberIsDetectedAtOnce(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	asked, dead := all[0], all[1]
	id := dead.c.ID()
	answers := func(id string) {
		t.Helper()
		eventually(t, "the answer of a node that is there", func() string {
			asked.c.ProbeLiveness(context.Background())
			if asked.c.Silent()[id] {
				return "it is said to be silent"
			}
			return ""
		})
	}
	answers(id)
	dead.kill()
	eventually(t, "silence", func() string {
		asked.c.ProbeLiveness(context.Background())
		if !asked.c.Silent()[id] {
			return "it is said to answer"
		}
		return ""
	})
	answers(all[2].c.ID())
	dead.listen("127.0.0.1")
	dead.start()
	answers(id)
}

func TestAloneReason(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	three := func(b, c string) []Member {
		return []Member{
			{ID: "1", Name: "a", Role: RoleVoter, State: StateUp, Self: true},
			{ID: "2", Name: "b", Role: RoleVoter, State: b, Since: ago(9 * time.Second)},
			{ID: "3", Name: "c", Role: RoleVoter, State: c, Since: ago(9 * time.Second)},
			{ID: "4", Name: "d", Role: RoleNonVoter, State: StateUp},
		}
	}
	answered, silent := probeResult{answers: true, since: ago(time.Minute)}, probeResult{since: ago(2 * time.Second)}
	const soon, late = time.Second, time.Minute
	for _, c := range []struct {
		name    string
		members []Member
		results map[string]probeResult
		without time.Duration
		want    string
	}{
		{"nobody is known", nil, nil, soon, "no leader: this node has not heard from its cluster yet"},
		{
			"nobody was asked yet", three(StateUp, StateUp), nil, soon,
			"no leader: the voters are electing one, or too few of them are left: probing them",
		},
		{
			"most answer", three(StateUp, StateUp), map[string]probeResult{"2": answered, "3": silent}, soon,
			"no leader: an election is under way",
		},
		{
			"most answer, for long", three(StateUp, StateUp), map[string]probeResult{"2": answered, "3": silent}, late,
			"no leader for 1m0s, although 2 of 3 voters answer: see their logs for the reason",
		},
		{
			"most are silent", three(StateUp, StateUp), map[string]probeResult{"2": silent, "3": silent}, soon,
			"no leader: 1 of 3 voters reachable, 2 needed; unreachable: b (for 2s), c (for 2s)",
		},
		{
			"gossip knew it earlier", three(StateUnreachable, StateUp), map[string]probeResult{"2": silent, "3": silent}, soon,
			"no leader: 1 of 3 voters reachable, 2 needed; unreachable: b (for 9s), c (for 2s)",
		},
		{
			"an answer counts more than gossip", three(StateUnreachable, StateUnreachable),
			map[string]probeResult{"2": answered, "3": silent}, soon,
			"no leader: an election is under way",
		},
		{
			"only gossip says so", three(StateUnreachable, StateLeft), nil, late,
			"no leader: 1 of 3 voters reachable, 2 needed; unreachable: b (for 9s), c (for 9s); " +
				"start nodes again, or restore the links to them, until a majority is reachable",
		},
	} {
		if got := aloneReason(c.members, c.results, c.without, 3*time.Second, now); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestIsolatedNodeAdvisesJoin: after a move of all nodes,
// each would wait for the others at their old addresses.
func TestIsolatedNodeAdvisesJoin(t *testing.T) {
	t.Parallel()
	all := startThreeFastElection(t)
	for _, m := range all {
		m.kill()
	}
	one := all[1]
	one.listen("127.0.0.2")
	one.start()
	eventually(t, "advice", func() string {
		if why := one.c.Alone(); !strings.Contains(why, "1 of 3 voters reachable") || !strings.Contains(why, "--join and the new address") {
			return why
		}
		return ""
	})
	eventually(t, "advice in the log", func() string {
		if log := one.log(); !strings.Contains(log, "--join and the new address") {
			return log
		}
		return ""
	})
	// A node that has reached another one needs no such advice.
	two := all[2]
	two.cfg.Join = []string{one.addr()}
	two.listen("127.0.0.3")
	two.start()
	eventually(t, "silence about it", func() string {
		if why := one.c.Alone(); strings.Contains(why, "--join") {
			return why
		}
		return ""
	})
}
