package consensus

import (
	"slices"
	"time"

	"github.com/hashicorp/raft"
)

// votesFilter has Raft answer candidates that it would refuse for reasons that do
// not hold: see acceptUnknown and silent.
func votesFilter(command any, now func() raft.Configuration, silent func() (leader raft.ServerAddress, ok bool)) {
	acceptUnknown(command, now)
	leader, ok := silent()
	if !ok {
		return
	}
	switch req := command.(type) {
	case *raft.RequestVoteRequest:
		req.LeadershipTransfer = true // all that it does is to pass over the leader
	case *raft.RequestPreVoteRequest:
		if leader != "" {
			req.Addr = []byte(leader) // Raft compares it with the leader's, and logs it
		}
	}
}

// leaderSilence says whether a server of Raft has no leader that holds its vote,
// and which one Raft takes for its leader all the same, if any.
func leaderSilence(r *raft.Raft, heartbeat time.Duration) func() (raft.ServerAddress, bool) {
	return func() (raft.ServerAddress, bool) {
		leader, _ := r.LeaderWithID()
		return leader, silent(r.State(), r.LastContact(), heartbeat)
	}
}

// silent says whether a server in that state has no leader that holds its
// vote. contact is when it last heard its leader.
//
// Raft refuses every candidate while it notes a leader, and clears that note
// only when the server's own timer, which is random, finds that the leader has
// been silent for Config.Heartbeat; up to three times that may pass. A server
// that has heard nothing for so long votes at once: the first candidate wins
// instead of waiting for the timers of the others, and collides with fewer.
//
// A candidate has no leader at all. Raft may note one: heartbeats are answered
// beside its main loop, and one that begins a term writes that to the disk
// before it notes who leads. When the server's timer makes it a candidate
// meanwhile, the note comes after that, and nothing ever clears it. If that
// leader is then lost, the others are refused for good. Where this server's
// log lacks what the others have, nobody could lead again before the old
// leader was back.
func silent(state raft.RaftState, contact time.Time, heartbeat time.Duration) bool {
	return state == raft.Candidate || state == raft.Follower && time.Since(contact) > heartbeat
}

// acceptUnknown lets Raft answer every candidate by its log and its term, also one
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
func acceptUnknown(command any, now func() raft.Configuration) {
	switch req := command.(type) {
	case *raft.RequestVoteRequest:
		if !isVoter(now(), raft.ServerID(req.ID)) {
			req.ID = nil // Raft does not ask who that is
		}
	case *raft.RequestPreVoteRequest:
		servers := now()
		if isVoter(servers, raft.ServerID(req.ID)) {
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

func isVoter(c raft.Configuration, id raft.ServerID) bool {
	return slices.ContainsFunc(c.Servers, func(s raft.Server) bool { return s.ID == id && s.Suffrage == raft.Voter })
}
