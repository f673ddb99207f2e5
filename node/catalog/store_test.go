package catalog

import (
	"context"
	"sync"

	"penstock/consensus"
)

// road is a store whose batches stay pending until the test lets them pass, as
// in a replicated store.
type road struct {
	*consensus.Memory

	mu     sync.Mutex
	open   bool
	onRoad []*traveller
	sent   chan struct{} // closed by the next proposal, then replaced
}

// traveller is a pending batch.
type traveller struct {
	batch  *consensus.Batch
	done   chan struct{}
	result consensus.Result
	err    error
}

func newRoad() *road {
	return &road{Memory: consensus.NewMemory(consensus.Limits{}), open: true, sent: make(chan struct{})}
}

func (r *road) Propose(_ context.Context, b *consensus.Batch) (consensus.Pending, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := &traveller{batch: b, done: make(chan struct{})}
	r.onRoad = append(r.onRoad, w)
	close(r.sent)
	r.sent = make(chan struct{})
	if r.open {
		r.pass(func(*consensus.Batch) error { return nil })
	}
	return w, nil
}

func (w *traveller) Wait(ctx context.Context) (consensus.Result, error) {
	select {
	case <-w.done:
		return w.result, w.err
	case <-ctx.Done():
		return consensus.Result{}, ctx.Err()
	}
}

// close holds up all later proposals.
func (r *road) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = false
}

// waiting waits until n batches are pending.
func (r *road) waiting(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		got, sent := len(r.onRoad), r.sent
		r.mu.Unlock()
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

// reopen lets all batches pass, the pending ones first. A batch for which fate
// returns an error does not apply and gets that error.
func (r *road) reopen(fate func(*consensus.Batch) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open = true
	r.pass(fate)
}

func (r *road) pass(fate func(*consensus.Batch) error) {
	for _, w := range r.onRoad {
		if w.err = fate(w.batch); w.err == nil {
			w.result, w.err = r.Commit(context.Background(), w.batch)
		}
		close(w.done)
	}
	r.onRoad = nil
}
