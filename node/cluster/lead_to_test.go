package cluster

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"penstock/node/admin"
)

// What may have acted is asked again, until it is known.
func TestARequestIsMadeAgainUntilItsOutcomeIsKnown(t *testing.T) {
	t.Parallel()
	lost := fmt.Errorf("the leader: %w", admin.ErrLost)
	unknown := admin.Errorf(admin.UnknownOutcome, "it may have acted")
	gone := admin.Errorf(admin.NotFound, "no such node")
	refused := admin.Errorf(admin.Refused, "it is up")
	for name, c := range map[string]struct {
		attempts []error // what comes of them, one after the other
		want     error
	}{
		"done at once":                         {[]error{nil}, nil},
		"refused at once":                      {[]error{refused}, refused},
		"not there, and never was":             {[]error{gone}, gone},
		"the connection lost, then done":       {[]error{lost, nil}, nil},
		"unknown twice, then done":             {[]error{unknown, lost, nil}, nil},
		"lost, and done as it is not there":    {[]error{lost, gone}, nil},
		"lost, then refused":                   {[]error{lost, refused}, refused},
		"unknown, and then there is no leader": {[]error{unknown, admin.Errorf(admin.NoLeader, "an election")}, unknown},
		"unknown, and then out of time":        {[]error{unknown, admin.Errorf(admin.Deadline, "not done in the time given")}, unknown},
		"lost, and then out of reach":          {[]error{lost, admin.Errorf(admin.Unavailable, "too busy")}, lost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			made := 0
			act := untilKnown(func(context.Context, *admin.Empty) (*admin.Empty, error) {
				made++
				if err := c.attempts[made-1]; err != nil {
					return nil, err
				}
				return &admin.Empty{}, nil
			}, admin.NotFound)
			resp, err := act(t.Context(), &admin.Empty{})
			if !errors.Is(err, c.want) || (resp != nil) != (c.want == nil) || made != len(c.attempts) {
				t.Errorf("%d attempts came to %v, %v; want %d, %v", made, resp, err, len(c.attempts), c.want)
			}
		})
	}
}

// A request whose caller has gone is not made again.
func TestAnUnknownOutcomeIsSaidToWhoGoes(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	made := 0
	act := untilKnown(func(context.Context, *admin.Empty) (*admin.Empty, error) {
		made++
		cancel()
		return nil, admin.ErrLost
	})
	if _, err := act(ctx, &admin.Empty{}); !errors.Is(err, admin.ErrLost) || made != 1 {
		t.Errorf("%d attempts came to %v", made, err)
	}
}

// One whose caller goes while it is made again says what was known before.
func TestAnUnknownOutcomeIsSaidToWhoGoesMeanwhile(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	unknown := admin.Errorf(admin.UnknownOutcome, "it may have acted")
	made := 0
	act := untilKnown(func(context.Context, *admin.Empty) (*admin.Empty, error) {
		if made++; made == 1 {
			return nil, unknown
		}
		cancel()
		return nil, ctx.Err()
	})
	if _, err := act(ctx, &admin.Empty{}); !errors.Is(err, unknown) || made != 2 {
		t.Errorf("%d attempts came to %v", made, err)
	}
}
