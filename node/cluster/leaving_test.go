package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"penstock/consensus/replica"
	"penstock/node/api"
	"penstock/node/cluster/datadir"
	"penstock/node/cluster/directory"
	"penstock/node/cluster/leader"
	"penstock/node/rpc"
)

// TestLeaveIsRefusedRightAfterAVoterDied: all nodes count one that died a
// moment ago as up for a while. If a voter left meanwhile, one of two would
// remain, which cannot decide anything.
func TestLeaveIsRefusedRightAfterAVoterDied(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	rest := others(all, lead)
	rest[0].kill()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	// It retries until it is known which node is gone. On a machine so busy that
	// the leader was lost as well, nothing is decided either.
	err := rest[1].c.Leave(ctx)
	knownGone := leader.RefusedAs(err, api.Refused) && contains(err, "unreachable: "+rest[0].cfg.Name)
	if !knownGone && !leader.RefusedAs(err, api.NoLeader) || strings.Contains(err.Error(), "--force") {
		t.Errorf("the second of three voters leaves while the third is dead: %v", err)
	}
	put(t, lead, "x", "two of three")
	waitEntry(t, rest[1], "x", "two of three")
	eventually(t, "the leader not to go on without it", func() string {
		makeLeader(t, lead, lead, rest[1])
		if err := lead.c.Store().CheckQuorumWithout(ctx, rest[1].c.ID()); !errors.Is(err, replica.ErrQuorum) {
			return fmt.Sprint(err)
		}
		return ""
	})
	rest[0].listen("127.0.0.1")
	rest[0].start()
	waitVoters(t, 3, all...)
	if err := leave(ctx, rest[1]); err != nil {
		t.Errorf("when all are there: %v", err)
	}
	put(t, rest[0], "x", "two")
}

// leave makes a node leave that can be spared. It retries if the node is
// refused because another one was too busy to answer and counts as silent, or
// because there was no leader for long.
func leave(ctx context.Context, m *machine) error {
	for {
		err := m.c.Leave(ctx)
		if !leader.RefusedAs(err, api.Refused) && !leader.RefusedAs(err, api.NoLeader) {
			return err
		}
		select {
		case <-time.After(testTiming.Tick):
		case <-ctx.Done():
			return err
		}
	}
}

// TestOnlyVoterLeavesIfAnotherNodeCanVote: one of two nodes votes, and
// the other must be able to replace it.
func TestOnlyVoterLeavesIfAnotherNodeCanVote(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	waitVoters(t, 1, a, b)
	put(t, b, "x", "before")
	eventually(t, "a to know that b is up, so that it may leave", func() string {
		if err := a.c.MayLeave(); err != nil {
			return err.Error()
		}
		return ""
	})
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := leave(ctx, a); err != nil {
		t.Fatal(err)
	}
	put(t, b, "y", "after")
	waitEntry(t, b, "x", "before")
	waitVoters(t, 1, b)
	if err := b.c.Leave(ctx); err == nil {
		t.Error("the last node left")
	}
	put(t, b, "y", "still there")
}

