package cluster

import (
	"testing"

	"penstock/consensus/store"
	"penstock/gossip"
)

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"format":1,"id":"1","name":"a","joined":"2026-01-01T00:00:00Z"}`))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := unmarshal[Record](store.Key{Kind: kindNode, Name: "1"}, b)
		if err != nil {
			return
		}
		again, err := unmarshal[Record](keyNode("1"), marshal(r))
		if err != nil || again.ID != r.ID || again.Name != r.Name || again.member() != r.member() {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

func FuzzFacts(f *testing.F) {
	f.Add([]byte(`{"p":"serving","c":3,"a":9,"l":0.5,"h":"aGk=","i":12}`))
	f.Add([]byte(`{"i":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newGossipEntry(gossip.Member{ID: "1", State: gossip.Alive, Facts: b})
		if s.state != StateUp {
			t.Fatalf("facts decide who is up: %+v", s)
		}
	})
}
