package store

import (
	"context"
	"sync"
)

// Memory is an in-memory store for a single node. All methods are safe for
// concurrent use.
type Memory struct {
	limits Limits

	mu       sync.Mutex
	snapshot Snapshot
	changed  chan struct{} // closed by the next change, then replaced
}

// NewMemory returns an empty store.
func NewMemory(limits Limits) *Memory {
	return &Memory{limits: limits, changed: make(chan struct{})}
}

// Snapshot returns the current content.
func (m *Memory) Snapshot() Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.snapshot
}

// Propose applies or refuses the batch before it returns; Wait reports the
// outcome, as with any store. A batch that changes nothing still takes an
// index; a refused or repeated one does not.
func (m *Memory) Propose(ctx context.Context, b *Batch) (Pending, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next, result, err := m.snapshot.Apply(m.snapshot.index+1, b, m.limits)
	if err == nil && !result.Repeated {
		m.snapshot = next
		close(m.changed)
		m.changed = make(chan struct{})
	}
	return resolved{result, err}, nil
}

// Commit proposes a batch and waits for its result.
func (m *Memory) Commit(ctx context.Context, b *Batch) (Result, error) {
	p, err := m.Propose(ctx, b)
	if err != nil {
		return Result{}, err
	}
	return p.Wait(ctx)
}

// resolved is a Pending with a result.
type resolved struct {
	result Result
	err    error
}

// Wait returns at once.
func (d resolved) Wait(context.Context) (Result, error) { return d.result, d.err }

// Wait returns the first snapshot it sees whose index is above after. Changes
// between two calls are coalesced.
func (m *Memory) Wait(ctx context.Context, after uint64) (Snapshot, error) {
	for {
		m.mu.Lock()
		snapshot, changed := m.snapshot, m.changed
		m.mu.Unlock()
		if snapshot.index > after {
			return snapshot, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Snapshot{}, ctx.Err()
		}
	}
}
