package replica

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/hashicorp/raft"
)

// TestLaggingVoterVotesForUnknownCandidates: c and e become voters while b is
// cut off, then the voters that b has in its configuration are lost. Three of
// five voters remain, so a leader must be elected; it cannot be b, which lacks
// committed entries.
func TestLaggingVoterVotesForUnknownCandidates(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]bool{"that it has never heard of": false, "that it knows without a vote": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, nil)
				a := w.open("a")
				if err := a.Bootstrap(); err != nil {
					t.Fatal(err)
				}
				w.leader("a")
				for _, id := range []string{"b", "c", "d", "e"} {
					w.open(id)
				}
				add := func(ids string, change func(*Replica, context.Context, string, string, uint64) (uint64, error)) {
					for _, id := range ids {
						w.mustChange(w.leader("a", "d"), change, string(id))
					}
				}
				add("bd", (*Replica).AddVoter)
				if known {
					add("ce", (*Replica).AddNonvoter)
				}
				w.persist(batch(put("A", "x", "1")))
				w.waitContent(w.servers["b"], "x=1")
				_, before := w.servers["b"].Servers()
				w.network.isolate("b", true, "a", "c", "d", "e")
				add("ce", (*Replica).AddVoter)
				w.persist(batch(put("A", "x", "2")))
				for _, id := range []string{"c", "e"} {
					w.waitContent(w.servers[id], "x=2")
				}
				if _, at := w.servers["b"].Servers(); at != before {
					t.Fatal("b has received the new voters")
				}
				w.close("a")
				w.close("d")
				w.network.isolate("b", false, "c", "e")
				w.leader("c", "e")
				w.persist(batch(put("A", "x", "3")))
				w.waitContent(w.servers["b"], "x=3")
			})
		})
	}
}

// TestRemovedServerDoesNotLead: a voter that was cut off when it was removed
// requests votes after the remaining voters have lost their leader. They
// receive the requests and have entries that it lacks.
func TestRemovedServerDoesNotLead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		a := w.cluster(4)
		w.mustCommit(a, put("A", "x", "1"))
		w.waitContent(w.servers["d"], "x=1")
		w.network.isolate("d", true, "a", "b", "c")
		leader := w.leader("a", "b", "c")
		_, at := leader.Servers()
		if _, err := leader.Remove(t.Context(), "d", at); err != nil {
			t.Fatal(err)
		}
		w.mustCommit(leader, put("A", "x", "2"))
		for _, id := range []string{"a", "b", "c"} {
			w.waitContent(w.servers[id], "x=2")
		}
		w.close(leader.cfg.ID)
		w.network.isolate("d", false, "a", "b", "c")
		next := w.leader()
		if next.cfg.ID == "d" {
			t.Fatal("the removed server leads")
		}
		w.persist(batch(put("A", "x", "3")))
	})
}

func TestFilterVotesRewritesIDs(t *testing.T) {
	now := func() raft.Configuration {
		return raft.Configuration{Servers: []raft.Server{
			{ID: "n", Suffrage: raft.Nonvoter}, {ID: "a", Suffrage: raft.Voter}, {ID: "b", Suffrage: raft.Voter},
		}}
	}
	none := func() raft.Configuration { return raft.Configuration{} }
	for _, c := range []struct {
		from          string
		now           func() raft.Configuration
		vote, preVote string // the IDs passed to Raft
	}{
		{"b", now, "b", "b"},
		{"n", now, "", "a"},
		{"x", now, "", "a"},
		{"x", none, "", "x"},
	} {
		header := raft.RPCHeader{ID: []byte(c.from), Addr: []byte(c.from)}
		vote, preVote := &raft.RequestVoteRequest{RPCHeader: header}, &raft.RequestPreVoteRequest{RPCHeader: header}
		led := func() (raft.ServerAddress, bool) { return "l", false }
		filterVotes(vote, c.now, led)
		filterVotes(preVote, c.now, led)
		if string(vote.ID) != c.vote || string(preVote.ID) != c.preVote {
			t.Errorf("%s: Raft sees %q and %q, want %q and %q", c.from, vote.ID, preVote.ID, c.vote, c.preVote)
		}
		if string(vote.Addr) != c.from || string(preVote.Addr) != c.from {
			t.Errorf("%s: the vote is for %q and %q", c.from, vote.Addr, preVote.Addr)
		}
		if vote.LeadershipTransfer {
			t.Errorf("%s: a live leader is ignored", c.from)
		}
	}
}
