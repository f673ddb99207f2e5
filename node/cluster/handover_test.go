package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/consensus"
)

// TestTheLeadGoesToANodeThatServes: a draining node would hand the lead on at
// once, and every change would wait twice.
func TestTheLeadGoesToANodeThatServes(t *testing.T) {
	t.Parallel()
	all := threeOf(t, func(i int, m *machine) {
		m.cfg.Facts = func() Facts { return Facts{Phase: []string{"serving", "draining", "serving"}[i]} }
		// A node that is too busy to take the lead at once has time to.
		m.cfg.Timing.Heartbeat, m.cfg.Timing.Election, m.cfg.Timing.HandOver = enough, enough, enough
	})
	a, b, c := all[0], all[1], all[2]
	phasesKnown(t, a)
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	leads(t, a, all...)
	o, _, _ := a.c.observe() // a leader that leaves chooses by it
	for _, n := range o.Nodes {
		if n.Draining != (n.ID == b.c.ID()) {
			t.Errorf("%s drains, as the leader sees it: %v", n.Name, n.Draining)
		}
	}
	before := led(b)
	eventually(t, "c to have the lead", func() string { // an heir that is too busy does not take it
		a.c.HandOver(ctx)
		if c.c.Store().Leadership().Role != consensus.RoleLeader {
			return a.c.Store().Leadership().Leader + " has it"
		}
		return ""
	})
	if led(b) != before {
		t.Fatalf("b, which drains, has had the lead %d times", led(b)-before)
	}
	// If only draining nodes are left, HandOver keeps the lead, and a node that
	// stops hands it over.
	id := a.c.ID()
	a.kill()
	phasesKnown(t, c)
	eventually(t, "a to be silent", func() string {
		if c.c.ProbeLiveness(ctx); !c.c.Silent()[id] {
			return "it is said to answer"
		}
		return ""
	})
	leads(t, c, b, c)
	before = led(b)
	c.c.HandOver(ctx)
	if led(b) != before || !c.c.Store().Leadership().Ready {
		t.Error("the lead went to a node that drains")
	}
	if c.stop(); led(b) == before {
		t.Errorf("the lead went to nobody when c ended: %s%s", b.log(), c.log())
	}
}

// TestAnHeirThatIsDeadLeavesTimeForTheNext: a node that stops has little time,
// and may be wrong about which successors answer.
func TestAnHeirThatIsDeadLeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	all := threeIn(t, "serving", "serving", "draining")
	a, b, c := all[0], all[1], all[2]
	phasesKnown(t, a)
	leads(t, a, all...)
	dead := b.c.ID()
	b.kill()
	put(t, a, "x", "b lacks it")               // as far as a knows, b may still get it
	eventually(t, "c to lead", func() string { // c may be too busy to take the lead
		silent(a, dead, c.c.ID()) // a cannot tell which of the two is up
		if successors := a.c.successors(a.c.Silent()); len(successors) == 2 && successors[0].ID == c.c.ID() {
			t.Fatalf("%+v are to lead, want the one that serves first", successors)
		}
		// Less than the store itself waits for an heir.
		ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
		defer cancel()
		a.c.handOver(ctx, false)
		if next := a.c.Store().Leadership().Leader; next != c.c.ID() {
			return fmt.Sprintf("%q leads: %s", next, a.log())
		}
		return ""
	})
}

// threeIn returns a cluster of three voters in the given phases.
func threeIn(t *testing.T, phases ...string) []*machine {
	t.Helper()
	return threeOf(t, func(i int, m *machine) { m.cfg.Facts = func() Facts { return Facts{Phase: phases[i]} } })
}

// phasesKnown waits until a node knows the phases of all nodes.
func phasesKnown(t *testing.T, m *machine) {
	t.Helper()
	eventually(t, "the phases at "+m.cfg.Name, func() string {
		for _, x := range m.c.Members() {
			if x.Facts.Phase == "" {
				return x.Name + " has told none"
			}
		}
		return ""
	})
}

// silent makes a node believe that others did not answer its last probe.
func silent(m *machine, ids ...string) {
	p := &m.c.probes
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results = map[string]probeResult{}
	for _, id := range ids {
		p.results[id] = probeResult{at: time.Now()}
	}
}

// led returns how often a machine has taken the lead, by its log.
func led(m *machine) int { return strings.Count(m.log(), "self=true") }

// leads moves the lead to a machine from wherever it is.
func leads(t *testing.T, m *machine, all ...*machine) {
	t.Helper()
	eventually(t, m.cfg.Name+" to lead", func() string {
		if m.c.Store().Leadership().Ready {
			return ""
		}
		from := leading(t, all...)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		return fmt.Sprintf("%s led: %v", from.cfg.Name, from.c.Store().Transfer(ctx, m.c.ID()))
	})
}

// TestWhoGoesWaitsForTheNextLeader: the next leader may need the vote of the
// last one, which must not stop before the election is over.
func TestWhoGoesWaitsForTheNextLeader(t *testing.T) {
	t.Parallel()
	all := three(t)
	for range 5 {
		lead := leading(t, all...)
		eventually(t, "the leader to be ready", func() string {
			if lead = leading(t, all...); !lead.c.Store().Leadership().Ready {
				return "it is not"
			}
			return ""
		})
		eventually(t, "the lead to be handed over", func() string {
			ctx, cancel := context.WithTimeout(context.Background(), enough)
			defer cancel()
			lead.c.handOver(ctx, false)
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

// TestTheLeadGoesToASilentNodeOnlyInNeed: a node that did not answer the last
// probe may be gone, or was busy for a moment. A leader that stops tries it if
// there is no other heir; a leader that stays keeps the lead.
func TestTheLeadGoesToASilentNodeOnlyInNeed(t *testing.T) {
	t.Parallel()
	all := three(t)
	a, b, c := all[0], all[1], all[2]
	leads(t, a, all...)
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	silent(a, b.c.ID(), c.c.ID())
	a.c.HandOver(ctx)
	if !a.c.Store().Leadership().Ready {
		t.Error("a node that stays gave the lead to one that is silent")
	}
	silent(a, b.c.ID())
	if successors := a.c.successors(a.c.Silent()); len(successors) != 2 || successors[0].ID != c.c.ID() {
		t.Errorf("%+v are to lead, want c before b, which is silent", successors)
	}
	silent(a, b.c.ID(), c.c.ID())
	eventually(t, "a node that goes to give the lead to another", func() string {
		a.c.handOver(ctx, false)
		if next := a.c.Store().Leadership().Leader; next == "" || next == a.c.ID() {
			return next + " leads"
		}
		return ""
	})
}
