package consensus

import (
	"slices"

	"github.com/hashicorp/raft"
)

// anyone lets Raft answer every candidate by its log and its term, also one
// that votes for all this server knows not, or no longer. Raft itself refuses
// those, and then the servers that are left may never find a leader: say a, of
// a and b, gives c a vote, c agrees, and a dies before b has heard. Only c can
// lead, for it has what was agreed, and only with the vote of b.
//
// It is safe: who wins has the votes of most servers of the newest
// configuration it knows, and a log with all that was agreed. A server that
// was removed, and does not know, cannot win: one of those it needs has the
// entry that removed it. And it disturbs nobody: while there is a leader nobody
// grants a pre-vote, and a pre-vote changes no term.
//
// The address of the candidate, which the vote is written down for, stays.
func anyone(command any, now func() raft.Configuration) {
	switch req := command.(type) {
	case *raft.RequestVoteRequest:
		if !voter(now(), raft.ServerID(req.ID)) {
			req.ID = nil // Raft does not ask who that is
		}
	case *raft.RequestPreVoteRequest:
		servers := now()
		if voter(servers, raft.ServerID(req.ID)) {
			return
		}
		for _, s := range servers.Servers { // here it does ask, and for nothing else
			if s.Suffrage == raft.Voter {
				req.ID = []byte(s.ID)
				return
			}
		}
	}
}

func voter(c raft.Configuration, id raft.ServerID) bool {
	return slices.ContainsFunc(c.Servers, func(s raft.Server) bool { return s.ID == id && s.Suffrage == raft.Voter })
}
