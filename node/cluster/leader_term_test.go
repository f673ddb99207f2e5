package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"penstock/consensus"
	"penstock/node/admin"
)

func TestRequestsAreGivenUpAWhileAfterAnotherLeads(t *testing.T) {
	c := &Cluster{}
	c.succeed("a")
	cancelled := make(chan string, 4)
	defer c.whenReplaced("a", func() { cancelled <- "of a" })()
	c.whenReplaced("a", func() { cancelled <- "stopped" })()
	c.succeed("")  // there is no leader for a while
	c.succeed("a") // the same again
	began := time.Now()
	c.succeed("b")
	defer c.whenReplaced("b", func() { cancelled <- "of b" })()
	defer c.whenReplaced("a", func() { cancelled <- "late" })()
	got := map[string]bool{<-cancelled: true, <-cancelled: true}
	if !got["of a"] || !got["late"] {
		t.Errorf("cancelled: %v", got)
	}
	if took := time.Since(began); took < lateAnswer {
		t.Errorf("cancelled after %v, want %v at least", took, lateAnswer)
	}
	select {
	case who := <-cancelled:
		t.Errorf("cancelled: %s", who)
	default:
	}
}

// TestARequestIsSentAgainOnlyWhereItCannotHaveActed: a request that may have
// acted must not act twice.
func TestARequestIsSentAgainOnlyWhereItCannotHaveActed(t *testing.T) {
	lost := fmt.Errorf("%w: %w", admin.ErrLost, admin.ErrUnreachable)
	for _, c := range []struct {
		err   error
		again bool
	}{
		{nil, false},
		{lost, false},
		{fmt.Errorf("%w: %w", consensus.ErrUnknown, consensus.ErrNotLeader), false},
		{refusal(consensus.ErrUnknown), false},
		{admin.Errorf(admin.Refused, "no"), false},
		{context.DeadlineExceeded, false},
		{fmt.Errorf("%w: refused", admin.ErrUnreachable), true},
		{consensus.ErrNotLeader, true},
		{refusal(consensus.ErrNotLeader), true},
		{refusal(consensus.ErrBusy), true},
		{refusal(consensus.ErrClosed), true},
	} {
		if got := nothingDone(c.err); got != c.again {
			t.Errorf("%v: it is sent again: %v, want %v", c.err, got, c.again)
		}
	}
}
