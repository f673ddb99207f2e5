package consensus

import (
	"context"
	"sync"
)

// Memory is the store of a single node: it forgets everything when the
// process ends. All methods may be called from anywhere.
type Memory struct {
	limits Limits

	mu      sync.Mutex
	view    Snapshot
	changed chan struct{} // closed by the next change, then replaced
}

// NewMemory makes an empty store.
func NewMemory(limits Limits) *Memory {
	return &Memory{limits: limits, changed: make(chan struct{})}
}

// Snapshot is the store's content now.
func (m *Memory) Snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.view
}

// Propose takes a batch, which acts before any that is proposed later. Here it
// has acted, or has been refused, when Propose returns; what became of it is
// for Wait to say, as with any store. Batches that change nothing act all the
// same; those that are refused or come again take no index.
func (m *Memory) Propose(ctx context.Context, b *Batch) (Pending, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next, result, err := m.view.Apply(m.view.index+1, b, m.limits)
	if err == nil && !result.Repeated {
		m.view = next
		close(m.changed)
		m.changed = make(chan struct{})
	}
	return done{result, err}, nil
}

// Commit proposes a batch and waits for it.
func (m *Memory) Commit(ctx context.Context, b *Batch) (Result, error) {
	p, err := m.Propose(ctx, b)
	if err != nil {
		return Result{}, err
	}
	return p.Wait(ctx)
}

// done is a batch that waits no longer.
type done struct {
	result Result
	err    error
}

// Wait returns at once.
func (d done) Wait(context.Context) (Result, error) { return d.result, d.err }

// Wait returns the first view it sees whose index is above after. Changes
// that came between two calls are seen as one.
func (m *Memory) Wait(ctx context.Context, after uint64) (Snapshot, error) {
	for {
		m.mu.Lock()
		view, changed := m.view, m.changed
		m.mu.Unlock()
		if view.index > after {
			return view, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Snapshot{}, ctx.Err()
		}
	}
}
