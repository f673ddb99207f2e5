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
	var both sync.WaitGroup // killed one after the other, they would be a majority for a while
	for _, m := range all[:2] {
		both.Go(m.kill)
	}
	both.Wait()
	over := time.Now().Add(2 * time.Second) // a later probe is after their end
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	const lost = "1 of 3 voters reachable, 2 needed; unreachable: a (for "
	early := ""
	eventually(t, "a reason", func() string {
		probed := time.Now().After(over) && last.c.Directory.Alone() != ""
		if probed {
			last.c.Directory.ProbeLiveness(ctx)
		}
		switch why := last.c.Directory.Alone(); {
		case strings.Contains(why, lost):
			early = why
			return ""
		case why == "":
			return "it believes in a leader"
		case strings.Contains(why, "an election is under way") && probed:
			t.Fatalf("it says %q, having asked those who are dead", why)
			return ""
		default:
			return why
		}
	})
	gone := 0
	for _, m := range last.c.Directory.Members() {
		if !m.Self && !m.Up() {
			gone++
		}
	}
	t.Logf("%q, while gossip has given up %d nodes", early, gone)
	eventually(t, "advice", func() string {
		if why := last.c.Directory.Alone(); !strings.Contains(why, "until a majority is reachable") {
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
			asked.c.Directory.ProbeLiveness(context.Background())
			if asked.c.Directory.Silent()[id] {
				return "it is said to be silent"
			}
			return ""
		})
	}
	answers(id)
	dead.kill()
	eventually(t, "silence", func() string {
		asked.c.Directory.ProbeLiveness(context.Background())
		if !asked.c.Directory.Silent()[id] {
			return "it is said to answer"
		}
		return ""
	})
	answers(all[2].c.ID())
	dead.listen("127.0.0.1")
	dead.start()
	answers(id)
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
		why := one.c.Directory.Alone()
		if !strings.Contains(why, "1 of 3 voters reachable") || !strings.Contains(why, "--join and the new address") {
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
		if why := one.c.Directory.Alone(); strings.Contains(why, "--join") {
			return why
		}
		return ""
	})
}
