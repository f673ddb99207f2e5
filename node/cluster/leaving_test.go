package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"penstock/consensus"
	"penstock/node/admin"
)

// TestANodeDoesNotLeaveOnOneThatHasJustDied: whoever died a moment ago counts
// as up with everybody for a while; a voter that left meanwhile would leave
// one of two behind, which can decide nothing.
func TestANodeDoesNotLeaveOnOneThatHasJustDied(t *testing.T) {
	t.Parallel()
	all := three(t)
	lead := leading(t, all...)
	rest := others(all, lead)
	rest[0].kill()
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	var refused *admin.Error
	if err := rest[1].c.Leave(ctx); !errors.As(err, &refused) || refused.Code != admin.Refused || strings.Contains(err.Error(), "--force") {
		t.Errorf("the second of three voters leaves while the third is dead: %v", err)
	}
	put(t, lead, "x", "two of three")
	holds(t, rest[1], "x", "two of three")
	if err := lead.c.Store().Without(ctx, rest[1].c.ID()); !errors.Is(err, consensus.ErrQuorum) {
		t.Errorf("the leader goes on without it: %v", err)
	}
	rest[0].listen("127.0.0.1")
	rest[0].start()
	voters(t, 3, all...)
	if err := rest[1].c.Leave(ctx); err != nil {
		t.Errorf("when all are there: %v", err)
	}
	put(t, rest[0], "x", "two")
}

// TestTheOnlyVoterLeavesWhereAnotherNodeCanVote: of two nodes one votes, and
// it must be possible to do without that one.
func TestTheOnlyVoterLeavesWhereAnotherNodeCanVote(t *testing.T) {
	t.Parallel()
	a := founded(t, "a")
	b := newcomer(t, "b", a.token(), a).start()
	voters(t, 1, a, b)
	put(t, b, "x", "before")
	if err := a.c.MayLeave(); err != nil {
		t.Errorf("a may not leave: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	if err := a.c.Leave(ctx); err != nil {
		t.Fatal(err)
	}
	put(t, b, "y", "after")
	holds(t, b, "x", "before")
	voters(t, 1, b)
	if err := b.c.Leave(ctx); err == nil {
		t.Error("the last node left")
	}
	put(t, b, "y", "still there")
}

// TestMostNodesMayLeaveAtOnce: each leaves when those that stay can decide
// without it, also when they are fewer than those that leave.
func TestMostNodesMayLeaveAtOnce(t *testing.T) {
	t.Parallel()
	all := three(t)
	for _, name := range []string{"d", "e"} {
		all = append(all, newcomer(t, name, all[0].token(), all[0]).start())
	}
	voters(t, 5, all...)
	lead := leading(t, all...)
	stays := others(all, lead)[0]
	leaves := slices.DeleteFunc(slices.Clone(all), func(m *machine) bool { return m == stays })
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	done := make(chan error, len(leaves))
	for _, m := range leaves {
		go func() { done <- m.c.Leave(ctx) }()
	}
	for range leaves {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	put(t, stays, "x", "alone")
	voters(t, 1, stays)
}

// TestANodeWithoutItsLogDoesNotVote: the others would take it for the voter
// that it was, and it would agree to what it had promised not to.
func TestANodeWithoutItsLogDoesNotVote(t *testing.T) {
	t.Parallel()
	all := three(t)
	victim := others(all, leading(t, all...))[0]
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
		if err := victim.refused(ErrNoLog); !strings.Contains(err.Error(), "penstock remove") {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// TestTheLeadGoesToANodeThatServes: one that drains would hand it on at once,
// and every change would wait twice.
func TestTheLeadGoesToANodeThatServes(t *testing.T) {
	t.Parallel()
	in := func(m *machine, phase string) *machine {
		m.cfg.Facts = func() Facts { return Facts{Phase: phase} }
		return m
	}
	a := newMachine(t, "a")
	a.cfg.Init = true
	in(a, "serving").start()
	b := in(newcomer(t, "b", a.token(), a), "draining").start()
	c := in(newcomer(t, "c", a.token(), a), "serving").start()
	all := []*machine{a, b, c}
	voters(t, 3, all...)
	known := func(m *machine) {
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
	known(a)
	ctx, cancel := context.WithTimeout(context.Background(), enough)
	defer cancel()
	if leading(t, all...) != a {
		t.Skip("another node leads already") // nobody made it
	}
	a.c.HandOver(ctx)
	led := func(m *machine) bool { return strings.Contains(m.log(), "self=true") }
	eventually(t, "c to lead", func() string {
		if !led(c) {
			return c.log()
		}
		return ""
	})
	if led(b) {
		t.Fatal("the lead went to a node that drains")
	}
	// Where only those are left that drain, one that drains itself keeps it.
	id := a.c.ID()
	a.kill()
	known(c)
	eventually(t, "a to be silent", func() string {
		if c.c.Feel(ctx); !c.c.Silent()[id] {
			return "it is said to answer"
		}
		return ""
	})
	eventually(t, "c to be able to lead", func() string {
		if !led(b) && !c.c.Store().Standing().Ready {
			return "it is not ready"
		}
		return ""
	})
	if led(b) {
		t.Skip("b was elected meanwhile, on a busy machine") // nobody made it
	}
	c.c.HandOver(ctx)
	if led(b) || !c.c.Store().Standing().Ready {
		t.Error("the lead went to a node that drains")
	}
}
