package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"penstock/consensus/store"
)

// Raft itself considers a server without any contact up to date, and would
// transfer leadership to it.
func TestUpToDateServerHasAcknowledgedAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newCommitNotifier("a", func(raft.ServerID, *raft.AppendEntriesRequest, func(error)) {})
		acknowledge := func(id raft.ServerID, term, index uint64, ok bool) {
			req := &raft.AppendEntriesRequest{
				Term:         term,
				PrevLogEntry: index - 1,
				PrevLogTerm:  term,
				Entries:      []*raft.Log{{Index: index, Term: term}},
			}
			n.recordResponse(id, n.recordRequest(id, req), req, &raft.AppendEntriesResponse{Term: term, Success: ok}, nil)
		}
		acknowledge("behind", 3, 9, true)
		acknowledge("earlier", 2, 10, true)
		acknowledge("other", 3, 10, false)
		servers := []raft.ServerID{"behind", "earlier", "other", "silent"}
		ask := func() (raft.ServerID, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			return n.waitUpToDate(ctx, servers, 3, 10, nil)
		}
		if id, err := ask(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%q is reported as up to date: %v", id, err)
		}
		acknowledge("behind", 3, 10, true)
		if id, err := ask(); id != "behind" || err != nil {
			t.Errorf("%q is up to date, %v; want the one that was behind", id, err)
		}
		lost := make(chan struct{})
		close(lost)
		if _, err := n.waitUpToDate(t.Context(), servers, 4, 10, lost); !errors.Is(err, store.ErrNotLeader) {
			t.Errorf("in a past term: %v, want %v", err, store.ErrNotLeader)
		}
	})
}
