package otlp

import (
	"context"
	"time"
)

const (
	// maxBatch bounds the items of a request, and maxBatchBytes their size, more or less:
	// collectors refuse messages over 4 MiB.
	maxBatch      = 2048
	maxBatchBytes = 1 << 20
	// DefaultDelay is how long an item waits for others.
	DefaultDelay = time.Second
)

// queue holds items until a goroutine of its own has sent them.
type queue[T any] struct {
	*sender
	items chan T
	delay time.Duration // how long an item waits for others
	size  func(T) int   // bytes, more or less
	send  func(ctx context.Context, batch []T) error
	rest  *T // did not fit into the batch before
}

func newQueue[T any](s *sender, length int, delay time.Duration, size func(T) int, send func(context.Context, []T) error) *queue[T] {
	q := &queue[T]{sender: s, items: make(chan T, length), delay: delay, size: size, send: send}
	q.queued = func() int { return len(q.items) }
	return q
}

// put queues an item, or drops and counts it. It does not block.
func (q *queue[T]) put(item T) {
	select {
	case q.items <- item:
	default:
		q.counts.drop(QueueFull, 1)
	}
}

// run sends items until stop is closed, and then those that are queued, until ctx ends.
func (q *queue[T]) run(ctx context.Context) {
	for {
		batch, more := q.next()
		if len(batch) > 0 {
			q.deliver(ctx, len(batch), func(ctx context.Context) error { return q.send(ctx, batch) })
		}
		if !more || q.ended {
			q.counts.drop(Stopped, q.left())
			return
		}
	}
}

// left empties the queue and returns how many items it had.
func (q *queue[T]) left() int {
	n := 0
	if q.rest != nil {
		q.rest, n = nil, 1
	}
	for {
		select {
		case <-q.items:
			n++
		default:
			return n
		}
	}
}

// next waits for items and returns a batch; more: there may be others.
func (q *queue[T]) next() (batch []T, more bool) {
	bytes := 0
	add := func(item T) bool {
		size := q.size(item)
		if len(batch) > 0 && bytes+size > maxBatchBytes {
			q.rest = &item
			return false
		}
		batch, bytes = append(batch, item), bytes+size
		return len(batch) < maxBatch
	}
	if q.rest != nil {
		item := *q.rest
		q.rest = nil
		add(item)
	}
	if len(batch) == 0 {
		select {
		case item := <-q.items:
			add(item)
		case <-q.stop:
			return q.drain(add, &batch)
		}
	}
	timer := time.NewTimer(q.delay)
	defer timer.Stop()
	for {
		select {
		case item := <-q.items:
			if !add(item) {
				return batch, true
			}
		case <-timer.C:
			return batch, true
		case <-q.stop:
			return q.drain(add, &batch)
		}
	}
}

// drain adds what is queued without waiting for more.
func (q *queue[T]) drain(add func(T) bool, batch *[]T) ([]T, bool) {
	for {
		select {
		case item := <-q.items:
			if !add(item) {
				return *batch, true
			}
		default:
			return *batch, false
		}
	}
}
