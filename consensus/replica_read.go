package consensus

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// reads is what linearizable reads need to know.
type reads struct {
	// ready is the last term in which this server leads and has had an entry
	// of its own agreed; before that it may not know all that was.
	ready     atomic.Uint64
	asserting atomic.Bool // a try to become so is on its way

	mu   sync.Mutex
	next *round // what new reads join; nil when none waits
	busy bool   // a round is on its way
	// Of the last scan: the last entry at or below upTo that views tell of.
	upTo, found uint64
}

// round is one verification of the lead, for all reads that came before it.
type round struct {
	done chan struct{}
	err  error
}

// assert has an entry agreed in a new term of this server: with it, all that
// was agreed before is known to be. Raft does that by itself; here it is to
// find out when. Where it fails, it is asked for again at the next look.
func (r *Replica) assert() {
	if !r.reads.asserting.CompareAndSwap(false, true) {
		return
	}
	r.outstanding.Add(1)
	r.tasks.Go(func() {
		defer r.outstanding.Add(-1)
		defer r.reads.asserting.Store(false)
		f := r.raft.Barrier(0)
		if f.Error() != nil {
			return
		}
		var entry raft.Log
		if i, ok := f.(raft.IndexFuture); ok && r.store.GetLog(i.Index(), &entry) == nil {
			r.transport.notifier.committed(entry.Index, entry.Term)
			r.reads.ready.Store(entry.Term)
			r.watch.poke()
		}
	})
}

// ReadIndex returns an index that a view must have, or exceed, to show all
// that had acted anywhere when ReadIndex was called; Wait(ctx, index-1) waits
// for one, on any server. It must be called at the leader.
//
// Raft's VerifyLeader alone would not do: it also counts servers without a
// vote, and answers to questions that were asked before.
func (r *Replica) ReadIndex(ctx context.Context) (uint64, error) {
	term, err := r.leading(ctx)
	if err != nil {
		return 0, err
	}
	commit := r.raft.CommitIndex()
	mark := r.transport.notifier.mark()
	if err := r.verify(ctx); err != nil {
		return 0, err
	}
	if err := r.confirm(ctx, term, mark); err != nil {
		return 0, err
	}
	if r.raft.State() != raft.Leader || r.raft.CurrentTerm() != term {
		return 0, r.notLeader()
	}
	return r.lastActing(commit)
}

// leading waits until this server knows all that was agreed before it came to
// lead, and returns the term.
func (r *Replica) leading(ctx context.Context) (uint64, error) {
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
			return 0, r.gone()
		}
	}
}

// drum has Raft ask for the next heartbeats while the last ones are on their
// way, as if there were a read: each comes to wait in pace when it has its
// answer. Else Raft would wake up for each after a tenth or a fifth of
// Config.Heartbeat, only to have it wait again. What the answers say of the
// lead, Raft goes by: it gives it up at once when one is of a later term.
func (r *Replica) drum() {
	for {
		select {
		case <-r.transport.batcher.timeToSend:
		case <-r.closing:
			return
		}
		r.outstanding.Add(1) // it may wait for Raft, which may wait for a disk
		_ = r.raft.VerifyLeader()
		r.outstanding.Add(-1)
	}
}

// verify has Raft ask all servers whether this one leads. Reads that come
// while they are asked share the next time.
func (r *Replica) verify(ctx context.Context) error {
	q := &r.reads
	q.mu.Lock()
	select {
	case <-r.closing:
		q.mu.Unlock()
		return r.gone()
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
		return r.gone()
	}
}

func (r *Replica) verifyRounds() {
	defer r.outstanding.Add(-1)
	q := &r.reads
	for {
		q.mu.Lock()
		now := q.next
		q.next = nil
		if now == nil {
			q.busy = false
			q.mu.Unlock()
			return
		}
		q.mu.Unlock()
		r.transport.batcher.hurry() // what Raft asks them for is heartbeats
		if err := r.raft.VerifyLeader().Error(); err != nil {
			now.err = fmt.Errorf("%w: %w", r.notLeader(), err)
		}
		close(now.done)
	}
}

// confirm waits until most voters have taken this server for the leader of the
// term after the mark was made.
func (r *Replica) confirm(ctx context.Context, term, mark uint64) error {
	var others []raft.ServerID
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
	need := voters/2 + 1 - have
	if need <= 0 {
		return nil
	}
	_, err := r.whileLeading(term, func(lost <-chan struct{}) (raft.ServerID, error) {
		return "", r.transport.notifier.confirmed(ctx, others, need, term, mark, lost)
	})
	return err
}

// lastActing is the last entry at or below the index that views tell of. They
// do not tell of Raft's own entries.
func (r *Replica) lastActing(index uint64) (uint64, error) {
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
		if err := r.store.GetLog(i, &entry); err != nil {
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
