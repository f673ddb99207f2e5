package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"penstock/consensus/store"
)

func TestServersAgree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		a := w.cluster(3)
		w.mustCommit(a, put("A", "x", "1"), put("A", "y", "2"))
		w.mustCommit(a, del("A", "x"), put("A", "z", "3"))
		for _, id := range w.ids {
			w.waitContent(w.servers[id], "y=2 z=3")
		}
		if _, err := a.Commit(t.Context(), batch(at(1, put("A", "y", "9")))); !errors.Is(err, store.ErrVersion) {
			t.Errorf("a batch for another version: %v, want %v", err, store.ErrVersion)
		}
		for id, r := range w.servers {
			if r == a {
				continue
			}
			if _, err := r.Commit(t.Context(), batch(put("A", "y", "9"))); !errors.Is(err, store.ErrNotLeader) {
				t.Errorf("a batch at %s: %v, want %v", id, err, store.ErrNotLeader)
			}
		}
	})
}

func TestProposalsAreAppliedInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		a := w.cluster(3)
		var pending []store.Pending
		sequence := a.Snapshot().Sequence()
		for i := range 200 {
			s := sequence + uint64(i)
			p, err := a.Propose(t.Context(), &store.Batch{Ops: []store.Op{put("A", "x", fmt.Sprint(i))}, IfSequence: &s})
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, p)
		}
		for i, p := range pending {
			if _, err := p.Wait(t.Context()); err != nil {
				t.Errorf("batch %d: %v", i, err)
			}
		}
		w.waitContent(w.servers["c"], "x=199")
	})
}

func TestProposalsInFlightAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.MaxInFlight, c.MaxInFlightBytes = 8, 1000 })
		a := w.cluster(2)
		for _, c := range []struct {
			value string
			want  int
		}{{"small", 8}, {string(make([]byte, 600)), 1}} {
			until(t, "a leader that is busy before it steps down", func() bool {
				w.network.isolate("b", true, "a") // nothing is committed any more, until the leader steps down
				pending, refused := proposeUntilRefused(t, a, c.value)
				if !errors.Is(refused, store.ErrNotLeader) && (!errors.Is(refused, ErrBusy) || len(pending) != c.want) {
					t.Errorf("%d proposals, then %v; want %d, then %v", len(pending), refused, c.want, ErrBusy)
				}
				early := errors.Is(refused, store.ErrNotLeader) // on a busy machine
				for i, p := range pending {
					_, err := p.Wait(t.Context())
					switch {
					case errors.Is(err, store.ErrUnknown), i > 0 && errors.Is(err, store.ErrNotLeader): // a batch still waiting for its group was never sent
					case errors.Is(err, store.ErrNotLeader):
						early = true
					default:
						t.Errorf("batch %d of a leader that is cut off: %v, want %v", i, err, store.ErrUnknown)
					}
				}
				w.network.isolate("b", false, "a")
				a = w.leader()
				return !early
			})
		}
	})
}

// proposeUntilRefused proposes until a leader takes no more.
func proposeUntilRefused(t *testing.T, leader *Replica, value string) (pending []store.Pending, refused error) {
	t.Helper()
	for len(pending) < 100 {
		p, err := leader.Propose(t.Context(), batch(put("A", "x", value)))
		if err != nil {
			return pending, err
		}
		pending = append(pending, p)
	}
	return pending, nil
}

func TestClusterSurvivesLeaderLoss(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := w.cluster(3)
		w.mustCommit(a, put("A", "x", "1"))
		w.close("a")
		w.persist(batch(put("A", "y", "2")))
		w.waitContent(w.open("a"), "x=1 y=2")
		if err := a.Close(); err != nil {
			t.Errorf("closing again: %v", err)
		}
		if _, err := a.Commit(t.Context(), batch(put("A", "z", "3"))); !errors.Is(err, store.ErrClosed) {
			t.Errorf("a batch for a server that is closed: %v, want %v", err, store.ErrClosed)
		}
		if _, err := a.Wait(t.Context(), 1<<40); !errors.Is(err, store.ErrClosed) {
			t.Errorf("waiting at a server that is closed: %v, want %v", err, store.ErrClosed)
		}
		if got := values(a.Snapshot()); got != "x=1" {
			t.Errorf("it shows %q when closed, want what it had", got)
		}
	})
}

func TestClusterRestartsAtOtherAddresses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		w.mustCommit(w.cluster(3), put("A", "x", "1"))
		for _, id := range w.ids {
			w.close(id)
		}
		for _, id := range w.ids { // each listens on a new port
			w.open(id)
		}
		w.persist(batch(put("A", "y", "2")))
		for _, id := range w.ids {
			w.waitContent(w.servers[id], "x=1 y=2")
		}
	})
}

func TestServersAreAddedAndRemoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		a := w.cluster(1)
		w.mustCommit(a, put("A", "x", "1"))
		b := w.open("b")
		if s := b.Leadership(); s.Role != RoleNone {
			t.Errorf("a server that was not added is %s", s.Role)
		}
		_, at := a.Servers()
		at2, err := a.AddNonvoter(t.Context(), "b", "host:1", at)
		if err != nil {
			t.Fatal(err)
		}
		w.waitContent(b, "x=1")
		if _, err := a.AddVoter(t.Context(), "b", "host:1", at); !errors.Is(err, ErrServers) {
			t.Errorf("a change of an outdated configuration: %v, want %v", err, ErrServers)
		}
		if _, err := a.AddVoter(t.Context(), "b", "host:1", 0); !errors.Is(err, ErrServers) {
			t.Errorf("a change of any configuration: %v, want %v", err, ErrServers)
		}
		if err := a.Transfer(t.Context(), "b"); !errors.Is(err, ErrServers) {
			t.Errorf("a transfer to a non-voter: %v, want %v", err, ErrServers)
		}
		if _, err := b.AddVoter(t.Context(), "b", "host:1", at2); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("a change at a follower: %v, want %v", err, store.ErrNotLeader)
		}
		mustStand := func(r *Replica, role Role, want string) {
			t.Helper()
			got := ""
			until(t, fmt.Sprintf("%s as %s, %s", r.cfg.ID, role, want), func() bool {
				all, at := r.Servers()
				got = fmt.Sprint(all)
				return r.Leadership().Role == role && got == want && at > 0
			})
		}
		mustStand(b, RoleNonvoter, fmt.Sprint([]Server{{"a", a.cfg.Addr, true}, {"b", "host:1", false}}))
		w.mustChange(a, (*Replica).AddVoter, "b")
		w.mustChange(a, (*Replica).AddNonvoter, "c")
		w.mustChange(a, (*Replica).AddNonvoter, "d") // at c's address, which may have been reused
		mustStand(b, RoleVoter, fmt.Sprint([]Server{
			{"a", a.cfg.Addr, true}, {"b", "host:1", true}, {"c", "somewhere:1", false}, {"d", "somewhere:1", false},
		}))
		if s := b.Leadership(); s.Voters != 2 || s.Leader != "a" {
			t.Errorf("b knows %d voters and leader %q, want 2 and a", s.Voters, s.Leader)
		}
		drop := func(f func(*Replica, context.Context, string, uint64) (uint64, error), id string) {
			t.Helper()
			_, at := a.Servers()
			if _, err := f(a, t.Context(), id, at); err != nil {
				t.Fatal(err)
			}
		}
		drop((*Replica).Demote, "b")
		mustStand(b, RoleNonvoter, fmt.Sprint([]Server{
			{"a", a.cfg.Addr, true}, {"b", "host:1", false}, {"c", "somewhere:1", false}, {"d", "somewhere:1", false},
		}))
		drop((*Replica).Remove, "c")
		drop((*Replica).Remove, "d")
		w.mustChange(a, (*Replica).AddVoter, "b")
		drop((*Replica).Remove, "a")
		w.persist(batch(put("A", "y", "2")))
		until(t, "a server that has removed itself to step down", func() bool { return a.Leadership().Role == RoleNone })
	})
}

func TestBootstrapRefusesState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := w.open("a")
		if has, err := a.HasState(); has || err != nil {
			t.Errorf("an empty folder has state: %v, %v", has, err)
		}
		if err := a.Bootstrap(); err != nil {
			t.Fatal(err)
		}
		w.leader()
		if err := a.Bootstrap(); !errors.Is(err, ErrState) {
			t.Errorf("bootstrap again: %v, want %v", err, ErrState)
		}
		w.close("a")
		a = w.open("a")
		if has, err := a.HasState(); !has || err != nil {
			t.Errorf("a folder with a cluster has state: %v, %v", has, err)
		}
		if err := a.Bootstrap(); !errors.Is(err, ErrState) {
			t.Errorf("bootstrap after a restart: %v, want %v", err, ErrState)
		}
	})
}

func TestLeadershipTransfer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		w.cluster(3)
		w.mustTransfer("c")
		if got := w.leader().cfg.ID; got != "c" {
			t.Errorf("%s leads, want c", got)
		}
		w.mustTransfer("")
		lead := w.leader()
		for _, s := range w.servers {
			if s == lead {
				continue
			}
			if err := s.Transfer(t.Context(), ""); !errors.Is(err, store.ErrNotLeader) && w.leader() == lead {
				t.Errorf("a follower transfers leadership: %v", err)
			}
		}
	})
}

