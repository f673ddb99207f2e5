package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"penstock/node/api"
	"penstock/node/cluster/directory"
	"penstock/node/rollout"
	"penstock/routing"
)

// A member that gossip does not reach is asked like any other, and its answer
// counts.
func TestRolloutsQueryMembersThatGossipCannotReach(t *testing.T) {
	members := []directory.Member{
		{ID: "1", Name: "a", State: directory.StateUp, Self: true},
		{ID: "2", Name: "b", State: directory.StateUnreachable},
		{ID: "3", Name: "c", State: directory.StateUnreachable},
		{ID: "4", Name: "d", State: directory.StateUp},
		{ID: "5", Name: "e", State: directory.StateUp},
		{ID: "6", Name: "f", State: directory.StateLeft},
	}
	var got []string
	for _, r := range queryMembers(members, func(m *directory.Member) (*api.RolloutSeen, error) {
		switch m.Name {
		case "b", "d":
			return &api.RolloutSeen{Rollouts: map[string]api.RolloutSight{"canary": {Failed: 7}}}, nil
		case "e":
			return nil, fmt.Errorf("call: %w", context.DeadlineExceeded)
		}
		return nil, errors.New("no route to host")
	}) {
		got = append(got, fmt.Sprint(r.ID, r.Node, " ", r.ByRoute["canary"].Failed, " ", r.Err))
	}
	want := []string{"2b 7 <nil>", "3c 0 is unreachable", "4d 7 <nil>", "5e 0 does not respond", "6f 0 is unreachable"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// Many rollouts are split over several requests.
func TestRolloutQueriesAreChunked(t *testing.T) {
	var routes, sizes []string
	for i := range 25 {
		routes = append(routes, fmt.Sprint("r", i))
	}
	ask := func(r *api.RolloutSeenRequest) (*api.RolloutSeen, error) {
		sizes = append(sizes, fmt.Sprint(len(r.Routes)))
		seen := &api.RolloutSeen{Rollouts: map[string]api.RolloutSight{}}
		for _, name := range r.Routes {
			seen.Rollouts[name] = api.RolloutSight{Mark: name}
		}
		return seen, nil
	}
	seen, err := queryInChunks(routes, 10, ask)
	if err != nil || len(seen.Rollouts) != 25 || seen.Rollouts["r24"].Mark != "r24" || !slices.Equal(sizes, []string{"10", "10", "5"}) {
		t.Errorf("in questions of %v: %+v, %v", sizes, seen, err)
	}
	lost := errors.New("lost")
	seen, err = queryInChunks(routes, 10, func(r *api.RolloutSeenRequest) (*api.RolloutSeen, error) {
		if len(r.Routes) < 10 {
			return nil, lost
		}
		return ask(r)
	})
	if seen != nil || !errors.Is(err, lost) {
		t.Errorf("one unanswered request: %+v, %v", seen, err)
	}
	// More routes than one request may have.
	l := &rollouts{peers: &Peers{}, router: routing.NewRouter(routing.Config{}), tracker: new(rollout.Tracker)}
	many := make([]string, api.MaxRollouts+1)
	for i := range many {
		many[i] = fmt.Sprint("r", i)
	}
	if reports := l.collectObservations(t.Context(), many); len(reports) != 1 || reports[0].Err != nil {
		t.Errorf("more than %d: %+v", api.MaxRollouts, reports)
	}
}
