package membership

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// act performs one plan of the leader and checks its invariants.
func (w *world) act(t *rapid.T) int {
	actions, possible := w.plan(), w.quorum()
	changes := 0
	for _, a := range actions {
		if w.votes(a) {
			changes++
		}
		if err := w.do(a); err != nil {
			t.Fatal(err)
		}
		if possible && !w.quorum() {
			t.Fatalf("%v cost the quorum", a)
		}
	}
	if changes > 1 {
		t.Fatalf("%d changes of the voters at once: %v", changes, actions)
	}
	if ids, _ := w.voters(); len(ids) == 0 {
		t.Fatalf("no voter is left after %v", actions)
	}
	return len(actions)
}

// settle calls act until the plan is empty.
func (w *world) settle(t *rapid.T) {
	for range 20 + 5*len(w.nodes) {
		if w.act(t) == 0 {
			return
		}
	}
	t.Fatalf("no end of actions: %v", w.plan())
}

// TestPlanInvariants checks that under random events there are never two
// changes of the voters at once, no action that costs the quorum, never more
// voters than set except for one during a replacement, and no actions once
// nothing changes.
func TestPlanInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.found("n0")
		zones := rapid.SampledFrom([][]string{{""}, {"a", "b"}, {"a", "b", "c"}, {"", "a"}}).Draw(t, "zones")
		limit := 5
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := w.nodes[rapid.IntRange(0, len(w.nodes)-1).Draw(t, "node")]
			switch rapid.SampledFrom([]string{
				"join", "join", "up", "up", "down", "leave", "behind", "move", "voters", "wait", "long",
			}).Draw(t, "event") {
			case "join":
				w.add(fmt.Sprintf("n%d", i+1)).Zone = rapid.SampledFrom(zones).Draw(t, "zone")
			case "up", "down":
				w.turn(n, rapid.Bool().Draw(t, "up"))
			case "leave":
				n.Leaving = rapid.IntRange(0, 2).Draw(t, "leaving") == 0
			case "behind":
				n.CaughtUp = !n.CaughtUp
			case "move":
				n.Addr = fmt.Sprintf("moved:%d", i)
			case "voters":
				w.settings.Voters = rapid.IntRange(0, 9).Draw(t, "voters")
				limit = w.settings.withDefaults().Voters
			case "wait":
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			case "long":
				w.now = w.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "hours")) * time.Hour)
			}
			w.elect()
			before, _ := w.voters()
			for range rapid.IntRange(0, 3).Draw(t, "plans") {
				w.act(t)
			}
			if ids, _ := w.voters(); len(ids) > max(limit+1, len(before)) {
				t.Fatalf("%d voters, the limit is %d", len(ids), limit)
			}
			if rapid.Bool().Draw(t, "settle") {
				w.settle(t)
			}
		}
		w.mustStabilize(t, limit)
	})
}

// mustStabilize brings all nodes back; then the voters must match the settings.
func (w *world) mustStabilize(t *rapid.T, limit int) {
	staying := 0
	for _, n := range w.nodes {
		n.CaughtUp = true
		w.turn(n, true)
		if !n.Leaving {
			staying++
		}
	}
	if staying == 0 {
		return // the last nodes keep the rest of the cluster
	}
	for range 3 {
		w.now = w.now.Add(10 * time.Minute)
		w.settle(t)
	}
	want := min(limit, staying)
	want -= 1 - want%2
	ids, live := w.voters()
	if len(ids) != want || live != want {
		t.Fatalf("%d nodes stay, the voters are %v, want %d", staying, ids, want)
	}
	zones, most := map[string]int{}, 0
	for _, n := range w.nodes {
		if n.Leaving {
			t.Fatalf("%s has not left", n.ID)
		}
		if n.Voter && n.Zone != "" {
			zones[n.Zone]++
			most = max(most, zones[n.Zone])
		}
	}
	for _, n := range w.nodes {
		if !n.Voter && n.Zone != "" && most-zones[n.Zone] >= 3 {
			t.Fatalf("%s could vote, its zone has %d voters, another one %d", n.ID, zones[n.Zone], most)
		}
	}
}

// TestPlanIgnoresFlappingNode: a flapping node changes the voters at
// most once.
func TestPlanIgnoresFlappingNode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		w.found("n0")
		for i := range rapid.IntRange(0, 6).Draw(t, "others") {
			w.add(fmt.Sprintf("n%d", i+1))
		}
		w.settle(t)
		w.now = w.now.Add(time.Hour)
		w.settle(t)
		flapper := w.nodes[len(w.nodes)-1]
		if len(w.nodes) == 1 || flapper.ID == w.leader {
			return
		}
		changes := 0
		for range rapid.IntRange(1, 50).Draw(t, "flaps") {
			w.turn(flapper, !flapper.Up)
			// Down for less than ReplaceAfter, or for longer: then it is replaced once.
			for until := w.now.Add(
				time.Duration(rapid.IntRange(1, 120).Draw(t, "for")) * time.Second,
			); w.now.Before(until); w.now = w.now.Add(5 * time.Second) {
				for _, a := range w.plan() {
					changes++
					if err := w.do(a); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if changes > 2 {
			t.Fatalf("%d changes", changes)
		}
	})
}
