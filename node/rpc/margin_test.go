package rpc

import (
	"context"
	"testing"
	"time"

	"penstock/internal/testkit"
	"penstock/node/api"
)

// TestReasonArrivesBeforeTheDeadline: the error of a node that runs out of
// time reaches the caller before the caller's own deadline.
func TestReasonArrivesBeforeTheDeadline(t *testing.T) {
	t.Parallel()
	_, addr := newServer(t, Config{}, func(s *Server) {
		Handle(s, "decide", api.RoleReader, func(ctx context.Context, _ *api.Empty) (*api.Empty, error) {
			<-ctx.Done()
			return nil, api.Errorf(api.NoLeader, "no leader")
		})
	})
	for _, all := range []time.Duration{800 * time.Millisecond, 3 * time.Second} {
		t.Run(all.String(), func(t *testing.T) {
			t.Parallel()
			c := mustDial(t, addr)
			// On a busy machine the response may take longer than the margin.
			testkit.WaitFor(t, "the reason within "+all.String(), func() bool {
				before := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), all)
				defer cancel()
				_, err := Call[api.Empty](ctx, c, "decide", api.Empty{})
				if took, least := time.Since(before), all-maxMargin-50*time.Millisecond; took < least {
					t.Errorf("%v were given, and the node took only %v of it", all, took)
				}
				return code(err) == api.NoLeader
			})
		})
	}
}
