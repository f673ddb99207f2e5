package cli

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"penstock/node/api"
	"penstock/node/rpc"
)

// deleteServer records delete requests in order and answers each with then.
type deleteServer struct {
	server *rpc.Server
	mu     sync.Mutex
	ids    []string
	answer func(ctx context.Context, nth int) (*api.DeleteResult, error)
}

func (d *deleteServer) methods(s *rpc.Server) {
	d.server = s
	rpc.Handle(s, api.MethodDelete, api.RoleAdmin, func(ctx context.Context, r *api.DeleteRequest) (*api.DeleteResult, error) {
		d.mu.Lock()
		d.ids = append(d.ids, string(r.ID))
		nth := len(d.ids)
		d.mu.Unlock()
		return d.answer(ctx, nth)
	}, rpc.Changing())
}

// wantRetries fails unless least or more requests came, all under one valid ID.
func (d *deleteServer) wantRetries(t *testing.T, least int) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.ids) < least {
		t.Fatalf("%d requests came, want %d or more", len(d.ids), least)
	}
	for _, id := range d.ids {
		if id != d.ids[0] || len(id) != 16 {
			t.Errorf("requests have the IDs %x", d.ids)
		}
	}
}

func TestChangeIsRetriedUnderItsID(t *testing.T) {
	done := &api.DeleteResult{Index: 7, Kind: "Service", Name: "apps", Reached: api.Reached{Nodes: 1}}
	d := new(deleteServer)
	d.answer = func(ctx context.Context, nth int) (*api.DeleteResult, error) {
		switch nth {
		case 1: // the connection breaks
			go d.server.Drop(anyPrincipal)
			<-ctx.Done()
			return nil, ctx.Err()
		case 2:
			return nil, api.Errorf(api.UnknownOutcome, "the leader is gone")
		}
		return done, nil
	}
	serveAdmin(t, d.methods)
	penstock("delete", "service", "apps").want(t, 0, "Service/apps deleted\n", "")
	d.wantRetries(t, 3)
}

func TestRefusedRetryIsFinal(t *testing.T) {
	d := &deleteServer{answer: func(_ context.Context, nth int) (*api.DeleteResult, error) {
		if nth == 1 {
			return nil, api.Errorf(api.UnknownOutcome, "the leader is gone")
		}
		return nil, api.Errorf(api.Refused, "Service/apps is in use")
	}}
	serveAdmin(t, d.methods)
	penstock("delete", "service", "apps").want(t, 1, "", "penstock: Service/apps is in use\n")
	d.wantRetries(t, 2)
}

// A repetition that did not act does not determine the outcome of the first
// attempt.
func TestRetryThatDoesNotActLeavesOutcomeUnknown(t *testing.T) {
	d := &deleteServer{answer: func(_ context.Context, nth int) (*api.DeleteResult, error) {
		if nth == 1 {
			return nil, api.Errorf(api.UnknownOutcome, "the leader is gone")
		}
		return nil, api.Errorf(api.NoLeader, "nothing was changed: no leader")
	}}
	serveAdmin(t, d.methods)
	penstock("delete", "service", "apps", "--timeout", "1s", "--wait-timeout", "1ms").
		want(t, 3, "", "penstock: outcome unknown: the change may have been made, or may still be made: the leader is gone; `penstock history`")
	d.wantRetries(t, 2)
}

// A request that the node gives up at its deadline counts as timed out.
func TestNodeDeadlineCountsAsTimeout(t *testing.T) {
	serveAdmin(t, func(s *rpc.Server) {
		rpc.Handle(s, api.MethodGet, api.RoleReader, func(ctx context.Context, _ *api.GetRequest) (*api.GetResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
	})
	penstock("get", "services", "--timeout", "500ms").want(t, 3, "", "penstock: the node did not answer in time; raise --timeout\n")
}

func TestUnknownOutcomeIsReported(t *testing.T) {
	d := &deleteServer{answer: func(context.Context, int) (*api.DeleteResult, error) {
		return nil, api.Errorf(api.UnknownOutcome, "the leader is gone")
	}}
	serveAdmin(t, d.methods)
	penstock("delete", "service", "apps", "--timeout", "1s", "--wait-timeout", "1ms").
		want(t, 3, "", "penstock: outcome unknown: the change may have been made, or may still be made: the leader is gone; `penstock history`")
	d.wantRetries(t, 2)

	d.answer = func(ctx context.Context, _ int) (*api.DeleteResult, error) { <-ctx.Done(); return nil, ctx.Err() }
	penstock("delete", "service", "apps", "--timeout", "300ms", "--wait-timeout", "1ms").want(t, 3, "", "outcome unknown")
}

func TestRefusalIsNotRetried(t *testing.T) {
	d := &deleteServer{answer: func(context.Context, int) (*api.DeleteResult, error) {
		return nil, api.Errorf(api.NoLeader, "no leader is in reach: nothing was changed")
	}}
	serveAdmin(t, d.methods)
	penstock("delete", "service", "apps").want(t, 1, "", "penstock: no leader is in reach: nothing was changed\n")
	if len(d.ids) != 1 {
		t.Errorf("%d requests came", len(d.ids))
	}
}

// Exit codes and messages if fewer nodes act on a change than wanted.
func TestWaitNamesLateNodes(t *testing.T) {
	var asked api.Wait
	var reached api.Reached
	serveAdmin(t, func(s *rpc.Server) {
		rpc.Handle(s, api.MethodDelete, api.RoleAdmin, func(_ context.Context, r *api.DeleteRequest) (*api.DeleteResult, error) {
			asked = r.Wait
			return &api.DeleteResult{Index: 12, Kind: "Service", Name: "apps", Reached: reached}, nil
		}, rpc.Changing())
	})
	late := api.Reached{Nodes: 2, Late: []api.Late{{Node: "n3", Why: "does not answer"}}}
	const text = "penstock: committed as index 12; 2 of 3 nodes act on it; n3: does not answer\n"
	many := slices.Repeat([]api.Late{{Node: "n", Why: "is slow"}}, 12)
	for _, c := range []struct {
		args    []string
		nodes   int
		reached api.Reached
		code    int
		err     string
	}{
		{nil, api.WaitAll, api.Reached{Nodes: 3}, 0, ""},
		{nil, api.WaitAll, late, 0, text},
		{[]string{"--wait", "all"}, api.WaitAll, late, 1, text},
		{[]string{"--wait", "2"}, 2, late, 0, ""},
		{[]string{"--wait", "3"}, 3, late, 1, text},
		{[]string{"--wait", "4"}, 4, late, 1, "penstock: committed as index 12; 2 of 3 nodes act on it, want 4; n3: does not answer\n"},
		{[]string{"--wait", "none"}, -1, late, 0, ""},
		{nil, api.WaitAll, api.Reached{Nodes: 1, Late: many}, 0,
			"penstock: committed as index 12; 1 of 13 nodes act on it; " +
				strings.Repeat("n: is slow; ", 10) + "and 2 more\n"},
	} {
		reached = c.reached
		r := penstock(append([]string{"delete", "service", "apps"}, c.args...)...)
		if r.code != c.code || r.out != "Service/apps deleted\n" || r.err != c.err || asked.Nodes != c.nodes {
			t.Errorf("%v with %+v: code %d, out %q, err %q, asked for %d", c.args, c.reached, r.code, r.out, r.err, asked.Nodes)
		}
	}
}
