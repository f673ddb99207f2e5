package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"penstock/node/cluster/record"
)

func TestGossipKeyRotatesInThreeSteps(t *testing.T) {
	up := func(id string) bool { return id != "down" }
	nodes := []record.Node{
		{ID: "1", Name: "a", Trust: 10}, {ID: "2", Name: "b", Trust: 9}, {ID: "down", Name: "c"}, {ID: "left", Left: time.Unix(1, 0)},
	}
	cur := record.GossipSecret{Keys: [][]byte{[]byte("old")}}
	if _, _, ok := nextGossip(cur, 10, nodes, up); ok {
		t.Fatal("a step without a rotation")
	}
	cur, err := beginGossip(cur, []byte("new"))
	if err != nil || string(cur.Ring()[0]) != "old" || len(cur.Ring()) != 2 {
		t.Fatalf("add: %q, %v", cur.Ring(), err)
	}
	if _, err := beginGossip(cur, []byte("newer")); !errors.Is(err, errRotating) {
		t.Fatalf("begun twice: %v", err)
	}
	if _, waits, ok := nextGossip(cur, 10, nodes, up); ok || !slices.Equal(waits, []string{"b"}) {
		t.Fatalf("went on without b: %v", waits)
	}
	nodes[1].Trust = 10
	cur, _, ok := nextGossip(cur, 10, nodes, up)
	if !ok || string(cur.Ring()[0]) != "new" || string(cur.Ring()[1]) != "old" {
		t.Fatalf("use: %q %v", cur.Ring(), ok)
	}
	cur, _, ok = nextGossip(cur, 10, nodes, up)
	if !ok || len(cur.Ring()) != 1 || string(cur.Ring()[0]) != "new" || cur.Phase != record.PhaseDone {
		t.Fatalf("drop: %q %v", cur.Ring(), ok)
	}
}

func TestTheOldCAStaysForNodesThatAreDown(t *testing.T) {
	nodes := []record.Node{
		{ID: "1", Name: "a", Issuer: "new"}, {ID: "2", Name: "down", Issuer: "old"}, {ID: "3", Name: "left", Left: time.Unix(1, 0)},
	}
	if got := membersOnOldCA("new", nodes); !slices.Equal(got, []string{"down"}) {
		t.Fatalf("got %v", got)
	}
}

func TestMembersComeFromRaftAndRecords(t *testing.T) {
	now := time.Now()
	nodes := []record.Node{
		{ID: "1", Name: "a", Cluster: "h1:1"}, {ID: "2", Name: "b", Cluster: "h2:1"}, {ID: "3", Name: "c"},
		{ID: "4", Name: "gone", Left: now},
	}
	servers := []server{{"1", true}, {"2", true}, {"3", false}, {"4", false}, {"5", false}}
	gossip := map[string]gossipEntry{
		"2": {peer: Peer{Cluster: "h9:9"}, state: StateUp, since: now, facts: Facts{Phase: "serving"}},
		"9": {peer: Peer{Cluster: "h8:8"}, state: StateUp}, // in gossip alone: no member
	}
	got := mergeMembers("1", "2", servers, nodes, gossip)
	type line struct{ id, name, role, state, cluster string }
	var lines []line
	for _, m := range got {
		lines = append(lines, line{m.ID, m.Name, m.Role, m.State, m.Cluster})
	}
	want := []line{
		{"5", "5", RoleNonVoter, StateUnreachable, ""},
		{"1", "a", RoleVoter, StateUp, "h1:1"},
		{"2", "b", RoleLeader, StateUp, "h9:9"},
		{"3", "c", RoleNonVoter, StateUnreachable, ""},
	}
	if !slices.Equal(lines, want) {
		t.Fatalf("got %v\nwant %v", lines, want)
	}
	if m, ok := findMember(got, "b"); !ok || m.ID != "2" || m.Facts.Phase != "serving" {
		t.Fatalf("by name: %+v", m)
	}
	if m, ok := findMember(got, "1"); !ok || !m.Self {
		t.Fatalf("by ID: %+v", m)
	}
}
