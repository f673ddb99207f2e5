package consensus

import (
	"testing"
)

func TestServersAgree(t *testing.T) {
	w := newWorld(t, nil)
	a := w.cluster(3)
	w.mustCommit(a, put("A", "x", "1"), put("A", "y", "2"))
	w.mustCommit(a, del("A", "x"), put("A", "z", "3"))
	for _, id := range w.ids {
		w.mustShow(w.servers[id], "y=2 z=3")
	}
}
