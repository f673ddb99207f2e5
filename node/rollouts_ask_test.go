package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"penstock/node/admin"
	"penstock/node/cluster"
)

// A member that gossip does not reach is asked as any other: where it answers,
// what it sees counts.
func TestMembersThatGossipDoesNotReachAreAskedAboutRollouts(t *testing.T) {
	members := []cluster.Member{
		{ID: "1", Name: "a", State: cluster.StateUp, Self: true},
		{ID: "2", Name: "b", State: cluster.StateUnreachable},
		{ID: "3", Name: "c", State: cluster.StateUnreachable},
		{ID: "4", Name: "d", State: cluster.StateUp},
		{ID: "5", Name: "e", State: cluster.StateUp},
		{ID: "6", Name: "f", State: cluster.StateLeft},
	}
	var got []string
	for _, r := range askMembers(members, func(m *cluster.Member) (*admin.RolloutSeen, error) {
		switch m.Name {
		case "b", "d":
			return &admin.RolloutSeen{Rollouts: map[string]admin.RolloutSight{"canary": {Failed: 7}}}, nil
		case "e":
			return nil, fmt.Errorf("call: %w", context.DeadlineExceeded)
		}
		return nil, errors.New("no route to host")
	}) {
		got = append(got, fmt.Sprint(r.ID, r.Node, " ", r.Answers["canary"].Failed, " ", r.Err))
	}
	want := []string{"2b 7 <nil>", "3c 0 is not in reach", "4d 7 <nil>", "5e 0 does not answer", "6f 0 is not in reach"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
