package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/cluster/leader"
	"penstock/node/cluster/record"
	"penstock/node/rpc"
)

// TestMembersBelowALevel: a member that is down counts, since
// it comes back with the version that it last announced; one that has left does
// not.
func TestMembersBelowALevel(t *testing.T) {
	t.Parallel()
	a := startSingle(t, "a")
	put(t, a, "x", "1")
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	note := func(r record.Node) {
		t.Helper()
		r.Format, r.Cluster, r.Gossip = record.Format, "127.0.0.1:1", "127.0.0.1:1"
		eventually(t, "the record of "+r.Name, func() string {
			if err := a.c.entries.Commit(ctx, "test", "test", []store.Op{record.PutNode(a.c.Store().Snapshot(), r)}); err != nil {
				return err.Error()
			}
			return ""
		})
	}
	old := record.Node{ID: "00000000000000000000000000000001", Name: "old", Version: "v1", Level: record.LevelGroups - 1}
	note(old)
	note(record.Node{ID: "00000000000000000000000000000002", Name: "new", Version: "v2", Level: record.LevelGroups})
	note(record.Node{ID: "00000000000000000000000000000003", Name: "gone", Version: "v1", Left: time.Now()})
	for level, want := range map[int][]string{0: nil, record.LevelKafka: {"old (v1)"}, record.LevelGroups + 1: {"new (v2)", "old (v1)"}} {
		if got := a.c.Directory.MembersBelow(level); !slices.Equal(got, want) {
			t.Errorf("level %d is lacking on %q, want %q", level, got, want)
		}
	}
	const n = 100
	entries := func() uint64 { // that n concurrent changes take
		t.Helper()
		before := a.c.Store().Leadership().Last
		var pending []store.Pending
		for i := range n {
			p, err := a.c.Store().Propose(ctx, &store.Batch{Ops: []store.Op{
				{Key: store.Key{Kind: "Thing", Name: fmt.Sprint(i)}, Value: []byte("1")},
			}})
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, p)
		}
		for _, p := range pending {
			if _, err := p.Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		return a.c.Store().Leadership().Last - before
	}
	eventually(t, "changes to go one by one while there is a member that knows no groups", func() string {
		if got := entries(); got < n {
			return fmt.Sprintf("%d took %d entries", n, got)
		}
		return ""
	})
	old.Level = record.LevelGroups
	note(old)
	eventually(t, "changes to go together when all know groups", func() string {
		if got := entries(); got >= n {
			return fmt.Sprintf("%d took %d entries", n, got)
		}
		return ""
	})
}

// TestNodeCanOnlyRequestItsOwnDeparture: a node may only request its own
// departure.
func TestNodeCanOnlyRequestItsOwnDeparture(t *testing.T) {
	t.Parallel()
	all := startThree(t)
	lead := waitLeader(t, all...)
	rest := others(all, lead)
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	client, err := rest[0].c.Directory.Pool.Get(ctx, lead.c.ID())
	if err != nil {
		t.Fatal(err)
	}
	var refusal *api.Error
	if _, err := rpc.Call[api.Empty](
		ctx, client, leader.MethodDepart, &leader.DepartRequest{ID: rest[1].c.ID()},
	); !errors.As(err, &refusal) || refusal.Code != api.Invalid {
		t.Errorf("a node asks to take another one out: %v", err)
	}
	if r, ok := record.FindNode(lead.c.Store().Snapshot(), rest[1].c.ID()); !ok || !r.Member() {
		t.Errorf("the other one is out: %+v", r)
	}
}
