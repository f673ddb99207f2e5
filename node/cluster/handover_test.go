package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"penstock/consensus"
)

// TestTheLeadGoesToANodeThatServes: one that drains would hand it on at once,
// and every change would wait twice.
func TestTheLeadGoesToANodeThatServes(t *testing.T) {
	t.Parallel()
	all := threeOf(t, func(i int, m *machine) {
		m.cfg.Facts = func() Facts { return Facts{Phase: []string{"serving", "draining", "serving"}[i]} }
		// Who is too busy to take the lead at once has time to.
		m.cfg.Timing.Heartbeat, m.cfg.Timing.Election, m.cfg.Timing.HandOver = enough, enough, enough
	})
	a, b, c := all[0], all[1], all[2]
	phasesKnown(t, a)
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	leads(t, a, all...)
	o, _, _ := a.c.observe() // by which a leader that leaves chooses
	for _, n := range o.Nodes {
		if n.Draining != (n.ID == b.c.ID()) {
			t.Errorf("%s drains, as the leader sees it: %v", n.Name, n.Draining)
		}
	}
	before := led(b)
	eventually(t, "c to have the lead", func() string { // who is too busy to take it leaves it
		a.c.HandOver(ctx)
		if c.c.Store().Leadership().Role != consensus.RoleLeader {
			return a.c.Store().Leadership().Leader + " has it"
		}
		return ""
	})
	if led(b) != before {
		t.Fatalf("b, which drains, has had the lead %d times", led(b)-before)
	}
	// Where only those are left that drain, one that drains itself keeps it,
	// and one that ends does not.
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

// TestAnHeirThatIsDeadLeavesTimeForTheNext: a node that ends has little time,
// and may be wrong about who answers.
func TestAnHeirThatIsDeadLeavesTimeForTheNext(t *testing.T) {
	t.Parallel()
	all := threeIn(t, "serving", "serving", "draining")
	a, b, c := all[0], all[1], all[2]
	phasesKnown(t, a)
	leads(t, a, all...)
	dead := b.c.ID()
	b.kill()
	put(t, a, "x", "b lacks it")               // and may still come to have it, for all that a knows
	eventually(t, "c to lead", func() string { // which may be too busy to take it
		silent(a, dead, c.c.ID()) // a cannot tell which of the two is there
		if heirs := a.c.heirs(a.c.Silent()); len(heirs) == 2 && heirs[0].ID == c.c.ID() {
			t.Fatalf("%+v are to lead, want the one that serves first", heirs)
		}
		// Less than a store waits for an heir by itself.
		ctx, cancel := context.WithTimeout(context.Background(), 6*time.Second)
		defer cancel()
		a.c.handOver(ctx, false)
		if next := a.c.Store().Leadership().Leader; next != c.c.ID() {
			return fmt.Sprintf("%q leads: %s", next, a.log())
		}
		return ""
	})
}

// threeIn is a cluster of three voters, in phases.
func threeIn(t *testing.T, phases ...string) []*machine {
	t.Helper()
	return threeOf(t, func(i int, m *machine) { m.cfg.Facts = func() Facts { return Facts{Phase: phases[i]} } })
}

// phasesKnown waits until a node knows the phases of all.
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

// silent has a node think that others did not answer when it asked last.
func silent(m *machine, ids ...string) {
	p := &m.c.probes
	p.mu.Lock()
	defer p.mu.Unlock()
	p.results = map[string]probeResult{}
	for _, id := range ids {
		p.results[id] = probeResult{at: time.Now()}
	}
}

// led is how often a machine has come to lead, by what it logs.
func led(m *machine) int { return strings.Count(m.log(), "self=true") }

// leads brings the lead to a machine, wherever it is.
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
// last one, which must not end before it is elected.
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
			case lead.c.ID(): // who was too busy to take it leaves it
				return "nobody took it"
			}
			return ""
		})
	}
}

// TestTheLeadGoesToASilentNodeOnlyInNeed: one that did not answer when it was
// asked last is as good as gone, or was busy for a moment. Who goes tries it
// when there is no other; who stays keeps the lead.
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
	if heirs := a.c.heirs(a.c.Silent()); len(heirs) != 2 || heirs[0].ID != c.c.ID() {
		t.Errorf("%+v are to lead, want c before b, which is silent", heirs)
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
