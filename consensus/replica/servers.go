package replica

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"penstock/consensus/store"
)

// Server is a server in the Raft configuration.
type Server struct {
	ID    string
	Addr  string // as announced by the server; for display only
	Voter bool
}

// Servers lists the servers of the configuration, in the order in which they
// were added, and the index of that configuration. Both are empty without one.
func (r *Replica) Servers() ([]Server, uint64) {
	c := r.raft.GetConfiguration().Configuration()
	all := make([]Server, 0, len(c.Servers))
	for _, s := range c.Servers {
		all = append(all, Server{ID: string(s.ID), Addr: displayAddress(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return all, r.logStore.configurationIndex(c)
}

// raftAddress returns the address for the Raft configuration, prefixed with the
// ID. Raft rejects a configuration with two equal addresses, but addresses get
// reused, and a server may not know yet that an old one is gone.
func raftAddress(id, addr string) raft.ServerAddress { return raft.ServerAddress(id + "@" + addr) }

// configuredAddress returns a server's address in the configuration, or the one
// it will have.
func (r *Replica) configuredAddress(id, addr string) raft.ServerAddress {
	for _, s := range r.raft.GetConfiguration().Configuration().Servers {
		if string(s.ID) == id {
			return s.Address
		}
	}
	return raftAddress(id, addr)
}

func displayAddress(a raft.ServerAddress) string {
	_, addr, _ := strings.Cut(string(a), "@")
	return addr
}

// HasState reports whether this server is or was part of a cluster.
func (r *Replica) HasState() (bool, error) {
	return raft.HasExistingState(r.logStore, r.logStore, r.snapshots)
}

// Bootstrap creates a cluster. Without voters the cluster consists of this
// server alone, and others can be added. With voters, which include this
// server, each of them must be bootstrapped with the same list, and nothing is
// committed before a majority of them is up. If the server already has state,
// Bootstrap returns ErrState.
func (r *Replica) Bootstrap(voters ...Server) error {
	if len(voters) == 0 {
		voters = []Server{{ID: r.cfg.ID, Addr: r.cfg.Addr}}
	}
	var c raft.Configuration
	for _, v := range voters {
		c.Servers = append(c.Servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(v.ID), Address: raftAddress(v.ID, v.Addr)})
	}
	err := r.raft.BootstrapCluster(c).Error()
	switch {
	case errors.Is(err, raft.ErrCantBootstrap):
		return fmt.Errorf("bootstrap: %w", ErrState)
	case errors.Is(err, raft.ErrRaftShutdown):
		return r.closedError()
	case err != nil:
		return fmt.Errorf("bootstrap: %w", err)
	}
	if voters[0].ID == r.cfg.ID { // the others leave the first election to this server
		r.startElection()
	}
	r.watch.trigger()
	return nil
}

// startElection starts an election at once instead of after the heartbeat
// timeout: a follower checks for a leader at once when the timeout becomes
// shorter.
func (r *Replica) startElection() {
	c := r.raft.ReloadableConfig()
	longer := c
	longer.HeartbeatTimeout += time.Millisecond
	longer.ElectionTimeout += time.Millisecond
	for _, c := range [...]raft.ReloadableConfig{longer, c} {
		if err := r.raft.ReloadConfig(c); err != nil { // the election starts after the timeout
			r.log.Debug("cannot start the first election early", "err", err)
			return
		}
	}
}

// AddNonvoter adds a server that receives the log and has no vote; a voter
// stays a voter. Like all changes of the servers it returns ErrServers unless
// prev is the index of the current configuration, and otherwise the index of
// the next one.
//
// The address of an existing server does not change: no connection uses it, and
// Raft reads it without synchronization.
func (r *Replica) AddNonvoter(ctx context.Context, id, addr string, prev uint64) (uint64, error) {
	return r.changeServers(ctx, "add", id, prev, func(wait time.Duration) raft.IndexFuture {
		return r.raft.AddNonvoter(raft.ServerID(id), r.configuredAddress(id, addr), prev, wait)
	})
}

// AddVoter adds a server as a voter, or promotes a non-voter.
func (r *Replica) AddVoter(ctx context.Context, id, addr string, prev uint64) (uint64, error) {
	return r.changeServers(ctx, "add voter", id, prev, func(wait time.Duration) raft.IndexFuture {
		return r.raft.AddVoter(raft.ServerID(id), r.configuredAddress(id, addr), prev, wait)
	})
}

// Demote makes a voter a non-voter. It returns ErrQuorum if too few of the
// voters that would remain respond: neither this change nor a later one could
// be committed.
func (r *Replica) Demote(ctx context.Context, id string, prev uint64) (uint64, error) {
	if err := r.CheckQuorumWithout(ctx, id); err != nil {
		return 0, fmt.Errorf("demote %s: %w", id, err)
	}
	return r.changeServers(ctx, "demote", id, prev, func(wait time.Duration) raft.IndexFuture {
		return r.raft.DemoteVoter(raft.ServerID(id), prev, wait)
	})
}

// Remove removes a server from the configuration. A leader that removes itself
// leads until the change is committed. A voter is checked as in Demote.
func (r *Replica) Remove(ctx context.Context, id string, prev uint64) (uint64, error) {
	if err := r.CheckQuorumWithout(ctx, id); err != nil {
		return 0, fmt.Errorf("remove %s: %w", id, err)
	}
	return r.changeServers(ctx, "remove", id, prev, func(wait time.Duration) raft.IndexFuture {
		return r.raft.RemoveServer(raft.ServerID(id), prev, wait)
	})
}

// CheckQuorumWithout checks that the cluster keeps a quorum without a server:
// it returns ErrQuorum unless a majority of the voters that would remain
// responds now. Others may have died a moment ago, unnoticed. It works on the
// leader only, and accepts any server that is not a voter.
func (r *Replica) CheckQuorumWithout(ctx context.Context, id string) error {
	term, err := r.waitReady(ctx)
	if err != nil {
		return err
	}
	var others []raft.ServerID
	voters, have, votes := 0, 0, false
	for _, s := range r.raft.GetConfiguration().Configuration().Servers {
		switch {
		case s.Suffrage != raft.Voter:
			continue
		case string(s.ID) == id:
			votes = true
			continue
		case string(s.ID) == r.cfg.ID:
			have = 1
		default:
			others = append(others, s.ID)
		}
		voters++
	}
	need := voters/2 + 1 - have
	if !votes || need <= 0 {
		return nil
	}
	mark := r.transport.notifier.mark()
	if err := r.verifyLeadership(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, r.cfg.Heartbeat)
	defer cancel()
	confirmed := 0
	_, err = r.whileLeading(term, func(lost <-chan struct{}) (raft.ServerID, error) {
		var err error
		confirmed, err = r.transport.notifier.waitConfirmed(bounded, others, need, term, mark, lost)
		return "", err
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return fmt.Errorf("%w: %d of %d, %d are needed", ErrQuorum, have+confirmed, voters, voters/2+1)
	}
	return err
}

// changeTimeout bounds how long a change of the servers waits for the previous
// one if the context has no deadline.
const changeTimeout = 10 * time.Second

// changeServers submits a change of the servers to Raft and waits until it is
// committed.
func (r *Replica) changeServers(
	ctx context.Context,
	what, id string,
	prev uint64,
	submit func(time.Duration) raft.IndexFuture,
) (uint64, error) {
	if prev == 0 { // Raft takes 0 as any index
		return 0, fmt.Errorf("%s %s: %w: the configuration's index is 0", what, id, ErrServers)
	}
	if r.raft.State() != raft.Leader {
		return 0, fmt.Errorf("%s %s: %w", what, id, r.notLeader())
	}
	wait := changeTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = max(time.Until(end), time.Millisecond)
	}
	var index uint64
	err := r.awaitRaft(ctx, func() error {
		f := submit(wait)
		if err := f.Error(); err != nil {
			return err
		}
		index = f.Index()
		var entry raft.Log
		if r.logStore.GetLog(index, &entry) == nil {
			r.transport.notifier.recordCommit(entry.Index, entry.Term)
		}
		return nil
	})
	switch {
	case err == nil:
		r.watch.trigger()
		return index, nil
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		err = r.notLeader()
	case errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrRaftShutdown):
		err = fmt.Errorf("%w: %w", store.ErrUnknown, err)
	case strings.HasPrefix(err.Error(), "configuration changed since"):
		err = fmt.Errorf("%w: %w", ErrServers, err)
	}
	return 0, fmt.Errorf("%s %s: %w", what, id, err)
}

// awaitRaft runs a call to Raft that may take long, and waits for it until ctx
// ends.
func (r *Replica) awaitRaft(ctx context.Context, call func() error) error {
	done := make(chan error, 1)
	r.outstanding.Add(1)
	select {
	case <-r.closing: // Close may have stopped waiting for new calls, which Raft may drop
		r.outstanding.Add(-1)
		return r.closedError()
	default:
	}
	go func() {
		defer r.outstanding.Add(-1)
		done <- call()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", store.ErrUnknown, ctx.Err())
	case <-r.closed:
		return fmt.Errorf("%w: %w", store.ErrUnknown, r.closedError())
	}
}

// Transfer transfers leadership to the voter with that ID, or if id is empty to
// a voter whose log is up to date, and waits until this server is no longer
// leader.
func (r *Replica) Transfer(ctx context.Context, id string) error {
	term := r.raft.CurrentTerm()
	if r.raft.State() != raft.Leader {
		return fmt.Errorf("transfer: %w", r.notLeader())
	}
	if id == r.cfg.ID {
		return nil
	}
	all, _ := r.Servers()
	var others []raft.ServerID
	for _, s := range all {
		if s.Voter && s.ID != r.cfg.ID && (id == "" || id == s.ID) {
			others = append(others, raft.ServerID(s.ID))
		}
	}
	if len(others) == 0 {
		return fmt.Errorf("transfer: %w: no such voter: %q", ErrServers, id)
	}
	ctx, cancel := context.WithTimeout(ctx, changeTimeout)
	defer cancel()
	// Raft considers a server without any contact up to date.
	to, err := r.whileLeading(term, func(lost <-chan struct{}) (raft.ServerID, error) {
		return r.transport.notifier.waitUpToDate(ctx, others, term, r.raft.LastIndex(), lost)
	})
	if err == nil {
		err = r.awaitRaft(ctx, func() error { return r.raft.LeadershipTransferToServer(to, raft.ServerAddress(to)).Error() })
	}
	if errors.Is(err, raft.ErrNotLeader) {
		err = r.notLeader()
	}
	if err != nil {
		return fmt.Errorf("transfer to %q: %w", id, err)
	}
	return nil
}

// whileLeading calls wait, again after each change, while this server leads in
// that term.
func (r *Replica) whileLeading(term uint64, wait func(lost <-chan struct{}) (raft.ServerID, error)) (raft.ServerID, error) {
	for {
		changes := r.Changes()
		if r.raft.State() != raft.Leader || r.raft.CurrentTerm() != term {
			return "", r.notLeader()
		}
		id, err := wait(changes)
		if !errors.Is(err, store.ErrNotLeader) {
			return id, err
		}
		select {
		case <-r.closing:
			return "", r.closedError()
		default:
		}
	}
}
