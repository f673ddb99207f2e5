package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// reads is the state of linearizable reads.
type reads struct {
	// ready is the last term in which this server leads and has committed an entry
	// of its own. Before that its commit index may be behind.
	ready          atomic.Uint64
	barrierPending atomic.Bool // an attempt to become ready is in progress

	mu   sync.Mutex
	next *round // joined by new reads; nil if none waits
	busy bool   // a round is in progress
	// Of the last scan: the last entry at or below upTo that snapshots reflect.
	upTo, found uint64
}

// round is one leadership check, shared by all reads that came before it.
type round struct {
	done chan struct{}
	err  error
}

// commitBarrier commits an entry in this server's new term, after which the
// server has all committed entries. Raft does that by itself; commitBarrier
// finds out when. After a failure, watchLeadership calls it again.
func (r *Replica) commitBarrier() {
	if !r.reads.barrierPending.CompareAndSwap(false, true) {
		return
	}
	r.outstanding.Add(1)
	r.tasks.Go(func() {
		defer r.outstanding.Add(-1)
		defer r.reads.barrierPending.Store(false)
		f := r.raft.Barrier(0)
		if f.Error() != nil {
			return
		}
		var entry raft.Log
		if i, ok := f.(raft.IndexFuture); ok && r.logStore.GetLog(i.Index(), &entry) == nil {
			r.transport.notifier.recordCommit(entry.Index, entry.Term)
			r.reads.ready.Store(entry.Term)
			r.watch.trigger()
		}
	})
}

// ReadIndex returns an index for linearizable reads: a snapshot with that index
// or a higher one reflects everything applied anywhere when ReadIndex was
// called. Wait(ctx, index-1) waits for one, on any server. ReadIndex works on
// the leader only.
//
// Raft's VerifyLeader alone is not enough: it also counts non-voters, and
// responses to requests from before the call.
func (r *Replica) ReadIndex(ctx context.Context) (uint64, error) {
	term, err := r.waitReady(ctx)
	if err != nil {
		return 0, err
	}
	commit := r.raft.CommitIndex()
	mark := r.transport.notifier.mark()
	if err := r.verifyLeadership(ctx); err != nil {
		return 0, err
	}
	if err := r.confirmLeadership(ctx, term, mark); err != nil {
		return 0, err
	}
	if r.raft.State() != raft.Leader || r.raft.CurrentTerm() != term {
		return 0, r.notLeader()
	}
	return r.lastStateEntry(commit)
}

// waitReady waits until this leader has all entries committed before its term,
// and returns the term.
func (r *Replica) waitReady(ctx context.Context) (uint64, error) {
	for {
		changes := r.Changes()
		term := r.raft.CurrentTerm()
		if r.raft.State() != raft.Leader {
			return 0, r.notLeader()
		}
		if r.reads.ready.Load() == term {
			return term, nil
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-r.closing:
			return 0, r.closedError()
		}
	}
}

// requestHeartbeats makes Raft request the next heartbeats while the last ones
// are in flight, as a read would: each then waits in the batcher as soon as its
// response arrives. Otherwise Raft would wake up for each after a tenth to a
// fifth of Config.Heartbeat, only to wait again. Raft evaluates the responses:
// it steps down at once if one has a later term.
func (r *Replica) requestHeartbeats() {
	for {
		select {
		case <-r.transport.batcher.timeToSend:
		case <-r.closing:
			return
		}
		r.outstanding.Add(1) // it may block on Raft, which may block on a disk
		_ = r.raft.VerifyLeader()
		r.outstanding.Add(-1)
	}
}

// verifyLeadership has Raft confirm its leadership with all servers. Reads that
// arrive while a round is in progress share the next.
func (r *Replica) verifyLeadership(ctx context.Context) error {
	q := &r.reads
	q.mu.Lock()
	select {
	case <-r.closing:
		q.mu.Unlock()
		return r.closedError()
	default:
	}
	if q.next == nil {
		q.next = &round{done: make(chan struct{})}
	}
	mine := q.next
	if !q.busy {
		q.busy = true
		r.outstanding.Add(1)
		go r.verifyRounds()
	}
	q.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	case <-r.closed:
		return r.closedError()
	}
}

