package cli

import (
	"encoding/json"
	"testing"

	"penstock/node/api"
)

// A pod leaves for good only if its set no longer has its ordinal.
func TestPodsThatTheSetDrops(t *testing.T) {
	for spec, want := range map[string]bool{
		`{"spec": {"replicas": 3}}`: false, `{"spec": {"replicas": 2}}`: true, `{"spec": {"replicas": 0}}`: false, `{"spec": {}}`: false,
		`{"spec": {"replicas": 2, "ordinals": {"start": 1}}}`: false, `{"spec": {"replicas": 2, "ordinals": {"start": 3}}}`: true,
		`{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"replicas": 2}}`: false,
	} {
		var s statefulSet
		if err := json.Unmarshal([]byte(spec), &s); err != nil {
			t.Fatal(err)
		}
		if got := s.drops("edge", "edge-2"); got != want {
			t.Errorf("%s: %v", spec, got)
		}
		if s.drops("edge", "other") {
			t.Errorf("%s drops a pod of another set", spec)
		}
	}
}

// A pod waits while its end would take the majority that there is.
func TestVotersThatCanBeSpared(t *testing.T) {
	for _, c := range []struct {
		states string // of the voters, a byte each: s serving, u unreachable; the first is the pod's
		want   bool
	}{{"sss", true}, {"ssu", false}, {"suu", true}, {"ss", true}, {"s", true}, {"sssuu", false}, {"ssssu", true}} {
		var members api.Members
		for i, state := range c.states {
			m := api.Member{Name: string(rune('a' + i)), Role: "voter", State: "serving"}
			if state == 'u' {
				m.State = "unreachable"
			}
			members = append(members, m)
		}
		members = append(members, api.Member{Name: "z", Role: "non-voter", State: "serving"})
		if got := spares(members, "a"); got != c.want {
			t.Errorf("%s: %v", c.states, got)
		}
		if !spares(members, "z") {
			t.Errorf("%s: a non-voter waits", c.states)
		}
	}
}
