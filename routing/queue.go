package routing

import (
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"penstock/routing/balance"
	"penstock/routing/endpoint"
	"penstock/routing/resource"
)

// queue holds the connections and requests of a service that wait until its
// circuit breaker allows another one. Whoever frees a slot gives it to the first
// that can use it, so nobody polls, and nobody who comes later is faster.
//
// No wake-up is lost: a waiter is in the queue, and counted in waiting, before it
// tries for a slot the last time, and a slot is free before its owner looks at
// waiting. So one of the two sees the other.
type queue struct {
	waiting atomic.Int32 // number of waiters
	limits  atomic.Pointer[queueLimits]
	// Since start: those that had to wait, those that found no place, and those that
	// waited in vain.
	queued, overflows, timeouts atomic.Uint64

	mu    sync.Mutex
	lines []*line
	last  uint64 // number of the newest waiter
	// latest is the whole service in its newest version. Waiters use its endpoints:
	// they may wait for the very ones that a change adds.
	latest *backend
}

// queueLimits bounds a queue.
type queueLimits struct {
	length  int
	timeout time.Duration
}

// line is the waiters that the same slots would serve, in order of arrival. A
// service has one for each subset, for connections and for requests.
type line struct {
	backend *backend // nil: the whole service
	kind    endpoint.Kind
	waiters list.List // of *waiter
	tried   bool      // in this round, in vain
}

// waiter is the place of one connection or request. The queue's lock guards it.
type waiter struct {
	trial    Decision // a copy, which gets the endpoint
	member   int
	number   uint64
	deadline time.Time
	wake     func()
	line     *line
	place    *list.Element // nil once it has left
	reason   Reason        // why it is refused; OK: it has an endpoint
}

// setBreaker brings the service's bounds and its queue up to date.
func (s *serviceState) setBreaker(spec *resource.CircuitBreaker) {
	if spec == nil {
		s.group.SetBreaker(nil)
		s.queue.limits.Store(nil)
		return
	}
	s.group.SetBreaker(&endpoint.Breaker{Service: bounds(&spec.Service), Endpoint: bounds(&spec.Endpoint)})
	s.queue.limits.Store(&queueLimits{length: *spec.Queue, timeout: spec.QueueTimeout.D()})
}

func bounds(b *resource.CircuitBounds) endpoint.Bounds {
	value := func(n *int) int {
		if n == nil {
			return 0
		}
		return *n
	}
	return endpoint.Bounds{Connections: value(b.Connections), Requests: value(b.Requests), Pending: value(b.Pending)}
}

// setLatest makes the waiters use a new version of the service.
func (q *queue) setLatest(b *backend, now time.Time) {
	q.mu.Lock()
	q.latest = b
	q.mu.Unlock()
	q.serve(now)
}

// serve gives free slots to waiters. It costs one atomic load if there are none.
func (q *queue) serve(now time.Time) {
	if q.waiting.Load() == 0 {
		return
	}
	q.mu.Lock()
	woken := q.grant(now, nil)
	q.mu.Unlock()
	wakeAll(woken)
}

func wakeAll(woken []*waiter) {
	for _, w := range woken {
		w.wake()
	}
}

// grant gives free slots to waiters in order of arrival, and returns those that
// have an endpoint, or are refused because there is none any more, without own.
// The caller holds the lock.
func (q *queue) grant(now time.Time, own *waiter) (woken []*waiter) {
	for _, l := range q.lines {
		l.tried = false
	}
	for {
		l := q.next()
		if l == nil {
			return woken
		}
		w := l.waiters.Front().Value.(*waiter)
		if w.reason = q.try(w, now); w.reason == Overflow {
			l.tried = true
			continue
		}
		q.remove(w)
		if w != own {
			woken = append(woken, w)
		}
	}
}

// next returns the line, among those not tried, whose first waiter came first.
func (q *queue) next() *line {
	var first *line
	var number uint64
	for _, l := range q.lines {
		if w := l.waiters.Front().Value.(*waiter); !l.tried && (first == nil || w.number < number) {
			first, number = l, w.number
		}
	}
	return first
}

// try tries to get an endpoint for a waiter.
func (q *queue) try(w *waiter, now time.Time) (reason Reason) {
	if w.line.backend == nil && q.latest != nil {
		w.trial.backend = q.latest
	}
	w.member, reason = w.trial.pick(&balance.Query{Now: now, Hash: w.trial.hash})
	return reason
}

// remove takes a waiter out of the queue.
func (q *queue) remove(w *waiter) {
	w.line.waiters.Remove(w.place)
	w.place = nil
	q.waiting.Add(-1)
	if w.line.waiters.Len() > 0 {
		return
	}
	for i, l := range q.lines {
		if l == w.line {
			q.lines = append(q.lines[:i], q.lines[i+1:]...)
			return
		}
	}
}

