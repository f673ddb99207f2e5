package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/rpc"
)

func TestRequestsAreCancelledAfterTheirLeaderIsReplaced(t *testing.T) {
	c := &Cluster{}
	c.beginTerm("a")
	cancelled := make(chan string, 4)
	defer c.whenReplaced("a", func() { cancelled <- "of a" })()
	c.whenReplaced("a", func() { cancelled <- "stopped" })()
	c.beginTerm("")  // there is no leader for a while
	c.beginTerm("a") // the same again
	began := time.Now()
	c.beginTerm("b")
	defer c.whenReplaced("b", func() { cancelled <- "of b" })()
	defer c.whenReplaced("a", func() { cancelled <- "late" })()
	got := map[string]bool{<-cancelled: true, <-cancelled: true}
	if !got["of a"] || !got["late"] {
		t.Errorf("cancelled: %v", got)
	}
	if took := time.Since(began); took < replacedLeaderGrace {
		t.Errorf("cancelled after %v, want %v at least", took, replacedLeaderGrace)
	}
	select {
	case who := <-cancelled:
		t.Errorf("cancelled: %s", who)
	default:
	}
}

// TestRequestIsResentOnlyIfItCannotHaveActed: a request that may have
// acted must not act twice.
func TestRequestIsResentOnlyIfItCannotHaveActed(t *testing.T) {
	lost := fmt.Errorf("%w: %w", rpc.ErrLost, rpc.ErrUnreachable)
	for _, c := range []struct {
		err   error
		again bool
	}{
		{nil, false},
		{lost, false},
		{fmt.Errorf("%w: %w", store.ErrUnknown, store.ErrNotLeader), false},
		{requestError(store.ErrUnknown), false},
		{api.Errorf(api.Refused, "no"), false},
		{context.DeadlineExceeded, false},
		{fmt.Errorf("%w: refused", rpc.ErrUnreachable), true},
		{store.ErrNotLeader, true},
		{requestError(store.ErrNotLeader), true},
		{requestError(replica.ErrBusy), true},
		{requestError(store.ErrClosed), true},
	} {
		if got := safeToResend(c.err); got != c.again {
			t.Errorf("%v: it is sent again: %v, want %v", c.err, got, c.again)
		}
	}
}
