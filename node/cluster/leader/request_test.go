package leader

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/rpc"
)

func TestRequestsAreCancelledAfterTheirLeaderIsReplaced(t *testing.T) {
	c := &Tracker{}
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
		if got := SafeToResend(c.err); got != c.again {
			t.Errorf("%v: it is sent again: %v, want %v", c.err, got, c.again)
		}
	}
}

// TestRequestIsRetriedUntilItsOutcomeIsKnown: a request that may have acted
// is repeated.
func TestRequestIsRetriedUntilItsOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("the leader: %w", rpc.ErrLost)
	unknown := api.Errorf(api.UnknownOutcome, "it may have acted")
	gone := api.Errorf(api.NotFound, "no such node")
	refused := api.Errorf(api.Refused, "it is up")
	for name, c := range map[string]struct {
		attempts []error // their results, in order
		want     error
	}{
		"done at once":                         {[]error{nil}, nil},
		"refused at once":                      {[]error{refused}, refused},
		"not there, and never was":             {[]error{gone}, gone},
		"the connection lost, then done":       {[]error{lost, nil}, nil},
		"unknown twice, then done":             {[]error{unknown, lost, nil}, nil},
		"lost, and done as it is not there":    {[]error{lost, gone}, nil},
		"lost, then refused":                   {[]error{lost, refused}, refused},
		"unknown, and then there is no leader": {[]error{unknown, api.Errorf(api.NoLeader, "an election")}, unknown},
		"unknown, and then out of time":        {[]error{unknown, api.Errorf(api.Deadline, "not completed in time")}, unknown},
		"lost, and then out of reach":          {[]error{lost, api.Errorf(api.Unavailable, "too busy")}, lost},
		"lost, and then no node any more":      {[]error{lost, api.Errorf(api.Unauthenticated, "a token is required")}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := 0
			act := RetryUnknown(func(context.Context, *api.Empty) (*api.Empty, error) {
				made++
				if err := c.attempts[made-1]; err != nil {
					return nil, err
				}
				return &api.Empty{}, nil
			}, api.NotFound)
			resp, err := act(t.Context(), &api.Empty{})
			if !errors.Is(err, c.want) || (resp != nil) != (c.want == nil) || made != len(c.attempts) {
				t.Errorf("%d attempts came to %v, %v; want %d, %v", made, resp, err, len(c.attempts), c.want)
			}
		})
	}
}

// TestUnknownOutcomeIsReturnedWhenTheCallerGoes: a request whose caller has
// gone is not repeated.
func TestUnknownOutcomeIsReturnedWhenTheCallerGoes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	made := 0
	act := RetryUnknown(func(context.Context, *api.Empty) (*api.Empty, error) {
		made++
		cancel()
		return nil, rpc.ErrLost
	})
	if _, err := act(ctx, &api.Empty{}); !errors.Is(err, rpc.ErrLost) || made != 1 {
		t.Errorf("%d attempts came to %v", made, err)
	}
}

// TestUnknownOutcomeIsReturnedWhenTheCallerGoesDuringARetry: if the caller goes
// during a repetition, the result is what was known before.
func TestUnknownOutcomeIsReturnedWhenTheCallerGoesDuringARetry(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	unknown := api.Errorf(api.UnknownOutcome, "it may have acted")
	made := 0
	act := RetryUnknown(func(context.Context, *api.Empty) (*api.Empty, error) {
		if made++; made == 1 {
			return nil, unknown
		}
		cancel()
		return nil, ctx.Err()
	})
	if _, err := act(ctx, &api.Empty{}); !errors.Is(err, unknown) || made != 2 {
		t.Errorf("%d attempts came to %v", made, err)
	}
}