func (r *Replica) verifyRounds() {
	defer r.outstanding.Add(-1)
	q := &r.reads
	for {
		q.mu.Lock()
		current := q.next
		q.next = nil
		if current == nil {
			q.busy = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		if err := r.askRaft(); err != nil {
			current.err = fmt.Errorf("%w: %w", r.notLeader(), err)
		}
		close(current.done)
	}
}

// askRaft has Raft verify its leadership, and asks again if Raft has lost the
// request. Raft fixes how many acknowledgements a request needs, and from
// which servers, when it takes it: if those servers are removed meanwhile,
// nobody acknowledges it, and a leader that needs none of them any more leads
// on. It answers such a request only when it steps down or shuts down.
//
// After Lease, a leader either has stepped down, and so answered, or has heard
// from a quorum of the present voters, and so can answer a new request. That
// may be wrong on a slow machine, so each further wait is twice as long: no
// request would be answered in time otherwise. Only the time is at stake: each
// request is later than the reads of the round, so its answer is theirs too.
//
// Only the last request counts because Raft takes requests in order: once it
// has answered the last, it has taken all, and answers the lost ones when it
// shuts down at the latest. It drops those that it has not taken. So drain
// waits for the last, and never for a lost one.
func (r *Replica) askRaft() error {
	for wait := r.cfg.Lease; ; wait *= 2 {
		r.transport.batcher.release() // VerifyLeader sends heartbeats
		request, answer := r.raft.VerifyLeader(), make(chan error, 1)
		go func() { answer <- request.Error() }()
		late := time.NewTimer(wait)
		select {
		case err := <-answer:
			late.Stop()
			return err
		case <-late.C:
			r.log.Debug("raft does not verify its leadership; asking again", "after", wait)
		}
	}
}

// confirmLeadership waits until a majority of the voters has acknowledged this
// server as the leader of the term, in response to requests sent after mark.
// Each change of the servers may change which voters these are: one that was
// removed need not acknowledge anything any more.
func (r *Replica) confirmLeadership(ctx context.Context, term, mark uint64) error {
	_, err := r.whileLeading(term, func(changed <-chan struct{}) (raft.ServerID, error) {
		others, need := r.otherVoters()
		if need <= 0 {
			return "", nil
		}
		_, err := r.transport.notifier.waitConfirmed(ctx, others, need, term, mark, changed)
		return "", err
	})
	return err
}

// otherVoters returns the other voters, and how many of them make a majority
// together with this server.
func (r *Replica) otherVoters() (others []raft.ServerID, need int) {
	voters, have := 0, 0
	for _, s := range r.raft.GetConfiguration().Configuration().Servers {
		switch {
		case s.Suffrage != raft.Voter:
			continue
		case string(s.ID) == r.cfg.ID:
			have = 1
		default:
			others = append(others, s.ID)
		}
		voters++
	}
	return others, voters/2 + 1 - have
}

// lastStateEntry returns the last entry at or below index that snapshots
// reflect. Snapshots skip Raft's internal entries.
func (r *Replica) lastStateEntry(index uint64) (uint64, error) {
	q := &r.reads
	q.mu.Lock()
	defer q.mu.Unlock()
	applied := r.machine.current().Index()
	for i := index; i > applied; i-- {
		if i == q.upTo {
			applied = q.found
			break
		}
		var entry raft.Log
		if err := r.logStore.GetLog(i, &entry); err != nil {
			return 0, fmt.Errorf("log entry %d: %w", i, err)
		}
		if entry.Type == raft.LogCommand || entry.Type == raft.LogConfiguration {
			applied = i
			break
		}
	}
	if index > q.upTo {
		q.upTo, q.found = index, applied
	}
	return applied, nil
}
