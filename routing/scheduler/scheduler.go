// Package scheduler runs thousands of recurring jobs with a bounded number of
// goroutines: one that waits for the next due job, and one per running job, up
// to a limit. Health checks and name lookups use it.
//
//	s := scheduler.New(64)
//	e := s.Add(func(ctx context.Context) (time.Duration, bool) {
//		err := probe(ctx)
//		return scheduler.Jitter(2*time.Second), err == nil
//	})
//	s.Remove(e)
//	s.Close()
//
// Jobs that failed last time take at most half of the limit: they tend to use
// up their timeouts, and must not delay the others.
package scheduler

import (
	"container/heap"
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// A Job does its work and returns how long after its start it is due again
// (never before it has ended), and whether it succeeded. Runs of one job never
// overlap. Its ctx ends when it is removed or the scheduler is closed.
type Job func(ctx context.Context) (again time.Duration, ok bool)

// Entry is a job in a scheduler. Its fields are guarded by the scheduler's mutex.
type Entry struct {
	job     Job
	due     time.Time
	index   int // in the heap
	place   place
	failing bool               // failed last time
	cancel  context.CancelFunc // while running
}

// place is the location of an entry.
type place uint8

const (
	waiting place = iota // in the heap, not due yet
	queued               // due, in a queue
	running
	removed // not scheduled any more, but perhaps still in a queue or running
)

// Scheduler runs jobs when they are due.
type Scheduler struct {
	limit  int
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // the heap has a new first entry
	done   sync.WaitGroup

	mu      sync.Mutex
	waiting entries
	due     queue // succeeded last time, or never ran
	failing queue // failed last time
	workers int
	// failingWorkers is the number of workers that run a job from failing.
	failingWorkers int
}

// New returns a scheduler that runs up to limit jobs at once.
func New(limit int) *Scheduler {
	s := &Scheduler{limit: max(limit, 1), wake: make(chan struct{}, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.done.Go(s.schedule)
	return s
}

// Add schedules a job; it is due at once. After Close it never runs.
func (s *Scheduler) Add(job Job) *Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &Entry{job: job}
	s.wait(e, time.Now())
	return e
}

// Remove unschedules a job. If it is running its ctx ends; Remove does not
// wait.
func (s *Scheduler) Remove(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.place {
	case waiting:
		heap.Remove(&s.waiting, e.index)
	case running:
		e.cancel()
	case queued, removed:
	}
	e.place = removed
}

// Close cancels all running jobs and waits for them.
func (s *Scheduler) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.done.Wait()
}

// wait puts e into the heap.
func (s *Scheduler) wait(e *Entry, due time.Time) {
	e.due, e.place = due, waiting
	heap.Push(&s.waiting, e)
	if e.index == 0 {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// schedule moves due entries to the queues until the scheduler is closed.
func (s *Scheduler) schedule() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		if next := s.collect(time.Now()); !next.IsZero() {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
	}
}

// collect queues due entries, starts workers for them, and returns when the
// next one is due.
func (s *Scheduler) collect(now time.Time) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) > 0 && !s.waiting[0].due.After(now) {
		e := heap.Pop(&s.waiting).(*Entry)
		e.place = queued
		if e.failing {
			s.failing.push(e)
		} else {
			s.due.push(e)
		}
	}
	s.startWorkers()
	if len(s.waiting) > 0 {
		next = s.waiting[0].due
	}
	return next
}

// startWorkers starts workers while there is work and the limits allow it.
func (s *Scheduler) startWorkers() {
	for s.workers < s.limit && s.ctx.Err() == nil {
		e := s.take()
		if e == nil {
			return
		}
		s.workers++
		s.done.Go(func() { s.work(e) })
	}
}

// take returns the entry to run next, the one that has been due longest, or
// nil.
func (s *Scheduler) take() *Entry {
	due, failing := s.due.head(), s.failing.head()
	if s.failingWorkers >= max(s.limit/2, 1) {
		failing = nil
	}
	switch {
	case due == nil && failing == nil:
		return nil
	case failing == nil || due != nil && due.due.Before(failing.due):
		return s.due.pop()
	default:
		s.failingWorkers++
		return s.failing.pop()
	}
}

// work runs e, and then due entries until there are none.
func (s *Scheduler) work(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e != nil {
		s.run(e)
		if s.ctx.Err() != nil {
			break
		}
		e = s.take()
	}
	s.workers-- // entries that are still queued wait for a failing job's slot, whose worker takes them
}

// run runs e with the lock released.
func (s *Scheduler) run(e *Entry) {
	wasFailing := e.failing
	if e.place != removed {
		var ctx context.Context
		ctx, e.cancel = context.WithCancel(s.ctx)
		e.place = running
		s.mu.Unlock()
		start := time.Now()
		again, ok := e.job(ctx)
		now := time.Now()
		s.mu.Lock()
		e.cancel()
		e.failing = !ok
		if e.place != removed {
			if due := start.Add(again); due.After(now) {
				now = due
			}
			s.wait(e, now)
		}
	}
	if wasFailing {
		s.failingWorkers--
	}
}

// Jitter returns d +-10 % at random, so that jobs that started together do not
// stay in step.
func Jitter(d time.Duration) time.Duration { return spread(d, rand.Float64()) }

// spread returns 0.9 d for x = 0 and 1.1 d for x = 1.
func spread(d time.Duration, x float64) time.Duration {
	return time.Duration(float64(d) * (0.9 + 0.2*x))
}
