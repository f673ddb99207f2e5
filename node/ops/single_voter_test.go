package ops

import (
	"testing"

	"penstock/node/api"
)

// A change in a cluster with a single voter gets a warning.
func TestChangeWithSingleVoterWarns(t *testing.T) {
	t.Parallel()
	made := []api.Change{{Action: api.Unchanged}, {Action: api.Created}}
	for _, c := range []struct {
		voters  int
		changes []api.Change
		want    int
	}{
		{1, made, 1},
		{1, made[:1], 0},
		{1, nil, 0},
		{2, made, 0},
		{3, made, 0},
	} {
		if got := singleVoterWarning("n1", c.voters, c.changes); len(got) != c.want {
			t.Errorf("%d voters, %+v: %+v", c.voters, c.changes, got)
		}
	}
}
