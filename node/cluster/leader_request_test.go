package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"penstock/node/api"
	"penstock/node/rpc"
)

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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := 0
			act := retryUnknown(func(context.Context, *api.Empty) (*api.Empty, error) {
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
	act := retryUnknown(func(context.Context, *api.Empty) (*api.Empty, error) {
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
	act := retryUnknown(func(context.Context, *api.Empty) (*api.Empty, error) {
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

// TestReadsAreRetriedAfterALostLeader: a request that changes nothing is
// repeated when the leader was lost before it answered, and its errors do not
// speak of changes.
func TestReadsAreRetriedAfterALostLeader(t *testing.T) {
	t.Parallel()
	a := newMachine(t, "a")
	a.cfg.Init = true
	b := newMachine(t, "b")
	var made [2]atomic.Int64 // calls on the leader: reading, and changing
	for _, m := range []*machine{a, b} {
		m.register = func(c *Cluster, s *rpc.Server) {
			for i, opts := range [][]rpc.Option{nil, {rpc.Changing()}} {
				rpc.Handle(s, fmt.Sprint("test.lost.", i), api.RoleNode, OnLeader(c, func(
					ctx context.Context, _ *api.Empty,
				) (*api.Empty, error) {
					if made[i].Add(1) == 1 {
						c.port.Drop(rpc.Caller(ctx).Node) // the node that passed it on, for itself
					}
					return &api.Empty{}, nil
				}), opts...)
				rpc.Handle(s, fmt.Sprint("test.why.", i), api.RoleNode, func(ctx context.Context, _ *api.Empty) (*api.Empty, error) {
					return nil, c.noLeader(ctx, errors.Join(context.Canceled, rpc.ErrUnreachable))
				}, opts...)
			}
		}
	}
	a.start()
	b.cfg.Token, b.cfg.Join = a.token(), []string{a.addr()}
	b.start()
	waitVoters(t, 1, a, b)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	var client *rpc.Client
	eventually(t, "b to be reached", func() string {
		var err error
		if client, err = b.c.Client(ctx, b.c.ID()); err != nil {
			return err.Error()
		}
		return ""
	})
	ask := func(method string) error {
		_, err := rpc.Call[api.Empty](ctx, client, method, api.Empty{})
		return err
	}
	lose := func(method string) (err error) {
		for first := true; first || refusedAs(err, api.NoLeader); first = false { // the machine was too busy to reach the leader
			err = ask(method)
		}
		return err
	}
	if err := lose("test.lost.0"); err != nil || made[0].Load() < 2 {
		t.Errorf("the leader was asked %d times to read, which came to %v", made[0].Load(), err)
	}
	if err := lose("test.lost.1"); !refusedAs(err, api.UnknownOutcome) || made[1].Load() != 1 {
		t.Errorf("the leader was asked %d times to change something, which came to %v", made[1].Load(), err)
	}
	if err := ask("test.why.0"); !refusedAs(err, api.NoLeader) || contains(err, "changed") || contains(err, "\n") {
		t.Errorf("reading without a leader: %q", err)
	}
	if err := ask("test.why.1"); !refusedAs(err, api.NoLeader) || !contains(err, "nothing was changed: ") {
		t.Errorf("changing something without a leader: %q", err)
	}
}
