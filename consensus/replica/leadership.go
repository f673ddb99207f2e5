package replica

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Role is a server's role in the cluster.
type Role string

// The roles.
const (
	RoleNone     Role = "none" // in no configuration known to the server
	RoleNonvoter Role = "nonvoter"
	RoleVoter    Role = "voter"
	RoleLeader   Role = "leader"
)

// Leadership is a server's role and Raft state.
type Leadership struct {
	Role   Role
	Leader string // the leader's ID; empty when none is known
	Term   uint64
	// Ready: this server leads, and has all entries committed before its term.
	Ready bool

	Commit  uint64 // the last entry known to be committed
	Applied uint64 // the last one applied to Snapshot
	Last    uint64 // the last one in the log
	Voters  int
	// Contact is the time since the last contact with the leader; 0 on the leader,
	// -1 without any contact.
	Contact time.Duration
	// Fault is the error of the last log write; nil if it succeeded.
	Fault error
}

// Leadership returns this server's current role and Raft state.
func (r *Replica) Leadership() Leadership {
	s := Leadership{
		Role:    RoleNone,
		Term:    r.raft.CurrentTerm(),
		Commit:  r.raft.CommitIndex(),
		Applied: r.machine.current().Index(),
		Last:    r.raft.LastIndex(),
		Contact: -1,
		Fault:   r.logStore.lastFault(),
	}
	_, leader := r.raft.LeaderWithID()
	s.Leader = string(leader)
	for _, server := range r.raft.GetConfiguration().Configuration().Servers {
		voter := server.Suffrage == raft.Voter
		if voter {
			s.Voters++
		}
		if string(server.ID) == r.cfg.ID {
			s.Role = RoleNonvoter
			if voter {
				s.Role = RoleVoter
			}
		}
	}
	if last := r.raft.LastContact(); !last.IsZero() {
		s.Contact = time.Since(last)
	}
	switch r.raft.State() {
	case raft.Candidate:
		s.Leader = "" // Raft may still record one: see leaderless
	case raft.Leader:
		s.Role, s.Leader, s.Contact = RoleLeader, r.cfg.ID, 0
		s.Ready = r.reads.ready.Load() == s.Term
	}
	return s
}

// same reports whether o differs in nothing that Changes reports.
func (s Leadership) same(o Leadership) bool {
	return s.Role == o.Role && s.Leader == o.Leader && s.Term == o.Term && s.Ready == o.Ready &&
		s.Voters == o.Voters && (s.Fault == nil) == (o.Fault == nil)
}

// Changes returns a channel that is closed when the role, the leader, the term
// or the servers change after the call. Call it before Leadership or Servers to
// miss nothing:
//
//	for {
//		changes := r.Changes()
//		handle(r.Leadership())
//		<-changes
//	}
func (r *Replica) Changes() <-chan struct{} {
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	return r.watch.changes
}

// watch observes Raft. Raft drops observations for a full channel, so an
// observation is only a trigger to check the state; capacity for one is enough.
type watch struct {
	observer  *raft.Observer
	observed  chan raft.Observation
	triggered chan struct{}

	mu      sync.Mutex
	changes chan struct{}
}

// watchInterval is how often leadership and servers are checked without a
// trigger: Raft does not report all changes.
const watchInterval = time.Second

func (w *watch) init() {
	w.observed = make(chan raft.Observation, 1)
	w.triggered = make(chan struct{}, 1)
	w.changes = make(chan struct{})
	w.observer = raft.NewObserver(w.observed, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.RaftState, raft.LeaderObservation, raft.PeerObservation:
			return true
		default:
			return false
		}
	})
}

// trigger triggers a check. It never blocks.
func (w *watch) trigger() {
	select {
	case w.triggered <- struct{}{}:
	default:
	}
}

func (w *watch) notify() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changes)
	w.changes = make(chan struct{})
}

// watchLeadership closes the channels of Changes, and calls commitBarrier in
// each new term.
func (r *Replica) watchLeadership() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var last Leadership
	var servers []Server
	for {
		leadership := r.Leadership()
		if leadership.Role == RoleLeader && !leadership.Ready {
			r.commitBarrier()
		}
		current, _ := r.Servers()
		if !leadership.same(last) || !slices.Equal(current, servers) {
			last, servers = leadership, current
			r.watch.notify()
		}
		select {
		case <-r.watch.observed:
		case <-r.watch.triggered:
		case <-tick.C:
		case <-r.closing:
			r.watch.notify()
			return
		}
	}
}
