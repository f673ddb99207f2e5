package directory

import (
	"testing"

	"penstock/gossip"
)

func FuzzFacts(f *testing.F) {
	f.Add([]byte(`{"p":"serving","c":3,"a":9,"l":0.5,"h":"aGk=","i":12}`))
	f.Add([]byte(`{"i":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := newGossipEntry(gossip.Member{ID: "1", State: gossip.Alive, Facts: b})
		if s.State != StateUp {
			t.Fatalf("facts decide who is up: %+v", s)
		}
	})
}
