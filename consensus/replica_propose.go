package consensus

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"
)

// proposals are the batches on their way: queued in their order for Raft,
// then with Raft, in the same order, until they have acted or failed.
type proposals struct {
	mu      sync.Mutex
	stopped bool
	count   int // in flight
	bytes   int
	// Both channels have room for all that may be in flight: sending never blocks.
	queue, sent chan *proposal

	maxCount, maxBytes int
}

func (p *proposals) init(cfg Config) {
	p.maxCount, p.maxBytes = cfg.MaxInFlight, cfg.MaxInFlightBytes
	p.queue = make(chan *proposal, p.maxCount)
	p.sent = make(chan *proposal, p.maxCount)
}

// add queues a batch behind all that were added before.
func (p *proposals) add(q *proposal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return ErrClosed
	case p.count >= p.maxCount:
		return fmt.Errorf("%w: %d, the limit is %d", ErrBusy, p.count, p.maxCount)
	case p.count > 0 && p.bytes+len(q.data) > p.maxBytes:
		return fmt.Errorf("%w: %d bytes and %d more, the limit is %d", ErrBusy, p.bytes, len(q.data), p.maxBytes)
	}
	p.count++
	p.bytes += len(q.data)
	p.queue <- q
	return nil
}

func (p *proposals) remove(bytes int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count--
	p.bytes -= bytes
}

// stop refuses what comes from now on; what is queued goes its way.
func (p *proposals) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped = true
		close(p.queue)
	}
}

// proposal is one batch on its way.
type proposal struct {
	replica *Replica
	data    []byte // the encoded batch; nil once Raft has it
	future  raft.ApplyFuture
	done    chan struct{} // closed when result and err are set
	result  Result
	err     error
}

// Propose enqueues a batch, which comes to act after all that were proposed
// here before, and returns at once. It must be called at the leader.
func (r *Replica) Propose(ctx context.Context, b *Batch) (Pending, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-r.closing:
		return nil, r.gone()
	default:
	}
	if r.raft.State() != raft.Leader {
		return nil, r.notLeader()
	}
	data, err := EncodeBatch(b)
	if err != nil {
		return nil, err
	}
	p := &proposal{replica: r, data: data, done: make(chan struct{})}
	r.outstanding.Add(1)
	if err := r.proposals.add(p); err != nil {
		r.outstanding.Add(-1)
		return nil, err
	}
	return p, nil
}

// Commit proposes a batch and waits for it.
func (r *Replica) Commit(ctx context.Context, b *Batch) (Result, error) {
	p, err := r.Propose(ctx, b)
	if err != nil {
		return Result{}, err
	}
	return p.Wait(ctx)
}

// Wait implements Pending.
func (p *proposal) Wait(ctx context.Context) (Result, error) {
	select {
	case <-p.done:
		return p.result, p.err
	default:
	}
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
		return Result{}, ctx.Err()
	case <-p.replica.closed:
	}
	select {
	case <-p.done:
		return p.result, p.err
	default:
		return Result{}, fmt.Errorf("%w: %w", ErrUnknown, p.replica.gone())
	}
}

// enqueue hands proposals to Raft, which may be writing to the disk meanwhile.
func (r *Replica) enqueue() {
	defer close(r.proposals.sent)
	for p := range r.proposals.queue {
		p.future = r.raft.Apply(p.data, 0)
		r.proposals.sent <- p
	}
}

// settle takes what became of the proposals from Raft.
func (r *Replica) settle() {
	for p := range r.proposals.sent {
		if err := p.future.Error(); err != nil {
			p.err = r.fate(err)
		} else {
			switch response := p.future.Response().(type) {
			case Result:
				p.result = response
			case error:
				p.err = response
			default:
				p.err = fmt.Errorf("%w: the store's answer is %T", ErrUnknown, response)
			}
		}
		r.proposals.remove(len(p.data))
		p.data = nil
		close(p.done)
		r.outstanding.Add(-1)
	}
}

// fate says what Raft's error about a proposal means.
func (r *Replica) fate(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return r.notLeader()
	default: // also of a disk: what could not be written here may be on it all the same
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
}

// notLeader is ErrNotLeader with who is.
func (r *Replica) notLeader() error {
	if _, id := r.raft.LeaderWithID(); id != "" && string(id) != r.cfg.ID {
		return fmt.Errorf("%w, but %s is", ErrNotLeader, id)
	}
	return ErrNotLeader
}
