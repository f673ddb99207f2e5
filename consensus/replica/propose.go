package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/raft"

	"penstock/consensus/store"
)

// proposals holds the batches in flight: queued for Raft, then submitted to
// Raft, in the same order, until they are applied or fail. Batches queued while
// Raft has maxGroups groups go as one group: the busier Raft is, the larger the
// groups.
type proposals struct {
	mu      sync.Mutex
	stopped bool
	count   int // in flight
	bytes   int
	// Both channels have capacity for all batches that may be in flight: sending
	// never blocks.
	queue chan *proposal
	sent  chan *entry
	// groups holds a token for each group that is with Raft; a small batch alone
	// is one.
	groups chan struct{}

	maxCount, maxBytes int
}

// maxGroups is how many groups Raft has at once. With one, Raft would idle
// while the next is built; with more, groups are smaller.
const maxGroups = 2

// entry is a Raft log entry in flight.
type entry struct {
	batches []*proposal
	future  raft.ApplyFuture
	grouped bool // holds a token of proposals.groups
}

func (p *proposals) init(cfg Config) {
	p.maxCount, p.maxBytes = cfg.MaxInFlight, cfg.MaxInFlightBytes
	p.queue = make(chan *proposal, p.maxCount)
	p.sent = make(chan *entry, p.maxCount)
	p.groups = make(chan struct{}, maxGroups)
}

// add queues a batch behind all earlier ones.
func (p *proposals) add(q *proposal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.stopped:
		return store.ErrClosed
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

// stop refuses new batches. Those in the queue continue.
func (p *proposals) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stopped {
		p.stopped = true
		close(p.queue)
	}
}

// proposal is one batch in flight.
type proposal struct {
	replica *Replica
	data    []byte        // the encoded batch
	ops     []store.Op    // of a groupable batch, for their keys; else nil
	done    chan struct{} // closed when result and err are set
	result  store.Result
	err     error
}

// Propose enqueues a batch and returns at once. The batch is applied after all
// that were proposed on this server before. Only the leader accepts batches.
func (r *Replica) Propose(ctx context.Context, b *store.Batch) (store.Pending, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-r.closing:
		return nil, r.closedError()
	default:
	}
	if r.raft.State() != raft.Leader {
		return nil, r.notLeader()
	}
	data, err := store.EncodeBatch(b)
	if err != nil {
		return nil, err
	}
	p := &proposal{replica: r, data: data, done: make(chan struct{})}
	if !r.groupsDisabled.Load() && b.Groupable(data) {
		p.ops = b.Ops
	}
	r.outstanding.Add(1)
	if err := r.proposals.add(p); err != nil {
		r.outstanding.Add(-1)
		return nil, err
	}
	return p, nil
}

// SetGroupsDisabled disables groups from now on, or enables them again. They
// must be disabled while the cluster has a server whose build does not support
// groups: a group would stop it.
func (r *Replica) SetGroupsDisabled(on bool) { r.groupsDisabled.Store(on) }

// Commit proposes a batch and waits for its result.
func (r *Replica) Commit(ctx context.Context, b *store.Batch) (store.Result, error) {
	p, err := r.Propose(ctx, b)
	if err != nil {
		return store.Result{}, err
	}
	return p.Wait(ctx)
}

// Wait implements Pending.
func (p *proposal) Wait(ctx context.Context) (store.Result, error) {
	select {
	case <-p.done:
		return p.result, p.err
	default:
	}
	select {
	case <-p.done:
		return p.result, p.err
	case <-ctx.Done():
		return store.Result{}, ctx.Err()
	case <-p.replica.closed:
	}
	select {
	case <-p.done:
		return p.result, p.err
	default:
		return store.Result{}, fmt.Errorf("%w: %w", store.ErrUnknown, p.replica.closedError())
	}
}

// submitProposals submits proposals to Raft, which may be writing to disk
// meanwhile.
func (r *Replica) submitProposals() {
	q := &r.proposals
	defer close(q.sent)
	for p, ok := <-q.queue; ok; {
		e := &entry{batches: []*proposal{p}}
		var next *proposal
		if p.ops != nil {
			select {
			case q.groups <- struct{}{}:
				e.grouped = true
			case <-r.closing:
			}
			next = q.gather(e)
		}
		e.future = r.raft.Apply(e.data(), 0)
		q.sent <- e
		if p = next; p == nil {
			p, ok = <-q.queue
		}
	}
}

// gather appends queued batches to an entry of one batch. It returns the first
// batch that must not be in the same group; nil: there is none.
func (p *proposals) gather(e *entry) (next *proposal) {
	keys := map[store.Key]struct{}{}
	join := func(q *proposal) bool {
		for i := range q.ops {
			if _, taken := keys[q.ops[i].Key]; taken {
				return false
			}
		}
		for i := range q.ops {
			keys[q.ops[i].Key] = struct{}{}
		}
		return true
	}
	for len(e.batches) < store.MaxGroup {
		select {
		case q, ok := <-p.queue:
			switch {
			case !ok:
				return nil
			case q.ops == nil:
				return q
			case len(e.batches) == 1:
				join(e.batches[0])
			}
			if !join(q) {
				return q
			}
			e.batches = append(e.batches, q)
		default:
			return nil
		}
	}
	return nil
}

// data returns the encoded log entry.
func (e *entry) data() []byte {
	if len(e.batches) == 1 {
		return e.batches[0].data
	}
	all := make([][]byte, len(e.batches))
	for i, p := range e.batches {
		all[i] = p.data
	}
	return store.EncodeGroup(all)
}

// completeProposals completes proposals with their outcome from Raft.
func (r *Replica) completeProposals() {
	for e := range r.proposals.sent {
		replies, err := r.outcome(e)
		if e.grouped {
			<-r.proposals.groups
		}
		for i, p := range e.batches {
			if p.err = err; err == nil {
				p.result, p.err = replies[i].Result, replies[i].Err
			}
			r.proposals.remove(len(p.data))
			p.data, p.ops = nil, nil
			close(p.done)
			r.outstanding.Add(-1)
		}
	}
}

// outcome returns the reply to each batch of an entry, or the error of all.
func (r *Replica) outcome(e *entry) ([]store.Reply, error) {
	if err := e.future.Error(); err != nil {
		return nil, r.proposalError(err)
	}
	switch response := e.future.Response().(type) {
	case store.Result:
		if len(e.batches) == 1 {
			return []store.Reply{{Result: response}}, nil
		}
	case []store.Reply:
		if len(e.batches) == len(response) {
			return response, nil
		}
	case error:
		return nil, response
	}
	return nil, fmt.Errorf("%w: unexpected response %T from the state machine", store.ErrUnknown, e.future.Response())
}

// proposalError converts Raft's error about a proposal.
func (r *Replica) proposalError(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrLeadershipTransferInProgress):
		return r.notLeader()
	default: // a disk error too: the entry may be on disk despite it
		return fmt.Errorf("%w: %w", store.ErrUnknown, err)
	}
}

// notLeader returns ErrNotLeader, with the leader's ID if another server leads.
func (r *Replica) notLeader() error {
	if _, id := r.raft.LeaderWithID(); id != "" && string(id) != r.cfg.ID {
		return fmt.Errorf("%w: the leader is %s", store.ErrNotLeader, id)
	}
	return store.ErrNotLeader
}
