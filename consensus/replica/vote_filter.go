package replica

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// filterVotes rewrites vote requests so that Raft does not reject candidates
// for two invalid reasons: see acceptUnknownCandidates and leaderless.
func filterVotes(command any, configuration func() raft.Configuration, leaderless func() (leader raft.ServerAddress, ok bool)) {
	acceptUnknownCandidates(command, configuration)
	leader, ok := leaderless()
	if !ok {
		return
	}
	switch req := command.(type) {
	case *raft.RequestVoteRequest:
		req.LeadershipTransfer = true // its only effect is to skip the check for a leader
	case *raft.RequestPreVoteRequest:
		if leader != "" {
			req.Addr = []byte(leader) // Raft compares it with the leader's address, and logs it
		}
	}
}

// leaderlessFunc returns a function that reports whether a server has no leader
// that holds its vote, and the leader that Raft still records, if any.
func leaderlessFunc(r *raft.Raft, heartbeat time.Duration) func() (raft.ServerAddress, bool) {
	return func() (raft.ServerAddress, bool) {
		leader, _ := r.LeaderWithID()
		return leader, leaderless(r.State(), r.LastContact(), heartbeat)
	}
}

// leaderless reports whether a server in that state has no leader that holds
// its vote. contact is the time of its last contact with its leader.
//
// Raft rejects every candidate while it records a leader, and clears that
// record only when the server's own, random timer finds that the leader has
// been silent for Config.Heartbeat; that may take up to three times as long.
// With the filter, a server without contact for Config.Heartbeat votes at once:
// the first candidate wins instead of waiting for the others' timers, and split
// votes are rarer.
//
// A candidate never has a leader, but Raft may record one. It handles
// heartbeats outside its main loop, and one that starts a term writes the term
// to disk before it records the leader. If the server's timer makes it a
// candidate meanwhile, the record is set after that and never cleared. If that
// leader then dies, the server rejects all other candidates for good. If its
// own log is behind, no leader could be elected until the old one returned.
func leaderless(state raft.RaftState, contact time.Time, heartbeat time.Duration) bool {
	return state == raft.Candidate || state == raft.Follower && time.Since(contact) > heartbeat
}

// acceptUnknownCandidates lets a server vote for a candidate that is not, or no
// longer, a voter in its configuration, judged by log and term alone. Raft
// itself rejects such candidates, which can leave the remaining servers without
// a leader for ever: say a, of a and b, gives c a vote, c acknowledges it, and
// a dies before b gets the entry. Only c can win, since only c has all
// committed entries, and it needs b's vote.
//
// This is safe: a winner has the votes of a majority of the newest
// configuration in its log, and all committed entries. A removed server that
// has not learned of its removal cannot win: one of the voters it needs has the
// entry that removed it. Nor does it disrupt a leader: while there is one no
// server grants a pre-vote, and a pre-vote changes no term.
//
// The candidate's address, under which the vote is recorded, stays unchanged.
func acceptUnknownCandidates(command any, configuration func() raft.Configuration) {
	switch req := command.(type) {
	case *raft.RequestVoteRequest:
		if !isVoter(configuration(), raft.ServerID(req.ID)) {
			req.ID = nil // Raft then skips the lookup
		}
	case *raft.RequestPreVoteRequest:
		servers := configuration()
		if isVoter(servers, raft.ServerID(req.ID)) {
			return
		}
		for _, s := range servers.Servers { // here the lookup is mandatory; the ID has no other use
			if s.Suffrage == raft.Voter {
				req.ID = []byte(s.ID)
				return
			}
		}
	}
}

func isVoter(c raft.Configuration, id raft.ServerID) bool {
	return slices.ContainsFunc(c.Servers, func(s raft.Server) bool { return s.ID == id && s.Suffrage == raft.Voter })
}
