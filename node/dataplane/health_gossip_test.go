package dataplane

import (
	"encoding/binary"
	"fmt"
	"testing"

	"penstock/routing/health"
)

// member is a node of the cluster.
type member struct {
	ID    string
	Hints []byte
	Down  bool
}

// hintsOfUp returns the hints of the members that are up.
func hintsOfUp(members []member) map[string]string {
	nodes := map[string]string{}
	for _, m := range members {
		if !m.Down {
			nodes[m.ID] = string(m.Hints)
		}
	}
	return nodes
}

func membersUp(n int) (list []member) {
	for i := range n {
		list = append(list, member{ID: fmt.Sprintf("%016x", i*7919)})
	}
	return list
}

// Three nodes probe each endpoint, all nodes agree on which, and a node that leaves
// moves only the endpoints that it probed.
func TestEachEndpointHasThreeProbers(t *testing.T) {
	const nodes, endpoints = 20, 3000
	members := membersUp(nodes)
	views := make([]*healthGossip, nodes)
	for i := range views {
		views[i] = &healthGossip{self: members[i].ID}
		views[i].update(hintsOfUp(members))
	}
	probes := make([]int, nodes)
	before := map[health.ID][]bool{}
	for e := range endpoints {
		id := health.ID(e*2654435761) &^ 1
		who := make([]bool, nodes)
		count := 0
		for i, v := range views {
			if who[i] = v.Probes(id); who[i] {
				probes[i]++
				count++
			}
		}
		before[id] = who
		if count != probersPerEndpoint {
			t.Fatalf("endpoint %d is probed by %d nodes", e, count)
		}
	}
	fair := endpoints * probersPerEndpoint / nodes
	for i, n := range probes {
		if n < fair/2 || n > fair*2 {
			t.Errorf("node %d probes %d endpoints, its fair share is %d", i, n, fair)
		}
	}
	gone := 3
	members[gone].Down = true
	for i, v := range views {
		if i == gone {
			continue
		}
		v.update(hintsOfUp(members))
		for id, who := range before {
			if who[i] && !v.Probes(id) {
				t.Fatalf("node %d no longer probes %x although it is up", i, id)
			}
			if !who[gone] && who[i] != v.Probes(id) {
				t.Fatalf("%x moved although all of its probers are up", id)
			}
		}
	}
}

func TestMajorityOfVerdictsCounts(t *testing.T) {
	const id, unknown = health.ID(42), health.ID(44)
	members := membersUp(6)
	s := &healthGossip{self: members[0].ID}
	if _, known := s.Verdict(id); known || !s.Probes(id) {
		t.Error("a node without a snapshot relies on others")
	}
	say := func(i int, well bool) {
		members[i].Hints = binary.BigEndian.AppendUint32(nil, id.Verdict(well))
		s.update(hintsOfUp(members))
	}
	say(1, true)
	if well, known := s.Verdict(id); !well || !known {
		t.Error("one healthy verdict is ignored")
	}
	say(2, false)
	say(3, false)
	if well, _ := s.Verdict(id); well {
		t.Error("healthy, although two of three verdicts are unhealthy")
	}
	if _, known := s.Verdict(unknown); known {
		t.Error("an endpoint without verdicts has one")
	}
	members[2].Down, members[3].Down = true, true
	s.update(hintsOfUp(members))
	if well, known := s.Verdict(id); !well || !known {
		t.Error("the verdicts of nodes that are down still count")
	}
	members[0].Hints = binary.BigEndian.AppendUint32(nil, unknown.Verdict(true))
	s.update(hintsOfUp(members))
	if _, known := s.Verdict(unknown); known {
		t.Error("a node counts its own verdict as gossip")
	}
	s.update(hintsOfUp(members[:3]))
	if !s.Probes(id) || !s.Probes(unknown) {
		t.Error("three nodes do not probe everything")
	}
}

// The majority of the verdicts decides, whatever the order of the members. With a
// tie, the endpoint is healthy.
func TestVerdictsCountInAnyOrder(t *testing.T) {
	members := membersUp(6)
	s := &healthGossip{self: members[0].ID}
	say := func(unwell int) (ids []health.ID) {
		for i := range members {
			members[i].Hints = nil
		}
		for n := range 64 {
			id := health.ID(n * 2)
			ids = append(ids, id)
			for i := range 4 {
				m := &members[1+(n+i)%5]
				m.Hints = binary.BigEndian.AppendUint32(m.Hints, id.Verdict(i >= unwell))
			}
		}
		s.update(hintsOfUp(members))
		return ids
	}
	for unwell, want := range []bool{true, true, true, false, false} {
		for _, id := range say(unwell) {
			if well, known := s.Verdict(id); well != want || !known {
				t.Fatalf("%d of 4 verdicts on %d are unhealthy: got %v, %v", unwell, id, well, known)
			}
		}
	}
}

// Three nodes probe everything themselves, so they gossip no results; four do.
func TestThreeNodesDoNotShareChecks(t *testing.T) {
	members := membersUp(4)
	s := &healthGossip{self: members[0].ID}
	if !s.tooFewNodes() {
		t.Error("a node without a snapshot gossips results")
	}
	s.update(hintsOfUp(members[:3]))
	if !s.tooFewNodes() {
		t.Error("three nodes share checks")
	}
	s.update(hintsOfUp(members))
	if s.tooFewNodes() {
		t.Error("four nodes do not share checks")
	}
}
