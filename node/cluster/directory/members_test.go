package directory

import (
	"slices"
	"testing"
	"time"

	"penstock/consensus/replica"
	"penstock/node/cluster/record"
)

func TestMembersComeFromRaftAndRecords(t *testing.T) {
	now := time.Now()
	nodes := []record.Node{
		{ID: "1", Name: "a", Cluster: "h1:1"}, {ID: "2", Name: "b", Cluster: "h2:1"}, {ID: "3", Name: "c"},
		{ID: "4", Name: "gone", Left: now},
	}
	servers := []replica.Server{{ID: "1", Voter: true}, {ID: "2", Voter: true}, {ID: "3"}, {ID: "4"}, {ID: "5"}}
	gossip := map[string]GossipEntry{
		"2": {Peer: Peer{Cluster: "h9:9"}, State: StateUp, Since: now, Facts: Facts{Phase: "serving"}},
		"9": {Peer: Peer{Cluster: "h8:8"}, State: StateUp}, // in gossip alone: no member
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