func TestBatchOfUnknownOutcomeIsAppliedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		a := w.cluster(3)
		lost, kept := batch(put("A", "x", "1")), batch(put("A", "y", "1"))
		if _, err := a.Commit(t.Context(), kept); err != nil { // as if the response was lost
			t.Fatal(err)
		}
		w.mustLead("a")
		w.network.isolate("a", true, "b", "c")
		if _, err := a.Commit(t.Context(), lost); !errors.Is(err, store.ErrUnknown) {
			t.Fatalf("a batch at a leader that is cut off: %v, want %v", err, store.ErrUnknown)
		}
		w.persist(batch(put("A", "z", "1")))
		w.network.isolate("a", false, "b", "c")
		for _, b := range []*store.Batch{lost, kept, lost, kept} {
			w.persist(b)
		}
		for _, id := range w.ids {
			r := w.servers[id]
			w.waitContent(r, "x=1 y=1 z=1")
			for _, name := range []string{"x", "y"} {
				if h := r.Snapshot().History(store.Key{Kind: "A", Name: name}); len(h) != 1 {
					t.Errorf("%s was applied %d times at %s", name, len(h), id)
				}
			}
		}
	})
}

func TestFollowersApplyAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			longTimeouts(c)
			c.CommitInterval = time.Hour
		})
		a := w.cluster(3)
		for i := range 20 { // without commit notices these would take an hour
			w.mustCommit(a, put("A", "x", fmt.Sprint(i)))
			for _, id := range w.ids {
				w.waitContent(w.servers[id], fmt.Sprint("x=", i))
			}
		}
		// The same holds for configuration changes and for a new leader.
		_, at := a.Servers()
		at, err := a.Demote(t.Context(), "c", at)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range w.ids {
			until(t, id+" to apply the new configuration", func() bool { return w.servers[id].Snapshot().Index() >= at })
		}
		w.mustTransfer("")
		w.mustCommit(w.leader("a", "b"), put("A", "x", "last"))
		for _, id := range w.ids {
			w.waitContent(w.servers[id], "x=last")
		}
	})
}

func TestChangesAreNeverMissed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		w.cluster(3)
		for range 3 {
			for _, id := range w.ids {
				r, want := w.servers[id], w.leader().cfg.ID
				for {
					changes := r.Changes()
					if r.Leadership().Leader == want {
						break
					}
					select {
					case <-changes:
					case <-time.After(within):
						t.Fatalf("%s did not report that %s leads", id, want)
					}
				}
			}
			if err := w.leader().Transfer(t.Context(), ""); err != nil {
				t.Log(err) // it may have lost leadership by itself
			}
		}
	})
}

func TestUnknownFormatStopsReplica(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := w.cluster(1)
		w.mustCommit(a, put("A", "x", "1"))
		future := []byte{99, 0, 1, 2, 3}
		mustFail := func(r *Replica) {
			t.Helper()
			select {
			case <-r.Failed():
			case <-time.After(within):
				t.Fatal("it did not fail")
			}
			if !errors.Is(r.Err(), store.ErrFormat) {
				t.Errorf("it failed with %v, want %v", r.Err(), store.ErrFormat)
			}
			r.Close()
			if got := values(r.Snapshot()); got != "x=1" {
				t.Errorf("it shows %q, want what came before", got)
			}
			if _, err := r.Commit(t.Context(), batch(put("A", "y", "2"))); !errors.Is(err, store.ErrFormat) || !errors.Is(err, store.ErrClosed) {
				t.Errorf("a batch for it: %v", err)
			}
		}
		// Raft may drop these during shutdown, so the test does not wait for them.
		a.raft.Apply(future, 0)
		a.raft.Apply(future, 0)
		mustFail(a)
		mustFail(w.open("a")) // and again after a restart
	})
}

func TestVoterRemovalNeedsQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, longTimeouts)
		leader := w.cluster(3)
		down, up := "b", "c"
		if leader.cfg.ID != "a" {
			t.Fatalf("%s leads", leader.cfg.ID)
		}
		w.close(down)
		_, at := leader.Servers()
		for what, change := range map[string]func(*Replica, context.Context, string, uint64) (uint64, error){
			"demote": (*Replica).Demote, "remove": (*Replica).Remove,
		} {
			_, err := change(leader, t.Context(), up, at)
			if !errors.Is(err, ErrQuorum) || !strings.HasSuffix(err.Error(), ": 1 of 2, 2 are needed") {
				t.Errorf("%s one of the two that are up: %v, want %v: 1 of 2, 2 are needed", what, err, ErrQuorum)
			}
		}
		w.mustCommit(leader, put("A", "x", "1"))
		if _, err := leader.Demote(t.Context(), down, at); err != nil {
			t.Errorf("the one that is down: %v", err)
		}
		w.mustCommit(leader, put("A", "x", "2"))
	})
}
