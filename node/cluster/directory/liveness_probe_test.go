package directory

import (
	"testing"
	"time"
)

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