// TestMostNodesMayLeaveAtOnce: each node leaves when the remaining ones can
// decide without it, even if fewer remain than leave.
func TestMostNodesMayLeaveAtOnce(t *testing.T) {
	t.Parallel()
	phases := make([]atomic.Pointer[string], 5)
	phase := func(i int, is string) func() directory.Facts {
		phases[i].Store(&is)
		return func() directory.Facts { return directory.Facts{Phase: *phases[i].Load()} }
	}
	all := startThreeWith(t, func(i int, m *machine) { m.cfg.Facts = phase(i, "serving") })
	for i, name := range []string{"d", "e"} {
		m := newJoiner(t, name, all[0].token(), all[0])
		m.cfg.Facts = phase(3+i, "serving")
		all = append(all, m.start())
	}
	waitVoters(t, 5, all...)
	lead := waitLeader(t, all...)
	stays := others(all, lead)[0]
	leaves := slices.DeleteFunc(slices.Clone(all), func(m *machine) bool { return m == stays })
	// A node drains before it leaves. Otherwise the leaving nodes hand the lead to each other.
	for i, m := range all {
		if m != stays {
			phase(i, "draining")
		}
	}
	for _, at := range all {
		eventually(t, "the phases at "+at.cfg.Name, func() string {
			for _, m := range at.c.Directory.Members() {
				if draining := m.Facts.Phase == "draining"; draining == (m.ID == stays.c.ID()) {
					return m.Name + " is " + m.Facts.Phase
				}
			}
			return ""
		})
	}
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	done := make(chan error, len(leaves))
	for _, m := range leaves {
		go func() { done <- leave(ctx, m) }()
	}
	for range leaves {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	put(t, stays, "x", "alone")
	waitVoters(t, 1, stays)
}

// TestANodeWithoutItsLogDoesNotVote: the others would take it for the voter
// that it was, and it would break its earlier votes.
func TestANodeWithoutItsLogDoesNotVote(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	victim := others(all, waitLeader(t, all...))[0]
	victim.kill()
	log := filepath.Join(victim.cfg.Dir, "raft", "raft.db")
	for i, lose := range []func() error{
		func() error { return os.Truncate(log, 0) },
		func() error { return os.RemoveAll(filepath.Dir(log)) },
	} {
		if err := lose(); err != nil {
			t.Fatal(err)
		}
		victim.listen("127.0.0.1")
		if err := victim.refused(datadir.ErrNoLog); !strings.Contains(err.Error(), "penstock remove") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestLeaderDecidesWhoMayLeave: a node that lags counts voters that the cluster
// has already dropped, and would not leave because they are down.
func TestLeaderDecidesWhoMayLeave(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	rest := others(all, lead)
	rest[0].kill()
	eventually(t, "the other to miss it", func() string {
		makeLeader(t, lead, lead, rest[1])
		if rest[1].c.MayLeave() == nil {
			return "it may leave"
		}
		return ""
	})
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := rest[1].c.awaitDeparture(ctx, func(context.Context) error { return nil }); err != nil {
		t.Errorf("it does not ask: %v", err)
	}
	eventually(t, "the leader itself not to ask", func() string {
		makeLeader(t, lead, lead, rest[1]) // a busy machine may lose the lead
		if err := lead.c.awaitDeparture(ctx, func(context.Context) error { return errors.New("it asks") }); !leader.RefusedAs(err, api.Refused) {
			return fmt.Sprint(err)
		}
		return ""
	})
}

// TestLeaveEndsWhenItIsRefused: a node that has lost the answer to one
// attempt does not know its outcome until another is refused.
func TestLeaveEndsWhenItIsRefused(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	b := newJoiner(t, "b", a.token(), a).start()
	waitVoters(t, 1, a, b)
	lost := fmt.Errorf("the leader: %w", rpc.ErrLost)
	refused := api.Errorf(api.Refused, "without b there are 2 voters")
	gone := api.Errorf(api.Unauthenticated, "it is no member")
	none := api.Errorf(api.NoLeader, "an election")
	slow := api.Errorf(api.Busy, "too few of the remaining voters respond")
	for name, c := range map[string]struct {
		attempts []error // their results, in order
		want     error
	}{
		"done at once":                          {[]error{nil}, nil},
		"refused at once":                       {[]error{refused}, refused},
		"lost, then done":                       {[]error{lost, nil}, nil},
		"lost, and done as nobody knows it":     {[]error{lost, none, gone}, nil},
		"not known, and it never was":           {[]error{gone}, gone},
		"no leader, and it is a member":         {[]error{none}, none},
		"lost, then refused":                    {[]error{lost, refused}, refused},
		"others are slow, then done":            {[]error{slow, slow, nil}, nil},
		"others are slow, and then known gone":  {[]error{slow, refused}, refused},
		"it leads, lost, no leader and refused": {[]error{errStillLeads, lost, none, refused}, refused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
			defer cancel()
			made := 0
			err := b.c.awaitDeparture(ctx, func(context.Context) error {
				if made++; made > len(c.attempts) {
					cancel()
					return none
				}
				return c.attempts[made-1]
			})
			if !errors.Is(err, c.want) || made != len(c.attempts) {
				t.Errorf("%d attempts came to %v, want %d, %v", made, err, len(c.attempts), c.want)
			}
		})
	}
}

// TestDepartureNeedsAMajorityOfTheRemainingVoters: the answer of a remaining
// node counts if most of the voters that it names have given one too. Until
// then a leader may still need the vote of the leaving node.
func TestDepartureNeedsAMajorityOfTheRemainingVoters(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers map[string][]string
		want    bool
	}{
		"nobody answers":                      {nil, false},
		"the only voter":                      {map[string][]string{"a": {"a"}}, true},
		"one of two":                          {map[string][]string{"a": {"a", "b"}}, false},
		"both":                                {map[string][]string{"a": {"a", "b"}, "b": {"a", "b"}}, true},
		"one of three":                        {map[string][]string{"a": {"a", "b", "c"}}, false},
		"two of three":                        {map[string][]string{"a": {"a", "b", "c"}, "b": {"a", "b", "c"}}, true},
		"two of four":                         {map[string][]string{"a": {"a", "b", "c", "d"}, "b": {"a", "b", "c", "d"}}, false},
		"a release that names no voters":      {map[string][]string{"a": nil, "b": nil}, false},
		"two that know different voters":      {map[string][]string{"a": {"a", "c", "d"}, "b": {"b", "c", "d"}}, false},
		"non-voters that say so, no majority": {map[string][]string{"x": {"a", "b", "c"}, "y": {"a", "b", "c"}}, false},
	} {
		if got := majorityConfirms(c.answers); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDepartureIsConfirmedByTheRemainingVoters: the leader that took the node
// out is lost before it has answered, and the node learns of no other leader.
func TestDepartureIsConfirmedByTheRemainingVoters(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	goes := others(all, lead)[0]
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	goes.c.leaving.Store(true)
	if goes.c.removalConfirmed(ctx) {
		t.Fatal("the others go on without a member")
	}
	silent := api.Errorf(api.NoLeader, "an election is under way")
	asked := false
	if err := goes.c.awaitDeparture(ctx, func(ctx context.Context) error {
		if !asked {
			asked = true
			// It may lose the answer, and then hears of no leader.
			eventually(t, "it to be taken out", func() string {
				err := goes.c.requestDeparture(ctx)
				if err == nil || leader.RefusedAs(err, api.Unauthenticated) || goes.c.removalConfirmed(ctx) {
					return ""
				}
				return err.Error()
			})
		}
		return silent
	}); err != nil {
		t.Errorf("it was not told: %v", err)
	}
}

// startDeparting returns a cluster of three in which one node (goes) was taken
// out, and keeps its vote until another one that has died (dies) is back: the
// third alone cannot decide.
func startDeparting(t *testing.T) (lead, goes, dies *machine) {
	t.Helper()
	all := startThree(t)
	lead = waitLeader(t, all...)
	goes, dies = others(all, lead)[0], others(all, lead)[1]
	id := dies.c.ID()
	dies.kill()
	eventually(t, "the leader to plan without it", func() string {
		o, _, _ := lead.c.lead.Observe()
		for _, n := range o.Nodes {
			if n.ID == id && n.Up {
				return "it is up"
			}
		}
		return ""
	})
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	eventually(t, "it to be taken out", func() string {
		makeLeader(t, lead, lead, goes) // a busy machine may lose the lead
		if err := lead.c.lead.MarkDeparted(ctx, goes.c.ID(), "test"); err != nil {
			return err.Error()
		}
		return ""
	})
	dies.listen("127.0.0.1")
	return lead, goes, dies
}

// TestRemovalThatTimesOutStillHappens: while the voters have yet to go on
// without the node, the error must not say that there is no such node, or that
// nothing was changed.
func TestRemovalThatTimesOutStillHappens(t *testing.T) {
	t.Parallel()
	lead, goes, dies := startDeparting(t)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	id := goes.c.ID()
	over, cancelled := context.WithCancel(ctx)
	cancelled()
	if err := lead.c.lead.AwaitRemoval(over, id); !leader.RefusedAs(err, api.UnknownOutcome) || !contains(err, "no longer a member") {
		t.Errorf("the leader gives up waiting: %v", err)
	}
	for _, node := range []string{goes.cfg.Name, id} {
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := goes.remove(soon, &api.RemoveRequest{Node: node})
		// On a machine that is too busy the leader may not have answered.
		if err == nil || leader.RefusedAs(err, api.NotFound) ||
			contains(err, "no longer a member") && !leader.RefusedAs(err, api.UnknownOutcome) {
			t.Errorf("remove %s: %v", node, err)
		}
	}
	dies.start()
	ctx, cancel = context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	eventually(t, "nobody to know it, with the dead one back", func() string {
		if _, err := lead.remove(ctx, &api.RemoveRequest{Node: id}); !leader.RefusedAs(err, api.NotFound) {
			return fmt.Sprint(err)
		}
		return ""
	})
}

// TestDepartedNodeIsNotRefusedToLeave: another voter may die after the node
// was taken out, and then the node's vote is needed until that voter is back.
func TestDepartedNodeIsNotRefusedToLeave(t *testing.T) {
	t.Parallel()
	lead, goes, dies := startDeparting(t)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	soon, over := context.WithTimeout(ctx, testTiming.Heartbeat+time.Second) // by then it is known that the dead one does not answer
	defer over()
	if err := goes.c.requestDeparture(soon); err == nil || leader.RefusedAs(err, api.Refused) {
		t.Errorf("when it asks again: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- goes.c.Leave(ctx) }()
	dies.start()
	if err := <-done; err != nil {
		t.Errorf("when the dead one is back: %v", err)
	}
	put(t, dies, "x", "two")
	waitEntry(t, lead, "x", "two")
}

// identityFiles lists the files of the identity that are in a machine's folder.
func identityFiles(t *testing.T, m *machine) (there []string) {
	t.Helper()
	for _, name := range []string{"node.json", "node.key", "node.crt", "ca.crt", "cluster.key"} {
		if _, err := os.Lstat(filepath.Join(m.cfg.Dir, name)); err == nil {
			there = append(there, name)
		} else if !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	return there
}

// removeNode has one machine remove another from its cluster.
func removeNode(t *testing.T, by, victim *machine, all ...*machine) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	eventually(t, victim.cfg.Name+" to be removed", func() string {
		makeLeader(t, by, all...) // a busy machine may lose the lead
		_, err := by.remove(ctx, &api.RemoveRequest{Node: victim.cfg.Name, Force: true})
		if err != nil && !leader.RefusedAs(err, api.NotFound) {
			return err.Error()
		}
		return ""
	})
}

// TestARemovedNodeKeepsNoKeys: the keys open the secrets of a cluster that has
// removed the node. Its other files stay for inspection.
func TestARemovedNodeKeepsNoKeys(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	victim := others(all, lead)[0]
	names := identityFiles(t, victim)
	before := map[string][]byte{}
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(victim.cfg.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		before[name] = data
	}
	removeNode(t, lead, victim, all...)
	victim.endsWith(ErrRemoved)
	victim.kill()
	if there := identityFiles(t, victim); len(names) != 5 || len(there) > 0 {
		t.Errorf("of %v a removed node keeps %v", names, there)
	}
	for _, name := range []string{datadir.LeftFile, datadir.LogFile, filepath.Join(datadir.RaftDir, "raft.db")} {
		if _, err := os.Stat(filepath.Join(victim.cfg.Dir, name)); err != nil {
			t.Error(err)
		}
	}
	// A node that is killed before it has removed the keys removes them at the
	// next start, and does not start.
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(victim.cfg.Dir, name), before[name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		victim.listen("127.0.0.1")
		if err := victim.refused(ErrLeft); !contains(err, "the cluster removed it") || !contains(err, "another or an empty --data-dir") {
			t.Error(err)
		}
		if there := identityFiles(t, victim); len(there) > 0 {
			t.Errorf("after it was started it keeps %v", there)
		}
	}
}

// TestNodeKilledWhileLeavingKeepsItsKeys: until the node has learned that
// it is no longer a member, it needs the keys to learn it.
func TestNodeKilledWhileLeavingKeepsItsKeys(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	victim := others(all, lead)[0]
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	victim.c.leaving.Store(true)
	removeNode(t, lead, victim, all...)
	eventually(t, "it to be told while it leaves", func() string {
		if err := victim.c.announceTo(ctx, lead.c.ID(), victim.c.announcement()); err != nil {
			return err.Error()
		}
		return ""
	})
	victim.kill()
	if there := identityFiles(t, victim); len(there) != 5 {
		t.Fatalf("it has only %v", there)
	}
	victim.listen("127.0.0.1")
	victim.start()
	victim.endsWith(ErrRemoved)
	victim.kill()
	if there := identityFiles(t, victim); len(there) > 0 {
		t.Errorf("a removed node keeps %v", there)
	}
}