// join appends a waiter. It does not wait if it has an endpoint already, or if it is
// refused with another reason than OK. What the waiter says of that itself, another
// goroutine may change at once.
func (q *queue) join(d *Decision, now time.Time, wake func()) (w *waiter, waits bool, reason Reason) {
	limits := q.limits.Load()
	if limits == nil {
		limits = &queueLimits{} // the breaker has just been removed: slots are free
	}
	w = &waiter{wake: wake, deadline: now.Add(limits.timeout), trial: Decision{
		service: d.service, backend: d.backend, hash: d.hash, request: d.request,
	}}
	q.mu.Lock()
	length := int(q.waiting.Load())
	q.last++
	w.number, w.line = q.last, q.lineOf(d)
	w.place = w.line.waiters.PushBack(w)
	q.waiting.Add(1)
	woken := q.grant(now, w)
	switch {
	case w.place == nil:
	case length >= limits.length:
		w.reason = Overflow
		q.remove(w)
		q.overflows.Add(1)
	default:
		q.queued.Add(1)
	}
	waits, reason = w.place != nil, w.reason
	q.mu.Unlock()
	wakeAll(woken)
	return w, waits, reason
}

// lineOf returns the line for a decision.
func (q *queue) lineOf(d *Decision) *line {
	b := d.backend
	if b.tags == nil {
		b = nil
	}
	for _, l := range q.lines {
		if l.backend == b && l.kind == d.kind() {
			return l
		}
	}
	l := &line{backend: b, kind: d.kind()}
	q.lines = append(q.lines, l)
	return l
}

// Enqueue waits for a slot after Next has returned Overflow. It returns the
// longest time to wait, after which, or when wake has been called, Next is to be
// called again; 0: at once. Until then nothing but Closed may be called. wake may
// be called from any goroutine, also after the wait is over, and must not block.
func (d *Decision) Enqueue(now time.Time, wake func()) (wait time.Duration, reason Reason) {
	q := &d.service.queue
	if w := d.waiter; w != nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		if w.place == nil {
			return 0, OK
		}
		return max(w.deadline.Sub(now), 1), OK
	}
	w, waits, refused := q.join(d, now, wake)
	if !waits && refused != OK {
		d.countUnavailable()
		return 0, refused
	}
	d.waiter = w
	if !waits {
		return 0, OK
	}
	return max(w.deadline.Sub(now), 1), OK
}

// Waiting reports whether the connection is in the queue.
func (d *Decision) Waiting() bool { return d.waiter != nil }

// endWait is Next for a decision in the queue.
func (d *Decision) endWait(now time.Time) (*endpoint.Endpoint, Reason) {
	q, w := &d.service.queue, d.waiter
	q.mu.Lock()
	if w.place != nil {
		if now.Before(w.deadline) {
			q.mu.Unlock()
			return nil, Overflow
		}
		q.remove(w)
		w.reason = QueueTimeout
		q.timeouts.Add(1)
	}
	q.mu.Unlock()
	d.waiter = nil
	if w.reason != OK {
		d.countUnavailable()
		return nil, w.reason
	}
	if d.attempts == 0 {
		d.began = endpoint.Stamp(now)
	}
	if d.backend != w.trial.backend {
		d.backend, d.tried = w.trial.backend, balance.Set{} // another version of the service
	}
	d.probe = w.trial.probe
	d.take(w.member)
	return d.endpoint, OK
}

// leaveQueue gives up the place in the queue, or the endpoint that it brought.
func (d *Decision) leaveQueue() {
	w := d.waiter
	if w == nil {
		return
	}
	d.waiter = nil
	q := &d.service.queue
	q.mu.Lock()
	waits := w.place != nil
	if waits {
		q.remove(w)
	}
	q.mu.Unlock()
	if !waits && w.reason == OK {
		w.trial.take(w.member)
		w.trial.release()
	}
}

// QueueStats describes the queue of a service's circuit breaker.
type QueueStats struct {
	Waiting int // now
	// Since start: those that had to wait, those that were refused because the queue
	// was full, and those that waited in vain.
	Queued, Overflows, Timeouts uint64
}

// Queue returns the state of the queue.
func (s *Service) Queue() QueueStats {
	q := &s.queue
	return QueueStats{int(q.waiting.Load()), q.queued.Load(), q.overflows.Load(), q.timeouts.Load()}
}

// text describes a queue for people.
func (q *queue) text() string {
	limits := q.limits.Load()
	if limits == nil || limits.length == 0 {
		return "there is no queue"
	}
	return fmt.Sprintf("%d of %d places in the queue are taken", q.waiting.Load(), limits.length)
}

// room reports whether the queue has a place.
func (q *queue) room() bool {
	limits := q.limits.Load()
	return limits != nil && int(q.waiting.Load()) < limits.length
}

// ServeQueue looks for slots that became free by the passing of time alone, such
// as by the end of a pause. It should be called about once a second.
func (s *Service) ServeQueue(now time.Time) { s.queue.serve(now) }
