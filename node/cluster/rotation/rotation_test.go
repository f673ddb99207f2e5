package rotation

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
