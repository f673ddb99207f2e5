package catalog

import (
	"context"
	"sync"

	"penstock/consensus/store"
)

// manualStore is a store whose batches stay pending until the test lets them
// pass, as in a replicated store.
type manualStore struct {
	*store.Memory

	mu      sync.Mutex
	passing bool
	held    []*heldBatch
	sent    chan struct{} // closed by the next proposal, then replaced
}

// heldBatch is a pending batch.
type heldBatch struct {
	batch  *store.Batch
	done   chan struct{}
	result store.Result
	err    error
}

func newManualStore() *manualStore {
	return &manualStore{Memory: store.NewMemory(store.Limits{}), passing: true, sent: make(chan struct{})}
}

func (s *manualStore) Propose(_ context.Context, b *store.Batch) (store.Pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &heldBatch{batch: b, done: make(chan struct{})}
	s.held = append(s.held, w)
	close(s.sent)
	s.sent = make(chan struct{})
	if s.passing {
		s.decideHeld(func(*store.Batch) error { return nil })
	}
	return w, nil
}

func (w *heldBatch) Wait(ctx context.Context) (store.Result, error) {
	select {
	case <-w.done:
		return w.result, w.err
	case <-ctx.Done():
		return store.Result{}, ctx.Err()
	}
}

// hold holds up all later proposals.
func (s *manualStore) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passing = false
}

// waitHeld waits until n batches are pending.
func (s *manualStore) waitHeld(ctx context.Context, n int) error {
	for {
		s.mu.Lock()
		got, sent := len(s.held), s.sent
		s.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-sent:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// release lets all batches pass, the pending ones first. A batch for which fate
// returns an error does not apply and gets that error.
func (s *manualStore) release(fate func(*store.Batch) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.passing = true
	s.decideHeld(fate)
}

func (s *manualStore) decideHeld(fate func(*store.Batch) error) {
	for _, w := range s.held {
		if w.err = fate(w.batch); w.err == nil {
			w.result, w.err = s.Commit(context.Background(), w.batch)
		}
		close(w.done)
	}
	s.held = nil
}
