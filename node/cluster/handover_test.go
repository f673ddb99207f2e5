package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/consensus/replica"
	"penstock/node/cluster/directory"
)

// TestLeadGoesToAServingNode: a draining node would hand the lead on at
// once, and every change would wait twice.
func TestLeadGoesToAServingNode(t *testing.T) {
	t.Parallel()
	all := startThreeWith(t, func(i int, m *machine) {
		m.cfg.Facts = func() directory.Facts { return directory.Facts{Phase: []string{"serving", "draining", "serving"}[i]} }
		// A node that is too busy to take the lead at once has time to.
		m.cfg.Timing.Heartbeat, m.cfg.Timing.Election, m.cfg.Timing.HandOver = waitLimit, waitLimit, waitLimit
	})
	a, b, c := all[0], all[1], all[2]
	waitPhases(t, a)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	makeLeader(t, a, all...)
	o, _, _ := a.c.lead.Observe() // a leader that leaves chooses by it
	for _, n := range o.Nodes {
		if n.Draining != (n.ID == b.c.ID()) {
			t.Errorf("%s drains, as the leader sees it: %v", n.Name, n.Draining)
		}
	}
	before := timesLed(b)
	eventually(t, "c to have the lead", func() string { // an heir that is too busy does not take it
		a.c.HandOver(ctx)
		if c.c.Store().Leadership().Role != replica.RoleLeader {
			return a.c.Store().Leadership().Leader + " has it"
		}
		return ""
	})
	if timesLed(b) != before {
		t.Fatalf("b, which drains, has had the lead %d times", timesLed(b)-before)
	}
	// If only draining nodes are left, HandOver keeps the lead, and a node that
	// stops hands it over.
	id := a.c.ID()
	a.kill()
	waitPhases(t, c)
	eventually(t, "a to be silent", func() string {
		if c.c.Directory.ProbeLiveness(ctx); !c.c.Directory.Silent()[id] {
			return "it is said to answer"
		}
		return ""
	})
	makeLeader(t, c, b, c)
	before = timesLed(b)
	c.c.HandOver(ctx)
	if timesLed(b) != before || !c.c.Store().Leadership().Ready {
		t.Error("the lead went to a node that drains")
	}
	c.stop()
	eventually(t, "b to have the lead after c ended", func() string { // b logs it after it has it
		if timesLed(b) == before {
			return "the lead went to nobody"
		}
		return ""
	})
}

// TestDeadSuccessorLeavesTimeForTheNext: a node that stops has little time,
// and may be wrong about which successors answer.
func TestDeadSuccessorLeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	all := startThreeInPhases(t, "serving", "serving", "draining")
	a, b, c := all[0], all[1], all[2]
	waitPhases(t, a)
	makeLeader(t, a, all...)
	dead := b.c.ID()
	b.kill()
	put(t, a, "x", "b lacks it")               // as far as a knows, b may still get it
	eventually(t, "c to lead", func() string { // c may be too busy to take the lead
		setSilent(a, dead, c.c.ID()) // a cannot tell which of the two is up
		if successors := a.c.handOver.Successors(a.c.handOver.Nodes.Silent()); len(successors) == 2 && successors[0].ID == c.c.ID() {
			t.Fatalf("%+v are to lead, want the one that serves first", successors)
		}
		// Less than the store itself waits for an heir.
		ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
		defer cancel()
		a.c.handOver.Do(ctx, false)
		if next := a.c.Store().Leadership().Leader; next != c.c.ID() {
			return fmt.Sprintf("%q leads: %s", next, a.log())
		}
		return ""
	})
}

// startThreeInPhases returns a cluster of three voters in the given phases.
func startThreeInPhases(t *testing.T, phases ...string) []*machine {
	t.Helper()
	return startThreeWith(t, func(i int, m *machine) {
		m.cfg.Facts = func() directory.Facts { return directory.Facts{Phase: phases[i]} }
	})
}

// waitPhases waits until a node knows the phases of all nodes.
func waitPhases(t *testing.T, m *machine) {
	t.Helper()
	eventually(t, "the phases at "+m.cfg.Name, func() string {
		for _, x := range m.c.Directory.Members() {
			if x.Facts.Phase == "" {
				return x.Name + " has told none"
			}
		}
		return ""
	})
}

// silentNodes are the nodes of a directory, some of which are silent.
type silentNodes struct {
	*directory.Directory
	ids map[string]bool
}

func (s silentNodes) Silent() map[string]bool { return s.ids }

// setSilent makes a node believe that others did not answer its last probe, when
// it hands the lead over.
func setSilent(m *machine, ids ...string) {
	silent := map[string]bool{}
	for _, id := range ids {
		silent[id] = true
	}
	m.c.handOver.Nodes = silentNodes{m.c.Directory, silent}
}

// timesLed returns how often a machine has taken the lead, by its log.
func timesLed(m *machine) int { return strings.Count(m.log(), "self=true") }

// makeLeader moves the lead to a machine from wherever it is.
func makeLeader(t *testing.T, m *machine, all ...*machine) {
	t.Helper()
	eventually(t, m.cfg.Name+" to lead", func() string {
		if m.c.Store().Leadership().Ready {
			return ""
		}
		from := waitLeader(t, all...)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return fmt.Sprintf("%s led: %v", from.cfg.Name, from.c.Store().Transfer(ctx, m.c.ID()))
	})
}

// TestTransferWaitsForTheNextLeader: the next leader may need the vote of the
// last one, which must not stop before the election is over.
func TestTransferWaitsForTheNextLeader(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	for range 5 {
		lead := waitLeader(t, all...)
		eventually(t, "the leader to be ready", func() string {
			if lead = waitLeader(t, all...); !lead.c.Store().Leadership().Ready {
				return "it is not"
			}
			return ""
		})
		eventually(t, "the lead to be handed over", func() string {
			ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
			defer cancel()
			lead.c.handOver.Do(ctx, false)
			switch next := lead.c.Store().Leadership().Leader; next {
			case "":
				t.Fatalf("%s has handed the lead over, and knows of no next leader", lead.cfg.Name)
			case lead.c.ID(): // an heir that is too busy does not take it
				return "nobody took it"
			}
			return ""
		})
	}
}

// TestSilentNodeLeadsOnlyIfNoOtherCan: a node that did not answer the last
// probe may be gone, or was busy for a moment. A leader that stops tries it if
// there is no other heir; a leader that stays keeps the lead.
func TestSilentNodeLeadsOnlyIfNoOtherCan(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	a, b, c := all[0], all[1], all[2]
	makeLeader(t, a, all...)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	setSilent(a, b.c.ID(), c.c.ID())
	a.c.HandOver(ctx)
	if !a.c.Store().Leadership().Ready {
		t.Error("a node that stays gave the lead to one that is silent")
	}
	setSilent(a, b.c.ID())
	if successors := a.c.handOver.Successors(a.c.handOver.Nodes.Silent()); len(successors) != 2 || successors[0].ID != c.c.ID() {
		t.Errorf("%+v are to lead, want c before b, which is silent", successors)
	}
	setSilent(a, b.c.ID(), c.c.ID())
	eventually(t, "a node that goes to give the lead to another", func() string {
		a.c.handOver.Do(ctx, false)
		if next := a.c.Store().Leadership().Leader; next == "" || next == a.c.ID() {
			return next + " leads"
		}
		return ""
	})
}
