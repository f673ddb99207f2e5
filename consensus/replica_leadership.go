package consensus

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// Role is what a server is among the others.
type Role string

// The roles.
const (
	RoleNone     Role = "none" // in no configuration that it knows
	RoleNonvoter Role = "nonvoter"
	RoleVoter    Role = "voter"
	RoleLeader   Role = "leader"
)

// Leadership is where a server stands.
type Leadership struct {
	Role   Role
	Leader string // the leader's ID; empty when none is known
	Term   uint64
	// Ready: this server leads, and knows all that was agreed before its time.
	Ready bool

	Commit  uint64 // the last entry that is known to be agreed
	Applied uint64 // the last one that is in Snapshot
	Last    uint64 // the last one in the log
	Voters  int
	// Contact is how long ago the leader was heard; 0 at the leader, -1 never.
	Contact time.Duration
	// Fault is why the log could not be written last; nil when it could.
	Fault error
}

// Leadership says where this server stands now.
func (r *Replica) Leadership() Leadership {
	s := Leadership{
		Role:    RoleNone,
		Term:    r.raft.CurrentTerm(),
		Commit:  r.raft.CommitIndex(),
		Applied: r.machine.current().Index(),
		Last:    r.raft.LastIndex(),
		Contact: -1,
		Fault:   r.store.lastFault(),
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
		s.Leader = "" // Raft may note one all the same: see silent
	case raft.Leader:
		s.Role, s.Leader, s.Contact = RoleLeader, r.cfg.ID, 0
		s.Ready = r.reads.ready.Load() == s.Term
	}
	return s
}

// same says that nothing has changed that Changes tells.
func (s Leadership) same(o Leadership) bool {
	return s.Role == o.Role && s.Leader == o.Leader && s.Term == o.Term && s.Ready == o.Ready &&
		s.Voters == o.Voters && (s.Fault == nil) == (o.Fault == nil)
}

// Changes returns a channel that is closed when the role, the leader, the term
// or the servers have changed since it was called. Take it before Leadership or
// Servers, and nothing is missed:
//
//	for {
//		changes := r.Changes()
//		act(r.Leadership())
//		<-changes
//	}
func (r *Replica) Changes() <-chan struct{} {
	r.watch.mu.Lock()
	defer r.watch.mu.Unlock()
	return r.watch.changes
}

// watch follows what Raft does. Raft drops what it tells an observer that has
// no room, so it is only a reason to look: there is always room for one.
type watch struct {
	observer *raft.Observer
	observed chan raft.Observation
	poked    chan struct{}

	mu      sync.Mutex
	changes chan struct{}
}

// lookInterval is how often standing and servers are looked at without a
// reason: Raft does not tell of all that changes.
const lookInterval = time.Second

func (w *watch) init() {
	w.observed = make(chan raft.Observation, 1)
	w.poked = make(chan struct{}, 1)
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

// poke asks for a look. It never blocks.
func (w *watch) poke() {
	select {
	case w.poked <- struct{}{}:
	default:
	}
}

func (w *watch) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.changes)
	w.changes = make(chan struct{})
}

// follow tells Changes, and asserts each new lead.
func (r *Replica) follow() {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	var last Leadership
	var servers []Server
	for {
		standing := r.Leadership()
		if standing.Role == RoleLeader && !standing.Ready {
			r.assert()
		}
		now, _ := r.Servers()
		if !standing.same(last) || !slices.Equal(now, servers) {
			last, servers = standing, now
			r.watch.tell()
		}
		select {
		case <-r.watch.observed:
		case <-r.watch.poked:
		case <-tick.C:
		case <-r.closing:
			r.watch.tell()
			return
		}
	}
}
