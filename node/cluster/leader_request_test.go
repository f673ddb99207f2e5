package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"penstock/node/api"
	"penstock/node/cluster/leader"
	"penstock/node/rpc"
)

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
					return nil, c.requests.NoLeader(ctx, errors.Join(context.Canceled, rpc.ErrUnreachable))
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
		if client, err = b.c.Directory.Client(ctx, b.c.ID()); err != nil {
			return err.Error()
		}
		return ""
	})
	ask := func(method string) error {
		_, err := rpc.Call[api.Empty](ctx, client, method, api.Empty{})
		return err
	}
	lose := func(method string) (err error) {
		for first := true; first || leader.RefusedAs(err, api.NoLeader); first = false { // the machine was too busy to reach the leader
			err = ask(method)
		}
		return err
	}
	if err := lose("test.lost.0"); err != nil || made[0].Load() < 2 {
		t.Errorf("the leader was asked %d times to read, which came to %v", made[0].Load(), err)
	}
	if err := lose("test.lost.1"); !leader.RefusedAs(err, api.UnknownOutcome) || made[1].Load() != 1 {
		t.Errorf("the leader was asked %d times to change something, which came to %v", made[1].Load(), err)
	}
	if err := ask("test.why.0"); !leader.RefusedAs(err, api.NoLeader) || contains(err, "changed") || contains(err, "\n") {
		t.Errorf("reading without a leader: %q", err)
	}
	if err := ask("test.why.1"); !leader.RefusedAs(err, api.NoLeader) || !contains(err, "nothing was changed: ") {
		t.Errorf("changing something without a leader: %q", err)
	}
}
